"""*Reads from*, *copies*, *aggregates*: where a head attends, what it copies from there, and what it sums up.

Attention alone proves nothing: a head may attend to a position and copy nothing that matters. So a reading claim needs
both: attention mass on the claimed keys (above its nearest rivals, such as one position further), and an effect of
removing exactly those keys from the head's attention, above that of removing as many others. Where removing *all* keys
shows nothing although the head's values of other inputs do, something else stands in for a head that is silent: then no
cut can tell what it uses, and the claim is undecided. Copying is shown
causally: swapping the head's activations changes nothing where the claimed source position has the same value. Where
the claim names a variable of a program that is this copy, its verdict is that of `computes` for the same program.

A head that aggregates one variable over the positions that a selector picks must carry the aggregated value: the
verdict is that of `computes` for the same program, whose rivals move and replace the selector. Whether the value is all
it carries is another question (the rule of `depends_only_on`): where swaps at equal values do change outputs, the text
says that the head carries something beside.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import model_validator
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import SHOWN, Evidence, Verdict
from vesalius.documents.view import join_names
from vesalius.errors import BadInput
from vesalius.explanations.claims.attending import why_it_attends
from vesalius.explanations.claims.base import (
    MIN_CUT_EFFECT,
    MIN_MASS,
    Claim,
    CompiledProgram,
    Hypothesis,
    Outcome,
    above,
    all_of,
    marked,
    mean_evidence,
    rounded,
)
from vesalius.explanations.claims.dependence import (
    MIN_UNCHANGED,
    equal_across,
    equal_in,
    examine_dependence,
    swap,
    with_moved,
)
from vesalius.explanations.claims.interchange import examine_program, expression_of
from vesalius.explanations.laboratory import CircuitLab, Lab, NaturalLab
from vesalius.explanations.laboratory.runs import as_many_others
from vesalius.intervene.patterns import without_keys
from vesalius.model.specimen import Token
from vesalius.rasp import Aggregate, Comparison, Program, Select, SelectorWidth, indices

#: The outcome of the swaps where a head carries more than the aggregated value.
BESIDE = "something beside"

_RELATIONS = {
    Comparison.EQ: "equals",
    Comparison.NEQ: "differs from",
    Comparison.LT: "is less than",
    Comparison.LEQ: "is at most",
    Comparison.GT: "is more than",
    Comparison.GEQ: "is at least",
    Comparison.FALSE: "never goes with",
}


class Aggregates(Claim, frozen=True):
    """The head carries an Aggregate or a count (SelectorWidth) of the hypothesised program."""

    tested_in: ClassVar[type[Lab]] = CircuitLab

    kind: Literal["aggregates"] = "aggregates"
    hypothesis: Hypothesis

    @property
    def text(self) -> str:
        program, name = self.hypothesis.program, self._variable()
        node = expression_of(program, name)
        operand = f"the values of {program.name_of(node.values)}" if isinstance(node, Aggregate) else "the number"
        assert isinstance(node, Aggregate | SelectorWidth)
        return f"{self.component} aggregates {operand} over positions {_selection(program, node.selector)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Apply the rule of `computes`, and show by that of `depends_only_on` whether the value is all there is."""
        lab = CircuitLab.require(lab, self.kind)
        program, name = self.hypothesis.program, self._variable()
        return examine_aggregate(lab, self.part, program, name, equal=equal_in(lab, program, (name,)), level=level)

    def _variable(self) -> str:
        carried = self.hypothesis.carried_by(self.component)
        node = expression_of(self.hypothesis.program, carried[0])
        if len(carried) != 1 or not isinstance(node, Aggregate | SelectorWidth):
            raise BadInput(f"aggregates {self.component}: it must carry one Aggregate or SelectorWidth, not {carried}")
        return carried[0]


def examine_aggregate(
    lab: CircuitLab, head: Component, program: Program, name: str, *, equal: Bool[Tensor, "pair pos"], level: float
) -> Outcome:
    """The rule for a head that carries an aggregated or copied value; `equal` says where this is the same."""
    verdict, evidence = examine_program(lab, head, program, (name,), level=level)
    if verdict != "supported":
        return verdict, evidence
    alone, dependence = examine_dependence(lab, head, equal, level=level)
    outcome = {"supported": "nothing beside", "refuted": BESIDE}.get(alone, "not decided")
    return verdict, (*evidence, *(one.model_copy(update={"outcome": outcome}) for one in dependence))


