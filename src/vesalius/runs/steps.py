"""What all benchmarks share: take cases through steps, keep each result at once, and respect the spending cap.

A benchmark says what a step is and how a result is kept; the rest is here. When the spending cap is reached no further
case is started, those under way are finished, and the run stops.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict, Unpack

from vesalius.backbones import CapReached
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import Failed
from vesalius.runs.directory import CALLS, SPENDING, Run
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius.runs.ledger import FAILED, LedgerState
from vesalius.runs.settings import RunLimits
from vesalius.runs.work import ModelAccess, SpendingFile, totals


@dataclass(frozen=True)
class StepProgress:
    """One more case of a step is done; `cost` is what all calls so far cost, None if that is not known."""

    step: str
    case: str
    done: int
    total: int
    cost: float | None = 0.0

    def label(self, names: Mapping[str, str], *, priced: bool) -> str:
        """The step and the case by its name and, where models are paid, the cost so far."""
        text = f"{self.step}: {names.get(self.case, self.case)}"
        if not priced:
            return text
        return f"{text}, cost so far {'unknown' if self.cost is None else f'${self.cost:.4f}'}"


class Options(TypedDict, total=False):
    """How a benchmark is run, whatever its cases are.

    `access` may change how a case reaches a language model: replay puts its records in place.
    """

    limits: RunLimits | None
    engine: Engine | None
    access: Callable[[ModelAccess], ModelAccess] | None


class RunSettings(Protocol):
    """What decides the results of a run."""

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        ...

    def notes(self) -> dict[str, Any]:
        """What is only written down."""
        ...


class Steps(ABC):
    """The part of a benchmark that does not know what its cases are."""

    def __init__(self, run: Run, state: LedgerState, *, prices: str | None = None, **options: Unpack[Options]) -> None:
        self.run, self.limits = run, options.get("limits") or RunLimits()
        self._ledger_state, self._prices = state, prices
        self._engine, self._access = options.get("engine") or map_cases, options.get("access")
        self._capped: str | None = None

    @abstractmethod
    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet."""

    @abstractmethod
    def _finished(self) -> str:
        """How far the run came, in words."""

    def _used(self, step: str, case: str) -> dict[str, Any]:
        """What the calls of a step on a case used, for its record; nothing where no model is called."""
        return {}

    def _label(self, step: str, case: Any) -> str:
        """What progress calls a case's step."""
        return step

    def _note(self, event: str, case: str, **fields: Any) -> None:
        """Write an event to the ledger."""
        self._ledger_state.note(self.run.ledger.append(event, case=case, **fields))

    def _note_failure(self, step: str, case: Any, failure: Failure) -> None:
        """Write a failure to the ledger."""
        self._note(FAILED, case.id, step=step, kind=failure.kind, reason=failure.reason, **self._used(step, case.id))

    def _each(
        self,
        step: str,
        work: Callable[[Any], Any],
        cases: Sequence[Any],
        keep: Callable[[Any, Any], None],
        *,
        of: int,
        jobs: int,
    ) -> Generator[StepProgress]:
        """One step over its cases: every result is kept, every failure noted."""
        done = of - len(cases)
        with closing(self._engine(work, self._until_capped(cases), jobs=jobs)) as results:
            for case, result in results:
                if isinstance(result, Failure):
                    if result.kind == CapReached.kind:
                        self._capped = self._capped or result.reason
                    self._note_failure(step, case, result)
                else:
                    keep(case, result)
                done += 1
                yield StepProgress(self._label(step, case), case.id, done, of, self._ledger_state.total().cost)
        if self._capped:
            raise Failed(f"{self._capped} ({self._finished()})")

    def _until_capped(self, cases: Sequence[Any]) -> Iterator[Any]:
        for case in cases:
            if self._capped:
                return
            yield case

    def _reach(self, model: str, case: str, role: str = "") -> ModelAccess:
        """How a case reaches a model, and where its calls are recorded."""
        access = ModelAccess(
            model,
            self.run.calls_path(case, role),
            prices=self._prices,
            cap=self.limits.max_cost,
            cap_file=self.run.directory / SPENDING,
            timeout=self.limits.timeout,
        )
        return access if self._access is None else self._access(access)

    def _open_cap(self) -> None:
        """Start the cap's counter from what the records say, where there is a cap."""
        if self.limits.max_cost is not None:
            calls = sorted((self.run.directory / CALLS).glob("*.jsonl"))
            SpendingFile(self.run.directory / SPENDING).begin({path.name: totals(path).at_most for path in calls})


class ScoredSteps(Steps):
    """A benchmark whose cases are summed up in a scorecard."""

    @abstractmethod
    def scorecard(self) -> Scorecard:
        """The figures, written to the run directory and returned."""
