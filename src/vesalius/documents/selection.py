"""Which part of all scored edges or components is kept as the circuit, by which rule, and how faithful that is."""

from typing import Literal

from vesalius.documents.base import Record
from vesalius.documents.checks import Curve, faithfulness_chart
from vesalius.documents.view import Section, Sheet, Text

#: Rules by which a circuit is cut out of scores.
RULES = ("top", "greedy", "exact", "bootstrap", "positive-ratio")


class RuleFigures(Record):
    """What one rule keeps at the budget.

    `size` is the number of edges or components kept, `value` the sum of the magnitudes of their scores and
    `faithfulness` how much of the behaviour they keep on the held-out prompts, as the whole `curve` over budgets does;
    None where that was not measured.
    """

    rule: str
    size: int
    value: float
    faithfulness: float | None = None
    curve: Curve | None = None


class Selection(Record):
    """A circuit cut to a budget of `budget` out of `candidates` edges or components.

    The first of `rules` made the circuit; the others stand beside it for comparison. `least_kept`: the budget is the
    smallest at which the first rule keeps this share of the behaviour on the discovery's own prompts (None: the budget
    was given). `missing` says why no faithfulness was measured.
    """

    by: Literal["edges", "components"]
    budget: int
    candidates: int
    least_kept: float | None = None
    rules: tuple[RuleFigures, ...]
    missing: str | None = None
    seconds: float

    @property
    def rule(self) -> RuleFigures:
        """The one that made the circuit."""
        return self.rules[0]

    def sections(self) -> list[Section]:
        """What each rule keeps at the budget, and its faithfulness over budgets."""
        why = f", the smallest budget that keeps {self.least_kept:g} of the behaviour" if self.least_kept else ""
        intro = (
            f"The circuit holds at most {self.budget} of {self.candidates:,} {self.by}{why}, chosen by the "
            f"rule {self.rule.rule}. An edge counts only on a path from the embedding to the logits."
            + (f" Faithfulness was not measured: {self.missing}." if self.missing else "")
        )
        rows = [
            (row.rule, row.size, row.value, row.faithfulness, row.curve and row.curve.cmd, row.curve and row.curve.cpr)
            for row in self.rules
        ]
        columns = ("selected by", f"{self.by} kept", "sum of scores", "faithfulness", "cmd", "cpr")
        curves = {row.rule: row.curve for row in self.rules if row.curve is not None}
        caption = "Faithfulness on held-out prompts of the circuit that each rule keeps at every budget."
        charts = [faithfulness_chart(curves, caption=caption)] if curves else []
        return [Text([intro]), Sheet(columns, rows), *charts]
