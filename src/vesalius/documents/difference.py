"""What differs between two results of the same kind: claims, components and figures, side by side.

A claim is the same in both if component, kind and text are the same; it has *flipped* where its verdict differs. What
counts as a component that moved depends on the kind of result, and `rule` says it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

from pydantic import Field

from vesalius.documents.base import Document, FrozenDict, FrozenMap, Line, Record, ResultDocument
from vesalius.documents.claims import ComponentExplanation, Evidence, Verdict
from vesalius.documents.metric import Metric
from vesalius.documents.view import (
    Answer,
    Facts,
    Group,
    Mark,
    Row,
    Section,
    Sheet,
    Text,
    View,
    join_first,
    plural,
    several,
)

DIFFERENCE_FILE = "difference.json"
#: Rows of each table that a terminal shows.
SHOWN = 20
#: Fields that say how a document was made, not what it found.
NOT_FIGURES = ("schema_version", "seconds", "seed")


class ClaimDifference(Record):
    """A claim with another verdict in B than in A; None where it was not made. `specimen` names the case of a
    benchmark.
    """

    ABSENT_IF_DEFAULT = ("specimen",)

    specimen: str | None = None
    component: str
    kind: str
    text: str
    a: Verdict | None
    b: Verdict | None


class ComponentDifference(Record):
    """A component that moved: `what` differs (its tag, role, verdict, effect, or whether it is there at all)."""

    ABSENT_IF_DEFAULT = ("specimen",)

    specimen: str | None = None
    component: str
    what: str
    a: str | float | None
    b: str | float | None


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


@dataclass(frozen=True)
class Compared:
    """What a kind of result says of the difference between two of it; `Difference` has the same fields."""

    claims_flipped: Sequence[ClaimDifference] = ()
    claims_only: Sequence[ClaimDifference] = ()
    claims_same: int = 0
    components_moved: Sequence[ComponentDifference] = ()
    components_same: int = 0
    rule: str = ""
    metrics: Mapping[str, FigurePair] = field(default_factory=dict)
    notes: Sequence[str] = ()


class Difference(ResultDocument, kind="difference"):
    """Two results side by side.

    `asked` holds what their requests do not share. `claims_flipped` are claims that both make with other verdicts,
    `claims_only` those that one of them makes alone. `notes` say what such a comparison cannot show.
    """

    FILE = DIFFERENCE_FILE
    RANK = 95
    REMEDY = "run `vesalius diff` again"

    kind: str
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

    def listed(self) -> Line:
        """What a list of results says of it: how much flipped and moved."""
        flipped, moved = len(self.claims_flipped), len(self.components_moved)
        return Line(
            f"{self.a} and {self.b}", f"{several(flipped, 'claim')} flipped, {several(moved, 'component')} moved"
        )

    def view(self) -> View:
        """What flipped first, then what moved, then the figures."""
        flips = [f"{one.component} {one.kind} {one.a} -> {one.b}" for one in self.claims_flipped]
        moved = [f"{one.component} ({one.what})" for one in self.components_moved]
        components = {(one.specimen, one.component) for one in self.components_moved}
        sections: list[Section] = [
            Facts([("flipped", join_first(flips, 3) or "none"), ("moved", join_first(moved, 5) or "none")]),
            Facts([("A", self.a), ("B", self.b), *((name, f"{a} | {b}") for name, (a, b) in self.asked.items())]),
            *([Text([f"note: {note}" for note in self.notes])] if self.notes else []),
            Sheet.of(self._records(), terminal=0, title="Everything that differs", folded=True),
        ]
        if self.claims_flipped or self.claims_same or self.claims_only:
            rows = [
                (_case(one), one.text, Mark(one.a or "", one.a or "not made"), Mark(one.b or "", one.b or "not made"))
                for one in self.claims_flipped
            ]
            title = (
                f"{several(len(rows), 'claim')} flipped; with the same verdict: {self.claims_same}; made by one alone: "
                f"{len(self.claims_only)}"
            )
            sections.append(Group([Sheet(("component", "claim", "A", "B"), rows, terminal=SHOWN)], title=title))
        rows = [(_case(one), one.what, _signed(one.a), _signed(one.b)) for one in self.components_moved]
        title = f"{several(len(components), 'component')} moved, {self.components_same} did not ({self.rule})"
        sections.append(Group([Sheet(("component", "what", "A", "B"), rows, terminal=SHOWN)], title=title))
        if self.metrics:
            figures = [
                (
                    name,
                    _figure(pair.a, pair.a_low, pair.a_high),
                    _figure(pair.b, pair.b_low, pair.b_high),
                    pair.difference,
                    "intervals apart" if pair.apart else "",
                )
                for name, pair in self.metrics.items()
            ]
            columns = ("figure", "A", "B", "B - A", "")
            sections.append(Sheet(columns, figures, title="Figures", terminal=200, signed=("B - A",)))
        return View(
            f"Two {plural(self.kind)} compared",
            Answer(
                f"Difference of two {plural(self.kind)}: {several(len(flips), 'claim')} flipped, {self.claims_same} the"
                f" same, {len(self.claims_only)} made by one alone; {several(len(moved), 'component')} moved, "
                f"{self.components_same} did not"
            ),
            sections,
        )

    def _records(self) -> list[Row]:
        claims = [{**one.as_data(), "what": f"claim: {one.kind}"} for one in (*self.claims_flipped, *self.claims_only)]
        figures = [{"what": name, "a": pair.a, "b": pair.b} for name, pair in self.metrics.items()]
        rows = [*claims, *(one.as_data() for one in self.components_moved), *figures]
        names = ("specimen", "component", "what", "a", "b", "text")
        return [{name: row.get(name) for name in names if name in row or name != "specimen"} for row in rows]


def _case(one: ClaimDifference | ComponentDifference) -> str:
    return one.component if one.specimen is None else f"{one.specimen}: {one.component}"


def _signed(value: str | float | None) -> str:
    return "-" if value is None else f"{value:+.3f}" if isinstance(value, float) else str(value)


def _figure(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def compared_figures(a: Document, b: Document) -> Compared:
    """The numbers and metrics among the fields of two documents, for kinds that do not say how they differ."""
    sides = [{name: getattr(one, name) for name in type(one).model_fields if name not in NOT_FIGURES} for one in (a, b)]
    metrics = [{name: value for name, value in one.items() if isinstance(value, Metric)} for one in sides]
    numbers = [{name: value for name, value in one.items() if type(value) in (int, float)} for one in sides]
    return Compared(metrics={**metric_pairs(*metrics), **figure_pairs(*numbers)})


def metric_pairs(a: Mapping[str, Metric], b: Mapping[str, Metric]) -> dict[str, FigurePair]:
    """Metrics by name, with their intervals."""
    return {
        name: figure_pair(
            one.value if one else None,
            other.value if other else None,
            (one.low, one.high) if one else None,
            (other.low, other.high) if other else None,
        )
        for name in dict.fromkeys([*a, *b])
        for one, other in [(a.get(name), b.get(name))]
    }


def figure_pairs(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, FigurePair]:
    """Numbers by name; one that a side lacks is None there."""
    return {name: figure_pair(a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])}


def figure_pair(
    a: float | None,
    b: float | None,
    a_ends: tuple[float | None, float | None] | None = None,
    b_ends: tuple[float | None, float | None] | None = None,
) -> FigurePair:
    """One figure of both results, with the ends of its intervals."""
    ends = [*(a_ends or (None, None)), *(b_ends or (None, None))]
    return FigurePair(
        a=a,
        b=b,
        difference=None if a is None or b is None else b - a,
        a_low=ends[0],
        a_high=ends[1],
        b_low=ends[2],
        b_high=ends[3],
        apart=None if None in ends else apart(*ends),
    )


def figure_of_both(value: float | None) -> FigurePair:
    """One figure about the pair, not one of each."""
    return FigurePair(a=value, b=value)


def apart(a_low: float | None, a_high: float | None, b_low: float | None, b_high: float | None) -> bool:
    """True if both intervals are known and do not overlap."""
    if a_low is None or a_high is None or b_low is None or b_high is None:
        return False
    return a_high < b_low or b_high < a_low


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's correlation; None where one side is constant or too short."""
    import numpy as np

    from vesalius.statistics import spearman  # imports torch, which a schema or a list of results does not need

    rho = spearman(np.array(a), np.array(b)) if len(a) >= 3 else math.nan
    return None if math.isnan(rho) else rho