def _selection(program: Program, selector: Select) -> str:
    keys, queries = program.name_of(selector.keys), program.name_of(selector.queries)
    if selector.predicate is Comparison.TRUE:
        return "everywhere"
    if keys == queries == indices.kind and selector.predicate is Comparison.LEQ:
        return "up to its own"
    values, n_here = program.value_list(selector.keys), len(program.value_list(selector.queries))
    selected = program.tables.selected[selector][: len(values), :n_here]
    if selected.any() and (selected == selected[:, :1]).all():  # whatever stands here
        chosen = [repr(value) for value, holds in zip(values, selected[:, 0], strict=True) if holds]
        return f"whose {keys} {'is' if len(chosen) == 1 else 'is one of'} {', '.join(chosen)}"
    relation = _RELATIONS[selector.predicate] if isinstance(selector.predicate, Comparison) else "goes with"
    return f"whose {keys} {relation} {queries} here"


Target = Bool[Tensor, "prompt query key"]


class ReadsFrom(Claim, frozen=True):
    """The head attends to certain keys and uses what it finds there.

    Exactly one of: `offset` (keys that many positions before the query; 0 is the query itself), `position` (counted
    from the first token after BOS), `tokens`, or `bos`. Queries are all positions, or with `queries="answer"` those
    where the output is read.
    """

    kind: Literal["reads_from"] = "reads_from"
    offset: int | None = None
    position: int | None = None
    tokens: tuple[Token, ...] | None = None
    bos: bool = False
    queries: Literal["all", "answer"] = "all"

    @model_validator(mode="after")
    def _one_target(self) -> "ReadsFrom":
        targets = [self.offset is not None, self.position is not None, self.tokens is not None, self.bos]
        if sum(targets) != 1:
            raise BadInput(f"reads_from {self.component}: give one of offset, position, tokens or bos")
        return self

    @property
    def text(self) -> str:
        return f"{self.component} reads from {self._where()} and uses what it finds."

    def _where(self) -> str:
        if self.tokens is not None:
            return f"the token(s) {join_names(self.tokens)}"
        return "BOS" if self.bos else _place_words(self.offset, self.position)

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Compare the attention mass with rivals, then the effect of removing the keys with that of other keys."""
        head = _head(self.part, lab)
        keys = _Keys(lab, self.queries)
        target = self._target(keys)
        pattern = lab.pattern(head)
        rivals = {label: mass for label, where in self._rivals(keys) if (mass := _mass(pattern, where)) is not None}
        mass = _mass(pattern, target)
        if mass is None:
            no_cases = mean_evidence(
                lab, "attention", measure="mass on the claimed keys", values=torch.zeros(0), level=level, rule="n > 0"
            )
            return "undecided", (no_cases,)
        bar = max([MIN_MASS, *(float(rival.mean()) for rival in rivals.values())])
        attention = mean_evidence(
            lab,
            "attention",
            measure="mass on the claimed keys",
            values=mass,
            level=level,
            rule=f"interval above {bar:.3f} ({_source_of(MIN_MASS, rivals)})",
            bar=bar,
            controls={label: rounded(rival.mean()) for label, rival in rivals.items()},
        )
        control = float(_cut_effect(lab, head, as_many_others(target, keys.allowed, lab.seed)).mean())
        cut_bar = max(MIN_CUT_EFFECT, control)
        cut = mean_evidence(
            lab,
            "claimed keys cut out of the attention",
            measure="effect",
            values=_cut_effect(lab, head, target),
            level=level,
            rule=f"interval above {cut_bar:.3f} ({'the least' if cut_bar > control else 'as many other keys'})",
            bar=cut_bar,
            controls={"as_many_other_keys": rounded(control)},
        )
        used, evidence = above(cut, cut_bar), (attention, cut)
        if used == "refuted" and lab.finite:
            everything = keys.allowed & target.any(-1, keepdim=True)
            silent, powerless = _powerless(lab, head, everything, cut_bar, level)
            used, evidence = ("undecided", (*evidence, *powerless)) if silent else (used, evidence)
        verdict = all_of(above(attention, bar), used)
        if verdict == "supported" and self.offset == 1 and self.queries == "all" and isinstance(lab, NaturalLab):
            evidence = (*evidence, *why_it_attends(lab, head, "previous", level))
        return verdict, evidence

    def _target(self, keys: "_Keys") -> Target:
        if self.offset is not None:
            return keys.before(self.offset)
        if self.position is not None:
            return keys.at(self.position)
        return keys.of_tokens(self.tokens) if self.tokens is not None else keys.bos()

    def _rivals(self, keys: "_Keys") -> list[tuple[str, Target]]:
        if self.offset is not None:
            neighbours = [(f"offset {o}", keys.before(o)) for o in (self.offset - 1, self.offset + 1)]
            return neighbours if self.offset != 0 else neighbours[1:]
        if self.position is not None:
            return [(f"position {p}", keys.at(p)) for p in (self.position - 1, self.position + 1) if p >= 0]
        if self.tokens is not None:
            return [("all other tokens", keys.allowed & ~keys.of_tokens(self.tokens) & ~keys.bos())]
        return [("first token", keys.at(0))]


class Copies(Claim, frozen=True):
    """The head brings a variable's value from another position: `offset` before its own, or a fixed `position`."""

    tested_in: ClassVar[type[Lab]] = CircuitLab

    kind: Literal["copies"] = "copies"
    program: CompiledProgram
    variable: str = "tokens"
    offset: int | None = None
    position: int | None = None
    carried: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_source(self) -> "Copies":
        if (self.offset is None) == (self.position is None):
            raise BadInput(f"copies {self.component}: give either the offset or the position it copies from")
        return self

    @property
    def text(self) -> str:
        return f"{self.component} copies {self.variable} from {_place_words(self.offset, self.position)}."

    def examine(self, lab: Lab, *, level: float) -> Outcome:
        """Swap where the copied value is equal and where it differs, also for the neighbouring source positions."""
        lab = CircuitLab.require(lab, self.kind)
        head = _head(self.part, lab)
        if self._is_carried():
            return examine_aggregate(lab, head, self.program, self.carried[0], equal=self._equal(lab, 0), level=level)
        verdict, evidence = examine_dependence(lab, head, self._equal(lab, 0), level=level)
        rivals = [
            swap(
                lab,
                head,
                self._equal(lab, step),
                f"where the value {step:+d} position away is equal",
                level=level,
                rule=f"below {MIN_UNCHANGED}",
            )
            for step in (-1, 1)
        ]
        if verdict == "supported" and any((rival.value or 0.0) >= MIN_UNCHANGED for rival in rivals):
            verdict = "undecided"  # the neighbouring position explains the head as well
        marks: dict[bool, Verdict] = {True: "undecided", False: "supported"}
        rivals = [marked(rival, marks[(rival.value or 0.0) >= MIN_UNCHANGED]) for rival in rivals]
        evidence = (*evidence, *rivals)
        if verdict != "supported":
            return verdict, evidence
        # Base and source positions whose copied values are equal; both must have one.
        same = equal_across(lab, self.program, (self.variable,))
        n = same.shape[1]
        places = torch.arange(n)
        read = places - self.offset if self.offset is not None else torch.full_like(places, self.position or 0)
        inside, there = (read >= 0) & (read < n), read.clamp(0, n - 1)
        across = same[:, there][:, :, there] & inside[:, None] & inside
        return with_moved(lab, head, self.program, self.carried, across, evidence, level=level)

    def _is_carried(self) -> bool:
        """Whether the carried variable of the program is this copy, so that the claim is that of `computes`."""
        if len(self.carried) != 1:
            return False
        node = expression_of(self.program, self.carried[0])
        if not isinstance(node, Aggregate) or node.numerical or self.program.name_of(node.values) != self.variable:
            return False
        select = node.selector
        if not (select.keys is select.queries is indices):
            return False
        n = self.program.max_len
        wanted = [query - self.offset if self.offset is not None else self.position for query in range(n)]
        selected = self.program.tables.selected[select][:n, :n]
        return all(
            [key for key in range(n) if selected[key, query]] == [key for key in (wanted[query],) if key in range(n)]
            for query in range(n)
        )

    def _equal(self, lab: CircuitLab, step: int) -> Bool[Tensor, "pair pos"]:
        """Where base and source have the same value `step` beyond the source position, or both have none."""
        same = equal_in(lab, self.program, (self.variable,))
        places = torch.arange(same.shape[1])
        read = (places - self.offset if self.offset is not None else torch.full_like(places, self.position or 0)) + step
        inside = (read >= 0) & (read < same.shape[1])
        there = read.clamp(0, same.shape[1] - 1)
        absent = ~inside | (~lab.real & ~lab.source_real)[:, there]
        return absent | (same[:, there] & inside)


