"""The edges of a transformer as one table: senders in rows, inputs of receivers in columns.

Senders are the embedding and every component, in order of computation. Columns are, layer by layer, the q inputs of the
heads, their k inputs, their v inputs and the MLP's input, and the logits at the end. Whatever is computed before a
receiver feeds it, so the senders of a column are always a prefix of the rows. Keys and values are counted per query
head, also where several share a key-value head. In parallel blocks heads do not feed the MLP of their own layer.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component, Edge, Port, Shape, all_components

HEAD_PORTS: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")


@dataclass(frozen=True)
class EdgeGraph:
    """All edges of a model of this shape; `scores[..., sender, receiver]` tensors are read and written by its views."""

    n_layers: int
    n_heads: int
    parallel: bool = False

    @classmethod
    def of(cls, shape: Shape) -> "EdgeGraph":
        """The graph of a model."""
        return cls(shape.n_layers, shape.n_heads, getattr(shape, "parallel", False))

    @cached_property
    def senders(self) -> tuple[Component | None, ...]:
        """The embedding (None), then every component."""
        return (None, *all_components(self))

    @cached_property
    def receivers(self) -> tuple[tuple[Component | None, Port], ...]:
        """Every input that edges enter by; the logits are (None, "logits")."""
        inputs: list[tuple[Component | None, Port]] = []
        for layer in range(self.n_layers):
            inputs.extend((Component(layer, head), port) for port in HEAD_PORTS for head in range(self.n_heads))
            inputs.append((Component(layer), "mlp"))
        return (*inputs, (None, "logits"))

    @cached_property
    def real(self) -> Bool[Tensor, "sender receiver"]:
        """Which pairs are edges."""
        feeding = torch.tensor([self.n_feeding(receiver) for receiver, _ in self.receivers])
        return torch.arange(len(self.senders))[:, None] < feeding[None]

    @cached_property
    def places(self) -> Int[Tensor, "edge 2"]:
        """Row and column of every edge, in the order of `edges`."""
        return self.real.nonzero()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, senders in order of computation."""
        return tuple(Edge(self.senders[s], *self.receivers[r]) for s, r in self.places.tolist())

    @property
    def n_edges(self) -> int:
        """How many edges there are, without listing them: a model of 70B has 40 million."""
        heads = 3 * self.n_heads
        layers = ((Component(layer, 0), Component(layer)) for layer in range(self.n_layers))
        inside = sum(heads * self.n_feeding(head) + self.n_feeding(mlp) for head, mlp in layers)
        return inside + self.n_feeding(None)

    def n_feeding(self, receiver: Component | None) -> int:
        """How many senders are computed before a receiver."""
        if receiver is None:
            return 1 + self.n_layers * (self.n_heads + 1)
        after_heads = not receiver.is_head and not self.parallel
        return 1 + receiver.layer * (self.n_heads + 1) + (self.n_heads if after_heads else 0)

    def port(self, layer: int, port: str) -> slice:
        """The columns of one kind of input in a layer."""
        first = layer * (3 * self.n_heads + 1)
        if port == "mlp":
            return slice(first + 3 * self.n_heads, first + 3 * self.n_heads + 1)
        start = first + HEAD_PORTS.index(port) * self.n_heads  # type: ignore[arg-type]
        return slice(start, start + self.n_heads)

    def heads(self, layer: int) -> slice:
        """The columns of all heads' inputs in a layer: q, then k, then v."""
        return slice(self.port(layer, "q").start, self.port(layer, "v").stop)

    def by_edge(self, scores: Float[Tensor, "sender receiver"]) -> dict[Edge, float]:
        """The score of every edge by its name."""
        return dict(zip(self.edges, scores[tuple(self.places.T)].tolist(), strict=True))

    def by_sender(self, scores: Float[Tensor, "sender receiver"]) -> dict[Component, float]:
        """A score for every component: the largest magnitude among its outgoing edges."""
        by_component = self.component_scores(scores).tolist()
        return {part: score for part, score in zip(self.senders[1:], by_component, strict=True) if part is not None}

    def component_scores(self, scores: Float[Tensor, "... sender receiver"]) -> Float[Tensor, "... component"]:
        """The same for any number of tables, components in order of computation."""
        return torch.where(self.real, scores.abs(), 0.0).amax(-1)[..., 1:]