# How two explanations, or two runs' explanations of the same cases, differ: verdicts, what is said, and figures.

VerdictByClaim = dict[tuple[str, str, str], Verdict]


class Compares(Protocol):
    """What is compared of an explanation."""

    @property
    def components(self) -> Sequence[ComponentExplanation]: ...
    @property
    def program_agreement(self) -> Evidence | None: ...
    @property
    def cost(self) -> float: ...


def compared_explanations(first: Mapping[str, Compares], second: Mapping[str, Compares]) -> Compared:
    """How explanations of the same cases differ; cases that one side lacks are left out. The one case of a single
    explanation has no name.
    """
    cases = [case for case in first if case in second]
    flipped, only, moved = [], [], []
    same = stayed = 0
    for case in cases:
        turned, alone, kept = _compared_claims(_claims_of(first[case]), _claims_of(second[case]), case or None)
        parts, left = _compared_parts(first[case], second[case], case or None)
        flipped, only, moved = [*flipped, *turned], [*only, *alone], [*moved, *parts]
        same, stayed = same + kept, stayed + left
    left_out = len(first) + len(second) - 2 * len(cases)
    return Compared(
        claims_flipped=flipped,
        claims_only=only,
        claims_same=same,
        components_moved=moved,
        components_same=stayed,
        rule="explained by one alone, or with another tag, role or verdict",
        metrics=_compared_figures([first[case] for case in cases], [second[case] for case in cases]),
        notes=(f"{left_out} cases are in one run alone; their claims are left out",) if left_out else (),
    )


