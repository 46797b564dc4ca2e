"""Random inputs of programs, and how much each component matters to a program on them."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.rasp.program import Program

#: Token codes [n, max_len], padded with -1, and the lengths.
Inputs = tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]


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


def repetitive_inputs(
    n_tokens: int, max_len: int, n: int, *, seed: int, min_length: int = 1, device: torch.device | str | None = None
) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]:
    """`n` sequences as token codes [n, max_len], padded with -1, and their lengths, in which one token has any count.

    A third are constant, a third constant but for one place, and in a third one token stands at k random places (k
    uniform from none to all) among random others. Tokens, places and lengths are uniform.
    """
    if min(n, n_tokens, max_len, min_length) < 1:
        raise BadInput(
            f"repetitive_inputs: n={n}, {n_tokens} tokens, lengths {min_length} to {max_len}: none may be < 1"
        )
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(min(min_length, max_len), max_len + 1, (n,), generator=generator)
    real = torch.arange(max_len) < lengths[:, None]
    first, second = (torch.randint(n_tokens, (n, 1), generator=generator).expand(n, max_len) for _ in range(2))
    place = (torch.rand((n, 1), generator=generator) * lengths[:, None]).long()
    but_one = torch.where(torch.arange(max_len) == place, second, first)
    others = torch.randint(n_tokens, (n, max_len), generator=generator)
    # For each row k random real places, k uniform from 0 to the length.
    k = (torch.rand((len(real), 1), generator=generator) * (real.sum(1, keepdim=True) + 1)).long()
    order = torch.rand(real.shape, generator=generator).masked_fill(~real, 2.0).argsort(1).argsort(1)
    counted = torch.where((order < k) & real, first, others)
    kind = torch.randint(3, (n, 1), generator=generator)
    tokens = torch.where(kind == 0, first, torch.where(kind == 1, but_one, counted))
    return tokens.masked_fill(~real, -1).to(device), lengths.to(device)


def mixed_inputs(
    program: Program,
    n: int,
    *,
    seed: int,
    min_length: int = 3,
    repetitive: float,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]:
    """`n` random inputs of which a share is repetitive, in random order."""
    n_repetitive = int(n * repetitive)
    tokens, lengths = random_inputs(program, n - n_repetitive, seed=seed, min_length=min_length)
    if n_repetitive:
        size = len(program.vocab), program.max_len
        more = repetitive_inputs(*size, n_repetitive, seed=seed, min_length=min_length)
        tokens, lengths = shuffled((tokens, lengths), more, seed=seed)
    return tokens.to(device), lengths.to(device)


def shuffled(first: Inputs, second: Inputs, *, seed: int) -> Inputs:
    """Two sets of inputs of the same width as one, in random order."""
    order = torch.randperm(len(first[0]) + len(second[0]), generator=torch.Generator().manual_seed(seed))
    order = order.to(first[0].device)
    return torch.cat([first[0], second[0]])[order], torch.cat([first[1], second[1]])[order]


# How much each component matters to the program itself: the share of outputs that an interchange of it changes.

NUMERICAL_TOLERANCE = 0.05


def outputs_differ(program: Program, first: Tensor, second: Tensor) -> Bool[Tensor, "batch pos"]:
    """Where two outputs of a program are different answers: other codes, or numbers at least 0.05 apart."""
    return (first - second).abs() >= NUMERICAL_TOLERANCE if program.numerical else first != second


def interchange_effects(program: Program, *, pairs: int = 512, seed: int = 0) -> dict[Component, float]:
    """For every component the share of real positions whose output changes when it alone takes a source's values."""
    base = program.run(*random_inputs(program, pairs, seed=seed))
    source = program.run(*random_inputs(program, pairs, seed=seed + 1))
    real = base.tokens >= 0
    effects = {}
    for i, placed in enumerate(program.components):
        patched = torch.zeros(pairs, len(program.components), dtype=torch.bool)
        patched[:, i] = True
        changed = outputs_differ(program, program.interchange(base, source, patched), base.output) & real
        effects[placed.component] = float(changed.sum() / real.sum())
    return effects
