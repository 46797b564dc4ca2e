"""The effects of a sweep as a file: `sweep.json`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from math import isclose
from typing import Literal

from pydantic import Field, computed_field

from vesalius.components import Component
from vesalius.documents.answers import Effect, effect_text, effects_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenList, FrozenMap, Record
from vesalius.documents.difference import (
    Compared,
    ComponentDifference,
    apart,
    figure_of_both,
    figure_pair,
    rank_correlation,
)
from vesalius.documents.performance import Contrast
from vesalius.documents.request import PromptedDocument
from vesalius.documents.view import Answer, Facts, Grid, HeadMap, Sheet, Unclear, View, prompts, subject_of
from vesalius.errors import BadInput
from vesalius.sites import Activation, Site

SWEEP_FILE = "sweep.json"
#: What the score is the difference of, and all other logits.
SIDES = ("right", "wrong", "rest")
SIGNED_CAPTION = (
    " Right, wrong, rest: the same of the right answer's logit, of the wrong one's and of the mean of all others; in "
    "brackets where the interval holds 0."
)
#: Effects that a repr shows.
SUMMARY_ROWS = 5


class SweepRow(Record):
    """The effect of replacing one component (or, as `L0H1+L1H2`, a set), with its 95 % interval over the prompts; one
    prompt has none.

    Where the score compares a right with a wrong answer, `effect_right`, `effect_wrong` and `effect_rest` are the same
    differences of their logits and of the mean of all others, each with its interval, and `acts` says which of them is
    clear ("raises the answer", "lowers the wrong answer", ...); None where none is.
    """

    ABSENT_IF_DEFAULT = (*(f"effect_{side}{end}" for side in SIDES for end in ("", "_low", "_high")), "acts")

    id: str
    effect: float
    ci_low: float | None
    ci_high: float | None
    effect_right: float | None = None
    effect_right_low: float | None = None
    effect_right_high: float | None = None
    effect_wrong: float | None = None
    effect_wrong_low: float | None = None
    effect_wrong_high: float | None = None
    effect_rest: float | None = None
    effect_rest_low: float | None = None
    effect_rest_high: float | None = None
    acts: str | None = None

    @property
    def figures(self) -> Effect:
        """Its name, its effect and the ends of the interval."""
        return self.id, self.effect, self.ci_low, self.ci_high

    def sides(self) -> list[float | None]:
        """The effects on right, wrong and the rest, those whose interval holds 0 marked."""
        each = ([getattr(self, f"effect_{side}{end}") for end in ("", "_low", "_high")] for side in SIDES)
        return [shown_effect(*figures) for figures in each]

    def __repr__(self) -> str:
        return effect_text(*self.figures)


def disagreement(kinds: Iterable[str], rows: Sequence[SweepRow]) -> str:
    """Where the effects of one component under several replacements disagree; empty where they do not, or have no
    intervals.
    """
    if any(row.ci_low is None or row.ci_high is None for row in rows):
        return ""
    signs = [(row.ci_low > 0) - (row.ci_high < 0) for row in rows]  # type: ignore[operator]
    if {1, -1} <= set(signs):
        return "in sign"
    clear = [kind for kind, sign in zip(kinds, signs, strict=True) if sign]
    return f"only {' and '.join(clear)}" if 0 < len(clear) < len(signs) else ""


def shown_effect(value: float | None, low: float | None, high: float | None) -> float | None:
    """A figure for a table, marked where its interval holds 0."""
    if value is None or low is None or high is None or not low <= 0 <= high:
        return value
    return Unclear(value)


class HalfAgreement(Record):
    """How alike the effects on two halves of the prompts are: means over random halvings, and their middle 95 %.

    `jaccard` compares the `top` components by magnitude (`chance`: the mean index of random ones), `rank_correlation`
    is Spearman's over all `items` by effect.
    """

    jaccard: float
    jaccard_low: float
    jaccard_high: float
    chance: float
    rank_correlation: float
    rank_low: float
    rank_high: float
    top: int
    items: int
    half: int
    halvings: int


class Sweep(Answered, PromptedDocument, kind="sweep"):
    """Clean minus edited score of every component, most helpful first; `baseline` is the clean score.

    `of` is "site" where other places than heads and MLPs were replaced, or single positions; `columns` are then the
    positions of a map with what stands there, and `aligned` the prompts of one length that it is of, where not all
    have it. `ranked` is of how many latents those swept have the largest attributions. `beside` holds the effects of
    further kinds of replacement, where several were asked for. `contrast` says whether replacing everything lowers the
    score, where values come from counterfactual prompts. `forwards` is the cost in forward passes of all prompts.
    """

    FILE = SWEEP_FILE
    RANK = 50
    COMMAND, VERB = "sweep", "sweep_report"
    RECOGNISED_BY = ("forwards", "baseline")
    SCHEMA = 2
    REMEDY = "run `vesalius sweep` again"
    ABSENT_IF_DEFAULT = ("directory", "heatmap", "beside", "contrast", "of", "columns", "aligned", "ranked")

    schema_version: Literal[2] = Field(default=2, alias="schema")
    unit: str
    baseline: float
    baseline_low: float | None
    baseline_high: float | None
    components: FrozenList[SweepRow]
    forwards: float
    seconds: float
    directory: str | None = None
    heatmap: str | None = None
    contrast: Contrast | None = None
    beside: FrozenMap[str, FrozenList[SweepRow]] = Field(default_factory=FrozenDict)
    of: Literal["site"] | None = None
    columns: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    aligned: int | None = None
    ranked: int | None = None

    @property
    def what(self) -> str:
        """What was replaced each time, as a word."""
        return "pair" if self.pairs else self.of or "component"

    @property
    def prompted(self) -> int:
        """The prompts that effects are means over."""
        return self.n if self.aligned is None else self.aligned

    @computed_field
    @property
    def kind(self) -> str:
        """What components are replaced by: zero, mean, resample or value-bias; the first of several."""
        return str(self.request.options.get("kind", "zero")).split(",")[0]

    @computed_field
    @property
    def pairs(self) -> bool:
        """Whether pairs of components were replaced."""
        return bool(self.request.options.get("pairs", False))

    @computed_field
    @property
    def split(self) -> str:
        """The pool that the prompts were drawn from."""
        return str(self.request.options.get("split", "test"))

    def compared(self, other: "Sweep") -> Compared:
        """How another sweep differs: components whose effects have intervals that do not overlap."""
        rows = [{row.id: row for row in one.components} for one in (self, other)]
        moved = []
        for name in dict.fromkeys(chain(*rows)):
            first, second = rows[0].get(name), rows[1].get(name)
            if first is None or second is None:
                effects = [None if row is None else row.effect for row in (first, second)]
                moved.append(ComponentDifference(component=name, what="swept", a=effects[0], b=effects[1]))
            elif apart(first.ci_low, first.ci_high, second.ci_low, second.ci_high):
                moved.append(ComponentDifference(component=name, what="effect", a=first.effect, b=second.effect))
        shared = [name for name in rows[0] if name in rows[1]]
        ends = ((one.baseline_low, one.baseline_high) for one in (self, other))
        return Compared(
            components_moved=sorted(moved, key=lambda one: -abs(float(one.a or 0.0) - float(one.b or 0.0))),
            components_same=len(set(chain(*rows))) - len(moved),
            rule="the 95 % intervals of the two effects do not overlap",
            metrics={
                "baseline": figure_pair(self.baseline, other.baseline, *ends),
                "rank correlation of effects": figure_of_both(
                    rank_correlation(*([one[name].effect for name in shared] for one in rows))
                ),
            },
        )

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.specimen, self.behaviour)}, {self.kind}"

    def view(self) -> View:
        """The effects as a map and as a table."""
        subject, what = subject_of(self.specimen, self.behaviour), self.what
        rows = [(row.id, row.effect, row.ci_low, row.ci_high, self.prompted) for row in self.components]
        intervals = self._intervals()
        unclear = sum(low <= 0 <= high for low, high in intervals.values())
        cost = f"{self.forwards:.1f} forward-equivalents, {self.seconds:.1f} s"
        counted = f"{len(rows)} {what}s, {prompts(self.prompted)}, {cost}"
        single = self.of is None and not self.pairs and all(has_cell(row.id) for row in self.components)
        signed = any(row.effect_right is not None for row in self.components)
        maps = [self.head_map()] if single else self.site_maps()
        return View(
            f"{subject}: {self.kind} ablation",
            self.answered(),
            [
                Facts(
                    [
                        ("clean score", f"{self.baseline:.3f} {self.unit}"),
                        ("largest effects (clean minus edited)", largest_effects(self.components)),
                        *self.request.remarks(),
                        *([] if self.contrast is None else self.contrast.facts()),
                    ]
                ),
                *maps,
                Sheet(
                    (self.of or "component", "effect", "low", "high", *((*SIDES, "acts") if signed else ()), "n"),
                    [
                        (*row[:4], *((*own.sides(), own.acts or "") if signed else ()), row[4])
                        for row, own in zip(rows, self.components, strict=True)
                    ],
                    title=f"Effects ({self.unit}): clean minus edited",
                    caption="Positive: the score falls without the component. Intervals are 95 %, over prompts."
                    + (SIGNED_CAPTION if signed else ""),
                    signed=("effect", *SIDES),
                    ranked_by="effect",
                    pictured=single or not maps,
                ),
                *([self._side_by_side()] if self.beside else []),
                Facts(
                    [
                        *([("replacements disagree on", self._disagreeing())] if self.beside else []),
                        ("swept", counted),
                        *(
                            [("chosen by attribution", f"{len(rows)} of {self.ranked:,} latents")]
                            if self.ranked
                            else []
                        ),
                        *([("intervals that hold 0", f"{unclear} of {len(rows)}")] if intervals else []),
                    ]
                ),
            ],
            command=self.request.command_line(),
            files=[
                *([("heatmap", self.heatmap)] if self.heatmap else []),
                *([("numbers", f"{self.directory}/{SWEEP_FILE}")] if self.directory else []),
            ],
        )

    def answered(self) -> Answer:
        """Which components matter beyond chance; then the circuit, or more prompts where they are too few to say. Sites
        that hold all that the logits read are named and not counted: their effect is the range in every model.
        """
        everything = self._everything()
        if len(everything) == len(self.components):
            reason = f"{everything[0]} holds all that the logits read, so its effect is the range"
            return Answer(f"{reason}; ask --by position or role", "no")
        said = effects_answer(
            [row.figures for row in self.components if row.id not in everything],
            subject_of(self.specimen, self.behaviour),
            kind=self.kind,
            n=self.prompted,
            what=self.what,
            contrast=self.contrast,
        )
        if everything:
            more = f" and {len(everything) - 1} more" if len(everything) > 1 else ""
            said = replace(said, text=f"{said.text}; not counted: {everything[0]}{more}, all that the logits read")
        if said.verdict == "yes":
            return replace(said, then=self.request.followed_by("discover"))
        if self.contrast is not None and not self.contrast.usable:
            return replace(said, then=self.request.followed_by("behaviours"))
        if said.verdict == "no" and (self.request.components is not None or self.of is not None):
            return replace(said, then=self.request.followed_by("sweep"))
        return replace(said, then=self.request.on_more_prompts(self.n))

    def _everything(self) -> list[str]:
        """Streams whose replacement replaces all that the logits read: at all positions, or behind the last layer."""
        if self.of is None or self.contrast is None or not self.contrast.usable:
            return []
        whole = self.contrast.range.value
        sites = [(row, Site.parse(row.id)) for row in self.components]
        last = max(site.layer for _, site in sites)
        return [
            row.id
            for row, site in sites
            if isinstance(site.place, Activation)
            and site.place.kind in ("resid_pre", "resid_mid", "resid")
            and (not site.at or site.layer == last)
            and whole is not None
            and isclose(row.effect, whole, rel_tol=1e-4)
        ]

    def _side_by_side(self) -> Sheet:
        """The effects of every kind of replacement, and where they disagree."""
        kinds = {self.kind: self.components, **self.beside}
        return Sheet(
            ("component", *kinds, "disagree"),
            [(rows[0].id, *(row.effect for row in rows), disagreement(kinds, rows)) for rows in self._by_component()],
            title=f"By replacement ({self.unit}): clean minus edited",
            caption="They disagree where the intervals of two lie on different sides of 0, or where one alone holds 0.",
            signed=tuple(kinds),
        )

    def _by_component(self) -> list[list[SweepRow]]:
        """The rows of each component, one for each kind of replacement."""
        others = [{row.id: row for row in rows} for rows in self.beside.values()]
        return [[row, *(other[row.id] for other in others)] for row in self.components]

    def _disagreeing(self) -> str:
        kinds, rows = (self.kind, *self.beside), self._by_component()
        names = [one[0].id for one in rows if disagreement(kinds, one)]
        more = f" and {len(names) - SUMMARY_ROWS} more" if len(names) > SUMMARY_ROWS else ""
        return f"{len(names)} of {len(rows)}{': ' if names else ''}{', '.join(names[:SUMMARY_ROWS])}{more}"

    def site_maps(self) -> list[Grid]:
        """The effects of sites as maps, one for each kind of place: by layer or head and position, or by layer and
        head. A kind of which one row or one column was replaced has none.
        """
        cells: dict[str, dict[str, dict[str, SweepRow]]] = {}
        for row in self.components:
            kind, name, column = _cell(row.id, by_position=bool(self.columns))
            cells.setdefault(kind, {}).setdefault(name, {})[column] = row
        return [
            self._site_map(kind, rows)
            for kind, rows in cells.items()
            if kind and len(rows) > 1 and len({column for row in rows.values() for column in row}) > 1
        ]

    def _site_map(self, kind: str, rows: dict[str, dict[str, SweepRow]]) -> Grid:
        names = sorted(rows, key=_in_order)
        found = {column for row in rows.values() for column in row}
        columns = [at for at in self.columns if at in found] if self.columns else sorted(found, key=_in_order)
        table = [[rows[name].get(column) for column in columns] for name in names]
        unclear = {
            (i, j)
            for i, row in enumerate(table)
            for j, cell in enumerate(row)
            if cell and cell.ci_low is not None and cell.ci_high is not None and cell.ci_low <= 0 <= cell.ci_high
        }
        by = f"layers down, {'positions' if self.columns else 'heads'} across"
        return Grid(
            [[None if cell is None else cell.effect for cell in row] for row in table],
            names,
            [self.columns.get(column, column) for column in columns],
            f"Effects of {kind}, {by}; strongest: {largest_effects(cell for row in table for cell in row if cell)}",
            signed=True,
            unclear=frozenset(unclear),
            title=f"{kind}: effect, {self.unit}, {by}{'; grey, or a dot: its interval holds 0' if unclear else ''}",
            pictured=True,
        )

    def _intervals(self) -> dict[str, tuple[float, float]]:
        return {
            row.id: (row.ci_low, row.ci_high)
            for row in self.components
            if row.ci_low is not None and row.ci_high is not None
        }

    def head_map(self) -> HeadMap:
        """The effects of single components by layer and head."""
        values = {row.id: row.effect for row in self.components}
        layers, heads = shape_of(values)
        ask = {"specimen": self.specimen or "", "behaviour": self.behaviour or "", "kind": self.kind}
        return HeadMap(
            values,
            layers,
            heads,
            unit=f"effect, {self.unit}",
            intervals=self._intervals(),
            ask=ask,
            title="Where the effects are",
        )


def largest_effects(rows: Iterable[SweepRow]) -> str:
    """The largest effects with their intervals, in words."""
    strongest = sorted((row for row in rows if row.effect), key=lambda row: -abs(row.effect))[:SUMMARY_ROWS]
    return ", ".join(map(repr, strongest)) or "none other than 0"


def _cell(name: str, *, by_position: bool) -> tuple[str, str, str]:
    """The map of a site, and its row and column there; no map for a set and an edge."""
    place, _, at = name.partition("@")
    match = re.fullmatch(r"(L\d+)(H\d+)?(?:[._]([A-Za-z_]+))?", place)
    if match is None or (not by_position and (at or match[2] is None)):
        return "", place, at
    kind = match[3] or "head"
    return (kind, place.split(".")[0].split("_")[0], at) if by_position else (kind, match[1], match[2])


def _in_order(name: str) -> tuple[int, ...]:
    """Names by the numbers in them."""
    return tuple(map(int, re.findall(r"\d+", name)))


def has_cell(name: str) -> bool:
    """Whether a component has a cell in a map: heads and MLPs do."""
    try:
        return not Component.parse(name).is_unit
    except BadInput:
        return False


def shape_of(names: Iterable[str]) -> tuple[int, int]:
    """Layers and heads that a map of these components needs at least."""
    parts = [Component.parse(name) for name in names]
    layers = max((part.layer + 1 for part in parts), default=0)
    return layers, max((part.head + 1 for part in parts if part.head is not None), default=0)
