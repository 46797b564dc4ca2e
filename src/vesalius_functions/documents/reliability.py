"""How reliably the functions of concepts and facts follow what they are: Table A1 and Figure A4 of their paper."""

import math
from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.frozen import FrozenList, FrozenMap
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.scorecard import CallTotals
from vesalius.documents.views import Row

RELIABILITY_FILE = "reliability.json"


class ReliableFunction(Record):
    """One function: `rate` is the share of inputs on which it does what it is said to.

    Of an entity, `own` is the mean output over words of its concept and `random` that over words of other concepts; it
    is right above and below a half. Of a relation `facts` counts inputs that have an answer, and `undefined` those of
    its exception. `n_error` inputs got no usable reply and count as wrong.
    """

    id: str
    category: Literal["entities", "relations"]
    name: str
    rate: Metric
    own: float | None = None
    random: float | None = None
    facts: Metric | None = None
    undefined: Metric | None = None
    n_error: int = 0

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


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

    def _summary(self) -> str:
        lines = [
            f"{name} answered by {category.backbone}: "
            + ", ".join(f"{which} {metric.figures} (n {metric.n})" for which, metric in category.metrics.items())
            for name, category in self.categories.items()
        ]
        return "\n".join(lines)

    def _rows(self) -> list[Row]:
        return [
            {
                "id": row.id,
                "category": row.category,
                "name": row.name,
                "rate": row.rate.value,
                "own": row.own,
                "random": row.random,
                "undefined": None if row.undefined is None else row.undefined.value,
                "errors": row.n_error,
            }
            for row in self.functions
        ]
