"""Inputs for experiments on a specimen with a finite vocabulary, pairings of them, and runs of the model on them.

Eight inputs in ten come from the specimen's own distribution, the rest from generic designs (few symbols, one symbol,
one symbol but for one place, sorted), which reach values that random inputs hardly ever do. `Pairings` lists
interchange experiments: base input, source input and the component whose output moves from one to the other. A row
whose component is None is the base run itself.

Inputs and outputs are codes. Recorded runs are the engine's `Recordings`; a patched run is a plan of the engine in
which every row replaces the same component by a value of its own, at positions of its own.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from vesalius.components import Component
from vesalius.intervene import Batch, Plan, Readout, Recordings, component_values, run_with_outputs
from vesalius.intervene.probes import HeadInputs
from vesalius.model.specimen import FiniteVocabulary, Specimen, listed_tokens
from vesalius.model.transformer import Transformer


def distinct(rows: Int[Tensor, "n column"]) -> tuple[Int[Tensor, "m column"], Int[Tensor, " n"]]:
    """The distinct rows in lexicographic order, and which of them each row is; several times faster than
    `unique(dim=0)`, since rows are packed into one number.
    """
    low = rows.amin(0)
    spans = (rows.amax(0) - low + 1).tolist()
    key = torch.zeros(len(rows), dtype=torch.long)
    for column, span in enumerate(spans):
        key = key * span + (rows[:, column] - low[column])
    keys, inverse = numbered(key)
    columns = []
    for span in reversed(spans):
        columns.append(keys % span)
        keys = keys // span
    return torch.stack(columns[::-1], 1) + low, inverse


def numbered(keys: Int[Tensor, " n"]) -> tuple[Int[Tensor, " m"], Int[Tensor, " n"]]:
    """The distinct numbers in order, and which of them each is: `unique`, but by a table instead of by sorting where
    they lie close together.
    """
    low, high = keys.aminmax()
    span = int(high - low) + 1
    if span > MOST_SPARSE * len(keys):
        return keys.unique(return_inverse=True)
    shifted = keys - low
    there = torch.zeros(span, dtype=torch.bool).index_fill_(0, shifted, True)
    return there.nonzero()[:, 0] + low, (there.cumsum(0) - 1)[shifted]


#: Numbers that are spread over more places than so many times their count are sorted.
MOST_SPARSE = 8
PAD = -1
#: Share of inputs from the specimen's own distribution.
NATURAL_SHARE = 0.8
#: Share of designed inputs that have full length.
FULL_LENGTH_SHARE = 0.4
#: Pairings whose base inputs are kept.
MOST_BASED = 24


@dataclass(frozen=True)
class Sequences:
    """Inputs as token codes, -1 past the end of each. `seen` is for what programs see of them, by whether they are
    causal.
    """

    codes: Int[Tensor, "row pos"]
    seen: dict[bool, Any] = field(default_factory=dict, repr=False, compare=False)
    _based: "dict[int, tuple[Pairings, Sequences]]" = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def lengths(self) -> Int[Tensor, " row"]:
        """Tokens of each input."""
        return self.real.sum(1)

    @cached_property
    def real(self) -> Bool[Tensor, "row pos"]:
        """True at tokens, False past the end."""
        return self.codes != PAD

    def take(self, rows: Int[Tensor, " n"]) -> "Sequences":
        """Some of the inputs."""
        return Sequences(self.codes[rows])

    def based(self, pairings: "Pairings") -> "Sequences":
        """The base input of every row; kept for the pairings that were used last."""
        if id(pairings) not in self._based:
            if len(self._based) >= MOST_BASED:
                del self._based[next(iter(self._based))]
            self._based[id(pairings)] = pairings, self.take(pairings.base)
        return self._based[id(pairings)][1]

    def ids(self, vocabulary: FiniteVocabulary) -> Int[Tensor, "row with_bos"]:
        """Token ids as the model takes them, BOS first."""
        bos = self.codes.new_full((len(self), 1), vocabulary.bos)
        return torch.cat([bos, self.codes.masked_fill(~self.real, vocabulary.pad)], 1)


@dataclass(frozen=True)
class Pairings:
    """Rows of interchange experiments; `source` is -1 where nothing is exchanged."""

    base: Int[Tensor, " row"]
    source: Int[Tensor, " row"]
    moved: tuple[Component | None, ...]

    def __len__(self) -> int:
        return len(self.base)

    def take(self, rows: Int[Tensor, " n"]) -> "Pairings":
        """Some of the rows."""
        return Pairings(self.base[rows], self.source[rows], tuple(self.moved[row] for row in rows.tolist()))

    def rows_of(self, component: Component) -> Int[Tensor, " n"]:
        """The rows in which this component is exchanged."""
        return self._rows.get(component, torch.zeros(0, dtype=torch.long))

    @cached_property
    def _rows(self) -> dict[Component | None, Int[Tensor, " n"]]:
        rows: dict[Component | None, list[int]] = {}
        for row, moved in enumerate(self.moved):
            rows.setdefault(moved, []).append(row)
        return {moved: torch.tensor(listed) for moved, listed in rows.items()}


def finite_vocabulary(specimen: Specimen) -> FiniteVocabulary:
    """The specimen's vocabulary, which must list its tokens."""
    return listed_tokens(specimen, "the built-in scientist of circuits")


