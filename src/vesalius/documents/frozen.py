"""Mappings that cannot be changed, so that a frozen document stays what it was when it was made.

A frozen pydantic model only refuses other values for its fields. Its sequences are tuples and its mappings are
`FrozenDict`, a dict without the methods that change one: it is compared, pickled and written as JSON like any other.
Both show their first members only, so that a large one fits a notebook. Free JSON inside (the values of a request's
options, programs, tables) is what a parser gave and is not frozen further: walking it on every load would cost more
than it protects.
"""

from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator

from vesalius.documents.view import Several, repr_of_first, shortened

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A dict that refuses to be changed; `{**this, ...}` and `this | other` make plain ones."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a document cannot be changed; make another with .model_copy(update={...})")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = _refuse
    setdefault = update = _refuse  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr_of_first((f"{key!r}: {shortened(repr(self[key]), 80)}" for key in self), len(self), "{{{}}}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


#: A mapping of a document, and a sequence that may be long.
FrozenMap = Annotated[dict[K, V], AfterValidator(FrozenDict)]
FrozenList = Annotated[tuple[V, ...], AfterValidator(Several)]