class _Keys:
    """Sets of (query, key) positions of the lab's prompts."""

    def __init__(self, lab: Lab, queries: Literal["all", "answer"]) -> None:
        batch, model = lab.batch, lab.model
        self.lab, self.tokens = lab, batch.tokens.cpu()
        real = torch.ones_like(self.tokens, dtype=torch.bool) if batch.mask is None else batch.mask.cpu()
        self.first = int(model.config.begin_with_bos(self.tokens))
        n = self.tokens.shape[1]
        is_query = real.clone()
        is_query[:, : self.first] = False
        if queries == "answer" and (at := lab.answer_positions) is not None:
            is_query = torch.zeros_like(real).scatter_(1, at.cpu(), True)
        causal = torch.ones(n, n, dtype=torch.bool).tril() if model.config.causal else torch.ones(n, n).bool()
        self.allowed: Target = is_query[:, :, None] & real[:, None, :] & causal
        self.places = torch.arange(n)

    def before(self, offset: int) -> Target:
        """Keys `offset` positions before their query, without BOS."""
        there = (self.places[None, :] == self.places[:, None] - offset) & (self.places >= self.first)
        return self.allowed & there

    def at(self, position: int) -> Target:
        """Keys at one token position."""
        return self.allowed & (self.places == position + self.first)

    def of_tokens(self, tokens: tuple[Token, ...]) -> Target:
        """Keys that hold one of the tokens."""
        ids = self.lab.token_ids(tokens)
        return self.allowed & torch.isin(self.tokens, torch.tensor(ids))[:, None, :]

    def bos(self) -> Target:
        """BOS as the key."""
        return self.allowed & (self.places < self.first)


