"""What differs between two results of the same kind: claims, components and figures, side by side.

A claim is the same in both if component, kind and text are the same; it has *flipped* where its verdict differs. What
counts as a component that moved depends on the kind of result, and `rule` says it.
"""

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.claims import Verdict
from vesalius.documents.frozen import FrozenDict, FrozenMap
from vesalius.documents.views import Row, join_first

DIFFERENCE_FILE = "difference.json"
Kind = Literal["explanation", "discovery", "sweep", "benchmark"]


class ClaimDifference(Record):
    """A claim with another verdict in B than in A; None where it was not made. `specimen` names the case of a
    benchmark.
    """

    specimen: str | None = None
    component: str
    kind: str
    text: str
    a: Verdict | None
    b: Verdict | None

    @model_serializer(mode="wrap")
    def _without_specimen(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name != "specimen" or value is not None}


class ComponentDifference(Record):
    """A component that moved: `what` differs (its tag, role, verdict, effect, or whether it is there at all)."""

    specimen: str | None = None
    component: str
    what: str
    a: str | float | None
    b: str | float | None

    @model_serializer(mode="wrap")
    def _without_specimen(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name != "specimen" or value is not None}


class FigurePair(Record):
    """One figure of both results, with intervals where they have them. `apart`: the intervals do not overlap."""

    a: float | None
    b: float | None
    difference: float | None = None
    a_low: float | None = None
    a_high: float | None = None
    b_low: float | None = None
    b_high: float | None = None
    apart: bool | None = None


class Difference(ResultDocument):
    """Two results side by side.

    `asked` holds what their requests do not share. `claims_flipped` are claims that both make with other verdicts,
    `claims_only` those that one of them makes alone. `notes` say what such a comparison cannot show.
    """

    REMEDY = "run `vesalius diff` again"

    kind: Kind
    a: str
    b: str
    asked: FrozenMap[str, tuple[Any, Any]] = Field(default_factory=FrozenDict)
    claims_flipped: tuple[ClaimDifference, ...] = ()
    claims_only: tuple[ClaimDifference, ...] = ()
    claims_same: int = 0
    components_moved: tuple[ComponentDifference, ...] = ()
    components_same: int = 0
    rule: str = ""
    metrics: FrozenMap[str, FigurePair] = Field(default_factory=FrozenDict)
    notes: tuple[str, ...] = ()

    def _summary(self) -> str:
        flips = [f"{one.component} {one.kind} {one.a} -> {one.b}" for one in self.claims_flipped]
        moved = [f"{one.component} ({one.what})" for one in self.components_moved]
        return (
            f"Difference of two {self.kind}s: {len(flips)} claims flipped, {self.claims_same} the same,"
            f" {len(self.claims_only)} made by one alone; {len(moved)} components moved, {self.components_same} did"
            f" not\nflipped: {join_first(flips, 3) or 'none'}\nmoved: {join_first(moved, 5) or 'none'}"
        )

    def _rows(self) -> list[Row]:
        claims = [{**one.as_data(), "what": f"claim: {one.kind}"} for one in (*self.claims_flipped, *self.claims_only)]
        figures = [{"what": name, "a": pair.a, "b": pair.b} for name, pair in self.metrics.items()]
        rows = [*claims, *(one.as_data() for one in self.components_moved), *figures]
        names = ("specimen", "component", "what", "a", "b", "text")
        return [{name: row.get(name) for name in names if name in row or name != "specimen"} for row in rows]
