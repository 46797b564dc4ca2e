"""Random inputs of variable length, drawn so that every branch of a task's program is reached.

Most tasks take independent uniform tokens. Three would then almost never take their rarer branch (a sorted
sequence, an all-equal one, an all-even one), so about half of their inputs are drawn to take it and others to come
close to it. Inputs are token codes, indices into the task's vocabulary; PAD is -1, as in `Program.encode`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from vesalius.errors import BadInput
from vesalius.model.specimen import Token

PAD = -1
Codes = Int[Tensor, "batch pos"]
Sampler = Literal["uniform", "often_sorted", "often_equal", "often_even"]


@dataclass(frozen=True)
class Inputs:
    """The input distribution of a task: tokens, longest sequence (without BOS) and how sequences are drawn."""

    vocab: tuple[Token, ...]
    max_len: int
    sampler: Sampler = "uniform"


def draw_inputs(
    inputs: Inputs, n: int, *, seed: int, min_length: int = 3, device: torch.device | str | None = None
) -> tuple[Codes, Int[Tensor, " batch"]]:
    """`n` random inputs of a task as (codes padded with -1, lengths), lengths uniform from `min_length` to `max_len`.

    The same seed gives the same inputs on every device.
    """
    if n < 1 or not 1 <= min_length <= inputs.max_len:
        raise BadInput(
            f"n={n}, min_length={min_length} is out of range: n must be at least 1, min_length 1 to {inputs.max_len}"
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(min_length, inputs.max_len + 1, (n,), generator=generator)
    return _draw(inputs, lengths, generator).to(device), lengths.to(device)


def draw_of_lengths(inputs: Inputs, lengths: Int[Tensor, " batch"], *, seed: int) -> Codes:
    """One random input per given length, as codes padded with -1."""
    return _draw(inputs, lengths, torch.Generator().manual_seed(seed))


def _draw(inputs: Inputs, lengths: Int[Tensor, " batch"], generator: Generator) -> Codes:
    is_real = torch.arange(inputs.max_len) < lengths[:, None]
    return _SAMPLERS[inputs.sampler](inputs, is_real, generator).masked_fill(~is_real, PAD)


def _uniform(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    return torch.randint(len(inputs.vocab), tuple(is_real.shape), generator=generator)


def _often_sorted(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half sorted, 15 % sorted but for one token, the rest uniform. The vocabulary ascends, so codes sort as values."""
    uniform = _uniform(inputs, is_real, generator)
    ascending = uniform.masked_fill(~is_real, len(inputs.vocab)).sort(dim=1).values
    lengths = is_real.sum(1)
    changed_place = (torch.rand((len(is_real),), generator=generator) * lengths).long()
    is_changed = torch.arange(is_real.shape[1]) == changed_place[:, None]
    nearly = torch.where(is_changed, uniform, ascending)
    kind = torch.rand((len(is_real), 1), generator=generator)
    return torch.where(kind < 0.5, ascending, torch.where(kind < 0.65, nearly, uniform))


def _often_equal(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half all equal; a sixth each without repeats, with two distinct tokens, and uniform."""
    batch, longest = is_real.shape
    uniform = _uniform(inputs, is_real, generator)
    unrepeated = torch.rand((batch, len(inputs.vocab)), generator=generator).argsort(dim=1)[:, :longest]
    is_second = torch.rand((batch, longest), generator=generator) < 0.5
    of_two = torch.where(is_second, unrepeated[:, 1:2], unrepeated[:, :1])
    equal = uniform[:, :1].expand(batch, longest)
    kind = (torch.rand((batch, 1), generator=generator) * 6).long()
    return torch.where(kind < 3, equal, torch.where(kind == 3, unrepeated, torch.where(kind == 4, of_two, uniform)))


def _often_even(inputs: Inputs, is_real: Bool[Tensor, "batch pos"], generator: Generator) -> Codes:
    """Half all even; in the rest each token is odd with a rate drawn per sequence."""
    batch, longest = is_real.shape
    even, odd = (
        torch.tensor([code for code, value in enumerate(inputs.vocab) if int(value) % 2 == rest]) for rest in (0, 1)
    )
    rate = torch.rand((batch, 1), generator=generator) * (torch.rand((batch, 1), generator=generator) < 0.5)
    is_odd = torch.rand((batch, longest), generator=generator) < rate
    even_codes = even[torch.randint(len(even), (batch, longest), generator=generator)]
    odd_codes = odd[torch.randint(len(odd), (batch, longest), generator=generator)]
    return torch.where(is_odd, odd_codes, even_codes)


_SAMPLERS: dict[str, Callable[[Inputs, Bool[Tensor, "batch pos"], Generator], Codes]] = {
    "uniform": _uniform,
    "often_sorted": _often_sorted,
    "often_equal": _often_equal,
    "often_even": _often_even,
}