def _source_of(least: float, rivals: dict[str, Tensor]) -> str:
    """Which of the least mass and the rivals sets a bar."""
    largest = max(rivals, key=lambda label: float(rivals[label].mean()), default=None)
    return "the least" if largest is None or float(rivals[largest].mean()) <= least else largest


def _place_words(offset: int | None, position: int | None) -> str:
    if offset is None:
        return f"position {position}"
    if offset == 0:
        return "its own position"
    return f"{abs(offset)} position(s) {'before' if offset > 0 else 'after'}"


def _head(component: Component, lab: Lab) -> Component:
    if not component.is_head:
        raise BadInput(f"component {component} is an MLP, which reads only its own position; name a head")
    return component.within(lab.model.config)


def _mass(pattern: Float[Tensor, "prompt query key"], target: Target) -> Float[Tensor, " prompt"] | None:
    """Mean attention on the target keys per prompt, over the queries with a target; None if there are none."""
    has_target = target.any(-1)
    prompts = has_target.any(1)
    if not bool(prompts.any()):
        return None
    mass = (pattern * target).sum(-1)
    return ((mass * has_target).sum(1) / has_target.sum(1).clamp(min=1))[prompts]


def _powerless(
    lab: Lab, head: Component, everything: Target, bar: float, level: float
) -> tuple[bool, tuple[Evidence, ...]]:
    """Whether no cut of a head's attention could show although what it brings matters, with the two figures that say
    so: all its keys removed where it has one that is claimed, and its values of other inputs.
    """
    bars = f"where all keys cut lie below {bar:.3f} and other values above it, no cut can tell"
    silent, other = (
        mean_evidence(lab, experiment, measure="effect", values=values, level=level, rule=bars)
        for experiment, values in (
            ("all keys cut out of the attention", _cut_effect(lab, head, everything)),
            ("resample replacement", lab.effect([head], "resample")),
        )
    )
    powerless = above(silent, bar) == "refuted" and above(other, bar) == "supported"
    shown = tuple(one.model_copy(update={"outcome": SHOWN}) for one in (silent, other))
    return powerless, shown


def _cut_effect(lab: Lab, head: Component, target: Target) -> Float[Tensor, " prompt"]:
    """Effect of removing keys from a head's attention, with the rest scaled up."""
    remaining = without_keys(lab.pattern(head), target, sinks=lab.model.config.sinks)
    return (lab.scores((), "zero") - lab.scores_attending(head, remaining)) / lab.scale
