"""Fit attention programs to heads, and grade them on other prompts.

*Fit.* Least squares on the simplex over at most three rules, greedily with the five best kept at each size; the best
of each size are compared by overlap (1 - total variation), and a rule more has to be worth a hundredth. With an `if`
the queries are fitted apart; it has to be worth two hundredths. A rule counts only where it has a key of its own on at
least a fifth of some kind of prompts, and on a twentieth of the behaviour's: elsewhere it would be "BOS" under another
name.

*Grade.* Beside the overlap of a program stand what needs no tokens (the mean pattern of each position, all BOS), and of
a behaviour's prompts the head's own pattern on the counterfactual. The *change* overlap is that of what the
counterfactual changes: 0 for a program that does not react, however well it finds its place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.running import (
    DEPENDS,
    LEAST_BY_POSITION,
    LEAST_CHANGE,
    LEAST_MOVED,
    MARGIN,
    POSITION_ONLY,
    PROGRAM,
    AttentionProgram,
    Grade,
    Word,
)
from vesalius.explanations.atlas.text import passages
from vesalius.explanations.running.battery import COUNTERFACTUAL, OWN, RANDOM_ROWS, Sample, samples
from vesalius.explanations.running.programs import Program, mixture
from vesalius.explanations.running.rules import BOS, CONDITIONS, is_positional, library
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress, checkpoint, silent

#: Rules in a mixture at most, candidates kept at each size, and what a rule more, and an `if`, must add in overlap.
MOST_RULES, BEAM, WORTH, WORTH_IF = 3, 5, 0.01, 0.02
#: The share of queries, by weight, on which a rule must have a key of its own: of some kind, and of the behaviour's.
OWN_SHARE, OWN_HERE = 0.2, 0.05
#: Queries, by weight, that an `if` must leave on either side, and how many conditions are fitted to the end.
SIDE, TRIED = 0.05, 2


@dataclass
class _Table:
    """One kind of prompts as rows of queries: what each rule looks at, and the products of rules."""

    sample: Sample
    looks: Float[Tensor, "rule query key"]
    own: Bool[Tensor, "rule query"]
    products: Float[Tensor, "query rule rule"]
    rows: Bool[Tensor, "prompt query"]

    @classmethod
    def of(cls, sample: Sample, rules: Sequence[str]) -> "_Table":
        """The rules on these prompts."""
        rows = sample.tokens.queries
        looked = [sample.tokens.look(rule) for rule in rules]
        looks = torch.stack([weights[rows] for weights, _ in looked])
        own = torch.stack([own[rows] for _, own in looked])
        return cls(sample, looks, own, torch.einsum("rqk,sqk->qrs", looks, looks), rows)


@dataclass
class _Queries:
    """The queries of one head that a mixture is fitted to: a table, their patterns and weights."""

    table: _Table
    pattern: Float[Tensor, "query key"]
    weight: Float[Tensor, " query"]

    def where(self, holds: Bool[Tensor, "prompt query"]) -> "_Queries":
        """Those of these queries for which a condition holds; the others weigh nothing."""
        return _Queries(self.table, self.pattern, self.weight * holds[self.table.rows])

    def overlap(self, weights: Float[Tensor, " rule"]) -> float:
        """The overlap of a mixture with the head, in sum over weights."""
        used = weights.nonzero()[:, 0]
        looked = torch.einsum("r,rqk->qk", weights[used], self.table.looks[used])
        return float((torch.minimum(looked, self.pattern).sum(-1) * self.weight).sum())


class Fits:
    """Programs for heads, fitted to some samples."""

    def __init__(self, fit: Sequence[Sample]) -> None:
        self.samples = list(fit)
        self.rules = library([sample.tokens for sample in fit])
        self.tables = [_Table.of(sample, self.rules) for sample in fit]
        self.holds = {
            condition: [sample.tokens.holds(condition) for sample in fit]
            for condition in CONDITIONS
            if any(bool(sample.tokens.holds(condition).any()) for sample in fit)
        }

    def program(self, head: Component, *, by_position: bool = False) -> Program:
        """The program of a head; `by_position` gives the best that reads no token."""
        queries = [
            _Queries(table, sample.patterns[head][table.rows], sample.weights(head)[table.rows])
            for sample, table in zip(self.samples, self.tables, strict=True)
        ]
        best, overlap, _ = self._mixture(queries, by_position=by_position)
        if by_position:
            return Program(best)
        tried = []
        for condition, holds in self.holds.items():
            inside = [one.where(here) for one, here in zip(queries, holds, strict=True)]
            outside = [one.where(~here) for one, here in zip(queries, holds, strict=True)]
            shares = [sum(float(one.weight.sum()) for one in side) / len(queries) for side in (inside, outside)]
            if min(shares) < SIDE:
                continue
            then, found, loss = self._mixture(inside, beam=1)
            other, rest, other_loss = self._mixture(outside, beam=1)
            if then != other:
                tried.append((loss + other_loss, condition, inside, outside))
        program = Program(best)
        for _, condition, inside, outside in sorted(tried, key=lambda one: one[0])[:TRIED]:
            (then, found, _), (other, rest, _) = self._mixture(inside), self._mixture(outside)
            if then != other and found + rest > overlap + WORTH_IF * len(queries):
                program, overlap = Program(other, condition, then), found + rest
        return program

    def _mixture(
        self, queries: Sequence[_Queries], *, by_position: bool = False, beam: int = BEAM
    ) -> tuple[tuple[tuple[str, float], ...], float, float]:
        """The best mixture for some queries, its overlap in sum over weights, and its squared loss."""
        gram = sum(torch.einsum("q,qrs->rs", one.weight, one.table.products) for one in queries)
        cross = sum(torch.einsum("rqk,qk->r", one.table.looks, one.pattern * one.weight[:, None]) for one in queries)
        assert isinstance(gram, Tensor)
        assert isinstance(cross, Tensor)
        allowed = self._counting(queries)
        if by_position:
            allowed &= torch.tensor([is_positional(rule) for rule in self.rules])
        sizes: list[list[tuple[float, Tensor]]] = []
        kept: list[tuple[float, Tensor]] = [(0.0, torch.zeros(len(self.rules)))]
        for size in range(MOST_RULES):
            kept = _grown(gram, cross, [weights for _, weights in kept], allowed, size, beam)
            if not kept:
                break
            kept = [_polished(gram, cross, weights) for _, weights in kept]
            sizes.append(kept)
        best: tuple[float, float, Tensor] | None = None
        total = sum(float(one.weight.sum()) for one in queries)
        for found in sizes:
            for loss, weights in found:
                overlap = sum(one.overlap(weights) for one in queries)
                if best is None or overlap > best[0] + (WORTH if found is not sizes[0] else 0.0) * total:
                    best = overlap, loss, weights
        assert best is not None
        overlap, loss, weights = best
        named = {self.rules[i]: float(weights[i]) for i in weights.nonzero()[:, 0].tolist()}
        return mixture(named), overlap, loss

    def _counting(self, queries: Sequence[_Queries]) -> Bool[Tensor, " rule"]:
        """The rules with enough keys of their own on these queries. BOS needs none."""
        most, here = torch.zeros(len(self.rules)), torch.zeros(len(self.rules))
        of_behaviour = [one for one in queries if one.table.sample.kind in (OWN, COUNTERFACTUAL)]
        for one in queries:
            if (total := float(one.weight.sum())) <= 0:
                continue
            share = (one.table.own.float() @ one.weight) / total
            most = torch.maximum(most, share)
            if one in of_behaviour:
                here = torch.maximum(here, share)
        counting = (most >= OWN_SHARE) & ((here >= OWN_HERE) | (not of_behaviour))
        counting[self.rules.index(BOS)] = True
        return counting


def _grown(
    gram: Tensor, cross: Tensor, kept: Sequence[Tensor], allowed: Bool[Tensor, " rule"], size: int, beam: int
) -> list[tuple[float, Tensor]]:
    """The `beam` best mixtures of one rule more than those that were kept, which have `size`, by squared loss (less
    what no rule changes). A set of rules is made from the first that it extends.
    """
    found: dict[tuple[int, ...], tuple[float, Tensor, int, Tensor]] = {}
    for weights in kept:
        used = weights.nonzero()[:, 0].tolist()
        if len(used) != size:
            continue
        losses, steps = _towards(gram, cross, weights)
        further = allowed.clone()
        further[used] = False
        for rule, loss in zip(further.nonzero()[:, 0].tolist(), losses[further].tolist(), strict=True):
            found.setdefault(tuple(sorted([*used, rule])), (loss, weights, rule, steps[rule]))
    grown = []
    for loss, weights, rule, step in sorted(found.values(), key=lambda one: one[0])[:beam]:
        mixed = weights * (1 - step)
        mixed[rule] = step
        grown.append((loss, mixed))
    return grown


def _towards(gram: Tensor, cross: Tensor, weights: Tensor) -> tuple[Float[Tensor, " rule"], Float[Tensor, " rule"]]:
    """How far it is best to move from a mixture towards each rule, and the squared loss there."""
    alone = gram.diagonal() - 2 * cross
    if not bool(weights.any()):
        return alone, torch.ones_like(cross)
    looked = gram @ weights
    slope = cross - looked - weights @ (cross - looked)
    curvature = gram.diagonal() - 2 * looked + weights @ looked
    steps = torch.where(curvature > 1e-12, slope / curvature.clamp(min=1e-12), 0.0).clamp(0, 1)
    return _loss(gram, cross, weights) - 2 * steps * slope + steps**2 * curvature, steps


def _polished(gram: Tensor, cross: Tensor, weights: Tensor) -> tuple[float, Tensor]:
    """The same rules, weighed anew: each in turn is moved towards and away from the rest."""
    used = weights.nonzero()[:, 0].tolist()
    if len(used) < 2:
        return _loss(gram, cross, weights), weights
    small, goal, mixed = gram[used][:, used].tolist(), cross[used].tolist(), weights[used].tolist()
    places = range(len(used))
    for _ in range(8):
        for i in places:
            others = sum(mixed) - mixed[i]
            if others <= 1e-9:
                continue
            rest = [0.0 if j == i else mixed[j] / others for j in places]
            looked = [sum(small[j][k] * rest[k] for k in places) for j in places]
            own = sum(rest[j] * looked[j] for j in places)
            slope = goal[i] - looked[i] - sum(rest[j] * goal[j] for j in places) + own
            curvature = small[i][i] - 2 * looked[i] + own
            step = min(1.0, max(0.0, slope / curvature)) if curvature > 1e-12 else 0.0
            mixed = [step if j == i else (1 - step) * rest[j] for j in places]
    whole = torch.zeros_like(weights)
    whole[used] = torch.tensor(mixed, dtype=weights.dtype)
    return _loss(gram, cross, whole), whole


def _loss(gram: Tensor, cross: Tensor, weights: Tensor) -> float:
    return float(weights @ gram @ weights - 2 * weights @ cross)


def fit_programs(
    fit: Sequence[Sample], heads: Sequence[Component], *, progress: Progress = silent
) -> dict[Component, Program]:
    """The program of every head."""
    fits = Fits(fit)
    programs = {}
    for place, head in enumerate(heads, 1):
        checkpoint()
        progress("fitting attention programs", place, len(heads))
        programs[head] = fits.program(head)
    return programs


# Grading.


def graded(
    programs: Mapping[Component, Program],
    fit: Sequence[Sample],
    grading: Mapping[str, Sequence[Sample]],
    *,
    progress: Progress = silent,
) -> dict[Component, AttentionProgram]:
    """Every program with its figures on prompts that were not fitted to, by their names, and the word that they give.
    What decides the word are the behaviour's own prompts of the first name that has some, else the best kind.
    """
    means = PositionMeans(fit)
    found = {}
    for place, (head, program) in enumerate(programs.items(), 1):
        checkpoint()
        progress("grading attention programs", place, len(programs))
        grades = [
            _grade(name, sample, head, program, means)
            for name, parts in grading.items()
            for sample in parts
            if sample.kind != COUNTERFACTUAL
        ]
        own = next((grade for grade in grades if grade.own), None)
        word, decisive = _word(program, grades if own is None else [own])
        found[head] = AttentionProgram(
            head=str(head),
            program=str(program),
            words=program.words,
            word=word,
            decided_on=decisive,
            grades=tuple(grades),
        )
    return found


def _word(program: Program, grades: Sequence[Grade]) -> tuple[Word, str]:
    """The rule from figures to a word, on one kind of prompts or the first of several on which a program holds."""
    for grade in grades:
        rivals = (grade.position_mean, grade.bos)
        reacts = grade.change is None or grade.moved is None or grade.moved < LEAST_MOVED or grade.change > LEAST_CHANGE
        if program.reads_tokens and grade.overlap > max(rivals) + MARGIN and reacts:
            return PROGRAM, grade.on
    first = grades[-1] if len(grades) == 1 else min(grades, key=lambda one: one.position_mean)
    still = first.moved is None or first.moved < LEAST_MOVED
    by_position = first.position_mean if program.reads_tokens else max(first.position_mean, first.overlap)
    if by_position >= LEAST_BY_POSITION and still:
        return POSITION_ONLY, first.on
    return DEPENDS, first.on


def _grade(name: str, sample: Sample, head: Component, program: Program, means: "PositionMeans") -> Grade:
    weights, actual = sample.weights(head), sample.patterns[head]
    looked = program.pattern(sample.tokens)
    bos = torch.zeros_like(actual)
    bos[:, :, 0] = 1.0
    moved, own = sample.moved(head), sample.partner is not None
    change = None
    if moved is not None:
        assert sample.other is not None
        change = _change_overlap(moved, looked - program.pattern(sample.other), sample.tokens.queries)
    return Grade(
        on=name if own else sample.kind,
        own=own,
        n=int(sample.tokens.queries.sum()),
        overlap=_overlap(actual, looked, weights),
        position_mean=_overlap(actual, means.pattern(sample, head), weights),
        bos=_overlap(actual, bos, weights),
        counterfactual=None if sample.partner is None else _overlap(actual, sample.partner[head], weights),
        change=change,
        moved=None if moved is None else round(float(((moved.abs().sum(-1) / 2) * weights).sum()), 4),
    )


def _overlap(actual: Tensor, looked: Tensor, weights: Tensor) -> float:
    return round(float((torch.minimum(actual, looked).sum(-1) * weights).sum()), 4)


def _change_overlap(moved: Tensor, looked: Tensor, queries: Bool[Tensor, "prompt query"]) -> float:
    """1 where the program's attention changes as the head's does, 0 where it does not change."""
    apart, both = (moved - looked).abs().sum(-1)[queries].sum(), (moved.abs() + looked.abs()).sum(-1)[queries].sum()
    return round(float(1 - apart / both), 4) if float(both) > 0 else 0.0


class PositionMeans:
    """The mean pattern of each query position over the prompts of a kind that were fitted to; where those were shorter,
    the first token.
    """

    def __init__(self, fit: Sequence[Sample]) -> None:
        self.fit: dict[str, Callable[[Component], Tensor]] = {}
        for sample in fit:
            counted = sample.tokens.real.float()
            self.fit[sample.kind] = lambda head, sample=sample, counted=counted: (
                (sample.patterns[head] * counted[..., None]).sum(0) / counted.sum(0).clamp(min=1)[:, None]
            )

    def pattern(self, sample: Sample, head: Component) -> Float[Tensor, "prompt query key"]:
        """The mean patterns for these prompts."""
        actual = sample.patterns[head]
        return self.of(sample.kind, head, actual.shape[-1])[None].expand_as(actual)

    def of(self, kind: str, head: Component, width: int) -> Float[Tensor, "query key"]:
        """The mean pattern of a kind of prompts, for prompts of this width."""
        pattern = torch.zeros(width, width)
        if kind in self.fit:
            mean = self.fit[kind](head)
            n = min(width, len(mean))
            pattern[:n, :n] = mean[:n, :n]
        total = pattern.sum(-1, keepdim=True)
        pattern = pattern / total.clamp(min=1e-9)
        pattern[total[:, 0] < 1e-6, 0] = 1.0
        return pattern


# The word of every head of a model, whatever it is used for: attention programs on plain text and on repeated random
# tokens, by the rules that name the heads of an explanation.
#
# Nothing of a behaviour is run. Programs are fitted to one half of the passages and graded on the other, and the
# random tokens that grade are others. A head is a `program` where rules that read tokens say, on one of the two,
# where it looks; `position only` where the mean pattern of each position does on both; else what it attends to
# `depends on context`.

OTHERS = "others"
#: Seconds of processor time that the fit and the grade of a head take, about.
OF_A_HEAD = 0.3


def prompts_of_words(specimen: Specimen) -> int:
    """How many prompts are run; none of a model with inputs of its own, or that looks ahead."""
    if isinstance(specimen.vocabulary, FiniteVocabulary) or not specimen.model.config.causal:
        return 0
    text = passages(specimen)
    return 2 * RANDOM_ROWS + (0 if text is None else len(text.batch))


def attention_words(
    specimen: Specimen, *, progress: Progress = silent
) -> tuple[dict[Component, AttentionProgram], float]:
    """The program, the word and the figures of every head, and how many prompts were run. Models with inputs of their
    own, or that look ahead, have none.
    """
    if not prompts_of_words(specimen):
        return {}, 0.0
    heads, cost = [part for part in specimen.model.components if part.is_head], Cost()

    def count(prompts: float) -> None:
        cost.rows += prompts

    fit, others = (samples(specimen, heads, None, grading=grading, cost=count) for grading in (False, True))
    programs = fit_programs(fit, heads, progress=progress)
    return graded(programs, fit, {OTHERS: others}, progress=progress), cost.rows