def _claims_of(explanation: Compares) -> VerdictByClaim:
    return {
        (part.id, claim.kind, claim.text): claim.verdict for part in explanation.components for claim in part.claims
    }


def _compared_claims(
    a: VerdictByClaim, b: VerdictByClaim, specimen: str | None = None
) -> tuple[list[ClaimDifference], list[ClaimDifference], int]:
    """Claims with two verdicts, claims of one alone, and how many are the same."""
    flipped, only = [], []
    for key in dict.fromkeys([*a, *b]):
        first, second = a.get(key), b.get(key)
        if first == second:
            continue
        component, kind, text = key
        entry = ClaimDifference(specimen=specimen, component=component, kind=kind, text=text, a=first, b=second)
        (only if first is None or second is None else flipped).append(entry)
    return flipped, only, sum(a.get(key) == verdict for key, verdict in b.items())


def _compared_parts(a: Compares, b: Compares, specimen: str | None = None) -> tuple[list[ComponentDifference], int]:
    """Components that differ in what is said of them, and how many do not."""
    parts = [{part.id: part for part in one.components} for one in (a, b)]
    moved: list[ComponentDifference] = []
    names = dict.fromkeys(chain(*parts))
    for name in names:
        first, second = parts[0].get(name), parts[1].get(name)
        if first is None or second is None:
            there = [None if one is None else one.role or one.tag or one.verdict for one in (first, second)]
            moved.append(
                ComponentDifference(specimen=specimen, component=name, what="explained", a=there[0], b=there[1])
            )
            continue
        for what in ("tag", "role", "verdict"):
            one, other = getattr(first, what), getattr(second, what)
            if one != other:
                moved.append(ComponentDifference(specimen=specimen, component=name, what=what, a=one, b=other))
    return moved, len(names) - len({one.component for one in moved})


def _compared_figures(a: Sequence[Compares], b: Sequence[Compares]) -> dict[str, FigurePair]:
    """Verdicts of claims, roles of natural models, and how far the program agrees with the model."""
    if not a or not b:
        return {}
    verdicts = [
        Counter(claim.verdict for one in side for part in one.components for claim in part.claims) for side in (a, b)
    ]
    roles = [Counter(part.role for one in side for part in one.components if part.role) for side in (a, b)]
    figures = {
        f"claims {name}": figure_pair(verdicts[0][name], verdicts[1][name]) for name in dict.fromkeys(chain(*verdicts))
    }
    figures |= {
        f"components: {name}": figure_pair(roles[0][name], roles[1][name]) for name in dict.fromkeys(chain(*roles))
    }
    if len(a) == len(b) == 1:
        first, second = a[0].program_agreement, b[0].program_agreement
        if first is not None and second is not None:
            ends = ((one.low, one.high) for one in (first, second))
            figures["program_agreement"] = figure_pair(first.value, second.value, *ends)
        figures["cost"] = figure_pair(a[0].cost, b[0].cost)
    return figures
