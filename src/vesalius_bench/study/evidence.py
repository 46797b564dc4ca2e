"""What interventions at the last token say about the components of an addition circuit, as parts of `study.json`: the
figures that Tables 13 and 14 of the HyVE paper annotate roles from, under the names that those tables' rows have here.

*CAMA-style* ablation puts in a component's place its mean over prompts that have the same token there (context-aware
mean ablation). A *target* of the lens is a number whose token is looked up in what a component's output adds to the
logits: the answer, the sum of two operands, one operand, or tokens drawn at random. *Another A* is a run with another
token at operand A, whose output is patched into the clean run.
"""

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from pydantic import Field

from vesalius.components import Component
from vesalius.documents.base import FrozenDict, FrozenMap, Record

#: The target that tokens drawn at random stand for, and the one that is right.
RANDOM, ANSWER = "a random token", "the answer"
BOS_ROLES = ("BOS", "first token")
OPERAND = "operand "
EVIDENCE_CAPTION = (
    "Zeroed, mean, CAMA: accuracy with the component's output zeroed, at its mean, at its mean over prompts with the "
    "same token there. Attends to: where most of its attention from the last token is, and how much. Cut: accuracy "
    "without the one edge that costs most. Moved: how far the component's output from a run with another "
    "operand moves the answer, as a share of what the whole run moves. Lens: how often its output alone has the answer "
    "among its five likeliest tokens. Backups gone: accuracy with the other heads of its group zeroed, then with it as "
    "well. No explainer sees these figures."
)


class BackupGroup(Record):
    """Heads of a circuit that bring the same operand to the last token, those first that cost most alone, and what was
    shown of them on held-out prompts: `standing` says of each that it is redundant with others, a backup of others or
    the primary one, and is empty where nothing was shown. `joint` is the verdict on whether zeroing all costs more than
    the sum of what each costs alone.
    """

    operand: str
    heads: tuple[str, ...]
    joint: str
    standing: FrozenMap[str, str] = Field(default_factory=FrozenDict)

    @property
    def shown(self) -> bool:
        """Whether heads of it stand in for each other."""
        return any(self.standing.values())


class Suppressed(Record):
    """A head once stronger heads of its group (`without`) are zeroed: accuracy `before`, with it `zeroed` as well, with
    its attention to one operand removed (`cut`); and what its output from a run with another operand then adds to the
    logit of that run's answer (`gain`).
    """

    without: tuple[str, ...]
    before: float
    zeroed: float
    cut: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    gain: FrozenMap[str, float] = Field(default_factory=FrozenDict)


class ComponentEvidence(Record):
    """What interventions at the last token say about one component.

    Accuracies are shares of right answers: `zeroed`, `mean_ablated` and `cama_ablated` with its output replaced; `cut`,
    of a head, with its attention to one place removed; `once_others_zeroed` with the other heads of its backup group
    zeroed, and with it as well; `suppressed` the same for the stronger heads of its groups, one by one.

    `attention` is a head's mean attention from the last token, `top_key` in how many prompts that place gets most,
    `operand_mass` its attention to all operands together.

    With its output from a run with another operand: `moved` is how far that moves the answer to that run's, as a share
    of what the whole run moves; `switched` how often the answer becomes that one, of the `exchanged` prompts on which
    the two differ; `margin` logit(that answer) - logit(clean answer) before and after; `gain` what that answer's logit
    gains.

    `lens_answer` is what its output adds to the answer's logit, against the mean logit; `lens_top_1`, `lens_top_3` and
    `lens_top_5` are how often it has the answer among its likeliest tokens. `target_logits` and `target_top_5` are the
    same for every target, the logits as they are; `target_prompts` counts the prompts in which a target has a token.
    `cosine_answer` is that of its output with the answer's unembedding, `cosine_residual` with the residual stream that
    it reads.
    """

    ABSENT_IF_DEFAULT = ("exchanged",)

    component: str
    zeroed: float
    mean_ablated: float | None = None
    cama_ablated: float | None = None
    attention: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    top_key: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    operand_mass: float | None = None
    cut: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    moved: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    switched: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    exchanged: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    margin: FrozenMap[str, tuple[float, float]] = Field(default_factory=FrozenDict)
    gain: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    lens_answer: float
    lens_top_1: float | None = None
    lens_top_3: float | None = None
    lens_top_5: float
    target_logits: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    target_top_5: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    target_prompts: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    cosine_answer: float | None = None
    cosine_residual: float | None = None
    others: tuple[str, ...] = ()
    once_others_zeroed: tuple[float, float] | None = None
    suppressed: tuple[Suppressed, ...] = ()


class PruningStep(Record):
    """One head zeroed in addition to those before it, the one that costs least, and the accuracy that is left."""

    component: str
    accuracy: float


class CircuitEvidence(Record):
    """Interventions on a circuit at the last token, on `n` prompts that the model answers correctly, the first of
    `drawn`. `pruning` zeroes all heads of the circuit one after another. `controls` are heads and MLPs drawn outside
    the circuit, with what their output adds to the answer's logit. `no_targets` says why pair sums and operands were
    not looked up, where they were not.
    """

    n: int
    components: tuple[ComponentEvidence, ...]
    pruning: tuple[PruningStep, ...] = ()
    drawn: int | None = None
    controls: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    no_targets: str = ""


def short_role(role: str) -> str:
    """A role without the word that all operands share."""
    return role.removeprefix(OPERAND)


# Every figure under the name of its row, as Tables 13 and 14 print them.


