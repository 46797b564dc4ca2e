"""How reliably the functions of concepts and facts follow what they are: Table A1 and Figure A4 of their paper."""

import math
from typing import Literal

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.frozen import FrozenList, FrozenMap
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.scorecard import CallTotals
from vesalius.documents.view import Answer, Facts, Sheet, Text, View

RELIABILITY_FILE = "reliability.json"

#: The least reliable functions that are named.
WORST = 10


class ReliableFunction(Record):
    """One function: `rate` is the share of inputs on which it does what it is said to.

    Of an entity, `own` is the mean output over words of its concept and `random` that over words of other concepts; it
    is right above and below a half. Of a relation `facts` counts inputs that have an answer, and `undefined` those of
    its exception. `n_error` inputs got no usable reply and count as wrong.
    """

    id: str
    ABSENT_IF_DEFAULT = ("own", "random", "facts", "undefined")

    category: Literal["entities", "relations"]
    name: str
    rate: Metric
    own: float | None = None
    random: float | None = None
    facts: Metric | None = None
    undefined: Metric | None = None
    n_error: int = 0


class ReliableCategory(Record):
    """One category: who answers, and means over its functions (`rate`, `own`, `random`; `rate`, `facts`,
    `undefined`, `rate_relation`, `rate_exception`), with intervals over functions.
    """

    backbone: str
    metrics: FrozenMap[str, Metric]


class Selectivity(Record):
    """Mean outputs: row i is the function of entity i, column j the words of entity j. `diagonal_largest` is the share
    of rows whose own words have the largest mean; a tie is not one.
    """

    entities: tuple[str, ...]
    means: tuple[tuple[float | None, ...], ...]
    diagonal_largest: Metric

    def softmax(self) -> list[list[float]]:
        """Each row through a softmax, as the figure was published; an absent mean counts as 0."""
        weights = [[math.exp(value or 0.0) for value in row] for row in self.means]
        return [[value / sum(row) for value in row] for row in weights]


class Reliability(ResultDocument, kind="reliability"):
    """A reliability study: figures by category and by function and, where asked for, the matrix of selectivity."""

    FILE = RELIABILITY_FILE
    RANK = None
    REMEDY = "run `vesalius functions reliability` again"

    request: Request
    inputs: int
    categories: FrozenMap[str, ReliableCategory]
    functions: FrozenList[ReliableFunction]
    selectivity: Selectivity | None = None
    caveats: tuple[str, ...] = ()
    usage: CallTotals | None = None
    seconds: float

    def view(self) -> View:
        """The means of each category, and the functions that follow their rule least."""
        lines = [
            f"{name} answered by {category.backbone}: "
            + ", ".join(f"{which} {metric.figures} (n {metric.n})" for which, metric in category.metrics.items())
            for name, category in self.categories.items()
        ]
        rows = [
            (
                row.id,
                row.category,
                row.name,
                row.rate.value,
                row.own,
                row.random,
                None if row.undefined is None else row.undefined.value,
                row.n_error,
            )
            for row in self.functions
        ]
        means = [
            (name, category.backbone, which, metric.value, metric.low, metric.high, metric.n)
            for name, category in self.categories.items()
            for which, metric in category.metrics.items()
        ]
        worst = sorted(self.functions, key=lambda row: (row.rate.value or 0.0, row.id))
        told = [
            f"{row.id} {row.name[:80]}: {row.rate.value or 0.0:.2f} of {row.rate.n} right"
            + ("" if row.own is None or row.random is None else f", own {row.own:.3f}, random {row.random:.3f}")
            for row in worst
            if (row.rate.value or 0.0) < 1
        ][:WORST]
        facts = []
        if self.selectivity is not None:
            largest = self.selectivity.diagonal_largest
            facts.append(("own words score highest in", f"{largest.figures} of {largest.n} entities"))
        if self.usage is not None:
            cost = "cost not known" if self.usage.cost is None else f"cost ${self.usage.cost:.2f}"
            facts.append(("effort", f"{self.usage.calls} calls, {cost}, {self.seconds:.0f} s"))
        first, *others = lines or ["nothing was measured"]
        return View(
            "Reliability of functions",
            Answer(first),
            [
                Facts([("", line) for line in others]),
                Sheet(
                    ("id", "category", "name", "rate", "own", "random", "undefined", "errors"),
                    rows,
                    title="Functions",
                    terminal=0,
                ),
                Sheet(("category", "answered by", "figure", "value", "low", "high", "n"), means, title="By category"),
                *([Text(told, bullets=True, title="Those that follow their rule least")] if told else []),
                *([Text(self.caveats)] if self.caveats else []),
                *([Facts(facts)] if facts else []),
            ],
        )
