"""A compiled program as a list of steps over whole batches.

A step reads named tensors [batch, pos] and writes one: codes for a categorical variable, floats for a numerical one.
Nothing branches on data, so the same steps run on any device, and an interchange is one more operation after each step.
Positions past the end of a sequence hold arbitrary valid codes while the steps run; they are never attended to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Values = dict[str, Tensor]
Attendable = Bool[Tensor, "batch query key"]


@dataclass(frozen=True)
class Step:
    """One operator: writes `name` from the variables `reads`."""

    name: str
    reads: tuple[str, ...]

    def __call__(self, values: Values, attendable: Attendable) -> Tensor:
        """Compute the new variable for every row and position."""
        raise NotImplementedError

    def to(self, device: torch.device) -> Self:
        """The same step with its tables on `device`."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class LookUp(Step):
    """Map: one look-up."""

    table: Int[Tensor, " codes"]

    def __call__(self, values: Values, attendable: Attendable) -> Int[Tensor, "batch pos"]:
        return self.table[values[self.reads[0]]]


@dataclass(frozen=True)
class LookPair(Step):
    """SequenceMap: one look-up by two codes."""

    table: Int[Tensor, "left right"]

    def __call__(self, values: Values, attendable: Attendable) -> Int[Tensor, "batch pos"]:
        return self.table[values[self.reads[0]], values[self.reads[1]]]


@dataclass(frozen=True)
class Linear(Step):
    """LinearSequenceMap: a weighted sum; an undefined operand counts as 0."""

    factors: tuple[float, float]
    left: Float[Tensor, " codes"] | None
    right: Float[Tensor, " codes"] | None

    def __call__(self, values: Values, attendable: Attendable) -> Float[Tensor, "batch pos"]:
        x = _as_numbers(values[self.reads[0]], self.left).nan_to_num(nan=0.0)
        y = _as_numbers(values[self.reads[1]], self.right).nan_to_num(nan=0.0)
        return self.factors[0] * x + self.factors[1] * y


@dataclass(frozen=True)
class Count(Step):
    """The head of a SelectorWidth: how many positions are selected."""

    selected: Bool[Tensor, "key query"]

    def __call__(self, values: Values, attendable: Attendable) -> Int[Tensor, "batch pos"]:
        return _selection(self, self.selected, values, attendable).sum(-1)


@dataclass(frozen=True)
class Decode(Step):
    """The MLP of a SelectorWidth: the head's count as a value of its own."""

    def __call__(self, values: Values, attendable: Attendable) -> Int[Tensor, "batch pos"]:
        return values[self.reads[0]]


@dataclass(frozen=True)
class Vote(Step):
    """Categorical Aggregate: the most frequent of `size` values, the earlier code on a tie, `empty` without a vote."""

    selected: Bool[Tensor, "key query"]
    size: int
    empty: int

    def __call__(self, values: Values, attendable: Attendable) -> Int[Tensor, "batch pos"]:
        selection = _selection(self, self.selected, values, attendable).float()
        # Votes are added where they fall: products of thousands of tiny matrices would take ten times as long.
        ballots = values[self.reads[2]][:, None, :].expand(selection.shape)
        votes = selection.new_zeros(*selection.shape[:2], self.size + 1).scatter_add_(2, ballots, selection)
        # Votes and seniority in one number: its maximum names the winner, on whatever device, and whether one voted.
        seniority = torch.arange(self.size - 1, -1, -1, device=votes.device, dtype=votes.dtype)
        best = (votes[..., : self.size] * self.size + seniority).amax(-1).long()
        return torch.where(best >= self.size, self.size - 1 - best % self.size, self.empty)


@dataclass(frozen=True)
class MeanStep(Step):
    """Numerical Aggregate: the mean of the selected numbers, 0 where there is none."""

    selected: Bool[Tensor, "key query"]
    numbers: Float[Tensor, " codes"] | None

    def __call__(self, values: Values, attendable: Attendable) -> Float[Tensor, "batch pos"]:
        numbers = _as_numbers(values[self.reads[2]], self.numbers)
        selection = _selection(self, self.selected, values, attendable) & ~numbers.isnan()[:, None, :]
        # A product and a sum, not a matmul: reduced-precision matmuls would round the numbers.
        total = (selection * numbers.nan_to_num(nan=0.0)[:, None, :]).sum(-1)
        return total / selection.sum(-1).clamp(min=1)


def _selection(step: Step, selected: Bool[Tensor, "key query"], values: Values, attendable: Attendable) -> Attendable:
    keys, queries = values[step.reads[0]], values[step.reads[1]]
    places = keys[:, None, :] * selected.shape[1] + queries[:, :, None]
    return selected.flatten().index_select(0, places.flatten()).view(places.shape) & attendable


def _as_numbers(operand: Tensor, numbers: Float[Tensor, " codes"] | None) -> Float[Tensor, "batch pos"]:
    return operand if numbers is None else numbers[operand]


def evaluate(
    steps: Sequence[Step],
    tokens: Int[Tensor, "batch pos"],
    lengths: Int[Tensor, " batch"],
    *,
    causal: bool,
    amend: Callable[[str, Tensor], Tensor] = lambda name, value: value,
    known: Values | None = None,
) -> Values:
    """Run all steps but those of `known` variables; `amend` may change each one before anything downstream reads it."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    real = positions < lengths[:, None]
    attendable = real[:, None, :].expand(-1, len(positions), -1)
    if causal:
        attendable = attendable & (positions[None, :] <= positions[:, None])
    values: Values = {"tokens": tokens.clamp(min=0), "indices": positions.expand_as(tokens)}
    for step in steps:
        if known is not None and step.name in known:
            values[step.name] = known[step.name]
        else:
            values[step.name] = amend(step.name, step(values, attendable))
    return {name: torch.where(real, value, 0 if value.is_floating_point() else -1) for name, value in values.items()}
