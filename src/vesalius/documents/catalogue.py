"""One specimen in full, as `vesalius show` prints it."""

from typing import Any

from vesalius.documents.base import Keyed
from vesalius.documents.frozen import FrozenList, FrozenMap
from vesalius.documents.views import Row, Viewable, join_first


class SpecimenDescription(Viewable, Keyed):
    """A specimen's shape, components, vocabulary and a few examples. `vocab` lists the tokens, or says of a vocabulary
    that is too long for that what it is and how large.
    """

    id: str
    name: str
    kind: str
    components: FrozenList[str]
    layers: int
    heads: int
    d_model: int
    examples: tuple[FrozenMap[str, Any], ...]
    vocab: tuple[Any, ...] | FrozenMap[str, Any]
    max_len: int
    min_len: int

    def _summary(self) -> str:
        return (
            f"{self.name} ({self.kind}): {self.layers} layers x {self.heads} heads, d_model {self.d_model}, inputs of "
            f"{self.min_len} to {self.max_len} tokens\ncomponents: {join_first(self.components, 8)}"
        )

    def _rows(self) -> list[Row]:
        return list(self.examples)
