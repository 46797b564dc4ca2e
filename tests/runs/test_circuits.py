"""The benchmark survives being killed anywhere, and its scorecard does not depend on how it came about."""

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import vesalius_programs
from tests.grading.explanations import explained, truth
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput, Failed
from vesalius.explanations.scientists import Builtin, Explained, Task, explain_task
from vesalius.runs import steps
from vesalius.runs.directory import Run, read_explanation
from vesalius.runs.engine import Failure
from vesalius.runs.ledger import Ledger
from vesalius_bench.circuits import benchmark
from vesalius_bench.circuits.benchmark import CircuitsBenchmark
from vesalius_bench.circuits.selection import benchmark_circuits
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_bench.circuits.work import ToExplain, ToGrade
from vesalius_truth.grading.circuits import CircuitGrade, Graded
from vesalius_truth.grading.programs import ComponentScore, ProgramGrade
from vesalius_truth.grading.tags import NULLS, tag_rows

IDS = ["3", "8", "46"]


def settings(**changes: Any) -> BenchmarkSettings:
    return BenchmarkSettings(circuits=tuple(benchmark_circuits(changes.pop("ids", IDS))), **changes)


def explain_stub(case: ToExplain) -> Explained:
    return Explained(truth(case.id) if case.id == "3" else explained(case.id, executable=None))


def grade_stub(case: ToGrade) -> tuple[CircuitGrade, float]:
    """Figures that follow from the case, without a model."""
    explanation = read_explanation(case.explanation)
    tags = tag_rows(explanation, {part.id: part.tag for part in explanation.components})
    share = 1.0 if explanation.executable else 0.0
    score = ComponentScore(iia=share, iia_changed=share, chance=0.0, chance_changed=0.0)
    program = ProgramGrade(
        components=dict.fromkeys(tags, score), task_agreement=share, task_exact=share == 1.0, n=10, seed=1
    )
    own = Graded(tags=tags, program=program)
    return CircuitGrade(own=own, nulls=dict.fromkeys(NULLS, own)), 0.25


