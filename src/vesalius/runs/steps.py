"""What every benchmark does that takes its cases through steps: deal them out, keep each result at once, mind the cap.

A benchmark says what a step is, how a result is kept and how a failure is noted; the rest is here. When the spending
cap is reached no further case is begun, those under way come to their end, and the run stops.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from vesalius.backbones import CapReached
from vesalius.errors import Failed
from vesalius.runs.directory import CALLS, SPENDING, Run
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius.runs.settings import Limits
from vesalius.runs.spending import Purse
from vesalius.runs.work import Line, totals


@dataclass(frozen=True)
class Progress:
    """One more case of a step is done; `cost` is what all calls so far cost, None if that is not known."""

    step: str
    case: str
    done: int
    total: int
    cost: float | None = 0.0


class Steps(ABC):
    """The part of a benchmark that does not know what its cases are.

    `line` may change how a case reaches a language model: replay puts its records in place.
    """

    def __init__(
        self,
        run: Run,
        *,
        prices: str | None,
        limits: Limits | None,
        engine: Engine | None,
        line: Callable[[Line], Line],
    ) -> None:
        self.run, self.limits = run, limits or Limits()
        self._prices, self._engine, self._line = prices, engine or map_cases, line
        self._capped: str | None = None

    @abstractmethod
    def _note_failure(self, step: str, case: str, failure: Failure) -> None:
        """Write a failure down."""

    @abstractmethod
    def _cost(self) -> float | None:
        """What all calls so far cost."""

    @abstractmethod
    def _finished(self) -> str:
        """How far the run came, in words."""

    def _each(
        self,
        step: str,
        work: Callable[[Any], Any],
        cases: Sequence[Any],
        keep: Callable[[Any, Any], None],
        *,
        of: int,
        jobs: int,
    ) -> Generator[Progress]:
        """One step over its cases: every result is kept, every failure noted."""
        done = of - len(cases)
        with closing(self._engine(work, self._until_capped(cases), jobs=jobs)) as results:
            for case, result in results:
                if isinstance(result, Failure):
                    if result.kind == CapReached.kind:
                        self._capped = self._capped or result.reason
                    self._note_failure(step, case.id, result)
                else:
                    keep(case, result)
                done += 1
                yield Progress(step, case.id, done, of, self._cost())
        if self._capped:
            raise Failed(f"{self._capped} ({self._finished()})")

    def _until_capped(self, cases: Sequence[Any]) -> Iterator[Any]:
        for case in cases:
            if self._capped:
                return
            yield case

    def _reach(self, model: str, case: str, role: str = "") -> Line:
        """How a case reaches a model, and where its calls are recorded."""
        line = Line(
            model,
            self.run.calls_path(case, role),
            prices=self._prices,
            cap=self.limits.max_cost,
            purse=self.run.directory / SPENDING,
        )
        return self._line(line)

    def _open_purse(self) -> None:
        """Begin the cap's counter from what the records say, where there is a cap."""
        if self.limits.max_cost is not None:
            calls = sorted((self.run.directory / CALLS).glob("*.jsonl"))
            Purse(self.run.directory / SPENDING).begin({path.name: totals(path).at_most for path in calls})
