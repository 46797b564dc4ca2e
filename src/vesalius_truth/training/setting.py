"""One model to train: a program, the size of its transformer, and the components that implement its parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component, all_components
from vesalius.errors import BadInput
from vesalius.model import Config
from vesalius.model.states import State
from vesalius.rasp import Program
from vesalius.rasp.inputs import mixed_inputs, outputs_differ

# Pairs of base and source inputs, and the program's answers on them.
#
# An interchange needs two inputs: the base is run, and one component takes the value it had on the source. The patch is
# position-wise: a base position takes the source's value at the same position if the source has a real token there, and
# keeps its own value elsewhere. A `Slot` is one kind of interchange: a component, read at the same position, or moved:
# read across positions by a random permutation of the source's positions. Only a moved output shows that a component
# carries the value that the program names and nothing of the place where it was computed: at the same position of two
# inputs the position is the same, and a model may add it to any output for a later MLP to read.

#: `draw(n, seed, device)` gives token codes [n, max_len] padded with -1, and the lengths.
Draw = Callable[[int, int, torch.device], tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]]

_CELLS_AT_ONCE = 2**23  # of one [row, query, key] tensor of the interpreter


@dataclass(frozen=True)
class Slot:
    """One kind of interchange: the index of the program's component, its component in the model, and whether it is read
    across positions. `inert` marks an interchange that never changes the program's output.
    """

    index: int
    component: Component
    crossed: bool = False
    inert: bool = False


@dataclass(frozen=True)
class Pairs:
    """Token codes padded with -1; `crossed` says which source position each base position reads in a crossed slot."""

    base: Int[Tensor, "pair pos"]
    base_lengths: Int[Tensor, " pair"]
    source: Int[Tensor, "pair pos"]
    source_lengths: Int[Tensor, " pair"]
    crossed: Int[Tensor, "pair pos"]

    def __len__(self) -> int:
        return len(self.base)

    @property
    def real(self) -> Bool[Tensor, "pair pos"]:
        """Where the base has a token."""
        return self.base >= 0

    def take(self, rows: slice) -> "Pairs":
        """Some of the pairs."""
        return Pairs(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def draw_pairs(draw: Draw, n: int, *, seed: int, device: torch.device) -> Pairs:
    """`n` independent base and source inputs; the same seed gives the same pairs on every device."""
    base, base_lengths = draw(n, 2 * seed, device)
    source, source_lengths = draw(n, 2 * seed + 1, device)
    positions = torch.arange(source.shape[1], device=device)
    order = torch.rand(source.shape, generator=torch.Generator().manual_seed(seed)).to(device)
    shuffled = order.masked_fill(source < 0, 2.0).argsort(1)
    return Pairs(
        base, base_lengths, source, source_lengths, torch.where(positions < source_lengths[:, None], shuffled, -1)
    )


def targets(program: Program, pairs: Pairs, slots: Sequence[Slot]) -> Float[Tensor, "pair answer pos"]:
    """The program's output on each base, then after each slot's interchange: codes or numbers, as floats."""
    longest = pairs.base.shape[1]
    rows = max(1, _CELLS_AT_ONCE // longest**2)
    return torch.cat([_targets(program, pairs.take(slice(i, i + rows)), slots) for i in range(0, len(pairs), rows)])


def _targets(program: Program, pairs: Pairs, slots: Sequence[Slot]) -> Float[Tensor, "pair answer pos"]:
    base = program.run(pairs.base, pairs.base_lengths)
    source = program.run(pairs.source, pairs.source_lengths)
    answers = [base.output]
    for slot in slots:
        patched = torch.zeros(len(pairs), len(program.components), dtype=torch.bool, device=pairs.base.device)
        patched[:, slot.index] = True
        positions = pairs.crossed if slot.crossed else None
        answers.append(program.interchange(base, source, patched, positions=positions))
    return torch.stack([answer.float() for answer in answers], 1)


def differ(program: Program, answers: Tensor, base: Tensor) -> Bool[Tensor, "pair pos"]:
    """Where an answer differs from the base's."""
    return outputs_differ(program, answers, base)


def find_inert(program: Program, draw: Draw, *, n: int = 2048) -> tuple[frozenset[Component], frozenset[Component]]:
    """Components whose interchange at the same position changes no output, and those whose moved output does."""
    pairs = draw_pairs(draw, n, seed=0, device=torch.device("cpu"))
    slots = [
        Slot(i, placed.component, crossed) for i, placed in enumerate(program.components) for crossed in (False, True)
    ]
    answers = targets(program, pairs, slots)
    effective = {
        (slot.component, slot.crossed): bool((differ(program, answers[:, 1 + i], answers[:, 0]) & pairs.real).any())
        for i, slot in enumerate(slots)
    }
    inert = frozenset(slot.component for slot in slots if not effective[slot.component, False])
    return inert, frozenset(slot.component for slot in slots if effective[slot.component, True])


MIN_D_MODEL = 8
MAX_D_MODEL = 64
#: Share of inputs that are constant, nearly constant or have a rare count of one token: random ones never are.
REPETITIVE_SHARE = 0.15


