"""What takes a component's place, as objects: `Zero()`, `Mean()`, `Resample()`, `ValueBias()`; `Patch()` is resampling
from a prompt that was given.

An ablation makes the table of values that the engine takes (`Replacement`). It says of itself whether it needs
counterfactual prompts and how many runs of the prompts its table takes. A class with a name is registered when it is
defined, and the name is accepted wherever the object is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.errors import BadInput, choices
from vesalius.intervene.values import Batch, Values, activations, means, value_bias, zeros
from vesalius.model.transformer import Transformer

#: Every ablation, by its name.
ABLATIONS: dict[str, type["Ablation"]] = {}


@dataclass(frozen=True)
class Replacement:
    """A table of values and the row of it that each prompt uses."""

    values: Values
    choices: Int[Tensor, " prompt"]


@dataclass(frozen=True)
class Ablation:
    """What takes a component's place.

    `help` says it in a line; `from_counterfactual` is True where values are those of the counterfactual prompt, so that
    only positions matter at which it differs; `runs` is how many runs of all prompts the table takes; `given` marks one
    that needs a prompt of the caller's own.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    from_counterfactual: ClassVar[bool] = False
    runs: ClassVar[int] = 0
    given: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        ABLATIONS[cls.name] = cls

    def __str__(self) -> str:
        return self.name

    def table(
        self,
        model: Transformer,
        batch: Batch,
        *,
        counterfactual: Batch | None = None,
        reference: Batch | None = None,
        neurons: bool = False,
    ) -> Replacement:
        """The values for prompts; `reference` are those that means are taken over (None: the prompts themselves). With
        `neurons`, for single neurons and experts as well.
        """
        n = len(batch)
        if self.from_counterfactual and (counterfactual is None or counterfactual.tokens.shape != batch.tokens.shape):
            raise BadInput("resampling needs a counterfactual prompt of the same length for every prompt")
        source = counterfactual if self.from_counterfactual else reference or batch
        assert source is not None
        rows = torch.arange(n) if self.from_counterfactual else torch.zeros(n, dtype=torch.long)
        return Replacement(self.values(model, source, neurons=neurons), rows)

    def values(self, model: Transformer, source: Batch, *, neurons: bool) -> Values:
        """The table itself: a row for every prompt of `source` where it is the counterfactual, otherwise one row."""
        raise NotImplementedError


@dataclass(frozen=True)
class Zero(Ablation):
    """Zero in a head's z, and in what an MLP writes without its output bias."""

    name = "zero"
    help = "zeros"

    def values(self, model: Transformer, source: Batch, *, neurons: bool) -> Values:
        """One row of zeros."""
        return zeros(model)


@dataclass(frozen=True)
class Mean(Ablation):
    """The mean over prompts and positions."""

    name = "mean"
    help = "its mean over the prompts"
    runs = 1

    def values(self, model: Transformer, source: Batch, *, neurons: bool) -> Values:
        """One row of means."""
        return means(model, source.to(model.device), neurons=neurons)


@dataclass(frozen=True)
class Resample(Ablation):
    """The value on the counterfactual prompt, position by position."""

    name = "resample"
    help = "its value on the counterfactual prompt"
    from_counterfactual = True
    runs = 1

    def values(self, model: Transformer, source: Batch, *, neurons: bool) -> Values:
        """A row for every prompt."""
        return activations(model, source.to(model.device), neurons=neurons)


@dataclass(frozen=True)
class ValueBias(Ablation):
    """A head's constant output: its value bias; zero for an MLP. What MechRL published."""

    name = "value-bias"
    help = "the constant bias of a head's values"

    def values(self, model: Transformer, source: Batch, *, neurons: bool) -> Values:
        """One row of biases."""
        return value_bias(model)


@dataclass(frozen=True)
class Patch(Resample):
    """The value on a prompt that was given."""

    name = "patch"
    help = "its value on a prompt that is given"
    given = True


#: Those that need nothing but the prompts and their counterfactuals.
KINDS = tuple(name for name, kind in ABLATIONS.items() if not kind.given)


def ablation_named(kind: Ablation | str, among: tuple[str, ...] = KINDS) -> Ablation:
    """The ablation of that name; an object is returned as it is."""
    name = kind.name if isinstance(kind, Ablation) else kind
    if name not in among:
        raise BadInput(f"kind {name!r} does not exist; choose one of {choices(among)}")
    return kind if isinstance(kind, Ablation) else ABLATIONS[name]()
