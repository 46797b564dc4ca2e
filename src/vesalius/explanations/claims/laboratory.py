"""The laboratory that checks claims: one specimen, held-out inputs, and recordings shared by all experiments.

Inputs come in pairs, a base that is run and a source that values are taken from, drawn with a separate seed so that
they are not the inputs a hypothesis was made on. A specimen with a finite vocabulary answers at every position
(`clean`, `interchange`); a natural one gives one score per prompt. `scores` exists for both: higher is better, and for
a finite vocabulary it is the share of unchanged outputs.
"""

import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.trial import NUMERIC_TOLERANCE, trial
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene import (
    Batch,
    Cost,
    Plan,
    Readout,
    Recordings,
    Values,
    activations,
    means,
    means_of,
    reordered,
    run,
    zeros,
)
from vesalius.intervene.head_inputs import HeadInputs
from vesalius.intervene.plan import KEEP, component_index
from vesalius.intervene.values import component_values
from vesalius.model.specimen import FiniteVocabulary, Specimen, json_value
from vesalius.rasp import Program, ProgramTrace
from vesalius.statistics import above_zero, mean_apart_from_zero

Replacement = Literal["zero", "mean", "resample", "moved"]

#: Claims are checked on inputs drawn with this seed, which no hypothesis was made on.
CLAIM_SEED = 7_000_003
FINITE_PAIRS = 1536
NATURAL_PAIRS = 64
ABLATION_PAIRS = 256  # effects of ablations need fewer inputs than worst-case interchange accuracy
MOVES_PER_PAIR = 2
#: Prompts of a natural model after which an effect may be found too small to count.
FIRST_LOOK = 6
#: Replacements whose answers claims ask for; of the others the score is enough, which needs few logits.
ANSWERED: tuple[Replacement, ...] = ("zero", "mean")
_NO_SUCH_OUTPUT, _NO_VALUE = -2, -3


class Ran(NamedTuple):
    """Prompts that have been run: the clean runs, and the outputs of all components on their counterfactuals. The
    readout of `answers` (`natural.answers`) has several columns, of which the first is the score that `scores` reads.
    """

    answers: Recordings
    scores: Recordings
    source_values: Values


