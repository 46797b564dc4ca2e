"""The account of a set of components: which share of a behaviour it carries, and what is left out.

Every figure is a share of the range, from the score with everything replaced from the counterfactual prompts (0) to
that of the model (1), on prompts that chose nothing. *Kept* is what the set keeps with everything else replaced, *left*
what remains with the set itself replaced. Parts of the set (a layer, a kind, a position) are replaced in the otherwise
unchanged model; what that costs need not add up, for components take over from each other.

Whether the set carries the behaviour is decided by the rule for circuits (`whole.answer`).
"""

from collections.abc import Iterable, Sequence

from vesalius.components import Component
from vesalius.documents.base import Record
from vesalius.documents.metric import Metric, figure_apart
from vesalius.documents.performance import Performance
from vesalius.documents.view import Answer, Bars, Facts, Group, HeadMap, Section, Sheet, join_first, prompts, title_of
from vesalius.documents.whole import WholeCircuit, answer, bars

#: A component that costs this share of the range alone is named, in the set or as left out.
BAR = 0.05
#: Names that a line of a terminal has room for.
NAMED = 5


class Effect(Record):
    """What replacing one component costs: `effect` is a share of the range, with its interval; `effect_right` and
    `effect_wrong` are by how many logits the right answer's and the wrong one's fall (None where the metric does not
    compare two answers).
    """

    id: str
    effect: float
    low: float | None
    high: float | None
    effect_right: float | None = None
    effect_wrong: float | None = None

    def text(self, bar: float) -> str:
        """The component with its effect, in as many digits as set it apart from a bar."""
        return f"{self.id} {figure_apart(self.effect, bar)}"


class PartOfSet(Record):
    """A part of the set: the members in a layer, of a kind, or all at one position, and what replacing it costs."""

    name: str
    size: int
    effect: Metric

    def text(self) -> str:
        """The part with what replacing it costs."""
        return f"{self.name} {self.effect.text()}"