def serially(order: Callable[[Sequence[Any]], Sequence[Any]] = list) -> Callable[..., Iterator[tuple[Any, Any]]]:
    """An engine in this process; finishes the cases that there are before any of them has in any order one likes."""

    def engine(work: Callable[[Any], Any], cases: Iterator[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
        while given := list(takewhile(lambda case: case is not None, cases)):
            for case in order(given):
                yield case, work(case)

    return engine


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "explain_case", explain_stub)
    monkeypatch.setattr(benchmark, "grade_case", grade_stub)
    monkeypatch.setattr(steps, "map_cases", serially())


def perform(directory: Path, **changes: Any) -> dict[str, Any]:
    """The whole benchmark, or what is left of it."""
    chosen = settings(**changes)
    directory.mkdir(exist_ok=True)
    with Run(directory, settings=chosen.as_data()) as run:
        bench = CircuitsBenchmark(run, chosen)
        for _ in bench.work(jobs=1):
            pass
        return bench.scorecard().as_data()


def killed_at(moment: int, directory: Path) -> bool:
    """The benchmark in a child that kills itself at the n-th write of anything; whether it got that far."""
    child = os.fork()
    if child == 0:
        writes = 0
        write, replace = os.write, os.replace

        def dying_write(file: int, data: bytes) -> int:
            nonlocal writes
            writes += 1
            if writes == moment:
                write(file, data[: len(data) * (moment % 3) // 2])  # nothing, half, or all of it
                os.kill(os.getpid(), signal.SIGKILL)
            return write(file, data)

        def dying_replace(source: Any, target: Any) -> None:
            nonlocal writes
            writes += 1
            if writes == moment:
                if moment % 2:
                    replace(source, target)
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.write, os.replace = dying_write, dying_replace  # pyrefly: ignore[bad-assignment]
        perform(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_killed_at_any_moment_it_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    perform(tmp_path / "whole")
    expected = (tmp_path / "whole" / "scorecard.json").read_bytes()
    moment = 0
    while killed_at(moment := moment + 1, tmp_path / f"killed{moment}"):
        perform(tmp_path / f"killed{moment}")
        assert (tmp_path / f"killed{moment}" / "scorecard.json").read_bytes() == expected
    # run.json, an explanation file and its record per circuit, a record per grade, and the scorecard.
    assert moment - 1 == 1 + 2 * len(IDS) + len(IDS) + 1


def test_killed_again_and_again(tmp_path: Path) -> None:
    perform(tmp_path / "whole")
    lives = 0
    while killed_at(3, tmp_path / "run"):
        lives += 1
        assert lives < 20
    assert lives > 2
    assert (tmp_path / "run/scorecard.json").read_bytes() == (tmp_path / "whole/scorecard.json").read_bytes()


def test_the_order_of_results_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perform(tmp_path / "one")
    monkeypatch.setattr(steps, "map_cases", serially(lambda cases: list(reversed(cases))))
    perform(tmp_path / "two")
    assert (tmp_path / "one/scorecard.json").read_bytes() == (tmp_path / "two/scorecard.json").read_bytes()


def test_a_circuit_is_graded_while_others_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two workers one has the held circuit until nothing else is left. Circuit 3 has two components, so that it
    neither lends nor borrows a program; 8 and 46 have one each, and wait for each other.
    """
    done: list[tuple[str, str]] = []

    def holding(held: str) -> Callable[..., Iterator[tuple[Any, Any]]]:
        def engine(work: Callable[[Any], Any], cases: Iterator[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
            kept = []
            for case in cases:
                if isinstance(case, ToExplain) and case.id == held:
                    kept.append(case)
                    continue
                case = kept.pop() if case is None else case
                done.append(("explain" if isinstance(case, ToExplain) else "grade", case.id))
                yield case, work(case)

        return engine

    for held in ("3", "46"):
        monkeypatch.setattr(steps, "map_cases", holding(held))
        perform(tmp_path / held)
    first, second = done[: 2 * len(IDS)], done[2 * len(IDS) :]
    assert [step for step in first if step[1] != "3"] == first[:4]
    assert first[4:] == [("explain", "3"), ("grade", "3")]
    assert second[:2] == [("explain", "3"), ("grade", "3")]
    assert second[2:4] == [("explain", "8"), ("explain", "46")]
    assert {step for step, _ in second[4:]} == {"grade"}


def test_the_scorecard_by_hand(tmp_path: Path) -> None:
    """Circuit 3 (two components) has its program, 8 and 46 (one each) have none; every tag is right."""
    card = perform(tmp_path / "run")
    assert {name: card[name] for name in ("benchmark", "subject", "schema", "n", "n_error", "cost")} == {
        "benchmark": "circuits",
        "subject": "builtin",
        "schema": 2,
        "n": 3,
        "n_error": 0,
        "cost": 0.0,
    }
    assert card["seconds"] == 3 * (1.5 + 0.25)
    metrics = card["metrics"]
    for name, value, n in (
        ("tag_accuracy", 1.0, 4),
        ("component_iia", 0.5, 4),
        ("component_iia_changed", 0.5, 4),
        ("component_iia_changed_mean", 0.5, 4),
        ("task_exact", 0.333333, 3),
    ):
        assert (metrics[name]["value"], metrics[name]["n"]) == (value, n)
    assert metrics["tag_accuracy"]["baseline"] == 0.75  # the indicator is no MAPPER
    assert [row["value"] for row in card["baselines"]["tag_accuracy"]] == [0.75, 0.5, 0.79]
    assert set(card["nulls"]) == set(NULLS)
    assert [row["id"] for row in card["specimens"]] == IDS
    assert json.loads((tmp_path / "run" / "scorecard.json").read_text()) == card


def test_failures_are_counted_kept_apart_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def failing(work: Callable[[Any], Any], cases: Sequence[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
        for case in cases:
            tried.append(case.id)
            yield case, Failure("killed", "its process ended with SIGKILL") if case.id == "8" else work(case)

    monkeypatch.setattr(steps, "map_cases", failing)
    card = perform(tmp_path / "run")
    assert (card["n"], card["n_error"]) == (2, 1)
    assert card["errors"] == [
        {"case": "8", "step": "explain", "kind": "killed", "reason": "its process ended with SIGKILL"}
    ]
    assert card["metrics"]["tag_accuracy"]["n"] == 3
    assert tried == ["3", "3", "8", "46", "46"]  # those of one component may borrow from one another
    monkeypatch.setattr(steps, "map_cases", serially())
    perform(tmp_path / "whole")
    perform(tmp_path / "run")
    assert (tmp_path / "run/scorecard.json").read_bytes() == (tmp_path / "whole/scorecard.json").read_bytes()
    monkeypatch.setattr(steps, "map_cases", failing)
    with pytest.raises(Failed, match="no circuit could be explained and graded; the first: its process ended"):
        perform(tmp_path / "none", ids=["8"])


def test_a_lost_explanation_is_made_and_graded_again(tmp_path: Path) -> None:
    perform(tmp_path / "run")
    expected = (tmp_path / "run" / "scorecard.json").read_bytes()
    for damage in ("", "{}", '{"specimen": '):
        (tmp_path / "run" / "explanations" / "8.json").write_text(damage)
        perform(tmp_path / "run")
        assert (tmp_path / "run" / "scorecard.json").read_bytes() == expected
    with Ledger(tmp_path / "run" / "events.jsonl") as ledger:
        events = [(record["event"], record["case"]) for record in ledger.records]
    assert events.count(("explained", "8")) == events.count(("graded", "8")) == 4
    assert events.count(("explained", "3")) == 1


def test_a_family_that_does_not_exist_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(work: Callable[[Any], Any], cases: Sequence[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
        for case in cases:
            assert case.task.scientist == Builtin(leave_out="nosuch")
            yield case, Failure("refused", "family 'nosuch' does not exist")

    monkeypatch.setattr(steps, "map_cases", refusing)
    with pytest.raises(BadInput, match="family 'nosuch' does not exist"):
        perform(tmp_path / "run", leave_out="nosuch")


def test_a_left_out_family_reaches_the_scientist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[dict[str, Any]] = []

    def scientist(specimen: Any, **options: Any) -> Explanation:
        asked.append(options)
        return explained(specimen.id, executable=None)

    monkeypatch.setattr(vesalius_programs, "explain_specimen", scientist)
    (circuit,) = benchmark_circuits(["8"])
    for leave_out in (None, "table"):
        benchmark.explain_case(ToExplain(Task(circuit.id, circuit.directory, 5, Builtin(leave_out=leave_out))))
    options = {"seed": 5, "components": None, "progress": None}
    assert asked == [{**options, "without": frozenset()}, {**options, "without": frozenset({"table"})}]


def test_bad_settings() -> None:
    with pytest.raises(
        BadInput, match=r"'galen' does not exist; use builtin, command, hybrid, hyve(, \w+)* or package"
    ):
        settings(scientist="galen")
    with pytest.raises(BadInput, match="no circuits"):
        BenchmarkSettings(circuits=())


def test_circuits_can_be_discovered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def explain(specimen: Any, *, components: Any, **options: Any) -> Explanation:
        asked.append(components)
        return truth(specimen.id)

    monkeypatch.setattr(vesalius_programs, "explain_specimen", explain)
    circuit = benchmark_circuits(["3"])[0]
    task = Task("3", circuit.directory, circuit_from="sweep")
    result = explain_task(task)
    assert result.circuit is not None
    assert asked == [tuple(map(str, task.specimen().components))]
    monkeypatch.setattr(type(result.circuit), "chosen", lambda self: [])
    nothing = explain_task(task).explanation
    assert (nothing.specimen, nothing.components, len(asked)) == ("3", (), 1)
    assert explain_task(Task("3", circuit.directory)).circuit is None
    assert asked[1:] == [None]


def test_missed_and_extra_components_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grade(case: ToGrade) -> tuple[CircuitGrade, float]:
        graded, seconds = grade_stub(case)
        known = tuple(graded.own.tags)
        return graded.model_copy(update={"missed": known[:1], "extra": ("L1H0", "L1H1")}), seconds

    monkeypatch.setattr(benchmark, "grade_case", grade)
    card = perform(tmp_path / "run", circuit_from="sweep", ids=["3"])
    assert card["circuit_from"] == "sweep"
    assert (len(card["missed"]), card["extra"]) == (1, ["3/L1H0", "3/L1H1"])
    n = len(truth("3").components)
    assert card["metrics"]["circuit_recall"]["value"] == pytest.approx((n - 1) / n)
    assert card["metrics"]["circuit_precision"]["value"] == pytest.approx((n - 1) / (n + 1))
    assert "circuit_from" not in perform(tmp_path / "given", ids=["3"])
    with pytest.raises(BadInput, match="circuit_from 'sweep', not None"):
        perform(tmp_path / "run", ids=["3"])
