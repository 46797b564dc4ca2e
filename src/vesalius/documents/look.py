"""What a model does with one prompt: its tokens, where heads look, what components write."""

from typing import Any

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.frozen import FrozenMap
from vesalius.documents.views import Row, join_first
from vesalius.documents.what_if import Likely


class Look(ResultDocument):
    """One prompt: its tokens (BOS included where the model has one), the output at every token, and, of a natural
    model, the likeliest next tokens.
    """

    specimen: str
    prompt: str
    tokens: tuple[str, ...]
    outputs: tuple[Any, ...]
    likely: tuple[Likely, ...] = ()

    def _summary(self) -> str:
        after = ", ".join(f"{one.token!r} {one.probability:.3f}" for one in self.likely)
        return f"{self.specimen} on {len(self.tokens)} tokens: {join_first(map(repr, self.tokens), 12)}\nnext: {after}"

    def _rows(self) -> list[Row]:
        return [{"position": i, "token": token} for i, token in enumerate(self.tokens)]


class HeadAttention(Record):
    """The attention of one head: `pattern[query][key]`, rounded."""

    head: str
    pattern: tuple[tuple[float, ...], ...]


class AttentionLook(ResultDocument):
    """Where the heads of one layer look on one prompt."""

    specimen: str
    layer: int
    tokens: tuple[str, ...]
    heads: tuple[HeadAttention, ...]

    def _summary(self) -> str:
        return (
            f"Attention of {len(self.heads)} heads of layer {self.layer} of {self.specimen}, {len(self.tokens)} tokens"
        )

    def _rows(self) -> list[Row]:
        return [
            {"head": one.head, "query": self.tokens[q], "key": self.tokens[k], "attention": row[k]}
            for one in self.heads
            for q, row in enumerate(one.pattern)
            for k in range(q + 1)
        ]


class LensLook(ResultDocument):
    """What components write at each position: the tokens whose logits gain most, and by how much (against the mean
    logit).
    """

    specimen: str
    tokens: tuple[str, ...]
    components: FrozenMap[str, tuple[tuple[tuple[str, float], ...], ...]]

    def _summary(self) -> str:
        return f"Logit lens of {join_first(self.components, 4)} of {self.specimen} on {len(self.tokens)} tokens"

    def _rows(self) -> list[Row]:
        return [
            {"component": name, "token": self.tokens[at], "gains": ", ".join(f"{t!r} {g:+.2f}" for t, g in top)}
            for name, places in self.components.items()
            for at, top in enumerate(places)
        ]