class Lab:
    """A specimen with `n` held-out pairs of inputs and cached recordings.

    `circuit` lists the components under study; those outside it serve as matched controls. By default it is the
    specimen's component list, if that is a proper subset of the model's. `cost` counts the forward passes of ablations.
    Where the prompts are those of `ran`, its runs are taken.
    """

    def __init__(
        self,
        specimen: Specimen,
        *,
        n: int | None = None,
        seed: int = CLAIM_SEED,
        circuit: Sequence[Component] | None = None,
        ran: Ran | None = None,
    ) -> None:
        self.specimen, self.model, self.seed = specimen, specimen.model, seed
        self.finite = isinstance(specimen.vocabulary, FiniteVocabulary)
        self.n = n or (_finite_pairs(specimen.vocabulary.max_len) if self.finite else NATURAL_PAIRS)
        localized = specimen.components if len(specimen.components) < len(self.model.components) else ()
        self.circuit = tuple(localized if circuit is None else circuit)
        self.cost = Cost()
        self._material = trial(specimen, self.n, seed=seed, centred=True)
        self.n = len(self._material.batch)
        self.batch, self.source = self._material.batch, self._material.counterfactual
        same = ran is not None and torch.equal(ran.answers.batch.tokens.cpu(), self.ablation_batch.tokens.cpu())
        self._ran = ran if same else None
        self._traces: WeakKeyDictionary[Program, tuple[ProgramTrace, ProgramTrace]] = WeakKeyDictionary()
        self._codes: dict[tuple[tuple, int], tuple[Tensor, Tensor]] = {}
        self._full: dict[Component, Tensor] = {}
        #: Cached outcomes of experiments on whole programs, which several kinds of claim share.
        self.outcomes: WeakKeyDictionary[Program, dict[Any, Any]] = WeakKeyDictionary()
        self._crossed: dict[Component, Tensor] = {}
        self._moved: dict[Component, Tensor] = {}
        self._readings: dict[tuple[frozenset[Component], str], Tensor] = {}

    # Finite vocabularies: an answer at every position.

    def require_finite(self, kind: str) -> None:
        """Refuse a claim that needs an answer at every position if the model is a natural one."""
        if not self.finite:
            raise BadInput(
                f"claim {kind!r} compares a program's outputs, so it needs a specimen with a finite vocabulary, "
                f"not {self.specimen.name!r}"
            )

    @cached_property
    def numerical(self) -> bool:
        """Whether the specimen's outputs are numbers, compared within 0.05."""
        return self.finite and self.specimen.vocabulary.outputs is None  # type: ignore[union-attr]

    @cached_property
    def inputs(self) -> tuple[list, list]:
        """Base and source inputs as token lists."""
        return self.specimen.sample(self.n, self.seed), self.specimen.sample(self.n, self.seed + 1)

    @cached_property
    def real(self) -> Bool[Tensor, "pair pos"]:
        """Where the base has a token; positions are counted without BOS."""
        return self._real(self.batch)

    @cached_property
    def source_real(self) -> Bool[Tensor, "pair pos"]:
        """Where the source has a token."""
        return self._real(self.source)

    def _real(self, batch: Batch) -> Bool[Tensor, "pair pos"]:
        assert batch.mask is not None
        return batch.mask[:, 1:].cpu()

    @cached_property
    def same_place(self) -> Int[Tensor, "pair pos"]:
        """For each base position the same position of the source, -1 where the source has no token."""
        places = torch.arange(self.real.shape[1]).expand_as(self.real)
        return torch.where(self.source_real, places, -1)

    @cached_property
    def other_place(self) -> Int[Tensor, "pair pos"]:
        """The source's positions in random order, for variables that depend on the position alone."""
        order = torch.rand(self.real.shape, generator=torch.Generator().manual_seed(self.seed))
        shuffled = order.masked_fill(~self.source_real, 2.0).argsort(1)
        return torch.where(self.source_real, shuffled, -1)

    @cached_property
    def single_moves(self) -> tuple[Int[Tensor, " row"], Int[Tensor, "row pos"]]:
        """Moves of one output: for each pair twice, a base position and another position of the source it reads."""
        generator = torch.Generator().manual_seed(self.seed + 3)
        rows = torch.arange(self.n).repeat(MOVES_PER_PAIR)
        real, source_real = self.real[rows], self.source_real[rows]
        base = (torch.rand(len(rows), generator=generator) * real.sum(1)).long()
        source = (torch.rand(len(rows), generator=generator) * (source_real.sum(1) - 1)).long()
        source = source + (source >= base).long()
        reads = torch.full(real.shape, -1)
        places = torch.arange(len(rows))
        inside = source < source_real.sum(1)  # an input of one token has no other position
        reads[places[inside], base[inside]] = source[inside]
        return rows, reads

    @cached_property
    def clean(self) -> Tensor:
        """The model's answers on the base inputs."""
        return self._recordings.scores().cpu()

    def interchange(
        self,
        component: Component,
        reads: Int[Tensor, "row pos"],
        *,
        rows: Int[Tensor, " row"] | None = None,
    ) -> Tensor:
        """The model's answers when `component` takes, at each base position, the source's value at `reads` (-1: keeps
        its own). `rows` is the pair of each row. BOS is interchanged as well if all positions are.
        """
        component.within(self.model.config)
        rows = torch.arange(self.n) if rows is None else rows
        all_positions = (reads == self.same_place[rows]).all(1, keepdim=True)
        where = torch.cat([all_positions, reads >= 0], 1)
        positions = torch.cat([torch.zeros_like(reads[:, :1]), reads.clamp(min=0) + 1], 1)
        values = _values_at(self._source_values, component, rows, positions)
        choice = torch.full((len(rows), len(self.model.components)), KEEP)
        choice[:, component_index(component, self.model.config)] = torch.arange(len(rows))
        return run(self._recordings, Plan(rows, choice, where), values).cpu()

    def whole_interchange(self, component: Component) -> Tensor:
        """The model's answers when `component` takes the source's values at all the source's positions; cached."""
        if component not in self._full:
            self._full[component] = self.interchange(component, self.same_place)
        return self._full[component]

    def crossed_interchange(self, component: Component) -> Tensor:
        """The model's answers when `component` takes the source's values in random order of positions; cached."""
        if component not in self._crossed:
            self._crossed[component] = self.interchange(component, self.other_place)
        return self._crossed[component]

    def moved_once(self, component: Component) -> Tensor:
        """The model's answers when one output of `component` moves to another position (`single_moves`); cached."""
        if component not in self._moved:
            rows, reads = self.single_moves
            self._moved[component] = self.interchange(component, reads, rows=rows)
        return self._moved[component]

    def traces(self, program: Program) -> tuple[ProgramTrace, ProgramTrace]:
        """A program's traces on the base inputs and on the source inputs; cached as long as the program exists."""
        if program not in self._traces:
            tokens, lengths = self._encode(program)
            n = self.n
            pair = program.run(tokens[:n], lengths[:n]), program.run(tokens[n:], lengths[n:])
            self._traces[program] = pair
        return self._traces[program]

    def _encode(self, program: Program) -> tuple[Tensor, Tensor]:
        """Base and source inputs in a program's codes; cached for programs with the same vocabulary, such as rivals."""
        key = program.vocab, program.max_len
        if key not in self._codes:
            base, source = self.inputs
            self._codes[key] = program.encode([*base, *source])
        return self._codes[key]

    def answers(self, program: Program, output: Tensor) -> Tensor:
        """A program's output as the specimen's output codes, or as numbers."""
        if program.numerical:
            if not self.numerical:
                raise BadInput(
                    f"program {program.name!r} outputs numbers, but {self.specimen.name!r} outputs values of a list; "
                    "write a program that outputs those values"
                )
            return output
        if self.numerical:
            numbers = [float(v) if isinstance(v, int | float) else float("nan") for v in program.outputs]
            return torch.tensor([*numbers, float("nan")])[output]
        outputs = self.specimen.vocabulary.outputs  # type: ignore[union-attr]
        code_of = {_key(value): code for code, value in enumerate(outputs)}
        missing = {None: _NO_VALUE}
        codes = [code_of.get(_key(value), missing.get(value, _NO_SUCH_OUTPUT)) for value in program.outputs]
        return torch.tensor([*codes, _NO_VALUE])[output].float()

    def has_value(self, answers: Tensor) -> Bool[Tensor, "row pos"]:
        """Where a program's output has a value; a table has none for arguments that it does not list. A specimen that
        outputs None takes that for the value.
        """
        return ~answers.isnan() if self.numerical else answers != _NO_VALUE

    def same(self, first: Tensor, second: Tensor) -> Bool[Tensor, "row pos"]:
        """Where two answers agree: equal codes, or numbers less than 0.05 apart."""
        return (first - second).abs() < NUMERIC_TOLERANCE if self.numerical else first == second

    # Both kinds of specimen: one score per prompt.

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """The kinds of replacement that can be made: outputs are moved only where an input has another position."""
        if self.finite or bool((self._moves != torch.arange(self._moves.shape[1])).any()):
            return get_args(Replacement)
        return tuple(kind for kind in get_args(Replacement) if kind != "moved")

    def scores(self, components: Sequence[Component], replacement: Replacement) -> Float[Tensor, " prompt"]:
        """The score of each prompt with some components replaced; none gives the clean scores."""
        return self._to_scores(self.readings([components], replacement)[0]) if components else self._clean_scores

    def readings(self, sets: Sequence[Sequence[Component]], replacement: Replacement) -> list[Tensor]:
        """What the readout reads of each prompt with each set of components replaced; of answers, where the prompts
        have been run, only for `ANSWERED` replacements.
        """
        self.measure(sets, [replacement])
        return [self._readings[frozenset(members), replacement] for members in sets]

    @property
    def reads_answers(self) -> bool:
        """Whether readings are those of answers, not of the score alone."""
        return self._ran is not None

    @property
    def looks_first(self) -> bool:
        """Whether effects are looked at on a few prompts before all are run: in a natural model, where every run is
        expensive, and there are many more.
        """
        return not self.finite and self._n_ablated >= 2 * FIRST_LOOK

    def first_effect(
        self, components: Sequence[Component], replacement: Replacement
    ) -> Float[Tensor, " prompt"] | None:
        """The loss in score of the first `FIRST_LOOK` prompts; None without a first look."""
        if not self.looks_first:
            return None
        self.measure([components], [replacement], n=FIRST_LOOK)
        scores = self._to_scores(self._readings[frozenset(components), replacement][:FIRST_LOOK])
        return (self._clean_scores[:FIRST_LOOK] - scores) / self.scale

    def measure(
        self, sets: Sequence[Sequence[Component]], replacements: Sequence[Replacement], *, n: int | None = None
    ) -> None:
        """Measure the scores of several sets of components on the first `n` prompts (default: all), in one run for each
        kind of replacement. What is already known is not run again.
        """
        n = self._n_ablated if n is None else n
        for replacement in replacements:
            wanted = dict.fromkeys((frozenset(members), replacement) for members in sets)
            missing: dict[int, list[tuple[frozenset[Component], str]]] = {}
            for key in wanted:
                known = len(self._readings.get(key, ()))
                if known < n:
                    missing.setdefault(known, []).append(key)
            for known, keys in missing.items():
                if self.finite and replacement == "moved":
                    self._readings |= {key: self._crossed_readings(sorted(key[0])) for key in keys}
                    continue
                readings = self._replaced([sorted(key[0]) for key in keys], replacement, torch.arange(known, n))
                for key, reading in zip(keys, readings, strict=True):
                    self._readings[key] = torch.cat([self._readings[key], reading]) if known else reading

    @property
    def _n_ablated(self) -> int:
        return len(self.ablation_batch)

    @cached_property
    def _clean_scores(self) -> Float[Tensor, " prompt"]:
        return self._to_scores(self._ablation.scores().cpu())

    @cached_property
    def variation(self) -> float:
        """The share of outputs that differ between two inputs at the same position: what can change at all."""
        self.require_finite("variation")
        both = self.real & self.source_real
        source = Recordings(self.model, self.source, Readout(self._read)).scores().cpu()
        return float((~self.same(self.clean, source))[both].float().mean()) if bool(both.any()) else 0.0

    def effect(self, components: Sequence[Component], replacement: Replacement) -> Float[Tensor, " prompt"]:
        """The loss in score of each prompt; for natural models as a share of the mean clean score."""
        return (self.scores((), replacement) - self.scores(components, replacement)) / self.scale

    @cached_property
    def scale(self) -> float:
        """What losses are divided by: for natural models the mean clean score, NaN where its interval does not lie
        above 0; else 1.
        """
        return 1.0 if self.finite else above_zero(mean_apart_from_zero(self._clean_scores))

    def matched(self, component: Component, *, exclude: Sequence[Component] = (), k: int = 4) -> list[Component]:
        """Up to `k` components of the same kind outside the circuit and the claim, drawn with the lab's seed.

        In a natural model, where every run is expensive, all components of a kind have the same controls.
        """
        excluded = {component, *exclude, *self.circuit}
        kind = [c for c in self.model.components if c.is_head == component.is_head]
        if self.finite:
            pool = [c for c in kind if c not in excluded]
            return random.Random(f"{self.seed}/{component}").sample(pool, min(k, len(pool)))
        shuffled = random.Random(f"{self.seed}/{'heads' if component.is_head else 'MLPs'}").sample(kind, len(kind))
        return [c for c in shuffled if c not in excluded][:k]

    def scores_attending(self, head: Component, pattern: Float[Tensor, "prompt query key"]) -> Float[Tensor, " prompt"]:
        """The score of each prompt where a head attends by another pattern."""
        inputs = self._head_inputs(head)
        z = pattern.to(inputs.values.device, inputs.values.dtype) @ inputs.values
        plan = Plan.each(self.model.config, torch.arange(len(z)), head)
        return self._to_scores(run(self._ablation, plan, component_values(self.model, head, z), cost=self.cost).cpu())

    @cached_property
    def ablation_batch(self) -> Batch:
        """The prompts that ablations run on."""
        return self.batch.take(slice(0, self.n if self.finite else ABLATION_PAIRS))

    @property
    def answer_positions(self) -> Int[Tensor, "prompt query"] | None:
        """The positions at which a natural model's answer is read (None: everywhere)."""
        return None if self.finite else self._ablation.readout.at

    def pattern(self, head: Component) -> Float[Tensor, "prompt query key"]:
        """A head's attention on the ablation prompts; rows and columns past the end of a prompt are zero."""
        pattern, batch = self._head_inputs(head).pattern().cpu(), self.ablation_batch.to("cpu")
        real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
        return pattern * real[:, :, None] * real[:, None, :]

    def _head_inputs(self, head: Component) -> HeadInputs:
        return HeadInputs(self.model, self.ablation_batch, self._ablation.resid(head.layer), head)

    def _replaced(
        self, sets: list[list[Component]], replacement: Replacement, prompts: Int[Tensor, " n"]
    ) -> list[Float[Tensor, " n"]]:
        """The scores of some prompts with each set replaced."""
        values = self._table(replacement)
        single = len(values) == 1
        where = None if single or self._material.where is None else self._material.where[prompts]
        choices = torch.zeros_like(prompts) if single else prompts
        grid = Plan.grid(self.model.config, sets, choices=choices, positions=where)
        plan = Plan(prompts.repeat(len(sets)), grid.choice, grid.positions)
        recordings = self._ablation if self._ran is None or replacement in ANSWERED else self._ran.scores
        readings = run(recordings, plan, values, cost=self.cost).cpu()
        return list(readings.split(len(prompts)))

    def _crossed_readings(self, components: list[Component]) -> Tensor:
        """Readings with one component's source outputs read in random order of positions."""
        if len(components) != 1:
            raise BadInput("moved replacement takes one component at a time; use zero, mean or resample for several")
        return self.crossed_interchange(components[0])[: len(self.ablation_batch)]

    def _to_scores(self, readings: Tensor) -> Float[Tensor, " prompt"]:
        if not self.finite:
            return readings if readings.ndim == 1 else readings[:, 0].float()
        n = len(readings)
        real = self.real[:n]
        return (self.same(readings, self.clean[:n]) & real).sum(1) / real.sum(1)

    def _table(self, replacement: Replacement) -> Values:
        if replacement not in self._tables:
            n = slice(0, len(self.ablation_batch))
            if replacement == "resample" and self._ran is not None:
                values = self._ran.source_values
            elif replacement == "resample":
                values = activations(self.model, self.source.take(n).to(self.model.device))
            elif replacement == "mean":
                values = (
                    means(self.model, self.source.take(n).to(self.model.device))
                    if self.finite
                    else means_of(self.model, self._table("resample"))
                )
            elif replacement == "moved":
                values = reordered(self._table("resample"), self._moves)
            else:
                values = zeros(self.model)
            self._tables[replacement] = values
        return self._tables[replacement]

    @cached_property
    def _moves(self) -> Int[Tensor, "prompt pos"]:
        """For each position of a natural model's counterfactual another one, in random order; BOS and padding stay."""
        batch = self.source.take(slice(0, len(self.ablation_batch)))
        real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask.clone()
        real &= batch.tokens != self.model.config.bos_token
        generator = torch.Generator().manual_seed(self.seed + 5)
        places = torch.arange(real.shape[1]).repeat(len(real), 1)
        for row, counts in zip(places, real.cpu(), strict=True):
            order = row[counts][torch.randperm(int(counts.sum()), generator=generator)]
            row[order] = order.roll(1)  # one cycle through all of them, so that none stays
        return places

    @cached_property
    def _tables(self) -> dict[str, Values]:
        return {}

    @cached_property
    def _recordings(self) -> Recordings:
        return Recordings(self.model, self.batch, Readout(self._read))

    @cached_property
    def _ablation(self) -> Recordings:
        if self._ran is not None:
            return self._ran.answers
        readout = Readout(self._read) if self.finite else self._material.readout
        return Recordings(self.model, self.ablation_batch, readout)

    @cached_property
    def _source_values(self) -> Values:
        return activations(self.model, self.source.to(self.model.device))

    def _read(self, logits: Float[Tensor, "row pos out"], prompt: Tensor) -> Float[Tensor, "row pos"]:
        return logits[:, 1:, 0] if self.numerical else logits[:, 1:].argmax(-1).float()


def _finite_pairs(longest: int) -> int:
    """The number of pairs, smaller for long sequences: a program's selections grow with the square of the length."""
    return max(FINITE_PAIRS // 4, min(FINITE_PAIRS, FINITE_PAIRS * 15**2 // longest**2))


def _values_at(
    source: Values, component: Component, rows: Int[Tensor, " row"], positions: Int[Tensor, "row pos"]
) -> Values:
    """A table with one row per experiment: the component's source values at the positions that are read."""
    row = rows[:, None].to(source.embed.device)
    positions = positions.to(source.embed.device)

    def pick(values: Tensor, is_component: bool) -> Tensor:
        return values[row, positions] if is_component else values[:0]

    return Values(
        tuple(pick(z, component.is_head and layer == component.layer) for layer, z in enumerate(source.z)),
        tuple(pick(m, not component.is_head and layer == component.layer) for layer, m in enumerate(source.mlp)),
        source.embed[row, positions],
    )


def _key(value: object) -> object:
    """A value in the form of a specimen's card: tuples, and infinities as text."""
    encoded = json_value(value)  # type: ignore[arg-type]
    return tuple(map(_key, encoded)) if isinstance(encoded, list) else encoded
