"""The model under study as the helper functions hold it: token lists in, lists per input out.

A caller of a helper never sees BOS, padding or a batch of unequal lengths: inputs are lists of tokens, positions
count tokens from 0, and everything that comes back is cut to the length of its input. What does not fit is refused with
one line that says what to write instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Plan, Recordings, all_logits, run
from vesalius.intervene.values import component_values
from vesalius.model.hooks import Cache
from vesalius.model.specimen import FiniteVocabulary, Value, json_value
from vesalius.model.transformer import Transformer

#: Numbers closer than this are the same output.
TOLERANCE = 0.05


@dataclass(frozen=True)
class Inputs:
    """Checked inputs: token ids with BOS first and padding last, how many tokens each has, and the clean run of them,
    which is made when it is first needed.
    """

    given: list[list[Any]]
    tokens: Int[Tensor, "batch pos"]
    lengths: list[int]
    recordings: Recordings

    @property
    def real(self) -> Bool[Tensor, "batch pos"]:
        """Where a token of the input stands; BOS and padding are not."""
        places = torch.arange(self.tokens.shape[1])
        return (places[None] >= 1) & (places[None] <= torch.tensor(self.lengths)[:, None])

    def cut(self, values: Float[Tensor, "batch pos *rest"]) -> list[Tensor]:
        """One tensor per input, [tokens, ...]: BOS and padding taken off."""
        return [row[1 : length + 1] for row, length in zip(values, self.lengths, strict=True)]


@dataclass(frozen=True)
class Subject:
    """A model with its vocabulary."""

    model: Transformer
    vocabulary: FiniteVocabulary

    def inputs(self, given: Any, *, name: str = "inputs") -> Inputs:
        """Token lists, checked."""
        example = [list(self.vocabulary.tokens[:2])]
        if isinstance(given, Tensor):
            raise BadInput(
                f"{name} is a tensor; give token lists such as {example}: BOS and padding are added inside, "
                "so do not tokenize first"
            )
        if not isinstance(given, Sequence) or isinstance(given, str) or not len(given):
            raise BadInput(f"{name} must be a list of token lists, such as {example}, not {given!r:.60}")
        if not all(isinstance(row, Sequence) and not isinstance(row, str) for row in given):
            raise BadInput(f"{name} must be a LIST of token lists; for one input write [[...]], such as {example}")
        rows = [list(row) for row in given]
        foreign = [token for row in rows for token in row if token not in self.vocabulary.tokens]
        if any(str(token).strip("<>[]").lower() == "bos" for token in foreign):
            raise BadInput(f"{name} contains BOS; leave it out: it is added inside, and positions count from 0")
        tokens = self.vocabulary.tokenize(rows)
        return Inputs(rows, tokens, [len(row) for row in rows], Recordings(self.model, Batch(tokens), all_logits()))

    def component(self, name: Any, *, head: bool = False) -> Component:
        """A component by name; with `head`, only an attention head will do."""
        if not isinstance(name, str | Component):
            raise BadInput(f"component must be a name such as 'L0H1' or 'L0_MLP', not {name!r:.40}")
        part = (name if isinstance(name, Component) else Component.parse(name)).within(self.model.config)
        if head and not part.is_head:
            raise BadInput(f"{part} is an MLP, which has no attention; name a head such as 'L0H0'")
        return part

    def cached(self, inputs: Inputs, *names: str) -> Cache:
        """Named activations of a run."""
        return self.model.run_with_cache(inputs.tokens, names=names)[1]

    def outputs(self, inputs: Inputs) -> list[list[Any]]:
        """Decoded outputs, one per token of each input."""
        return self._decoded(inputs, inputs.recordings.scores())

    def values(self, part: Component, inputs: Inputs) -> Float[Tensor, "batch pos width"]:
        """What interventions replace: a head's z, or what an MLP writes, without its bias."""
        return inputs.recordings.outputs([part])[part].clone()

    def outputs_with(
        self,
        part: Component,
        values: Float[Tensor, "batch pos width"],
        where: Bool[Tensor, "batch pos"],
        inputs: Inputs,
    ) -> list[list[Any]]:
        """Decoded outputs with `values` in the component's place at some positions."""
        plan = Plan.each(self.model.config, torch.arange(len(values)), part, positions=where)
        return self._decoded(inputs, run(inputs.recordings, plan, component_values(self.model, part, values)))

    def _decoded(self, inputs: Inputs, logits: Float[Tensor, "batch pos out"]) -> list[list[Any]]:
        rows = self.vocabulary.decode(logits)
        return [[_short(value) for value in row[:length]] for row, length in zip(rows, inputs.lengths, strict=True)]


def same(one: Any, other: Any) -> bool:
    """Whether two outputs are the same: equal, or numbers less than 0.05 apart."""
    if isinstance(one, float) and isinstance(other, int | float) and not isinstance(other, bool):
        return abs(one - other) < TOLERANCE
    return one == other


def _short(value: Value) -> Any:
    return round(value, 4) + 0.0 if isinstance(value, float) and isfinite(value) else json_value(value)  # no minus zero
