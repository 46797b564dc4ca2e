"""What the ledger of the circuits benchmark says: which circuits are explained, graded and judged."""

from collections.abc import Iterable, Mapping
from typing import Any

from vesalius.grading.circuits import CircuitGrade
from vesalius.runs.ledger import Record
from vesalius.runs.ledger_state import LedgerState, LedgerStep
from vesalius.runs.work import judging_errors

EXPLAIN, GRADE, JUDGE = "explain", "grade", "judge"


class State(LedgerState):
    """The state of the circuits benchmark."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        super().__init__(
            [
                LedgerStep(EXPLAIN, "explained", lambda record: bool(record.get("traced"))),
                LedgerStep(GRADE, "graded", _grade),
                LedgerStep(JUDGE, "judged", lambda record: record["judged"]),
            ],
            records,
        )

    @property
    def explained(self) -> Mapping[str, bool]:
        """The cases that are explained, and whether a trace of the explanation was kept."""
        return self.results[EXPLAIN]

    @property
    def graded(self) -> Mapping[str, tuple[CircuitGrade, float]]:
        """The grade of each case, and the seconds that grading took."""
        return self.results[GRADE]

    @property
    def judged(self) -> Mapping[str, dict[str, Any]]:
        """What the judges said, as data of a `JudgedCircuit`."""
        return self.results[JUDGE]

    def settled(self, case: str) -> bool:
        """Whether a case is judged without an error of the machinery."""
        return case in self.judged and next(judging_errors(self.judged[case]), None) is None


def _grade(record: Record) -> tuple[CircuitGrade, float]:
    return CircuitGrade.model_validate(record["grade"]), record["seconds"]
