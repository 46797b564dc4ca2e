"""The RASP language: expressions over a sequence, each giving one value per position.

A program is a graph of expressions that starts at the two inputs, `tokens` and `indices`, and ends at the variable it
outputs. An expression never runs by itself: `compile_program` turns the graph into look-up tables. Everything that can
be judged without the vocabulary (operand kinds, predicates, argument counts) is judged here, at construction.

Two kinds of variable exist. A categorical one has finitely many values, found later by enumeration; a numerical one is
a float. Only `LinearSequenceMap` and `Aggregate(..., numerical=True)` make numerical variables, and only those read
them.

`None` is the undefined value. A function is never called with it: a Map of None is None, a SequenceMap with a None
operand is None, a None key or query selects nothing, a None value is left out of an Aggregate and is 0 in a
LinearSequenceMap. A function that raises ArithmeticError or ValueError, or returns NaN, gives None.
"""

import inspect
import math
import operator
from collections.abc import Callable, Collection, Hashable, Mapping
from enum import Enum
from typing import Any, ClassVar

from vesalius.errors import BadInput, choices
from vesalius.values import rounded

# A hashable Python value: str, int, float, bool, a tuple of these, or None.
Value = Any

# What a user's own code may raise, errors of its own among them; each becomes one line for that user. What ends a
# program is no error: an interrupt stays one.
USER_CODE_ERRORS = (Exception, GeneratorExit)


class Comparison(Enum):
    """A predicate of (key, query): `Select(indices, indices, Comparison.LEQ)` selects keys at or before the query."""

    EQ = "EQ"
    LT = "LT"
    LEQ = "LEQ"
    GT = "GT"
    GEQ = "GEQ"
    NEQ = "NEQ"
    TRUE = "TRUE"
    FALSE = "FALSE"

    def __call__(self, key: Value, query: Value) -> bool:
        return _COMPARISONS[self](key, query)


_COMPARISONS: dict[Comparison, Callable[[Value, Value], bool]] = {
    Comparison.EQ: operator.eq,
    Comparison.LT: operator.lt,
    Comparison.LEQ: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GEQ: operator.ge,
    Comparison.NEQ: operator.ne,
    Comparison.TRUE: lambda key, query: True,
    Comparison.FALSE: lambda key, query: False,
}


def apply(function: Callable[..., Value], *arguments: Value) -> Value:
    """Call a program's function under the rules of None: no call with None, undefined results become None."""
    if any(argument is None for argument in arguments):
        return None
    try:
        result = function(*arguments)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(result, float) and math.isnan(result) else result


class Expression:
    """A node of a program. `inputs` are the nodes it reads; `name` is the given name, or the kind of the node."""

    kind: ClassVar[str] = "expression"
    numerical: bool = False

    def __init__(self, inputs: tuple["Expression", ...], *, name: str | None = None) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise BadInput(
                f"{type(self).__name__}: name={name!r} is not a name; give a non-empty string or leave it out"
            )
        self.inputs = inputs
        self.given_name = name

    @property
    def name(self) -> str:
        """The given name, or the kind; a compiled program numbers the unnamed ones so that its names are unique."""
        return self.given_name or self.kind

    def __repr__(self) -> str:
        operands = ", ".join(node.name for node in self.inputs)
        return f"<{type(self).__name__} {self.name}({operands})>"


class Variable(Expression):
    """An expression with one value per position (a sequence operator); everything but `Select`."""


class Tokens(Variable):
    """The input tokens. Use the one instance, `tokens`."""

    kind = "tokens"


class Indices(Variable):
    """The position of each token, from 0. Use the one instance, `indices`."""

    kind = "indices"


tokens = Tokens(())
indices = Indices(())


class Map(Variable):
    """`function` applied to the value at each position; a dict is a look-up table, with `otherwise` for other values.

    A Map of a Map is fused into one Map with the outer name.
    """

    kind = "map"

    def __init__(
        self,
        function: Callable[[Value], Value] | Mapping[Value, Value],
        x: Variable,
        *,
        otherwise: Value = None,
        name: str | None = None,
    ) -> None:
        function = _function(function, 1, "Map", otherwise)
        _check_categorical(x, "Map", "x")
        if isinstance(x, Map):
            function, x = _Composed(function, x.function), x.x
        super().__init__((x,), name=name)
        self.function = function

    @property
    def x(self) -> Variable:
        """The variable that is mapped."""
        return self.inputs[0]  # type: ignore[return-value]


