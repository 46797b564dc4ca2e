"""What the ledger of a benchmark says: the latest result of every step of every case, what failed, and what calls used.

Every benchmark replays its ledger through `LedgerState`. It names its steps in order; a new result (or failure) of the
first step makes everything known of the case void, because the later steps were about the old one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from vesalius.backbones import Totals
from vesalius.documents.base import first_error
from vesalius.documents.scorecard import CaseError
from vesalius.errors import BadInput, shortened
from vesalius.runs.ledger import REMEDY, Record

FAILED = "failed"


@dataclass(frozen=True)
class LedgerStep:
    """A step of a benchmark: its name, the event that its results are written under, and what is kept of a record."""

    name: str
    event: str
    result: Callable[[Record], Any]


class LedgerState:
    """A run so far. `results` is by step and case, `failed` and `used` by case and step, the latest of each."""

    def __init__(self, steps: Sequence[LedgerStep], records: Iterable[Record] = ()) -> None:
        self._steps = steps
        self.results: dict[str, dict[Any, Any]] = {step.name: {} for step in steps}
        self.failed: dict[tuple[Any, str], CaseError] = {}
        self.used: dict[tuple[Any, str], Totals] = {}
        for number, record in enumerate(records, 1):
            try:
                self.note(record)
            except (AttributeError, LookupError, TypeError, ValueError) as error:  # ledgers without checksums are read
                why = first_error(error) if isinstance(error, ValidationError) else f"{type(error).__name__}: {error}"
                raise BadInput(
                    f"events.jsonl, record {number}: is not one of this benchmark ({shortened(why, 160)}); {REMEDY}"
                ) from None

    def note(self, record: Record) -> None:
        """Take one record in."""
        step = self._step(record)
        if step is None:
            return
        case = self.key(record)
        if step is self._steps[0]:
            self._forget(case)
        if record["event"] == FAILED:
            named = {name: record.get(name) for name in ("step", "method")}
            self.failed[case, step.name] = CaseError(
                case=record["case"], kind=record["kind"], reason=record["reason"], **named
            )
        else:
            self.results[step.name][case] = step.result(record)
            self.failed.pop((case, step.name), None)
        if record.get("used"):
            self.used[case, step.name] = Totals.model_validate(record["used"])

    def key(self, record: Record) -> Any:
        """What a record is about: its case."""
        return record.get("case", "")

    def total(self, step: str | None = None, case: str | None = None) -> Totals:
        """What calls used, over all cases and steps or one of them."""
        return Totals.together(
            used
            for (whose, which), used in sorted(self.used.items())
            if step in (None, which) and case in (None, whose)
        )

    @property
    def first_failure(self) -> str:
        """Why the first case failed, for a run that has no result at all."""
        return next((error.reason for error in self.failed.values()), "nothing was run")

    @property
    def errors(self) -> tuple[CaseError, ...]:
        """Every failure, by case and step."""
        return tuple(error for _, error in sorted(self.failed.items()))

    def _step(self, record: Record) -> LedgerStep | None:
        if record["event"] == FAILED:
            name = record.get("step", self._steps[0].name)
            return {step.name: step for step in self._steps}[name]
        return next((step for step in self._steps if step.event == record["event"]), None)

    def _forget(self, case: Any) -> None:
        for step in self._steps:
            self.results[step.name].pop(case, None)
            self.failed.pop((case, step.name), None)
