"""A run of the functions benchmark, looked through while it goes on or afterwards.

The answer key's rule: what a function is, and how an answer compares with it, is said once the whole run is graded, and
nothing of it before.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import Scorecard
from vesalius.documents.trace import Text
from vesalius.errors import BadInput, choices
from vesalius.report.layout import drawn
from vesalius.runs.directory import (
    EVENTS,
    EXPLANATIONS,
    RUN,
    SCORECARD,
    document_or_none,
    inside,
    is_run,
    read_scorecard,
    require_benchmark,
    worker_of,
)
from vesalius.runs.kinds import run_state
from vesalius.runs.ledger import read_ledger
from vesalius_backbones.runs.conversation import LONGEST, MOST_CALLS
from vesalius_backbones.runs.watching import Watcher
from vesalius_functions.bench.scorecard import case_figures, deciding, is_failure
from vesalius_functions.bench.settings import GRADES, INTERPRET, FunctionState
from vesalius_functions.bench.work import Interpreted
from vesalius_functions.documents import (
    Drawing,
    FunctionCase,
    FunctionKey,
    FunctionRow,
    FunctionsRun,
)
from vesalius_functions.page import asked_of, function_case

__all__ = ["functions_run", "one_function"]
#: Queries of one function that are listed.
MOST_ASKED = 200


def functions_run(run: str | Path) -> FunctionsRun:
    """Every function of a run of `vesalius bench functions`: how far it is and, once the run is graded, its score."""
    directory = _directory(run)
    settings = require_benchmark(directory, "functions")["settings"]
    state, card = _state(directory), _card(directory)
    worker = worker_of(directory)
    ids = settings.get("ids")
    count = len(ids) if isinstance(ids, list) else settings.get("count")
    return FunctionsRun(
        run=directory.name,
        state=run_state(directory, worker),
        category=str(settings.get("category", ""))[:40],
        interpreter=str(settings.get("interpreter", ""))[:100],
        backbone=None if settings.get("backbone") is None else Path(str(settings["backbone"])).name[:200],
        step="" if worker is None else worker.step,
        started=None if worker is None else worker.started,
        done=len(state.interpreted),
        total=count if isinstance(count, int) else None if card is None else card.n + card.n_error,
        cost=state.total().cost,
        graded=card is not None,
        metrics={} if card is None else dict(card.metrics),
        functions=tuple(_row(state, case, graded=card is not None) for case in _cases(state)),
    )


def one_function(run: str | Path, function: str, *, watcher: Watcher | None = None) -> FunctionCase:
    """One function of such a run: the answer, the queries, the dialogue and, once the run is graded, the truth."""
    directory = _directory(run)
    require_benchmark(directory, "functions")
    known = list(_state(directory).interpreted)
    if function not in known:
        raise BadInput(f"function {function[:60]!r}: not interpreted in this run; it has {choices(known)}")
    interpreted = document_or_none(Interpreted, inside(directory, EXPLANATIONS, f"{function}.json"))
    if interpreted is None:
        raise BadInput(f"{EXPLANATIONS}/{function}.json: is missing or damaged; the same command makes it again")
    talk = (watcher or Watcher()).conversation(directory, function)
    answer, card = interpreted.answer, _card(directory)
    return FunctionCase(
        id=function,
        description=_cut(answer.description),
        domain=_cut(answer.domain or ""),
        code=_cut(answer.code or ""),
        asked=asked_of(interpreted, MOST_ASKED),
        n_asked=len(interpreted.log),
        calls=tuple(talk.calls[:MOST_CALLS]),
        n_calls=len(talk.calls),
        problems=tuple(talk.problems),
        key=None if card is None else _key(directory, function, card),
    )


def _key(directory: Path, function: str, card: Scorecard) -> FunctionKey | None:
    inside(directory, GRADES, f"{function}.json")
    failure = next((row for row in card.failures or () if row.id == function), None)
    case = function_case(directory, function, failure)
    if case is None:
        return None
    return FunctionKey(
        family=case.family,
        truth=case.truth,
        right=not case.failed,
        score=case.value,
        scores=case.scores,
        fault=case.fault,
        drawing=None if case.curves is None else Drawing.model_validate(asdict(drawn(case.curves))),
        examples=case.examples,
        tests=case.tests,
    )


def _row(state: FunctionState, case: str, *, graded: bool) -> FunctionRow:
    failed = next((error for (whose, _), error in state.failed.items() if whose == case), None)
    taken = state.interpreted.get(case)
    common: dict[str, Any] = {"id": case, "problem": "" if failed is None else failed.reason[:400]}
    if taken is None:
        return FunctionRow(**common, state="failed")
    common |= {"queries": taken.queries, "seconds": taken.seconds}
    if not graded or case not in state.graded:
        return FunctionRow(**common)
    figures = case_figures(state, case)
    decision = deciding(figures)
    return FunctionRow(**common, score=None if decision is None else decision[1], right=not is_failure(figures))


def _cases(state: FunctionState) -> list[str]:
    """Functions with an answer or a failure, in the order of their names."""
    failed = {case for case, step in state.failed if step == INTERPRET}
    return sorted({*state.interpreted, *failed})


def _state(directory: Path) -> FunctionState:
    path = inside(directory, EVENTS)
    return FunctionState(read_ledger(path) if path.is_file() else ())


def _card(directory: Path) -> Scorecard | None:
    """The figures of the run, there once everything is graded."""
    return read_scorecard(directory) if inside(directory, SCORECARD).is_file() else None


def _directory(run: str | Path) -> Path:
    directory = Path(run)
    if not is_run(directory):
        raise BadInput(f"run {directory.name}: no run there (expected {RUN})")
    inside(directory, RUN)
    return directory


def _cut(text: str) -> Text:
    return Text(text=text[:LONGEST], length=len(text))
