"""Runs that ask a language model: what they cost, where the cap stops them, and that no failure is a wrong answer."""

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.runs import stand_in
from tests.runs.models import PRICES, perform, results, serial, settings
from tests.runs.stand_in import CALLS
from tests.runs.test_circuits import grade_stub
from vesalius.api import explain
from vesalius.cli.console import print_view
from vesalius.documents.metric import metric_sheet
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput, Failed
from vesalius.runs.comparing import differences, replay
from vesalius.runs.directory import read_explanation
from vesalius.runs.engine import map_cases
from vesalius_backbones.failures import KINDS, SystemClock
from vesalius_backbones.runs.access import no_connections, totals
from vesalius_backbones.runs.steps import RunLimits
from vesalius_bench.circuits import benchmark as circuits
from vesalius_bench.circuits.scorecard import State
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_bench.circuits.work import ToJudge
from vesalius_bench.papers.comparison import compare_runs

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: None)


def spent(run: Path) -> float:
    return sum(totals(path).at_most for path in (run / "calls").glob("*.jsonl"))


def test_what_a_run_used_by_hand(tmp_path: Path) -> None:
    """Six calls per circuit; tokens by the rule of the script, four bytes each; a dollar per thousand."""
    card = perform(tmp_path / "run", settings(tmp_path, cases=2))
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "run" / "calls").iterdir())
        for line in path.read_text().splitlines()
    ]
    calls = [line for line in lines if line["kind"] == "outcome"]
    said = [sum(len(message["text"]) // 4 + 1 for message in line["request"]["messages"]) for line in calls]
    heard = [len(line["outcome"]["answer"]["text"]) // 4 + 1 for line in calls]
    assert len(calls) == 2 * CALLS
    assert card["usage"]["scientist"] == {
        "calls": 2 * CALLS,
        "input_tokens": sum(said),
        "output_tokens": sum(heard),
        "cached_tokens": 0,
        "cost": pytest.approx((sum(said) + sum(heard)) / 1000),
    }
    assert card["usage"]["judges"]["calls"] == 0
    assert card["cost"] == card["usage"]["scientist"]["cost"]
    assert sum(row["cost"] for row in card["specimens"]) == pytest.approx(card["cost"])
    assert card["backbone"] == "scripted:model.py"
    # The traces: one execution per component, all supported at once.
    assert card["metrics"]["convergence"]["value"] == 1.0
    assert card["metrics"]["execution_success"]["n"] == card["metrics"]["tag_accuracy"]["n"]
    assert card["convergence_by_iteration"]["1"]["value"] == 1.0
    assert all(metric["n_error"] == 0 for metric in card["metrics"].values())


def test_a_price_that_is_not_known_is_no_price_of_zero() -> None:
    state = State()
    for case, cost in (("3", 0.5), ("4", None)):
        state.note({"event": "explained", "case": case, "used": {"calls": 2, "cost": cost, "at_most": 1.0}})
    assert state.total().cost is None
    assert state.total(case="3").cost == 0.5
    assert (state.total().calls, state.total().at_most) == (4, 2.0)


def test_keys_are_nowhere_in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key-0123456789")
    perform(tmp_path / "run", settings(tmp_path, cases=1))
    for path in (tmp_path / "run").rglob("*.json*"):
        assert "not-a-real-key" not in path.read_text()


@pytest.mark.parametrize("cap", [0.38, 0.45, 0.55])
def test_the_cap_ends_a_run_and_a_higher_one_takes_it_up(
    tmp_path: Path, cap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"scripted:*": {**PRICES["models"]["scripted:*"], "output": 1.0}}  # type: ignore[index]
    monkeypatch.setitem(PRICES, "models", small)
    whole = perform(tmp_path / "whole", settings(tmp_path))
    assert whole["cost"] == pytest.approx(0.324, abs=0.01)  # and the most of one call is 0.36
    with pytest.raises(Failed, match=r"cap \$.* is spent .* raise `max_cost` .* of 4 circuits are explained"):
        perform(tmp_path / "run", settings(tmp_path), max_cost=cap)
    assert spent(tmp_path / "run") <= cap
    with pytest.raises(Failed, match="cap"):  # still the same cap
        perform(tmp_path / "run", settings(tmp_path), max_cost=cap)
    assert spent(tmp_path / "run") <= cap
    assert json.loads((tmp_path / "run" / "run.json").read_text())["limits"]["max_cost"] == cap
    perform(tmp_path / "run", settings(tmp_path), max_cost=50.0)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["limits"]["max_cost"] == 50.0
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_the_cap_holds_over_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"scripted:*": {**PRICES["models"]["scripted:*"], "output": 1.0}}  # type: ignore[index]
    monkeypatch.setitem(PRICES, "models", small)
    monkeypatch.setattr(circuits, "grade_case", grade_stub)
    with pytest.raises(Failed, match="cap"):
        perform(tmp_path / "run", settings(tmp_path, cases=16), max_cost=1.2, engine=map_cases, jobs=3)
    assert 0.1 < spent(tmp_path / "run") <= 1.2


def test_a_bad_day_changes_nothing_but_the_number_of_tries(tmp_path: Path) -> None:
    """Three calls in ten go wrong: every failure is on record, none is an answer."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    fine = perform(good / "run", settings(good, cases=10))
    card = perform(bad / "run", settings(bad, cases=10, faults=0.3))
    assert (card["n"], card["n_error"]) == (10, 0)
    events = [
        event["kind"]
        for path in (bad / "run" / "calls").iterdir()
        for line in path.read_text().splitlines()
        for event in json.loads(line).get("outcome", {}).get("events", ())
    ]
    assert len(events) > 10
    assert card["metrics"] == fine["metrics"]
    for path in (good / "run" / "explanations").iterdir():
        ours, theirs = (json.loads((day / "run" / "explanations" / path.name).read_text()) for day in (good, bad))
        # An empty answer is paid for too; the request names the script, which is another file.
        assert {**ours, "cost": 0, "request": None} == {**theirs, "cost": 0, "request": None}


def test_failures_in_the_end_are_errors_and_tried_again(tmp_path: Path) -> None:
    terrible = settings(tmp_path, cases=10, faults=0.85)
    card = perform(tmp_path / "run", terrible)
    assert 0 < card["n_error"] < 10
    assert card["n"] + card["n_error"] == 10
    assert len(card["errors"]) == card["n_error"]
    assert {error["kind"] for error in card["errors"]} <= set(KINDS) - {"cap_reached", "not_recorded"}
    graded = {row["id"] for row in card["specimens"]}
    assert not graded & {error["case"] for error in card["errors"]}
    assert card["metrics"]["tag_accuracy"]["n"] == sum(row["components"] for row in card["specimens"])
    assert card["metrics"]["tag_accuracy"]["n_error"] == card["n_error"]
    found = replay(tmp_path / "run", engine=serial, trusted=True)
    assert found.differences == ()
    (tmp_path / "model.py").write_text((tmp_path / "model.py").read_text().replace("'p': 0.85", "'p': 0.0"))
    mended = perform(tmp_path / "run", terrible)
    assert (mended["n"], mended["n_error"], mended["errors"]) == (10, 0, [])


def test_replay_needs_no_model_and_no_network(tmp_path: Path) -> None:
    card = perform(tmp_path / "run", settings(tmp_path, judges=2))
    assert card["metrics"]["description_quality"]["value"] == 0.5
    assert card["metrics"]["task_accuracy"]["value"] == 1.0
    assert card["grounding_levels"] == {"2": 0.0, "1": 1.0, "0": 0.0}
    assert card["usage"]["judges"]["calls"] > 4 * 2
    (tmp_path / "model.py").unlink()
    found = replay(tmp_path / "run", engine=serial, trusted=True)
    assert found.equal
    assert found.scorecard.as_data() == card
    stored = json.loads((tmp_path / "run" / "scorecard.json").read_text())
    stored["metrics"]["tag_accuracy"]["value"] += 0.25
    (tmp_path / "run" / "scorecard.json").write_text(json.dumps(stored))
    (difference,) = replay(tmp_path / "run", engine=serial, trusted=True).differences
    assert difference.startswith("metrics.tag_accuracy.value: ")


def test_how_a_model_is_asked_is_part_of_a_run(tmp_path: Path) -> None:
    """Replies of at most nine tokens are another run, and a replay asks for the same; the address changes nothing."""
    chosen = settings(tmp_path, cases=1, compact=True, max_tokens=9)
    perform(tmp_path / "run", chosen)
    (calls,) = (tmp_path / "run" / "calls").glob("*.jsonl")
    requests = [json.loads(line)["request"] for line in calls.read_text().splitlines() if '"outcome"' in line]
    assert {request["settings"]["max_tokens"] for request in requests} == {9}
    assert replay(tmp_path / "run", engine=serial, trusted=True).equal
    assert chosen.request().options["max_tokens"] == 9
    assert chosen.request().options["compact"] is True
    with pytest.raises(BadInput, match="max_tokens"):
        perform(tmp_path / "run", settings(tmp_path, cases=1, compact=True))


def test_one_case_of_a_benchmark_is_explained_from_its_record(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=2)
    perform(tmp_path / "run", chosen)
    case = chosen.circuits[1].id
    before = read_explanation(tmp_path / "run" / "explanations" / f"{case}.json")
    (tmp_path / "model.py").unlink()
    again = explain(case, scientist=stand_in.NAME, backbone=chosen.backbone, replay=tmp_path / "run", progress=False)
    assert again.components == before.components
    assert again.task_description == before.task_description
    with pytest.raises(BadInput, match="no recorded calls there"):
        explain("113", scientist=stand_in.NAME, backbone=chosen.backbone, replay=tmp_path / "run", progress=False)


def test_replay_of_what_is_not_on_record(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=2)
    perform(tmp_path / "run", chosen)
    first, _ = sorted((tmp_path / "run" / "calls").iterdir())
    first.write_text("".join(line + "\n" for line in first.read_text().splitlines()[:-2]))
    found = replay(tmp_path / "run", engine=serial, trusted=True)
    assert found.scorecard.errors[0].kind == "not_recorded"
    assert not found.equal
    (tmp_path / "run" / "scorecard.json").unlink()
    with pytest.raises(BadInput, match="not finished"):
        replay(tmp_path / "run", engine=serial, trusted=True)


def test_replay_shuts_the_door_to_the_network() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    with no_connections():
        ours.sendall(b"x")  # a pair of local sockets is no network
        for reach in (
            lambda: socket.create_connection(listener.getsockname()),
            lambda: socket.getaddrinfo("localhost", 80),
        ):
            with pytest.raises(Failed, match="replay needs no network"):
                reach()
    socket.create_connection(listener.getsockname()).close()
    for open_socket in (listener, ours, theirs):
        open_socket.close()


def test_differences_leave_times_out() -> None:
    one = {"a": [1, {"b": 2.0}], "seconds": 3, "c": "x"}
    other = {"a": [1, {"b": 2.5}], "seconds": 4, "c": "x", "d": None}
    assert list(differences(one, other)) == ["a[1].b: 2.0 is stored, 2.5 came out"]


def test_an_interrupted_judgement_is_taken_up(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=2, judges=1)
    perform(tmp_path / "whole", chosen)
    dying: dict[str, int] = {"left": 1}

    def engine(work: Any, cases: Any, *, jobs: int = 2) -> Any:
        for case, result in serial(work, cases):
            if isinstance(case, ToJudge):
                dying["left"] -= 1
                if dying["left"] < 0:
                    raise KeyboardInterrupt
            yield case, result

    with pytest.raises(KeyboardInterrupt):
        perform(tmp_path / "run", chosen, engine=engine)
    perform(tmp_path / "run", chosen)
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    events = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in events].count("judged") == 2


def test_a_lost_trace_is_made_again_without_asking_anybody(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=2)
    perform(tmp_path / "run", chosen)
    before = results(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "traces")
    perform(tmp_path / "run", chosen)
    assert results(tmp_path / "run") == before
    assert sum(totals(path).calls for path in (tmp_path / "run" / "calls").iterdir()) == 2 * CALLS


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scientist": "hyve", "backbone": None}, "hyve needs a language model"),
        ({"scientist": "builtin"}, "asks no language model; add `scientist` hyve"),
        ({"scientist": "nowhere.at.all:explain"}, "No module named 'nowhere'"),
        ({"scientist": "tests.runs.stand_in:nobody"}, "has no attribute 'nobody'"),
        ({"scientist": "tests.runs.stand_in:TAGS"}, "is not a function"),
        ({"protocol": "free"}, "`protocol` 'free' does not exist; use typed, paper"),
        ({"leave_out": "tables"}, "`leave_out` cannot be given with `scientist`"),
        (
            {"scientist": "builtin", "backbone": None, "prices": None, "compact": True},
            "`compact` cannot be given with",
        ),
        ({"scientist": "builtin", "backbone": None, "prices": None, "max_tokens": 9}, "no language model is asked"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        settings(tmp_path, **changes)


def test_models_are_checked_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def check(*, max_cost: float | None = None, **changes: Any) -> None:
        chosen = settings(tmp_path, **changes)
        RunLimits(max_cost=max_cost).check_models(chosen.models, chosen.prices)

    check()
    with pytest.raises(BadInput, match="no such provider"):
        check(backbone="oracle:delphi")
    with pytest.raises(BadInput, match="no key; set OPENAI_API_KEY"):
        check(backbone="openai:gpt-5.4")
    with pytest.raises(BadInput, match="no such provider"):
        check(judge="oracle:delphi")
    monkeypatch.setenv("VESALIUS_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(BadInput, match="the price of compatible:mine is not known"):
        check(max_cost=1.0, backbone="compatible:mine")
    for nothing in (0.0, -1.0, float("nan")):
        with pytest.raises(BadInput, match="no call could be made"):
            RunLimits(max_cost=nothing)


def test_a_specimen_that_changed_is_named(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=2)
    moved = [shutil.copytree(circuit.directory, tmp_path / circuit.id) for circuit in chosen.circuits]
    here = tuple(
        type(circuit)(circuit.id, circuit.name, Path(place))
        for circuit, place in zip(chosen.circuits, moved, strict=True)
    )
    own = settings(tmp_path, cases=2)
    own = BenchmarkSettings(**{**vars(own), "circuits": here})
    perform(tmp_path / "run", own)
    shutil.rmtree(moved[1])
    with pytest.raises(BadInput, match=r"model.safetensors: No such file or directory; put it back or leave it out"):
        perform(tmp_path / "run", own)
    with pytest.raises(BadInput, match="holds a run with specimens"):
        perform(tmp_path / "run", BenchmarkSettings(**{**vars(own), "circuits": here[:1]}))
    with pytest.raises(BadInput, match="put it back"):
        replay(tmp_path / "run", engine=serial, trusted=True)


def test_a_run_of_another_version_is_refused(tmp_path: Path) -> None:
    chosen = settings(tmp_path, cases=1)
    perform(tmp_path / "run", chosen)
    path = tmp_path / "run" / "run.json"
    data = json.loads(path.read_text())
    data["settings"]["version"] = "0.0.1"
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match=r"holds a run with version '0.0.1'"):
        perform(tmp_path / "run", chosen)
    with pytest.raises(BadInput, match=r"made by version 0.0.1"):
        replay(tmp_path / "run", engine=serial, trusted=True)


def test_a_whole_run_that_fails_says_why(tmp_path: Path) -> None:
    hopeless = settings(tmp_path, cases=2, scientist=f"{stand_in.__name__}:hopeless")
    with pytest.raises(
        Failed, match=r"no circuit could be explained and graded; the first: circuit .*: nothing usable"
    ):
        perform(tmp_path / "run", hopeless)


def test_a_judge_without_a_score_is_asked_twice_and_no_table_prints_a_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "silent.py").write_text("def reply(request):\n    return 'well done'\n")
    perform(tmp_path / "run", settings(tmp_path, cases=1, judge=f"scripted:{tmp_path / 'silent.py'}"))
    data = json.loads((tmp_path / "run" / "scorecard.json").read_text())
    nothing = {"value": None, "low": None, "high": None, "n": 0}
    judged = ("description_quality", "task_accuracy", "plan_soundness", "grounding", "order_consistency")
    asked = 0
    for name in judged:
        metric = data["metrics"][name]
        assert {field: metric[field] for field in nothing} == nothing, name
        assert metric["n_error"] > 0
        asked += 0 if name == "order_consistency" else metric["n_error"]
    # Every text twice, in either order, and each of these asked again once.
    assert data["usage"]["judges"]["calls"] == asked * 2 * 2
    card = Scorecard.read(tmp_path / "run" / "scorecard.json")
    rows = {row["metric"]: row["value"] for row in metric_sheet(card.metrics).records()}
    assert [rows[name] for name in judged] == [None] * len(judged)
    assert {card.metrics[name].figures for name in judged} == {"no value"}
    print_view(card.view())
    lines = capsys.readouterr().out.split("\nMetrics\n")[1].splitlines()
    printed = {line.split()[0]: line.split() for line in lines if line.strip()}
    for name in judged:
        assert printed[name][:3] == [name, "–", "0"]
    figures = {sheet.id: sheet.rows[0][2] for sheet in compare_runs([tmp_path / "run"])}
    assert (figures["Table 2"]["description_quality"], figures["Table 10"]["plan_soundness"]) == (None, None)
    assert figures["Table 9"] == {"grounding": None, "fully": None, "partial": None}