def draw_sequences(specimen: Specimen, n: int, *, seed: int, natural_share: float = NATURAL_SHARE) -> Sequences:
    """`n` inputs, natural ones and designs mixed in random order."""
    vocabulary = finite_vocabulary(specimen)
    code_of = {token: code for code, token in enumerate(vocabulary.tokens)}
    generator = torch.Generator().manual_seed(seed)
    n_natural = max(1, round(n * natural_share))
    drawn = [[code_of[token] for token in tokens] for tokens in specimen.sample(n_natural, seed)]
    codes = torch.tensor([row + [PAD] * (vocabulary.max_len - len(row)) for row in drawn])
    if n > n_natural:
        codes = torch.cat([codes, _designs(n - n_natural, vocabulary, generator)])
    return Sequences(codes[torch.randperm(n, generator=generator)])


def natural_pairings(n: int) -> Pairings:
    """Every input once, nothing exchanged."""
    return Pairings(torch.arange(n), torch.full((n,), -1), (None,) * n)


def exchange_pairings(n_inputs: int, n: int, components: list[Component], *, seed: int) -> Pairings:
    """`n` rows per component with random base and source."""
    generator = torch.Generator().manual_seed(seed)
    total = n * len(components)
    base = torch.randint(n_inputs, (total,), generator=generator)
    source = (base + torch.randint(1, max(2, n_inputs), (total,), generator=generator)) % n_inputs
    return Pairings(base, source, tuple(component for component in components for _ in range(n)))


def join(first: Pairings, second: Pairings) -> Pairings:
    """The rows of both."""
    return Pairings(
        torch.cat([first.base, second.base]), torch.cat([first.source, second.source]), first.moved + second.moved
    )


def _designs(n: int, vocabulary: FiniteVocabulary, generator: Generator) -> Int[Tensor, "row pos"]:
    n_tokens, longest = len(vocabulary.tokens), vocabulary.max_len
    lengths = torch.randint(vocabulary.min_len, longest + 1, (n,), generator=generator)
    lengths[torch.rand(n, generator=generator) < FULL_LENGTH_SHARE] = longest
    uniform = torch.randint(n_tokens, (n, longest), generator=generator)
    symbols = torch.randint(n_tokens, (n, 2), generator=generator)
    rate = torch.rand((n, 1), generator=generator)
    of_two = torch.where(torch.rand((n, longest), generator=generator) < rate, symbols[:, :1], symbols[:, 1:])
    constant = symbols[:, :1].expand(n, longest)
    place = (torch.rand(n, generator=generator) * lengths).long()
    but_one = torch.where(torch.arange(longest) == place[:, None], symbols[:, 1:], constant)
    kind = torch.randint(5, (n, 1), generator=generator)
    codes = torch.where(kind == 0, uniform, torch.where(kind == 1, of_two, torch.where(kind == 2, constant, but_one)))
    past_end = torch.arange(longest) >= lengths[:, None]
    ascending = uniform.masked_fill(past_end, n_tokens).sort(1).values
    return torch.where(kind == 4, ascending, codes).masked_fill(past_end, PAD)