class Account(Record):
    """What a named set of components carries of a behaviour.

    `kept` is what it keeps alone, `with_mlps` with all MLPs kept as well (None where all are in it), `left` what is
    left with the set replaced. `members` are its components by effect, `not_described` those that no claim was made
    about, `beside` the described ones that are not in it. `omitted` are all that are not in it and cost `bar` alone.
    `layers`, `kinds` and `positions` say what replacing a part of the set costs; `range` is in `unit`. Components were
    replaced alone on the first `n_alone` of the prompts that everything else is measured on (None: not kept). `whole`
    has the figures that the answer is decided by.
    """

    ABSENT_IF_DEFAULT = ("n_alone",)

    kept: Metric
    with_mlps: Metric | None = None
    left: Metric
    range: Metric
    unit: str = ""
    n_layers: int
    n_heads: int
    replacement: str
    bar: float = BAR
    members: tuple[Effect, ...]
    not_described: tuple[str, ...] = ()
    beside: tuple[Effect, ...] = ()
    omitted: tuple[Effect, ...]
    layers: tuple[PartOfSet, ...] = ()
    kinds: tuple[PartOfSet, ...] = ()
    positions: tuple[PartOfSet, ...] = ()
    whole: WholeCircuit
    n_alone: int | None = None
    rows: float = 0.0

    @property
    def measured(self) -> dict[str, Effect]:
        """The effect of every component that was measured alone, by name."""
        return {one.id: one for one in (*self.members, *self.beside, *self.omitted)}

    def described(self, names: Iterable[str]) -> "Account":
        """The account where claims were made about these components."""
        known = set(names)
        return self.model_copy(update={"not_described": tuple(one.id for one in self.members if one.id not in known)})

    def lines(self) -> list[tuple[str, str]]:
        """The account in a few lines."""
        size = len(self.members)
        kept = self.kept.text(bars=bars(self.whole.keep))
        lines = [("kept alone", f"{kept} of the range; everything else {self.replacement}")]
        if self.whole.says is not None:
            lines.append(("says it", self.whole.says.text()))
        if self.with_mlps is not None:
            lines.append(("with all MLPs", self.with_mlps.text()))
        lines.append(("left without it", self.left.text()))
        lines.append(("left out", self._left_out()))
        if self.not_described:
            names = join_first(self.not_described, NAMED)
            lines.append(("in the set, not described", f"{len(self.not_described)} of {size}: {names}"))
        lines += [
            (f"share of the range lost by {name}", ", ".join(part.text() for part in _largest(parts)))
            for name, parts in (("kind", self.kinds), ("position", self.positions), ("layer", self.layers))
            if parts
        ]
        return lines

    def _left_out(self) -> str:
        inside = sum(abs(one.effect) >= self.bar for one in self.members)
        which = f"components that change the score by {self.bar:g} of the range or more alone{self._on}"
        if not self.omitted:
            return f"none of the {inside} {which}"
        names = join_first([one.text(self.bar) for one in self.omitted], NAMED)
        return f"{len(self.omitted)} of the {inside + len(self.omitted)} {which}: {names}"

    @property
    def _on(self) -> str:
        """On how many prompts components were replaced alone, which are fewer than those of the other figures."""
        return "" if self.n_alone is None else f", on {prompts(self.n_alone)}"

    def sections(self) -> list[Section]:
        """The account, its pictures by layer, kind and position, and what is left out."""
        whole = self.whole
        beside = [("on other templates", whole.elsewhere), ("random sets of the same make-up", whole.random)]
        facts = [(name, one.text()) for name, one in beside if one is not None]
        caption = "What replacing this part of the set costs in the otherwise unchanged model, as a share of the range."
        bars = [
            Bars([_bar(part) for part in parts], title=f"By {name}", caption=caption)
            for name, parts in (("kind", self.kinds), ("position", self.positions), ("layer", self.layers))
            if parts
        ]
        singles = self.measured
        picture = HeadMap(
            {name: one.effect for name, one in singles.items()},
            self.n_layers,
            self.n_heads,
            "share of the range",
            {
                name: (one.low, one.high)
                for name, one in singles.items()
                if one.low is not None and one.high is not None
            },
            [one.id for one in self.members],
            title=f"Each component replaced alone{self._on}",
            caption="Components that a first look showed far below the bar are not measured.",
        )
        return [
            Facts([*self.lines(), *facts]),
            Group(
                [Group(bars[:2], side_by_side=True), *bars[2:], picture],
                title="The account in pictures",
                pages_only=True,
            ),
        ]

    def sheets(self) -> list[Section]:
        """Every component that was replaced alone, by where it stands."""
        columns = ("component", "effect", "low", "high", "right answer's logit", "wrong answer's logit")
        return [
            Sheet(
                columns,
                [
                    (one.id, one.effect, one.low, one.high, _change(one.effect_right), _change(one.effect_wrong))
                    for one in parts
                ],
                title=f"{title}: each replaced alone{self._on}; effects are shares of the range",
                signed=(columns[1], *columns[4:]),
                folded=True,
            )
            for title, parts in (("Left out", self.omitted), ("In the set", self.members), ("Beside it", self.beside))
            if parts
        ]


def explained_answer(account: Account | None, performance: Performance | None, behaviour: str) -> Answer | None:
    """Whether the named components carry the behaviour; No where the model cannot show it, and None where neither was
    measured.
    """
    weak = None if performance is None else performance.weak
    if account is None:
        return None if weak is None else Answer(f"nothing can be said of the whole: {weak}", "no")
    empty = None if performance is None else performance.empty
    return answer(account.whole, title_of(behaviour), weak=weak, empty=empty)


def _largest(parts: Sequence[PartOfSet]) -> list[PartOfSet]:
    """The parts that cost most, in their order."""
    order = sorted(parts, key=lambda part: -abs(part.effect.value or 0.0))[:NAMED]
    return [part for part in parts if part in order]


def _bar(part: PartOfSet) -> tuple[str, float | None, float | None, float | None]:
    return part.name, part.effect.value, part.effect.low, part.effect.high


def _change(effect: float | None) -> float | None:
    """By how much a logit changes where a component is replaced."""
    return None if effect is None else -effect


def layer_name(layer: int, members: Sequence[Component]) -> str:
    """A layer with what it has in the set."""
    heads, mlps = sum(part.is_head for part in members), sum(not part.is_head for part in members)
    counts = [f"{heads} head{'s' * (heads > 1)}"] * bool(heads) + ["MLP"] * bool(mlps)
    return f"layer {layer} ({', '.join(counts)})"
