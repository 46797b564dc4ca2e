"""Random inputs for a program: independent tokens, lengths uniform between a minimum and `max_len`."""

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.rasp.program import Program


def random_inputs(
    program: Program, n: int, *, seed: int, min_length: int = 3, device: torch.device | str | None = None
) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]:
    """`n` sequences as token codes [n, max_len], padded with -1, and their lengths.

    The same seed gives the same inputs on every device. A `min_length` above the program's `max_len` is lowered to it.
    """
    if n < 1 or min_length < 1:
        raise BadInput(f"random_inputs: n={n} and min_length={min_length} must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    shortest = min(min_length, program.max_len)
    lengths = torch.randint(shortest, program.max_len + 1, (n,), generator=generator)
    tokens = torch.randint(len(program.vocab), (n, program.max_len), generator=generator)
    tokens[torch.arange(program.max_len) >= lengths[:, None]] = -1
    return tokens.to(device), lengths.to(device)