#: Bytes of activations held at once: small enough to stay in the processor's caches.
_MEMORY = 32 * 2**20
#: Bytes of a recorded run: kept whole, because thousands of patched runs start from it.
_RECORDED_MEMORY = 4 * 2**30


@dataclass(frozen=True)
class Edit:
    """Replace a component's output (a head's z, an MLP's output without its bias) where `where` is True."""

    component: Component
    values: Float[Tensor, "row with_bos width"]
    where: Bool[Tensor, "row with_bos"]


@dataclass(frozen=True)
class RecordedRun:
    """A run and what later runs start from."""

    sequences: Sequences
    recordings: Recordings
    component_outputs: dict[Component, Float[Tensor, "row with_bos width"]]
    outputs: Tensor


class CircuitRuns:
    """A specimen's model, its inputs as codes, its outputs as codes (or numbers), and a count of rows run."""

    def __init__(self, specimen: Specimen, vocabulary: FiniteVocabulary, components: list[Component]) -> None:
        self.model: Transformer = specimen.model
        self.vocabulary, self.components = vocabulary, components
        self.numeric = vocabulary.outputs is None
        self.rows = 0
        self._exchanged: dict[tuple[int, Component, bytes, bytes], tuple[RecordedRun, Tensor]] = {}

    def record(self, sequences: Sequences) -> RecordedRun:
        """Run inputs and keep the residual streams and the outputs of the circuit's components."""
        batch, readout = Batch(sequences.ids(self.vocabulary)), Readout(self._read)
        recordings = Recordings(self.model, batch, readout, memory=_RECORDED_MEMORY)
        self.rows += len(sequences)
        return RecordedRun(sequences, recordings, recordings.outputs(self.components), recordings.scores())

    def patched(
        self, recorded: RecordedRun, rows: Int[Tensor, " n"], edit: Edit, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of recorded inputs with one component replaced; and what the components in `keep` then write."""
        self.rows += len(rows)
        plan = Plan.each(self.model.config, rows, edit.component, positions=edit.where)
        values = component_values(self.model, edit.component, edit.values)
        return run_with_outputs(recorded.recordings, plan, values, keep, memory=_MEMORY)

    def interchange(
        self, recorded: RecordedRun, pairings: Pairings, component: Component, *, keep: tuple[Component, ...] = ()
    ) -> tuple[Tensor, dict[Component, Tensor]]:
        """Outputs of the pairings of one component: its output moves from source to base where both are real."""
        rows = pairings.rows_of(component)
        base, source = pairings.base[rows], pairings.source[rows]
        where = both_real(recorded.sequences, base, source)
        where = torch.cat([where.new_zeros(len(where), 1), where], 1)
        return self.patched(
            recorded, base, Edit(component, recorded.component_outputs[component][source], where), keep=keep
        )

    def outputs_exchanged(self, recorded: RecordedRun, pairings: Pairings, component: Component) -> Tensor:
        """The outputs of `interchange`; kept, because every program that is compared is held against the same ones."""
        rows = pairings.rows_of(component)
        key = id(recorded), component, pairings.base[rows].numpy().tobytes(), pairings.source[rows].numpy().tobytes()
        if key not in self._exchanged:
            self._exchanged[key] = recorded, self.interchange(recorded, pairings, component)[0]
        return self._exchanged[key][1]

    def attention(self, recorded: RecordedRun, component: Component) -> Float[Tensor, "row query key"]:
        """Where a head attends, tokens only (attention to BOS is left out)."""
        recordings = recorded.recordings
        inputs = HeadInputs(self.model, recordings.batch, recordings.resid(component.layer), component)
        return inputs.pattern()[:, 1:, 1:]

    def _read(self, logits: Float[Tensor, "row with_bos out"], prompt: Int[Tensor, " row"]) -> Tensor:
        """Outputs after BOS: codes, or numbers."""
        return logits[:, 1:, 0] if self.numeric else logits[:, 1:].argmax(-1)


def both_real(sequences: Sequences, base: Tensor, source: Tensor) -> Bool[Tensor, "row pos"]:
    """Positions that are inside both inputs."""
    return sequences.real[base] & sequences.real[source]
