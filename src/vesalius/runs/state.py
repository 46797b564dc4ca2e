"""What the ledger of a benchmark says: which cases are explained, graded, judged or failed, and what they used."""

from dataclasses import dataclass, field
from typing import Any

from vesalius.backbones import Totals
from vesalius.grading.circuits import CircuitGrade
from vesalius.runs.work import judging_errors

EXPLAIN, GRADE, JUDGE = "explain", "grade", "judge"


@dataclass
class State:
    """The run so far. `failed` is by case and step; `used` by case and step, the latest figures."""

    explained: set[str] = field(default_factory=set)
    traced: set[str] = field(default_factory=set)
    graded: dict[str, tuple[CircuitGrade, float]] = field(default_factory=dict)
    judged: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    used: dict[tuple[str, str], Totals] = field(default_factory=dict)

    def note(self, record: dict[str, Any]) -> None:
        """Take one record in; a new explanation makes older grades, judgements and failures void."""
        case, event = record.get("case", ""), record["event"]
        if event == "explained":
            self._forget(case)
            self.explained.add(case)
            if record.get("traced"):
                self.traced.add(case)
        elif event == "graded":
            self.graded[case] = CircuitGrade.model_validate(record["grade"]), record["seconds"]
            self.failed.pop((case, GRADE), None)
        elif event == "judged":
            self.judged[case] = record["judged"]
            self.failed.pop((case, JUDGE), None)
        elif event == "failed":
            if record["step"] == EXPLAIN:
                self._forget(case)
            self.failed[case, record["step"]] = {name: record[name] for name in ("case", "step", "kind", "reason")}
        if record.get("used"):
            step = record.get("step") or {"explained": EXPLAIN, "judged": JUDGE}[event]
            self.used[case, step] = Totals.model_validate(record["used"])

    def settled(self, case: str) -> bool:
        """Whether a case is judged without an error of the machinery."""
        return case in self.judged and next(judging_errors(self.judged[case]), None) is None

    def total(self, step: str | None = None, case: str | None = None) -> Totals:
        """What calls used, over all cases and steps or one of them."""
        return Totals.together(
            used
            for (whose, which), used in sorted(self.used.items())
            if step in (None, which) and case in (None, whose)
        )

    def _forget(self, case: str) -> None:
        self.explained.discard(case)
        self.traced.discard(case)
        self.graded.pop(case, None)
        self.judged.pop(case, None)
        for step in (EXPLAIN, GRADE, JUDGE):
            self.failed.pop((case, step), None)
