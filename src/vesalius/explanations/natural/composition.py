"""Interventions inside one head: which components write its queries and keys, and what it copies from its keys.

*Composition*: the path from one earlier component into the head's queries or keys alone carries the counterfactual
value; everything else stays clean. What the head then attends to needs one layer's arithmetic, no forward pass, so all
earlier components can be tested. *Cutting* removes keys from the head's attention and scales the rest to sum to one.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attention import Target, masses
from vesalius.explanations.natural.pool import Pool
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Heads

AttentionPort = Literal["q", "k"]
PORTS: tuple[AttentionPort, ...] = ("q", "k")
PORT_WORDS = {"q": "queries", "k": "keys", "v": "values"}


class HeadInputs:
    """The clean inputs of one head on a pool."""

    def __init__(self, pool: Pool, head: Component) -> None:
        self.pool, self.head = pool, head
        self.block = pool.model.blocks[head.layer]
        self._shared = (head.head or 0) // pool.model.config.queries_per_kv
        self._resid = pool.resid(head.layer)
        self._layout = pool.model.layout(pool.batch.tokens, pool.batch.mask)
        normed = self.block.ln1(self._resid, Tap())
        self._clean = {port: self._project(normed, port) for port in ("q", "k", "v")}

    @torch.no_grad()
    def pattern_without(self, sender: Component | None, port: AttentionPort) -> Float[Tensor, "prompt 1 query key"]:
        """The head's attention when `sender`'s path into its queries or keys carries the counterfactual value."""
        pool = self.pool
        change = pool.output_of(sender, pool.source_values) - pool.output_of(sender, pool.values)
        ports = {**self._clean, port: self._project(self.block.ln1(self._resid + change, Tap()), port)}
        name = f"blocks.{self.head.layer}.attn.hook_pattern"
        tap = Tap(keep=lambda other: other == name)
        self.block.attn.mix(Heads(ports["q"], ports["k"], ports["v"]), self._layout, None, tap)
        return tap.stored[name]

    def mass_lost(self, sender: Component | None, port: AttentionPort, target: Target) -> Float[Tensor, " prompt"]:
        """How much attention leaves the target without the sender's path; NaN where a prompt has no target."""
        clean = self.pool.pattern(self.head.layer)[:, [self.head.head]]
        return (masses(clean, target) - masses(self.pattern_without(sender, port), target))[:, 0]

    @torch.no_grad()
    def z_without_keys(self, target: Target) -> Float[Tensor, "prompt pos d_head"]:
        """The head's z when the target keys are removed from its attention."""
        pattern = self.pool.pattern(self.head.layer)[:, self.head.head]
        remaining = pattern.masked_fill(target.to(pattern.device), 0.0)
        remaining = remaining / remaining.sum(-1, keepdim=True).clamp(min=1e-9)
        return remaining @ self._clean["v"][:, :, 0]

    def _project(self, normed: Tensor, port: str) -> Float[Tensor, "prompt pos 1 d_head"]:
        attention = self.block.attn
        source = self.head.head if port == "q" else self._shared
        weight, bias = getattr(attention, f"W_{port.upper()}")[source], getattr(attention, f"b_{port.upper()}")[source]
        return (normed @ weight + bias)[:, :, None]


def senders_below(pool: Pool, head: Component) -> list[Component]:
    """Every component of the layers below a head."""
    return [component for component in pool.model.components if component.layer < head.layer]
