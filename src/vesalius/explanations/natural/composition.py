"""Interventions inside one head: which components write its queries and keys, and what it copies from its keys.

*Composition*: the path from one earlier component into the head's queries or keys alone carries the counterfactual
value; everything else stays clean. What the head then attends to needs one layer's arithmetic, no forward pass, so all
earlier components can be tested. *Cutting* removes keys from the head's attention and scales the rest to sum to one.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.explanations.natural.pool import Pool
from vesalius.intervene.head_inputs import HeadInputs

AttentionPort = Literal["q", "k"]
PORTS: tuple[AttentionPort, ...] = ("q", "k")
PORT_WORDS = {"q": "queries", "k": "keys", "v": "values"}


class HeadPaths:
    """The paths into one head on a pool."""

    def __init__(self, pool: Pool, head: Component) -> None:
        self.pool, self.head = pool, head
        self._inputs = HeadInputs(pool.model, pool.batch, pool.resid(head.layer), head)

    def pattern_without(self, sender: Component | None, port: AttentionPort) -> Float[Tensor, "prompt 1 query key"]:
        """The head's attention when `sender`'s path into its queries or keys carries the counterfactual value."""
        return self._inputs.patterns_with(self.pool.change(sender), (port,))[port][:, None]

    def mass_lost(self, sender: Component | None, port: AttentionPort, target: Target) -> Float[Tensor, " prompt"]:
        """How much attention leaves the target without the sender's path; NaN where a prompt has no target."""
        return self.masses_lost(self.pool.change(sender), target, (port,))[port]

    def masses_lost(
        self, change: Float[Tensor, "prompt pos d_model"], target: Target, ports: Sequence[AttentionPort] = PORTS
    ) -> dict[AttentionPort, Float[Tensor, " prompt"]]:
        """The same for a change of what the head reads, into its queries and into its keys."""
        clean = masses(self.pool.pattern(self.head.layer)[:, [self.head.head]], target)[:, 0]
        patterns = self._inputs.patterns_with(change, ports)
        return {port: clean - masses(patterns[port][:, None], target)[:, 0] for port in ports}

    @torch.no_grad()
    def z_without_keys(self, target: Target) -> Float[Tensor, "prompt pos d_head"]:
        """The head's z when the target keys are removed from its attention."""
        pattern = self.pool.pattern(self.head.layer)[:, self.head.head]
        remaining = pattern.masked_fill(target.to(pattern.device), 0.0)
        remaining = remaining / remaining.sum(-1, keepdim=True).clamp(min=1e-9)
        return remaining @ self._inputs.values
