"""The laboratory of a specimen with a finite vocabulary: the model and a program answer at every position.

Base and source inputs have independent lengths. A component takes the source's values at chosen positions
(`interchange`), and the answers are compared with those of programs. A score is the share of unchanged outputs.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.rare import NUMERIC_TOLERANCE
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory.base import ALL_REPLACEMENTS, CLAIM_SEED, Lab, PerPrompt, Replacement, own_circuit
from vesalius.intervene import Batch, Plan, Readout, Recordings, Values, activations, means, run
from vesalius.intervene.plan import KEEP, component_index
from vesalius.model.specimen import FiniteVocabulary, Specimen, Token, json_value, listed_tokens
from vesalius.rasp import Program, ProgramTrace

PAIRS = 1536
MOVES_PER_PAIR = 2
_NO_SUCH_OUTPUT, _NO_VALUE = -2, -3


class CircuitLab(Lab):
    """A specimen with `n` held-out pairs of inputs. By default the circuit is the specimen's component list, if that is
    a proper subset of the model's.
    """

    finite = True
    needs = "compares a program's outputs, so it needs a specimen with a finite vocabulary"

    def __init__(
        self,
        specimen: Specimen,
        *,
        n: int | None = None,
        seed: int = CLAIM_SEED,
        circuit: Sequence[Component] | None = None,
    ) -> None:
        if not isinstance(specimen.vocabulary, FiniteVocabulary):
            raise BadInput(f"specimen {specimen.name!r} has no finite vocabulary, which circuits of programs need")
        self.vocabulary: FiniteVocabulary = specimen.vocabulary
        material = trial(specimen, n or _pairs(self.vocabulary.max_len), seed=seed, centred=True)
        circuit = own_circuit(specimen) if circuit is None else circuit
        super().__init__(specimen.model, material, seed=seed, circuit=circuit, name=specimen.name)
        self.specimen = specimen
        self._traces: WeakKeyDictionary[Program, tuple[ProgramTrace, ProgramTrace]] = WeakKeyDictionary()
        self._codes: dict[tuple[tuple, int], tuple[Tensor, Tensor]] = {}
        self._full: dict[Component, Tensor] = {}
        #: Cached outcomes of experiments on whole programs, which several kinds of claim share.
        self.outcomes: WeakKeyDictionary[Program, dict[Any, Any]] = WeakKeyDictionary()
        self._crossed: dict[Component, Tensor] = {}
        self._moved: dict[Component, Tensor] = {}
        self._stayed: dict[tuple[Component, bytes], Tensor] = {}

    @cached_property
    def numerical(self) -> bool:
        """Whether the specimen's outputs are numbers, compared within 0.05."""
        return self.vocabulary.outputs is None

    @cached_property
    def inputs(self) -> tuple[list, list]:
        """Base and source inputs as token lists: those that are run, drawn or searched."""
        return self._tokens_of(self.batch), self._tokens_of(self.source)

    def _tokens_of(self, batch: Batch) -> list[list[Token]]:
        assert batch.mask is not None
        tokens, rows = self.vocabulary.tokens, zip(batch.tokens.tolist(), batch.mask.sum(1).tolist(), strict=True)
        return [[tokens[code] for code in row[1:length]] for row, length in rows]

    @cached_property
    def base_values(self) -> Values:
        """What every component writes on the base inputs."""
        return activations(self.model, self.batch.to(self.model.device))

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
        return self.recordings.scores().cpu()

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
        values = _values_at(self.table("resample"), component, rows, positions)
        choice = torch.full((len(rows), len(self.model.components)), KEEP)
        choice[:, component_index(component, self.model.config)] = torch.arange(len(rows))
        return run(self.recordings, Plan(rows, choice, where), values).cpu()

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

    def stay_when_swapped(self, component: Component, where: Bool[Tensor, "pair pos"]) -> Bool[Tensor, " some"]:
        """Whether all answers stay when `component` takes the source's values at these positions where both have a
        token, for the pairs that have such a position; cached.
        """
        where = where & self.real & self.source_real
        key = component, where.numpy().tobytes()
        if key not in self._stayed:
            rows = where.any(1).nonzero()[:, 0]
            stayed = torch.zeros(0, dtype=torch.bool)
            if len(rows):
                answers = self.interchange(component, torch.where(where, self.same_place, -1)[rows], rows=rows)
                stayed = (self.same(answers, self.clean[rows]) | ~self.real[rows]).all(1)
            self._stayed[key] = stayed
        return self._stayed[key]

    def traces(self, program: Program) -> tuple[ProgramTrace, ProgramTrace]:
        """A program's traces on the base inputs and on the source inputs; cached as long as the program exists."""
        if program not in self._traces:
            # Base and source inputs in a program's codes; cached for programs with the same vocabulary, such as rivals.
            key = program.vocab, program.max_len
            if key not in self._codes:
                base, source = self.inputs
                self._codes[key] = program.encode([*base, *source])
            tokens, lengths = self._codes[key]
            n = self.n
            pair = program.run(tokens[:n], lengths[:n]), program.run(tokens[n:], lengths[n:])
            self._traces[program] = pair
        return self._traces[program]

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
        outputs = self.vocabulary.outputs
        assert outputs is not None
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

    # Replacements, as every laboratory makes them.

    @cached_property
    def scale(self) -> float:
        """1: a loss is a share of the outputs already."""
        return 1.0

    @cached_property
    def replacements(self) -> tuple[Replacement, ...]:
        """All kinds of replacement."""
        return ALL_REPLACEMENTS

    @property
    def looks_first(self) -> bool:
        """Never: runs are cheap."""
        return False

    @property
    def answer_positions(self) -> None:
        """Answers are read everywhere."""
        return None

    @cached_property
    def recordings(self) -> Recordings:
        """The clean run of the base inputs; read are the answers at every position."""
        return Recordings(self.model, self.batch, Readout(self.read))

    @cached_property
    def clean_scores(self) -> PerPrompt:
        """1 for every input: nothing is changed."""
        return self._to_scores(self.clean)

    @cached_property
    def variation(self) -> float:
        """The share of outputs that differ between two inputs at the same position: what can change at all."""
        both = self.real & self.source_real
        source = Recordings(self.model, self.source, Readout(self.read)).scores().cpu()
        return float((~self.same(self.clean, source))[both].float().mean()) if bool(both.any()) else 0.0

    def matched(self, component: Component, *, exclude: Sequence[Component] = (), k: int = 4) -> list[Component]:
        """Up to `k` components of the same kind outside the circuit and the claim, drawn with the lab's seed."""
        excluded = {component, *exclude, *self.circuit}
        pool = [c for c in self.model.components if c.is_head == component.is_head and c not in excluded]
        return random.Random(f"{self.seed}/{component}").sample(pool, min(k, len(pool)))

    def token_ids(self, tokens: Sequence[Any]) -> list[int]:
        """The ids of tokens that a claim names."""
        return self.vocabulary.tokenize([[token] * self.vocabulary.max_len for token in tokens])[:, -1].tolist()

    def _replaced(
        self, sets: list[list[Component]], replacement: Replacement, prompts: Int[Tensor, " n"]
    ) -> list[Float[Tensor, " n"]]:
        """As everywhere, but outputs are moved by reading the source's in random order of positions."""
        if replacement != "moved":
            return super()._replaced(sets, replacement, prompts)
        if any(len(members) != 1 for members in sets):
            raise BadInput("moved replacement takes one component at a time; use zero, mean or resample for several")
        return [self.crossed_interchange(members[0])[prompts] for members in sets]

    def _made(self, replacement: str) -> Values:
        if replacement == "mean":
            return means(self.model, self.source.to(self.model.device))
        return activations(self.model, self.source.to(self.model.device))

    def _to_scores(self, readings: Tensor) -> PerPrompt:
        return (self.same(readings, self.clean) & self.real).sum(1) / self.real.sum(1)

    def read(self, logits: Float[Tensor, "row pos out"], prompt: Tensor) -> Float[Tensor, "row pos"]:
        """The answers in logits: numbers, or codes of outputs."""
        return logits[:, 1:, 0] if self.numerical else logits[:, 1:].argmax(-1).float()


def _pairs(longest: int) -> int:
    """The number of pairs, smaller for long sequences: a program's selections grow with the square of the length."""
    return max(PAIRS // 4, min(PAIRS, PAIRS * 15**2 // longest**2))


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


def circuit_lab(specimen: Specimen, circuit: Sequence[Component], *, seed: int, n: int | None = None) -> CircuitLab:
    """Held-out inputs for a circuit. A component of the specimen's own circuit is not a control, explained or not."""
    # Base and source inputs have seeds of their own, so two laboratories must be two apart.
    return CircuitLab(specimen, n=n, seed=CLAIM_SEED + 2 * seed, circuit=sorted({*circuit, *own_circuit(specimen)}))


def blinded(specimen: Specimen) -> Specimen:
    """The specimen without anything that could give its task away; refused where its tokens are not listed."""
    listed_tokens(specimen, "the built-in scientist of circuits")
    return replace(specimen, id="specimen", name="specimen", kind="trained", examples=(), behaviour=None, source=None)
