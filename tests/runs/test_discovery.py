"""The discovery benchmark: figures do not depend on jobs or on kills, and a case that fails is an error."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.closeness import assert_same_document
from tests.forked import forked
from vesalius.documents.scorecard import AREAS
from vesalius.errors import BadInput, Failed
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine, Failure
from vesalius_bench.circuits.selection import CircuitCase, benchmark_circuits
from vesalius_bench.discovery.benchmark import (
    DiscoveryBenchmark,
    DiscoverySettings,
    DiscoveryState,
    discovery_scorecard,
)
from vesalius_bench.discovery.cases import run_case

pytestmark = pytest.mark.slow


def settings(
    circuits: Iterable[CircuitCase], methods: tuple[str, ...] = ("sweep", "eap"), n: int = 4
) -> DiscoverySettings:
    return DiscoverySettings(tuple(circuits), methods, n, 1)


def here(work: Callable[[Any], Any], cases: Iterable[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
    """Cases in this process."""
    for case in cases:
        try:
            result = work(case)
        except BadInput as error:
            result = Failure("refused", str(error))
        yield case, result


def performed(
    place: Path, asked: DiscoverySettings, *, jobs: int = 1, engine: Engine | None = None
) -> tuple[dict[str, Any], list[str]]:
    """A whole run, or what is left of one: the scorecard, and the cases that were run."""
    place.mkdir(exist_ok=True)
    with Run(place, settings=asked.as_data(), notes=asked.notes()) as run:
        benchmark = DiscoveryBenchmark(run, asked, engine=engine)
        done = [f"{event.step} {event.case}" for event in benchmark.work(jobs=jobs)]
        return benchmark.scorecard().as_data(), done


def untimed(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: untimed(value) for key, value in document.items() if key not in ("seconds", "work_seconds")}
    return [untimed(value) for value in document] if isinstance(document, list) else document


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    """The figures of two circuits by two methods, made here case by case."""
    asked = settings(benchmark_circuits(["3", "8"]))
    state = DiscoveryState()
    for case in asked.cases:
        figures = run_case(case).model_dump(mode="json")
        state.note({"event": "discovered", "method": case.method.name, "case": case.id, "figures": figures})
    return discovery_scorecard(asked, state).as_data()


def test_the_scorecard_follows_the_contract(card: dict[str, Any]) -> None:
    assert {"benchmark", "subject", "n", "n_error", "metrics", "cost", "seconds", "schema"} <= set(card)
    for method, figures in card["methods"].items():
        assert {"node_auroc", "edge_auroc", "cmd", "cpr", "jaccard", "forwards", "seconds"} <= set(figures)
        for name in AREAS:
            area = figures[name]
            if name.startswith("edge") and method == "sweep":
                assert area is None
                assert f"{method}.{name}" not in card["metrics"]
                continue
            assert {"value", "low", "high", "n", "baseline"} <= set(area)
            assert (area["statistic"], figures[f"{name}_mean"]["statistic"]) == ("median", "mean")
            assert area["low"] <= area["value"] <= area["high"]
            assert card["metrics"][f"{method}.{name}"] == area
            assert card["metrics"][f"{method}.{name}_mean"] == figures[f"{name}_mean"]
        assert figures["node_auroc"]["baseline"] == 0.5
        assert figures["cmd"]["value"] < figures["cmd"]["baseline"]
        assert figures["cpr"]["value"] > figures["cpr"]["baseline"]
        assert figures["jaccard"]["value"] > figures["jaccard"]["baseline"]
        assert figures["forwards"] > 1
    chance = [card["methods"][method]["cmd"]["baseline"] for method in ("sweep", "eap")]
    assert chance[0] == pytest.approx(chance[1])  # the same random rankings for every method


def test_jobs_and_a_kill_change_nothing(tmp_path: Path, card: dict[str, Any]) -> None:
    asked = settings(benchmark_circuits(["3", "8"]))
    whole, _ = performed(tmp_path / "whole", asked, jobs=2)
    assert_same_document(untimed(whole), untimed(card))
    ledger = (tmp_path / "whole" / "events.jsonl").read_bytes().splitlines(keepends=True)
    assert len(ledger) == 4
    for kept in (0, 1, 3):
        place = tmp_path / f"killed{kept}"
        place.mkdir()
        (place / "run.json").write_bytes((tmp_path / "whole" / "run.json").read_bytes())
        (place / "events.jsonl").write_bytes(b"".join(ledger[:kept]) + ledger[kept][:20])
        again, done = performed(place, asked, engine=here)  # type: ignore[arg-type]
        assert len(done) == 4 - kept
        assert_same_document(untimed(again), untimed(whole))


@pytest.mark.slow
def test_sigkill_loses_at_most_the_cases_under_way(tmp_path: Path) -> None:
    command = ["-m", "vesalius", "bench", "discovery", "--methods", "sweep", "--limit", "4"]
    command += ["--n", "4", "--jobs", "1", "--json", "--out", str(tmp_path / "run")]
    first = subprocess.Popen(forked(*command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    events = tmp_path / "run" / "events.jsonl"
    while first.poll() is None and not (events.exists() and events.read_bytes().count(b"\n")):
        time.sleep(0.02)
    if first.poll() is None:
        os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = events.read_bytes().count(b"\n")
    again = subprocess.run(forked(*command), capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["methods"]["sweep"]["n"] == 4
    assert before >= 1
    assert events.read_bytes().count(b"\n") == 4


def test_failures_enter_no_figure_and_are_tried_again(tmp_path: Path) -> None:
    circuits = benchmark_circuits(["3"])
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "model.safetensors").write_bytes(b"")
    asked = settings([*circuits, replace(circuits[0], id="gone", directory=gone)])
    runs: list[list[str]] = []
    for _ in range(2):
        found, done = performed(tmp_path / "run", asked, engine=here)  # type: ignore[arg-type]
        assert (found["n"], found["n_error"]) == (2, 1)
        assert {error["case"] for error in found["errors"]} == {"gone"}
        for figures in found["methods"].values():
            assert (figures["n"], figures["n_error"], figures["node_auroc"]["n"]) == (1, 1, 1)
        assert [set(case["methods"]) for case in found["cases"]] == [{"sweep", "eap"}, set()]
        runs.append(done)
    assert runs[1] == ["sweep gone", "eap gone"]
    nothing = settings([replace(circuits[0], id="gone", directory=gone)])
    with pytest.raises(Failed, match="no circuit could be discovered"):
        performed(tmp_path / "nothing", nothing, engine=here)  # type: ignore[arg-type]


def test_another_request_is_refused(tmp_path: Path) -> None:
    asked = settings(benchmark_circuits(["3"]), ("sweep",))
    performed(tmp_path, asked, engine=here)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="prompts 4, not 5"):
        performed(tmp_path, replace(asked, n=5))
    with pytest.raises(BadInput, match="hard"):
        performed(tmp_path, replace(asked, hard=True))


def test_large_models_are_pruned_on_fewer_prompts() -> None:
    from vesalius.discovery import pruning

    case = settings(benchmark_circuits(["3"]), ("acdc",), n=12).cases[0]
    assert run_case(case).prompts == 12
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "LARGE_EDGES", 100)
        assert run_case(case).prompts == pruning.LARGE_PROMPTS


def test_refusals() -> None:
    circuits = benchmark_circuits(["3"])
    with pytest.raises(BadInput, match="`methods`: magic"):
        settings(circuits, ("magic",))
    with pytest.raises(BadInput, match="none named"):
        settings(circuits, ())
    with pytest.raises(BadInput, match="twice"):
        settings(circuits, ("eap", "eap"))
    with pytest.raises(BadInput, match="no circuits"):
        settings([])
    with pytest.raises(BadInput, match="is for `methods` eap-ig"):
        replace(settings(circuits), steps=20)
    with pytest.raises(BadInput, match="at least 2"):
        settings(circuits, n=1)