class SequenceMap(Variable):
    """`function(x_i, y_i)` at each position; a dict is a look-up table by pairs. With `x is y` it counts as a Map."""

    kind = "sequence_map"

    def __init__(
        self,
        function: Callable[[Value, Value], Value] | Mapping[tuple[Value, Value], Value],
        x: Variable,
        y: Variable,
        *,
        otherwise: Value = None,
        name: str | None = None,
    ) -> None:
        function = _function(function, 2, "SequenceMap", otherwise)
        _check_categorical(x, "SequenceMap", "x")
        _check_categorical(y, "SequenceMap", "y")
        super().__init__((x, y), name=name)
        self.function = function

    @property
    def combines(self) -> bool:
        """True when it reads two different variables."""
        return self.inputs[0] is not self.inputs[1]


class LinearSequenceMap(Variable):
    """`x_factor * x_i + y_factor * y_i` at each position; numerical."""

    kind = "linear_sequence_map"
    numerical = True

    def __init__(self, x: Variable, y: Variable, *, x_factor: float, y_factor: float, name: str | None = None) -> None:
        _check_variable(x, "LinearSequenceMap", "x")
        _check_variable(y, "LinearSequenceMap", "y")
        for label, factor in (("x_factor", x_factor), ("y_factor", y_factor)):
            if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor):
                raise BadInput(f"LinearSequenceMap: {label}={factor!r} is not a finite number")
        super().__init__((x, y), name=name)
        self.x_factor, self.y_factor = float(x_factor), float(y_factor)

    @property
    def combines(self) -> bool:
        """True when it reads two different variables."""
        return self.inputs[0] is not self.inputs[1]


class Select(Expression):
    """Which key positions each query position attends to: those where `predicate(key, query)` holds.

    A list or set of (key, query) pairs selects those pairs.
    """

    kind = "select"

    def __init__(
        self,
        keys: Variable,
        queries: Variable,
        predicate: "Comparison | Callable[[Value, Value], bool] | Collection[tuple[Value, Value]]",
    ) -> None:
        _check_categorical(keys, "Select", "keys")
        _check_categorical(queries, "Select", "queries")
        if isinstance(predicate, list | tuple | set | frozenset):
            predicate = _Pairs(predicate)
        elif not isinstance(predicate, Comparison):
            named = predicate.strip().upper() if isinstance(predicate, str) else ""
            if named in Comparison.__members__:
                raise BadInput(f"Select: predicate {predicate!r} is a string; write Comparison.{named}")
            if predicate is Comparison:
                raise BadInput(
                    f"Select: predicate is Comparison itself; choose one of {choices(Comparison.__members__)}"
                )
            _check_function(predicate, 2, "Select", what="predicate", alternative="a Comparison or ")
        super().__init__((keys, queries))
        self.predicate: Comparison | Callable[[Value, Value], bool] = predicate  # type: ignore[assignment]

    @property
    def keys(self) -> Variable:
        """The variable read at the key positions."""
        return self.inputs[0]  # type: ignore[return-value]

    @property
    def queries(self) -> Variable:
        """The variable read at the query position."""
        return self.inputs[1]  # type: ignore[return-value]


class SelectorWidth(Variable):
    """How many positions are selected. It takes a head, which sees the selection, and an MLP, which decodes it."""

    kind = "selector_width"

    def __init__(self, selector: Select, *, name: str | None = None) -> None:
        _check_selector(selector, "SelectorWidth")
        super().__init__((selector,), name=name)

    @property
    def selector(self) -> Select:
        """The selection that is counted."""
        return self.inputs[0]  # type: ignore[return-value]


