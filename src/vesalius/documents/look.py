"""What a model does with one prompt: its tokens, where heads look, what components write."""

from typing import Any

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.frozen import FrozenMap
from vesalius.documents.view import Answer, Facts, Sheet, View, join_first
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

    def view(self) -> View:
        """The tokens, and what comes next."""
        after = ", ".join(f"{one.token!r} {one.probability:.3f}" for one in self.likely)
        said = join_first(map(repr, self.tokens), 12)
        return View(
            f"{self.specimen} on a prompt",
            Answer(f"{self.specimen} on {len(self.tokens)} tokens: {said}"),
            [Facts([("next", after)]), Sheet(("position", "token"), list(enumerate(self.tokens)))],
        )


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

    def view(self) -> View:
        """Every head's attention, query by query."""
        rows = [
            (one.head, self.tokens[q], self.tokens[k], row[k])
            for one in self.heads
            for q, row in enumerate(one.pattern)
            for k in range(q + 1)
        ]
        layer = f"layer {self.layer} of {self.specimen}"
        return View(
            f"Attention of {layer}",
            Answer(f"Attention of {len(self.heads)} heads of {layer}, {len(self.tokens)} tokens"),
            [Sheet(("head", "query", "key", "attention"), rows)],
        )


class LensLook(ResultDocument):
    """What components write at each position: the tokens whose logits gain most, and by how much (against the mean
    logit).
    """

    specimen: str
    tokens: tuple[str, ...]
    components: FrozenMap[str, tuple[tuple[tuple[str, float], ...], ...]]

    def view(self) -> View:
        """What each component adds to which tokens, position by position."""
        rows = [
            (name, self.tokens[at], ", ".join(f"{token!r} {gain:+.2f}" for token, gain in top))
            for name, places in self.components.items()
            for at, top in enumerate(places)
        ]
        named = join_first(self.components, 4)
        return View(
            f"Logit lens of {self.specimen}",
            Answer(f"Logit lens of {named} of {self.specimen} on {len(self.tokens)} tokens"),
            [Sheet(("component", "token", "gains"), rows)],
        )