@dataclass(frozen=True)
class Size:
    """The shape of a transformer to train."""

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_mlp: int

    def enlarged(self) -> "Size":
        """One and a half times as wide, for another try."""
        d_head = self.d_head + max(1, self.d_head // 2)
        d_model = max(self.n_heads * d_head, self.d_model + self.d_model // 2)
        return replace(self, d_head=d_head, d_model=d_model, d_mlp=4 * d_model)


def default_size(program: Program) -> Size:
    """The published rule for the size of a program's model, clamped to `MIN_D_MODEL` and `MAX_D_MODEL`.

    At least 2 layers and 4 heads; heads half as wide as the literally compiled program's; d_model = n_heads * d_head;
    MLPs four times as wide as that. The rule goes down to d_model 4, which trains less reliably than 8, and far up for
    programs over many values, where 64 was found to be enough.
    """
    n_layers, n_heads = max(2, program.n_layers), max(4, program.n_heads)
    published = n_heads * max(1, program.d_head // 2)
    d_head = max(1, min(max(published, MIN_D_MODEL), MAX_D_MODEL) // n_heads)
    d_model = max(n_heads * d_head, MIN_D_MODEL)
    return Size(n_layers, n_heads, d_model, d_head, 4 * d_model)


@dataclass(frozen=True)
class Setting:
    """One model to train.

    `placement` maps components of the compiled program to other components of the model (the others keep their place).
    `inert` are components of the program whose interchange at the same position has no effect; `crossed` are components
    that are also trained and checked with their outputs moved to other positions (by default all that this shows).
    `start` are initial weights instead of random ones.
    """

    name: str
    program: Program = field(repr=False)
    size: Size
    draw: Draw = field(repr=False)
    placement: Mapping[Component, Component] = field(default_factory=dict, hash=False)
    inert: frozenset[Component] = frozenset()
    crossed: frozenset[Component] = frozenset()
    start: State | None = field(default=None, repr=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        known = {placed.component for placed in self.program.components}
        for component in {*self.placement, *self.inert, *self.crossed}:
            if component not in known:
                raise BadInput(f"setting {self.name!r} names {component}, which its program does not have")
        for component in self.circuit:
            component.within(self.size)
        if len(set(self.circuit)) < len(self.circuit):
            raise BadInput(f"setting {self.name!r} maps two components of the program to one component of the model")

    @cached_property
    def circuit(self) -> tuple[Component, ...]:
        """The components of the model that carry the program, in the order of the program's components."""
        return tuple(self.locate(placed.component) for placed in self.program.components)

    @cached_property
    def others(self) -> tuple[Component, ...]:
        """All other components of the model; they must have no effect."""
        return tuple(component for component in all_components(self.size) if component not in self.circuit)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every kind of interchange this model is trained on: one per component, then the crossed ones."""
        aligned = [
            Slot(i, self.locate(placed.component), inert=placed.component in self.inert)
            for i, placed in enumerate(self.program.components)
        ]
        crossed = [
            Slot(i, self.locate(placed.component), crossed=True)
            for i, placed in enumerate(self.program.components)
            if placed.component in self.crossed
        ]
        return (*aligned, *crossed)

    @cached_property
    def config(self) -> Config:
        """The configuration of the trained transformer."""
        return model_config(self.program, self.size)

    def locate(self, component: Component) -> Component:
        """The component of the model that implements a component of the compiled program."""
        return self.placement.get(component, component)


def setting_of(program: Program, *, size: Size | None = None, min_length: int = 3) -> Setting:
    """The default setting of a program: default size, independent uniform tokens but for a share of repetitive inputs,
    inert components found by sampling.

    Inputs have `min_length` tokens or more (or the program's longest, if that is less).
    """

    def draw(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
        return mixed_inputs(program, n, seed=seed, min_length=min_length, repetitive=REPETITIVE_SHARE, device=device)

    inert, crossed = find_inert(program, draw)
    return Setting(program.name, program, size or default_size(program), draw, inert=inert, crossed=crossed)


def model_config(program: Program, size: Size) -> Config:
    """No norm, exact gelu, learned positions; BOS and PAD are the last two tokens of the vocabulary."""
    return Config(
        n_layers=size.n_layers,
        n_heads=size.n_heads,
        d_model=size.d_model,
        d_head=size.d_head,
        d_mlp=size.d_mlp,
        d_vocab=len(program.vocab) + 2,
        d_vocab_out=1 if program.numerical else len(program.outputs),
        n_ctx=program.max_len + 1,
        norm="none",
        activation="gelu",
        causal=program.causal,
        bos_token=len(program.vocab),
        pad_token=len(program.vocab) + 1,
    )


def model_tokens(program: Program, codes: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos_and_bos"]:
    """Token codes of a program (-1: none) as token ids of its model: BOS first, PAD after the end."""
    bos, pad = len(program.vocab), len(program.vocab) + 1
    start = torch.full_like(codes[:, :1], bos)
    return torch.cat([start, codes.masked_fill(codes < 0, pad)], 1)


# How many CPU threads a small computation gets: one.
#
# Distributing work this small costs more than doing it, and on a busy machine threads that spin while waiting for each
# other made training ten times slower.

_MIN_SHARED = 2**20


@contextmanager
def few_threads(numbers: int) -> Iterator[None]:
    """One thread inside the block if its largest activation holds fewer than about a million numbers."""
    before = torch.get_num_threads()
    if numbers < _MIN_SHARED:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
