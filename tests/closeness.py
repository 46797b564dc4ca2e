"""How far two computations of the same thing may be apart.

The order in which a matrix product is summed depends on the library, the number of threads, the batch and the place of
its operands in memory. So two runs of the same program, in one process or in two, agree up to rounding and not bit by
bit; what is discrete (names, verdicts, counts, choices) agrees exactly.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from vesalius.model import Transformer

#: How far two float64 runs may be apart, as a share of the largest entry: thousands of sums of half a unit (1.1e-16)
#: each, and weights at random that enlarge an error a thousandfold. Tests of what is equal for any weights run in
#: float64 and hold to this, where float32 would need a tolerance that depends on the machine.
EXACT = 1e-10
#: Scores, effects and intervals are means of float32 values of about one; see `tests.models.ROUNDING`.
FIGURES = 1e-4
_NUMBER = re.compile(r"\d+(?:\.(\d+))?")


@dataclass(frozen=True)
class Exact:
    """What float64 computes, and how far float32 may be from it in any entry."""

    value: Tensor
    bound: float

    def holds(self, computed: Tensor) -> bool:
        """Whether a float32 tensor is this one up to rounding."""
        return computed.shape == self.value.shape and self.distance(computed) <= self.bound

    def distance(self, computed: Tensor) -> float:
        """The largest difference of an entry."""
        return float((computed.double() - self.value).abs().max())


@torch.no_grad()
def exactly(model: Transformer, run: Callable[[Transformer], Sequence[Tensor]], *, draws: int = 4) -> list[Exact]:
    """What `run` gives for the same weights in float64, each tensor with a bound on what float32 may make of it.

    Rounded sums are the exact sums of weights that differ a little: for sums of n products by at most sqrt(n) units of
    float32 with high probability (Higham and Mary 2019, "A new approach to probabilistic rounding error analysis",
    theorem 2.4, two deviations of half a unit). So the weights are moved by one unit, each up or down at random, and
    the largest change that this makes is multiplied by the root of the longest sum. How the error grows with the
    depth, the scale of the logits and the weights is thereby measured for this model, on no particular machine.
    """
    twin = deepcopy(model).double()
    exact = [tensor.clone() for tensor in run(twin)]
    generator = torch.Generator().manual_seed(0)
    moved = [0.0] * len(exact)
    for _ in range(draws):
        for parameter, weight in zip(twin.parameters(), model.parameters(), strict=True):
            signs = 2 * torch.randint(0, 2, weight.shape, generator=generator, dtype=torch.int8) - 1
            parameter.copy_(weight.double() * (1 + torch.finfo(torch.float32).eps * signs))
        changes = [float((one - other).abs().max()) for one, other in zip(run(twin), exact, strict=True)]
        moved = [max(pair) for pair in zip(moved, changes, strict=True)]
    config = model.config
    longest = max(config.d_model, config.d_mlp, config.n_heads * config.d_head)
    return [Exact(value, longest**0.5 * most) for value, most in zip(exact, moved, strict=True)]


def adam_bound(learning_rate: float, updates: int, *, betas: tuple[float, float] = (0.9, 0.999)) -> float:
    """How far two runs of Adam from the same weights may be apart in one weight.

    Adam divides a gradient by its own size. A gradient that is nothing but rounding error is scaled up to a full step
    as well, in either direction, so the bound on one step (Kingma and Ba 2015, section 2.1) holds for each run.
    """
    step = learning_rate * max(1.0, (1 - betas[0]) / (1 - betas[1]) ** 0.5)
    return 2 * updates * step


def largest_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two sets of weights with the same names and shapes."""
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.shape == other[name].shape, name
    return max(float((tensor.double() - other[name].double()).abs().max()) for name, tensor in one.items())


def mean_difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The mean absolute difference between two sets of weights."""
    differences = [(tensor.double() - other[name].double()).abs().flatten() for name, tensor in one.items()]
    return float(torch.cat(differences).mean())


def same_tensors(one: Tensor, other: Tensor, *, atol: float = 1e-5) -> bool:
    """Whether two computed tensors agree up to rounding."""
    return one.shape == other.shape and torch.allclose(one.double(), other.double(), rtol=1e-5, atol=atol)


def assert_same_document(one: Any, other: Any, *, leave_out: tuple[str, ...] = ("seconds",), where: str = "") -> None:
    """Two JSON documents agree: floats up to `FIGURES`, numbers in texts up to their last digit, the rest exactly."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for name in one.keys() - set(leave_out):
            assert_same_document(one[name], other[name], leave_out=leave_out, where=f"{where}.{name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for index, (ours, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same_document(ours, theirs, leave_out=leave_out, where=f"{where}[{index}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert one == pytest.approx(other, rel=FIGURES, abs=FIGURES, nan_ok=True), where
    elif isinstance(one, str) and isinstance(other, str):
        _assert_same_text(one, other, where)
    else:
        assert one == other, where


def _assert_same_text(one: str, other: str, where: str) -> None:
    """A number with decimals may differ by one in its last digit: it was rounded from a measured one."""
    assert _NUMBER.sub("#", one) == _NUMBER.sub("#", other), where
    for ours, theirs in zip(_NUMBER.finditer(one), _NUMBER.finditer(other), strict=True):
        digits = len(ours[1] or "")
        assert abs(float(ours[0]) - float(theirs[0])) <= (1.01 * 10**-digits if digits else 0), where
