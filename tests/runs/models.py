"""Scripted models and runs of the stand-in agent inside the test's own process."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.runs import stand_in
from tests.runs.test_circuits import grade_stub
from vesalius.runs.directory import Run
from vesalius.runs.engine import attempt
from vesalius_backbones.runs.steps import RunLimits
from vesalius_bench.circuits import benchmark as circuits
from vesalius_bench.circuits.selection import benchmark_circuits, first
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_bench.circuits.work import ToGrade

#: Says something that depends on the question, to whoever asks; judges give 1 to everything.
SCRIPT = """
import hashlib

def reply(request):
    if request.label.startswith("judge"):
        return {"json": {"reason": "because", "score": 1}}
    return "answer " + hashlib.sha256(request.messages[-1].text.encode()).hexdigest()[:12]
"""
#: A dollar per thousand tokens, so that a call costs cents.
PRICES = {"schema": 1, "date": "2026-11-01", "models": {"scripted:*": {"input": 1000.0, "output": 1000.0}}}


def serial(work: Callable[[Any], Any], cases: Iterable[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
    """An engine in this process, with the same failures; grading is a stand-in."""
    for case in cases:
        yield case, attempt(grade_stub if isinstance(case, ToGrade) else work, case)


def write_model(place: Path, *, faults: float = 0.0) -> tuple[str, str]:
    """A scripted model and its prices in a directory; `faults` is how often a call goes wrong."""
    (place / "model.py").write_text(SCRIPT + (f"\nfaults = {{'p': {faults}, 'seed': 4}}\n" if faults else ""))
    (place / "prices.json").write_text(json.dumps(PRICES))
    return f"scripted:{place / 'model.py'}", str(place / "prices.json")


def settings(
    place: Path, *, cases: int = 4, faults: float = 0.0, judges: int = 0, judge: str = "", **changes: Any
) -> BenchmarkSettings:
    """The settings of a run of the stand-in agent, judged by the same model so many times or by another."""
    model, prices = write_model(place, faults=faults)
    panel = (judge,) if judge else (model,) * judges
    asked = {"scientist": stand_in.NAME, "backbone": model, "prices": prices, "judges": panel}
    return BenchmarkSettings(circuits=tuple(first(benchmark_circuits(), cases)), **{**asked, **changes})


def perform(
    directory: Path, chosen: BenchmarkSettings, *, max_cost: float | None = None, engine: Any = serial, jobs: int = 1
) -> dict[str, Any]:
    """The whole benchmark, or what is left of it."""
    directory.mkdir(exist_ok=True)
    limits = RunLimits(max_cost=max_cost)
    with Run(directory, settings=chosen.as_data(), notes=chosen.notes(), limits=limits.as_data()) as run:
        benchmark = circuits.CircuitsBenchmark(run, chosen, limits=limits, engine=engine)
        for _ in benchmark.work(jobs=jobs):
            pass
        return benchmark.scorecard().as_data()


def results(run: Path) -> dict[str, bytes]:
    """Every file that says what came out."""
    files = [run / "scorecard.json", *run.glob("explanations/*"), *run.glob("traces/*")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}
