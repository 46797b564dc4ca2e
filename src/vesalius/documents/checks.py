"""The checks of a discovered circuit: is it faithful, stable and specific, and are its heads known ones?

`vesalius.discovery` makes them; these are the results, each with its interval and its control. A check that could not
be made is None, and `missing` says why.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from vesalius.documents.base import FrozenDict, FrozenMap, Record
from vesalius.documents.view import Answer, Bars, Chart, Section, Sheet, Text, View, Viewable, figure, title_of, words


class Bound(Record):
    """A share on `n` held-out prompts, and the lower bound of the true one; `baseline` is the share on these prompts
    with everything ablated, which an empty circuit has.
    """

    value: float
    low: float
    n: int
    baseline: float | None = None


class Guarantee(Record):
    """Bounds of a circuit of `size` components or edges, each with confidence `level`, on `n` prompts that had no part
    in choosing it.

    `answers`: of the prompts that the model gets right, the share that the circuit gets right (exact binomial bound);
    with `preferred` a prompt is right where the right answer scores above the wrong one, though neither may be said.
    `kept`: the mean, over prompts on which the model scores above the ablated model, of the share of the score kept,
    each clipped to 0 and 1 (bound by betting). None where the metric has no right answers, or no prompt loses anything
    by the ablation.
    """

    by: Literal["edges", "components"]
    size: int
    level: float
    n: int
    preferred: bool = False
    answers: Bound | None = None
    kept: Bound | None = None
    rows: float

    @property
    def withheld(self) -> str | None:
        """Why the bound of right answers says nothing: as many stay right with everything ablated. None where it does
        say something.
        """
        if self.answers is None or self.answers.baseline is None or self.answers.low > self.answers.baseline:
            return None
        return (
            f"guarantee of right answers: none ({self.answers.low:.3f} at least; {self.answers.baseline:.3f} remain "
            "with everything ablated)"
        )

    def sentence(self) -> str:
        """The guarantee in words; empty where there is none."""
        parts = []
        if self.answers is not None and not self.withheld:
            given = self.answers.baseline
            empty = "" if given is None else f"; {given:.3f} with everything ablated"
            right = "on which the model prefers the right answer" if self.preferred else "that the model gets right"
            parts.append(
                f"at least {self.answers.low:.3f} of the prompts {right} (observed "
                f"{self.answers.value:.3f} of {self.answers.n}{empty})"
            )
        if self.kept is not None:
            parts.append(
                f"at least {self.kept.low:.3f} of the score on average over prompts that lose by ablating everything, "
                f"each clipped to 0 and 1 (observed {self.kept.value:.3f} on {self.kept.n})"
            )
        if not parts:
            return self.withheld or ""
        circuit = f"the one {self.by[:-1]} alone keeps" if self.size == 1 else f"the {self.size} {self.by} alone keep"
        said = f"with {100 * self.level:.0f} % confidence each, {circuit} " + ", and ".join(parts)
        return f"{said}; {self.withheld}" if self.withheld else said


#: What heads that their attention identifies are called.
ROLES = {"induction": "induction head", "duplicate": "duplicate-token head", "previous": "previous-token head"}


class Curve(Record):
    """Faithfulness by circuit size, and its areas with 95 % bootstrap intervals over the prompts.

    `shares` are the sizes as parts of all candidates; `full` and `ablated` the mean scores of the model and of nothing;
    `forwards` the work in forward passes of all `n` prompts.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    faithfulness: tuple[float, ...]
    cmd: float
    cmd_low: float
    cmd_high: float
    cpr: float
    cpr_low: float
    cpr_high: float
    full: float
    ablated: float
    unit: str
    n: int
    forwards: float


class Stability(Record):
    """Mean Jaccard index over pairs of resamples; `low` and `high` hold the middle 95 % of the pairs.

    `top` is the size of the circuits (their mean size where it was left open), `inclusion` the share of resamples whose
    circuit holds each item, `chance` the mean index of random circuits of `top` among `items`.
    """

    value: float
    low: float
    high: float
    top: int
    items: int
    resamples: int
    chance: float
    inclusion: tuple[float, ...]


class Drop(Record):
    """What cutting the heads costs, as a share of `clean` with a 95 % interval; `random` is the same for random heads.

    None where the model does not perform the behaviour.
    """

    clean: float
    drop: float | None
    low: float | None
    high: float | None
    random: float | None
    n: int


class Specificity(Record):
    """Costs of cutting a circuit's heads: for its own behaviour, for the others by name, and for text (None: no
    corpus). `ratio` is the own drop over `others_mean`.
    """

    heads: tuple[str, ...]
    own: Drop
    others: FrozenMap[str, Drop]
    text: Drop | None
    others_mean: float | None
    ratio: float | None


