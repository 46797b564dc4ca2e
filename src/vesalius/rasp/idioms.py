"""Small programs that are used again and again, written in the language itself."""

from vesalius.errors import BadInput
from vesalius.rasp.language import Aggregate, Comparison, Map, Select, SelectorWidth, Value, Variable, indices, tokens


def length(*, name: str = "length") -> SelectorWidth:
    """The number of tokens, at every position (in a causal program: of the tokens so far)."""
    return SelectorWidth(Select(tokens, tokens, Comparison.TRUE), name=name)


def shift_by(offset: int, x: Variable, *, name: str | None = None) -> Aggregate:
    """`x` moved `offset` positions to the right (to the left if negative); None where nothing arrives."""
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise BadInput(f"shift_by: offset must be a whole number of positions, not {offset!r}")
    return Aggregate(
        Select(indices, indices, lambda key, query: key == query - offset), x, name=name or f"shift_by({offset})"
    )


def hist(x: Variable, *, name: str = "hist") -> SelectorWidth:
    """How often the value at this position occurs in the sequence."""
    return SelectorWidth(Select(x, x, Comparison.EQ), name=name)


def frac_prevs(flags: Variable, *, name: str = "frac_prevs") -> Aggregate:
    """The mean of 0/1 `flags` over this position and all before it."""
    return Aggregate(Select(indices, indices, Comparison.LEQ), flags, numerical=True, name=name)


def constant(value: Value, *, of: Variable = indices, name: str | None = None) -> Map:
    """The same value at every position, as a Map of `of`."""
    return Map(lambda _: value, of, name=name)