class Aggregate(Variable):
    """The value at the selected positions.

    Categorical: the most frequent selected value, ties to the one that comes first in the variable's value list, and
    `default` if nothing is selected (None, the undefined value, unless given; a new value comes last in the list).
    Numerical (`numerical=True`): the mean of the selected numbers, 0 if nothing is selected.
    """

    kind = "aggregate"

    def __init__(
        self,
        selector: Select,
        values: Variable,
        *,
        numerical: bool = False,
        default: Value = None,
        name: str | None = None,
    ) -> None:
        _check_selector(selector, "Aggregate")
        if numerical not in (True, False):
            raise BadInput(f"Aggregate: numerical={numerical!r} is neither True nor False")
        if numerical:
            _check_variable(values, "Aggregate", "values")
        else:
            _check_categorical(values, "Aggregate", "values", fix="; average it with numerical=True")
        if default is not None:
            if bool(numerical):
                raise BadInput(f"Aggregate: default={default!r:.40} with numerical=True; an empty mean is always 0")
            if isinstance(default, Expression):
                raise BadInput(f"Aggregate: default is the {type(default).__name__} {default.name!r}; give a value")
            if not isinstance(default, Hashable) or (isinstance(default, float) and math.isnan(default)):
                raise BadInput(f"Aggregate: default={default!r:.40} is not a value; give a string, number or tuple")
        super().__init__((selector, values), name=name)
        self.numerical = bool(numerical)
        self.default = default

    @property
    def selector(self) -> Select:
        """The selection that is read from."""
        return self.inputs[0]  # type: ignore[return-value]

    @property
    def values(self) -> Variable:
        """The variable whose values are gathered."""
        return self.inputs[1]  # type: ignore[return-value]


class _Lookup:
    """A function of one or two values as its table."""

    def __init__(self, table: Mapping[Value, Value], otherwise: Value, arguments: int) -> None:
        self.table = {rounded(key): result for key, result in table.items()}
        self.otherwise, self.arguments = otherwise, arguments

    def __call__(self, *values: Value) -> Value:
        return self.table.get(rounded(values[0] if self.arguments == 1 else values), self.otherwise)


class _Pairs:
    """A predicate as the pairs for which it holds."""

    def __init__(self, pairs: Collection[tuple[Value, Value]]) -> None:
        self.pairs = {rounded(pair) for pair in pairs}

    def __call__(self, key: Value, query: Value) -> bool:
        return rounded((key, query)) in self.pairs


class _Composed:
    """Outer after inner, under the rules of None."""

    def __init__(self, outer: Callable[[Value], Value], inner: Callable[[Value], Value]) -> None:
        self.outer, self.inner = outer, inner

    def __call__(self, value: Value) -> Value:
        return apply(self.outer, apply(self.inner, value))


def _check_variable(operand: object, owner: str, label: str) -> None:
    if isinstance(operand, Variable):
        return
    if isinstance(operand, Select):
        raise BadInput(f"{owner}: {label} is a Select, which has no values; wrap it in Aggregate or SelectorWidth")
    raise BadInput(
        f"{owner}: {label} must be a variable (tokens, indices, Map, ...), not {type(operand).__name__} {operand!r:.60}"
    )


def _check_categorical(operand: object, owner: str, label: str, *, fix: str = "") -> None:
    _check_variable(operand, owner, label)
    if isinstance(operand, Variable) and operand.numerical:
        fix = fix or "; only LinearSequenceMap and a numerical Aggregate read numerical variables"
        raise BadInput(f"{owner}: {label} is the numerical variable {operand.name!r}{fix}")


def _check_selector(selector: object, owner: str) -> None:
    if not isinstance(selector, Select):
        raise BadInput(f"{owner}: the first argument must be a Select, not {type(selector).__name__} {selector!r:.60}")


def _function(function: Any, arguments: int, owner: str, otherwise: Value) -> Callable[..., Value]:
    """The function itself, or that of a table."""
    if isinstance(function, Mapping):
        return _Lookup(function, otherwise, arguments)
    if otherwise is not None:
        raise BadInput(f"{owner}: otherwise={otherwise!r:.40} goes with a table; the function gives every result")
    _check_function(function, arguments, owner)
    return function


def _check_function(
    function: object, arguments: int, owner: str, *, what: str = "function", alternative: str = ""
) -> None:
    wanted = f"{alternative}a function of {'one value' if arguments == 1 else 'two values'}"
    hint = f" ({choices(Comparison.__members__)})" if alternative else ""
    if not callable(function) or isinstance(function, Expression):
        raise BadInput(f"{owner}: {what} must be {wanted}{hint}, not {type(function).__name__} {function!r:.60}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins do not tell; the enumeration will
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError as error:
        raise BadInput(f"{owner}: {what} must be {wanted}, but it takes {signature}") from error


# Small programs that are used again and again, written in the language itself.


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
