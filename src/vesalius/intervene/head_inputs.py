"""One head taken apart: its queries, keys and values, and where it attends when one of them changes.

What a head attends to needs one layer's arithmetic and no forward pass, so every earlier component can be tried.
"""

from collections.abc import Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.values import Batch
from vesalius.model.attention import HeadPort, Heads
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Transformer

_CLEAN = Tap()
Port = TypeVar("Port", bound=HeadPort)


class HeadInputs:
    """What a head reads on a batch, from `resid`, the residual stream that enters its layer."""

    @torch.no_grad()
    def __init__(
        self, model: Transformer, batch: Batch, resid: Float[Tensor, "prompt pos d_model"], head: Component
    ) -> None:
        assert head.head is not None
        self.head, self._block = head, model.blocks[head.layer]
        self._resid = resid = resid.to(self._block.device)
        self._own = head.head
        batch = batch.to(model.device)
        self._layout = model.layout(batch.tokens, batch.mask).on(self._block.device)
        normed = self._block.ln1(resid, _CLEAN)
        self._clean = Heads(self._project(normed, "q"), self._project(normed, "k"), self._project(normed, "v"))

    @property
    def values(self) -> Float[Tensor, "prompt pos d_head"]:
        """The values the head moves."""
        return self._clean.v[:, :, 0]

    @torch.no_grad()
    def pattern(self) -> Float[Tensor, "prompt query key"]:
        """Where the head attends."""
        return self._attend(self._clean)

    def pattern_with(
        self, change: Float[Tensor, "prompt pos d_model"], port: HeadPort
    ) -> Float[Tensor, "prompt query key"]:
        """Where the head attends when its queries, keys or values alone see `change` added to the residual stream."""
        return self.patterns_with(change, (port,))[port]

    @torch.no_grad()
    def patterns_with(
        self, change: Float[Tensor, "prompt pos d_model"], ports: Sequence[Port]
    ) -> dict[Port, Float[Tensor, "prompt query key"]]:
        """The same for several inputs, each on its own."""
        normed = self._block.ln1(self._resid + change.to(self._resid.device), _CLEAN)
        return {port: self._attend(self._clean._replace(**{port: self._project(normed, port)})) for port in ports}

    def _attend(self, heads: Heads) -> Float[Tensor, "prompt query key"]:
        name = f"blocks.{self.head.layer}.attn.hook_pattern"
        tap = Tap(keep=lambda other: other == name)
        self._block.attn.mix(heads, self._layout, None, tap)
        return tap.stored[name][:, 0]

    def _project(self, normed: Tensor, port: HeadPort) -> Float[Tensor, "prompt pos 1 d_head"]:
        return self._block.attn.own(port, normed[:, None], [self._own]).transpose(1, 2)
