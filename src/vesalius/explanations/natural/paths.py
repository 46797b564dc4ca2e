"""Paths from one component to another: which edges there are."""

from vesalius.components import Component, Edge


def feeds(sender: Component, receiver: Component) -> bool:
    """Whether the receiver is computed after the sender."""
    if sender.layer == receiver.layer:
        return sender.is_head and not receiver.is_head
    return sender.layer < receiver.layer


def edges_between(sender: Component, receiver: Component | None) -> list[Edge]:
    """The direct path into all inputs of a receiver (None: the logits), to be cut at once."""
    if receiver is None:
        return [Edge(sender, None, "logits")]
    if not receiver.is_head:
        return [Edge(sender, receiver, "mlp")]
    return [Edge(sender, receiver, port) for port in ("q", "k", "v")]