def component_figures(one: ComponentEvidence, evidence: CircuitEvidence) -> Iterator[tuple[str, float | str]]:
    """The figures of a component under the names of the published rows."""
    yield from _of_operands("attention to", one.attention)
    yield from ((f"prompts with {short_role(role)} on top", f"{k}/{evidence.n}") for role, k in one.top_key.items())
    if one.operand_mass is not None:
        yield "attention to operands", one.operand_mass
        first = next((one.attention[role] for role in BOS_ROLES if role in one.attention), None)
        if first is not None and one.operand_mass > 0:
            yield "attention to BOS, times that to operands", first / one.operand_mass
    yield "accuracy without it", one.zeroed
    if one.mean_ablated is not None:
        yield "accuracy at its mean", one.mean_ablated
    if one.cama_ablated is not None:
        yield "accuracy lost by CAMA ablation", 1.0 - one.cama_ablated
    yield from _of_operands("accuracy without its edge to", one.cut)
    yield from _of_operands("answers switched by another", one.switched)
    for role, (before, after) in one.margin.items():
        yield f"margin of the other {short_role(role)}'s answer before", before
        yield f"margin of the other {short_role(role)}'s answer after", after
    yield from _of_operands("logits moved by another", one.gain)
    yield from _backup_figures(one)
    yield from _pruned(one, evidence)
    rates = {1: one.lens_top_1, 3: one.lens_top_3, 5: one.lens_top_5}
    yield from ((f"answer in the lens top {k}", rate) for k, rate in rates.items() if rate is not None)
    yield from ((f"logit of {target}", value) for target, value in one.target_logits.items())
    if outside := [value for name, value in evidence.controls.items() if _is_mlp(name) == _is_mlp(one.component)]:
        yield f"logit of the answer by random {'MLPs' if _is_mlp(one.component) else 'heads'}", fmean(outside)
    yield from ((f"{target} in the lens top 5", rate) for target, rate in one.target_top_5.items() if target != ANSWER)
    cosines = {"answer": one.cosine_answer, "residual": one.cosine_residual}
    yield from ((f"cosine with the {name}", value) for name, value in cosines.items() if value is not None)


def _is_mlp(component: str) -> bool:
    return not Component.parse(component).is_head


def _of_operands(name: str, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    return ((f"{name} {short_role(role)}", value) for role, value in values.items())


def _backup_figures(one: ComponentEvidence) -> Iterator[tuple[str, float]]:
    for then in one.suppressed:
        others = " and ".join(then.without)
        yield f"accuracy without {others}", then.before
        yield f"accuracy without {others} and it", then.zeroed
        yield from _of_operands(f"accuracy without {others} and its edge to", then.cut)
        for role, gain in then.gain.items():
            yield f"logits moved by another {short_role(role)} without {others}", gain
    if one.once_others_zeroed is not None and one.others not in {then.without for then in one.suppressed}:
        others = " and ".join(one.others)
        yield f"accuracy without {others}", one.once_others_zeroed[0]
        yield f"accuracy without {others} and it", one.once_others_zeroed[1]


def _pruned(one: ComponentEvidence, evidence: CircuitEvidence) -> Iterator[tuple[str, float]]:
    """Of the last head that is pruned what is left before and then, of the others what is left then."""
    names = [step.component for step in evidence.pruning]
    if one.component not in names:
        return
    place = names.index(one.component)
    if place == len(names) - 1:
        yield "accuracy before it is pruned last", evidence.pruning[place - 1].accuracy if place else 1.0
    yield "accuracy once it is pruned", evidence.pruning[place].accuracy


# The table on a page and in the terminal.


def evidence_table(evidence: CircuitEvidence) -> tuple[list[str], list[list[str]]]:
    """The evidence as columns and rows of short texts: accuracy when replaced in three ways, the role that gets most
    attention, the edge that costs most, how far each operand is moved, the lens, and the accuracy without
    the backups, then without the head as well.
    """
    operands = list(dict.fromkeys(role for one in evidence.components for role in one.moved))
    moved = [f"moved {short_role(role)}" for role in operands]
    columns = ["component", "zeroed", "mean", "CAMA", "attends to", "cut", *moved, "lens", "backups gone"]
    return columns, [_evidence_row(one, operands) for one in evidence.components]


def _evidence_row(one: ComponentEvidence, operands: Iterable[str]) -> list[str]:
    attended = max(one.attention.items(), key=lambda item: item[1], default=None)
    costliest = min(one.cut.items(), key=lambda item: item[1], default=None)
    rest = one.once_others_zeroed
    return [
        one.component,
        _figure(one.zeroed),
        _figure(one.mean_ablated),
        _figure(one.cama_ablated),
        "" if attended is None else f"{short_role(attended[0])} {_figure(attended[1])}",
        "" if costliest is None else f"{short_role(costliest[0])} {_figure(costliest[1])}",
        *(_figure(one.moved.get(role)) for role in operands),
        _figure(one.lens_top_5),
        "" if rest is None else f"{_figure(rest[0])} to {_figure(rest[1])}",
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{round(value, 2) + 0.0:.2f}"  # + 0.0: no minus before zero


def figure_rows(evidence: CircuitEvidence) -> list[tuple[str, str, str]]:
    """Every figure: component, what, value."""
    return [
        (one.component, name, value if isinstance(value, str) else f"{round(value, 4) + 0.0:.4g}")
        for one in evidence.components
        for name, value in component_figures(one, evidence)
    ]
