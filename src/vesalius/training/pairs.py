"""Pairs of base and source inputs, and the program's answers on them.

An interchange needs two inputs: the base is run, and one component takes the value it had on the source. The patch is
position-wise: a base position takes the source's value at the same position if the source has a real token there, and
keeps its own value elsewhere. A `Slot` is one kind of interchange: a component, read at the same position or, for
components whose value depends on the position alone, across positions by a random permutation of the source's
positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.rasp import Program
from vesalius.rasp.generator import outputs_differ

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
    """Components whose interchange at the same position changes no output, and those where a crossed one does."""
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
    return inert, frozenset(component for component in inert if effective[component, True])
