"""Direct paths from one component to another, as edges."""

from vesalius.components import Component, Edge


def feeds(sender: Component, receiver: Component, *, parallel: bool = False) -> bool:
    """Whether the receiver reads what the sender writes; `parallel`: MLPs do not read their own layer's heads."""
    if sender.layer == receiver.layer:
        return sender.is_head and not receiver.is_head and not parallel
    return sender.layer < receiver.layer


def edges_between(sender: Component | None, receiver: Component | None) -> list[Edge]:
    """The edges of the direct path from a sender (None: the embedding) into all inputs of a receiver (None: the
    logits).
    """
    if receiver is None:
        return [Edge(sender, None, "logits")]
    if not receiver.is_head:
        return [Edge(sender, receiver, "mlp")]
    return [Edge(sender, receiver, port) for port in ("q", "k", "v")]