class Overlap(Record):
    """Of `chosen` heads out of `candidates`, `both` are among the `known` ones.

    `share` is the part of the chosen that is known, `expected` the same for heads drawn at random, `p` the chance that
    a random draw holds as many or more (hypergeometric).
    """

    both: tuple[str, ...]
    chosen: int
    known: int
    candidates: int
    share: float
    expected: float
    p: float


class DetectedHeads(Overlap):
    """Overlap with the heads that their attention pattern alone identifies; `flagged` lists those by role."""

    flagged: FrozenMap[str, tuple[str, ...]] = Field(default_factory=FrozenDict)


class KnownHeads(Overlap):
    """Overlap with published heads; `roles` is what the publication calls those in both."""

    roles: FrozenMap[str, str | None] = Field(default_factory=FrozenDict)
    source: str


class Checks(Viewable, Record):
    """All checks of one discovery.

    `size` components (or heads) count as the circuit where a check needs one: the members of the circuit that was cut
    (`of_members`), or the strongest. `n` of the `asked` held-out prompts were there. `heads_only`: the method searched
    no MLPs, and the curves keep them. `rows` is the work in forward passes of one prompt.
    """

    ABSENT_IF_DEFAULT = ("of_members",)

    size: int
    of_members: bool = False
    n: int
    asked: int
    heads_only: bool = False
    faithfulness: Curve | None = None
    faithfulness_random: Curve | None = None
    edge_faithfulness: Curve | None = None
    stability: Stability | None = None
    guarantee: Guarantee | None = None
    specificity: Specificity | None = None
    detectors: DetectedHeads | None = None
    known_heads: KnownHeads | None = None
    missing: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    rows: float = 0.0
    seconds: float

    @property
    def metrics(self) -> dict[str, float]:
        """One figure per check, where there is one."""
        promised = self.guarantee
        answers, kept, withheld = (promised.answers, promised.kept, promised.withheld) if promised else (None,) * 3
        figures = {
            "cmd": None if self.faithfulness is None else self.faithfulness.cmd,
            "cpr": None if self.faithfulness is None else self.faithfulness.cpr,
            "edge_cmd": None if self.edge_faithfulness is None else self.edge_faithfulness.cmd,
            "edge_cpr": None if self.edge_faithfulness is None else self.edge_faithfulness.cpr,
            "jaccard": None if self.stability is None else self.stability.value,
            "guaranteed_answers": None if answers is None or withheld else answers.low,
            "guaranteed_kept": None if kept is None else kept.low,
            "specificity": None if self.specificity is None else self.specificity.ratio,
            "detectors": None if self.detectors is None else self.detectors.share,
            "known_heads": None if self.known_heads is None else self.known_heads.share,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def view(self) -> View:
        """Every figure with its control."""
        figures = [
            f"{words(name)} {value:.3g}" + ("" if control is None else f" (control {control:.3g})")
            for name, value, _, _, control, _ in self._rows()
            if value is not None
        ]
        missing = f"; not measured: {', '.join(self.missing)}" if self.missing else ""
        answer = f"checks on {self.n} held-out prompts: {', '.join(figures) or 'none'}{missing}"
        return View("Checks of a circuit", Answer(answer), self.sections(""))

    def sections(self, behaviour: str) -> list[Section]:
        """What says how far to trust a circuit: its curve, what is guaranteed, every figure, what is missing."""
        parts: list[Section] = [Text([self._intro()])]
        if (chart := self.chart()) is not None:
            parts.append(chart)
        if self.guarantee is not None and (sentence := self.guarantee.sentence()):
            parts.append(
                Text(
                    [
                        f"Guarantee on {self.guarantee.n} further prompts, none of which had a part in choosing the "
                        f"circuit: {sentence}."
                    ],
                    title="Guarantee",
                    caption="The bound on prompts is the exact binomial one, that on the score holds for bounded "
                    "shares of any distribution. A mean of shares is not the faithfulness of the curve, which is a "
                    "ratio of means.",
                )
            )
        columns = ("check", "value", "low", "high", "control", "meaning")
        parts.append(Sheet(columns, self._rows(), title="Figures", terminal=20))
        if self.specificity is not None:
            parts.append(_drops(self.specificity, behaviour))
        if self.missing:
            missing = [f"{check}: not measured ({why})" for check, why in self.missing.items()]
            parts.append(Text(missing, title="Not measured", bullets=True))
        return parts

    def _intro(self) -> str:
        fewer = "" if self.n == self.asked else f" (all there are; {self.asked} were asked for)"
        strongest = "the strongest component" if self.size == 1 else f"the {self.size} strongest"
        members = f"the circuit's {self.size} member{'' if self.size == 1 else 's'}"
        return (
            f"Checked on {self.n} prompts that the discovery has not seen{fewer}. "
            f"Where a check needs a circuit of one size, it takes {members if self.of_members else strongest}."
        )

    def chart(self) -> Chart | None:
        """Faithfulness by size beside a random order; None where it was not measured."""
        curve, control = self.faithfulness, self.faithfulness_random
        if curve is None or control is None:
            return None
        kept = "Every head but the strongest is" if self.heads_only else "Everything but the strongest components is"
        caption = (
            f"{kept} replaced by its value on the counterfactual prompt{'; MLPs stay' if self.heads_only else ''}. "
            f"1 is the whole model ({figure(curve.full)} {curve.unit}), 0 is nothing kept "
            f"({figure(curve.ablated)}). CMD is the area between the curve and 1, CPR the area under it, both "
            "on a linear scale of shares."
        )
        return faithfulness_chart({"circuit": curve, "random order": control}, title="Faithfulness", caption=caption)

    def _rows(self) -> list[tuple[str, float | None, float | None, float | None, float | None, str]]:
        """One row per figure: value, interval, what a control gives, and what it means."""
        rows: list[tuple[str, float | None, float | None, float | None, float | None, str]] = []
        order = f"random order{' of heads, MLPs kept' if self.heads_only else ''}"
        meanings = {"cmd": f"0 is perfect; control: {order}", "cpr": f"high is good, no upper bound; control: {order}"}
        for prefix, curve, control in (
            ("", self.faithfulness, self.faithfulness_random),
            ("edge_", self.edge_faithfulness, None),
        ):
            for name in ("cmd", "cpr") if curve is not None else ():
                value, low, high = (getattr(curve, f"{name}{end}") for end in ("", "_low", "_high"))
                chance = None if control is None else getattr(control, name)
                rows.append((f"{prefix}{name}", value, low, high, chance, "by edges" if prefix else meanings[name]))
        if (stable := self.stability) is not None:
            words = f"Jaccard index of circuits of {stable.top} on {stable.resamples} resamples of the prompts"
            words = f"{words}; control: random circuits"
            rows.append(("jaccard", stable.value, stable.low, stable.high, stable.chance, words))
        if (special := self.specificity) is not None:
            lost = "what its behaviour loses without its heads; control: what the others lose on average"
            if special.own.drop is None:
                lost = f"the behaviour is not performed; {lost}"
            elif special.others_mean is None:
                lost = f"{lost}, of which none is performed"
            rows.append(("drop", special.own.drop, special.own.low, special.own.high, special.others_mean, lost))
            if special.ratio is not None:
                words = "drop / that of the others; control: it serves the others as much"
                rows.append(("specificity", special.ratio, None, None, 1.0, words))
        for name, overlap, source in (
            ("detectors", self.detectors, "identified by their attention"),
            ("known_heads", self.known_heads, f"published ({self.known_heads.source})" if self.known_heads else ""),
        ):
            if overlap is not None:
                words = f"{len(overlap.both)} of {overlap.chosen} heads are among the {overlap.known} {source}; "
                words = f"{words}{overlap.expected:.2f} by chance, p {overlap.p:.2g}"
                rows.append((name, overlap.share, None, None, overlap.expected, words))
        return rows


def faithfulness_chart(curves: Mapping[str, Curve], **options: Any) -> Chart:
    """How much of a behaviour circuits of each size keep."""
    points = {
        name: [
            (share, value, f"{size} kept ({100 * share:.1f} %): {value:.3f}")
            for size, share, value in zip(curve.sizes, curve.shares, curve.faithfulness, strict=True)
        ]
        for name, curve in curves.items()
    }
    return Chart(points, x="share of components kept", y="faithfulness: share of the behaviour kept", **options)


def _drops(specificity: Specificity, behaviour: str) -> Bars:
    """What cutting the circuit's heads and random heads costs each behaviour and text."""
    measured = {f"{title_of(behaviour)} (its own)": specificity.own, **specificity.others}
    if specificity.text:
        measured["ordinary text: rise of the loss"] = specificity.text
    rows = []
    for name, drop in measured.items():
        beside = "" if drop.random is None else f"; random heads {round(drop.random, 2) + 0.0:.2f}"
        rows.append((f"{name}{beside}", drop.drop, drop.low, drop.high))
    not_performed = [name for name, drop in measured.items() if drop.drop is None]
    caption = (
        f"The {len(specificity.heads)} strongest heads ({', '.join(specificity.heads)}) are replaced by their mean "
        "output; bars are shares of the clean logit difference (of the clean loss, for text) that are lost."
    )
    if not_performed:
        caption += f" Not performed by this model, so left out: {', '.join(not_performed)}."
    return Bars(rows, title="What cutting the heads costs", caption=caption)


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


class CircuitCut(Record):
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
