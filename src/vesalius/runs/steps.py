"""What all benchmarks share: take cases through steps, keep each result at once, and round the figures.

A benchmark says what a step is and how a result is kept; the rest is here. After a failure of a kind that ends the run
(a spending cap that is reached, say) no further case is started, and those under way are finished.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from vesalius.documents.scorecard import Scorecard
from vesalius.errors import Failed
from vesalius.runs.directory import Run
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius.runs.ledger import FAILED, LedgerState
from vesalius.values import JsonObject


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


class CaseWithId(Protocol):
    """A case, whatever else it holds: the ledger knows it by its id."""

    @property
    def id(self) -> str: ...


Case = TypeVar("Case", bound=CaseWithId)
Result = TypeVar("Result")


@dataclass
class OpenStep:
    """A step under way: what its results are kept by, and how many of its cases are done."""

    name: str
    keep: Callable[[Any, Any], None]
    total: int
    done: int


class RunSettings(Protocol):
    """What decides the results of a run."""

    def as_data(self) -> JsonObject:
        """The settings as run.json holds and compares them."""
        ...

    def notes(self) -> JsonObject:
        """What is only written down."""
        ...


class Steps(ABC):
    """The part of a benchmark that does not know what its cases are."""

    #: Kinds of failures that end the run: the next case would fail in the same way.
    ENDING: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, run: Run, state: LedgerState, *, engine: Engine | None = None) -> None:
        self.run, self._ledger_state, self._engine = run, state, engine or map_cases
        self._ended: str | None = None

    @abstractmethod
    def work(self, *, jobs: int = 2) -> Generator[StepProgress]:
        """Do what is not done yet."""

    @abstractmethod
    def _finished(self) -> str:
        """How far the run came, in words."""

    def _used(self, step: str, case: str) -> JsonObject:
        """What the calls of a step on a case used, for its record; nothing where no model is called."""
        return {}

    def _label(self, step: str, case: Any) -> str:
        """What progress calls a case's step."""
        return step

    def _note(self, event: str, case: str, **fields: object) -> None:
        """Write an event to the ledger."""
        self._ledger_state.note(self.run.ledger.append(event, case=case, **fields))

    def _note_failure(self, step: str, case: Any, failure: Failure) -> None:
        """Write a failure to the ledger."""
        self._note(FAILED, case.id, step=step, kind=failure.kind, reason=failure.reason, **self._used(step, case.id))

    def _each(
        self,
        step: str,
        work: Callable[[Case], Result],
        cases: Sequence[Case],
        keep: Callable[[Case, Result], None],
        *,
        of: int,
        jobs: int,
    ) -> Generator[StepProgress]:
        """One step over its cases: every result is kept, every failure noted."""
        kept = OpenStep(step, keep, of, of - len(cases))
        yield from self._in_turn(work, cases, lambda case: kept, jobs=jobs)

    def _in_turn(
        self,
        work: Callable[[Case], object],
        cases: Iterable[Case | None],
        step_of: Callable[[Case], OpenStep],
        *,
        jobs: int,
    ) -> Generator[StepProgress]:
        """Cases of one step or of several, whose results may decide which cases follow; None waits for a result."""
        with closing(self._engine(work, self._until_ended(cases), jobs=jobs)) as results:
            for case, result in results:
                step = step_of(case)
                if isinstance(result, Failure):
                    if result.kind in self.ENDING:
                        self._ended = self._ended or result.reason
                    self._note_failure(step.name, case, result)
                else:
                    step.keep(case, result)
                step.done += 1
                cost = self._ledger_state.total().cost
                yield StepProgress(self._label(step.name, case), case.id, step.done, step.total, cost)
        if self._ended:
            raise Failed(f"{self._ended} ({self._finished()})")

    def _until_ended(self, cases: Iterable[Case | None]) -> Iterator[Any]:
        for case in cases:
            if self._ended:
                return
            yield case


class ScoredSteps(Steps):
    """A benchmark whose cases are summed up in a scorecard."""

    @abstractmethod
    def scorecard(self) -> Scorecard:
        """The figures, written to the run directory and returned."""


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of no values."""
    return sum(values) / len(values) if values else None


def rounded_card(card: Scorecard) -> Scorecard:
    """A scorecard with its figures rounded."""
    return Scorecard.from_data(six_places(card.as_data()))


def six_places(data: object) -> Any:
    """Figures to six places: what lies beyond is arithmetic, not measurement."""
    if isinstance(data, dict):
        return {name: six_places(value) for name, value in data.items()}
    if isinstance(data, list):
        return [six_places(value) for value in data]
    return round(data, 6) if isinstance(data, float) else data
