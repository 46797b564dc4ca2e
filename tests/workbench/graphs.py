"""Discoveries with as many edges as a picture must bear."""

import random

from vesalius.components import Component, Edge, all_components
from vesalius.documents import Circuit, Discovery, Member, Request


def all_edges(layers: int, heads: int) -> list[Edge]:
    """Every edge of a model of some shape, the embedding and the logits included."""
    shape = Circuit(n_layers=layers, n_heads=heads, d_model=4, nodes={}, edges={})
    parts = all_components(shape)
    senders: list[Component | None] = [None, *parts]
    edges = [Edge(sender, None, "logits") for sender in senders]
    for place, receiver in enumerate(parts):
        before = [None, *(part for part in parts[:place] if part.layer < receiver.layer or not receiver.is_head)]
        ports = ("q", "k", "v") if receiver.is_head else ("mlp",)
        edges += [Edge(sender, receiver, port) for sender in before for port in ports]  # type: ignore[arg-type]
    return edges


def large_discovery(edges: int = 10_000, *, layers: int = 12, heads: int = 12, specimen: str = "gpt2") -> Discovery:
    """A discovery of that many edges with scores like those of attribution: a few large ones, many small ones."""
    draw = random.Random(0)
    chosen = draw.sample(all_edges(layers, heads), edges)
    shape = Circuit(n_layers=layers, n_heads=heads, d_model=4, nodes={}, edges={})
    scores = {edge: draw.gauss(0, 1) * draw.random() ** 6 for edge in chosen}
    nodes = {part: Member(score=draw.gauss(0, 1)) for part in all_components(shape)}
    circuit = Circuit.scored(shape, 4, {part: float(one.score or 0) for part, one in nodes.items()}, scores)
    request = Request(command="discover", specimen=specimen, method="eap", options={"n": 1}, seed=0, versions={})
    return Discovery(request=request, circuit=circuit, unit="share of the change", forwards=1.0, seconds=1.0)
