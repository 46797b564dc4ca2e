"""Value sets by enumeration: every categorical variable becomes an integer code and its operator a look-up table.

A domain lists the values a variable can take when its inputs are combined freely (the published compiler does the same,
and the widths of a compiled model depend on it). The code of a value is its place in that list; one code more, the
last, is None. Values that agree to twelve digits are one (see `vesalius.values`): the list holds the first of them as
computed, and the functions of later operators are called with that. Tables have a last row (and column) for a None
operand, so that the interpreter never branches.

Combining inputs freely promises too much: `length` is listed as 0 to max_len though it is never 0. `Domain.possible` is
the tighter set of codes that a run or an interchange can really show; it decides whether None is a class of the output.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from vesalius.errors import BadInput
from vesalius.rasp.language import (
    USER_CODE_ERRORS,
    Aggregate,
    Comparison,
    Expression,
    Indices,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Tokens,
    Value,
    Variable,
    apply,
)
from vesalius.values import rounded

MAX_VALUES = 5_000
MAX_CELLS = 4_000_000


@dataclass(frozen=True)
class Domain:
    """The values of one categorical variable, and which codes can occur (the last entry stands for None)."""

    values: tuple[Value, ...]
    possible: Bool[np.ndarray, " codes"]

    @property
    def size(self) -> int:
        """Number of values, None not counted; also the code of None."""
        return len(self.values)

    @property
    def can_be_none(self) -> bool:
        """Whether a run or an interchange can give None."""
        return bool(self.possible[-1])

    @property
    def outcomes(self) -> tuple[Value, ...]:
        """The values, followed by None where it can occur."""
        return (*self.values, None) if self.can_be_none else self.values

    def code_of(self, value: Value) -> int | None:
        """The code of a value; None if it is not in the list."""
        key = rounded(value)
        return next((code for code, listed in enumerate(self.values) if rounded(listed) == key), None)


@dataclass
class Tables:
    """What enumeration found: the domain of every categorical variable and the table of every operator.

    `codes` holds, for a Map, result codes by operand code [n+1]; for a SequenceMap [n+1, m+1]. `selected` holds, for a
    Select, whether a key code is selected by a query code [k+1, q+1]. `numbers` gives the float of every code of a
    variable that a numerical operator reads (NaN for None).
    """

    domains: dict[Variable, Domain] = field(default_factory=dict)
    codes: dict[Variable, np.ndarray] = field(default_factory=dict)
    selected: dict[Select, np.ndarray] = field(default_factory=dict)
    numbers: dict[Variable, np.ndarray] = field(default_factory=dict)


#: Numbers are computed with in single precision.
LARGEST_NUMBER = 1e30


def tabulate(order: list[Expression], names: dict[Variable, str], *, vocab: tuple[Value, ...], max_len: int) -> Tables:
    """Enumerate every variable of a program, inputs before readers."""
    tables = Tables()
    for node in order:
        if isinstance(node, Tokens):
            _limit_values(len(vocab), "tokens")
            tables.domains[node] = _everything(vocab)
        elif isinstance(node, Indices):
            tables.domains[node] = _everything(range(max_len))
        elif isinstance(node, Map):
            _tabulate_map(node, names, tables)
        elif isinstance(node, SequenceMap):
            _tabulate_sequence_map(node, names, tables)
        elif isinstance(node, Select):
            _tabulate_select(node, names, tables)
        elif isinstance(node, SelectorWidth):
            possible = np.ones(max_len + 2, dtype=bool)
            possible[0], possible[-1] = not _never_empty(node.selector, tables), False
            tables.domains[node] = Domain(tuple(range(max_len + 1)), possible)
        elif isinstance(node, Aggregate):
            _tabulate_aggregate(node, names, tables)
        elif isinstance(node, LinearSequenceMap):
            for operand in node.inputs:
                _tabulate_numbers(operand, f"LinearSequenceMap {names[node]!r}", names, tables)
    return tables


def _tabulate_map(node: Map, names: dict[Variable, str], tables: Tables) -> None:
    domain = tables.domains[node.x]
    owner = f"Map {names[node]!r}"
    results = [_call(node.function, (value,), owner) for value in (*domain.values, None)]
    values, codes = _encode(results, owner)
    possible = np.zeros(len(values) + 1, dtype=bool)
    possible[codes[domain.possible]] = True
    tables.codes[node], tables.domains[node] = codes, Domain(values, possible)


def _tabulate_sequence_map(node: SequenceMap, names: dict[Variable, str], tables: Tables) -> None:
    left, right = (tables.domains[operand] for operand in node.inputs)  # type: ignore[index]
    owner = f"SequenceMap {names[node]!r}"
    _limit_cells(left.size, right.size, owner)
    pairs = ((x, y) for x in (*left.values, None) for y in (*right.values, None))
    values, codes = _encode((_call(node.function, pair, owner) for pair in pairs), owner)
    codes = codes.reshape(left.size + 1, right.size + 1)
    reached = codes[np.ix_(left.possible, right.possible)] if node.combines else np.diag(codes)[left.possible]
    possible = np.zeros(len(values) + 1, dtype=bool)
    possible[np.unique(reached)] = True
    tables.codes[node], tables.domains[node] = codes, Domain(values, possible)


def _tabulate_select(node: Select, names: dict[Variable, str], tables: Tables) -> None:
    keys, queries = tables.domains[node.keys], tables.domains[node.queries]
    owner = f"Select(keys={names[node.keys]!r}, queries={names[node.queries]!r})"
    _limit_cells(keys.size, queries.size, owner)
    _check_comparable(node, keys, queries, owner)
    predicate: Callable[..., Value] = node.predicate
    compared = isinstance(predicate, Comparison)
    key_values, query_values = (rounded(d.values) if compared else d.values for d in (keys, queries))
    selected = np.zeros((keys.size + 1, queries.size + 1), dtype=bool)
    for row, key in enumerate(key_values):
        for column, query in enumerate(query_values):
            chosen = _call(predicate, (key, query), owner)
            if not isinstance(chosen, bool | np.bool_) and chosen is not None and chosen not in (0, 1):
                raise BadInput(f"{owner}: predicate({key!r}, {query!r}) gave {chosen!r}; it must give True or False")
            selected[row, column] = bool(chosen)
    tables.selected[node] = selected


def _tabulate_aggregate(node: Aggregate, names: dict[Variable, str], tables: Tables) -> None:
    if node.numerical:
        _tabulate_numbers(node.values, f"numerical Aggregate {names[node]!r}", names, tables)
        return
    domain = tables.domains[node.values]
    values, possible = domain.values, domain.possible.copy()
    possible[-1] |= not _never_empty(node.selector, tables)
    if node.default is not None:
        code = domain.code_of(node.default)
        if code is None:
            values, code = (*values, node.default), domain.size
        _limit_values(len(values), f"Aggregate {names[node]!r}")
        can_be_empty = possible[-1]
        possible = np.append(possible[:-1], [False] * (len(values) - domain.size + 1))
        possible[code] |= can_be_empty
    tables.domains[node] = Domain(values, possible)


def _tabulate_numbers(operand: Expression, owner: str, names: dict[Variable, str], tables: Tables) -> None:
    if not isinstance(operand, Variable) or operand.numerical or operand in tables.numbers:
        return
    for value in tables.domains[operand].values:
        if not isinstance(value, int | float):
            raise BadInput(
                f"{owner} computes with {names[operand]!r}, which can be {value!r:.40}; Map it to numbers first"
            )
        if not abs(value) <= LARGEST_NUMBER:
            raise BadInput(f"{owner} computes with {names[operand]!r}, which can be {value!r:.40}; numbers are finite")
    tables.numbers[operand] = np.array([*map(float, tables.domains[operand].values), math.nan], dtype=np.float32)


def _never_empty(selector: Select, tables: Tables) -> bool:
    """Whether every query position selects something in every run and after every interchange.

    Positions are the only thing no interchange can move, and the position itself is the only key that is always there.
    """
    selected = tables.selected[selector]
    keys, queries = tables.domains[selector.keys], tables.domains[selector.queries]
    if queries.can_be_none:
        return False
    if isinstance(selector.keys, Indices):
        if isinstance(selector.queries, Indices):  # the shortest sequence with this query, or a causal mask, ends at it
            return all(selected[: query + 1, query].any() for query in range(queries.size))
        return bool(selected[0, queries.possible].all())  # position 0 is a key in every sequence, under every mask
    if keys.can_be_none:
        return False
    if selector.keys is selector.queries:
        return bool(np.diag(selected)[keys.possible].all())
    return bool(selected[np.ix_(keys.possible, queries.possible)].all())


def _everything(values: Iterable[Value]) -> Domain:
    members = tuple(values)
    return Domain(members, np.array([True] * len(members) + [False]))


def _encode(results: Iterable[Value], owner: str) -> tuple[tuple[Value, ...], np.ndarray]:
    """Number the distinct results in order of first appearance; None gets the last code."""
    numbering: dict[Value, int] = {}
    values: list[Value] = []
    codes: list[int] = []
    for result in results:
        if result is None:
            codes.append(-1)
            continue
        try:
            codes.append(numbering.setdefault(rounded(result), len(numbering)))
        except TypeError as error:
            raise BadInput(
                f"{owner}: the function gave the unhashable {result!r:.40}; return a string, number or tuple"
            ) from error
        if len(numbering) > len(values):
            values.append(result)
            _limit_values(len(values), owner)
    if not values:
        raise BadInput(f"{owner} is undefined for every value of its inputs; let its function return something")
    array = np.array(codes, dtype=np.int64)
    return tuple(values), np.where(array < 0, len(values), array)


def _call(function: Callable[..., Value], arguments: tuple[Value, ...], owner: str) -> Value:
    try:
        result = apply(function, *arguments)
    except USER_CODE_ERRORS as error:
        shown = ", ".join(repr(argument) for argument in arguments)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"{owner} fails on ({shown:.80}): {reason}; it must accept every value of its inputs") from error
    if isinstance(result, Expression):
        raise BadInput(f"{owner}: the function gave a {type(result).__name__}; it must give a value")
    return result.item() if isinstance(result, np.generic) else result


def _check_comparable(node: Select, keys: Domain, queries: Domain, owner: str) -> None:
    """A built-in comparison across types can never be meant: strings with numbers, pairs with strings."""
    if node.predicate in (Comparison.TRUE, Comparison.FALSE) or not isinstance(node.predicate, Comparison):
        return
    key_types, query_types = ({_family(value) for value in domain.values} for domain in (keys, queries))
    if key_types and query_types and not key_types & query_types:
        left, right = "/".join(sorted(key_types)), "/".join(sorted(query_types))
        raise BadInput(f"{owner}: {node.predicate.name} compares {left} with {right}; both must be of one type")


def _family(value: Value) -> str:
    if isinstance(value, int | float):
        return "numbers"
    return "strings" if isinstance(value, str) else f"{type(value).__name__}s"


def _limit_values(count: int, owner: str) -> None:
    if count > MAX_VALUES:
        raise BadInput(f"{owner} takes more than {MAX_VALUES:,} values; use a smaller vocabulary or a coarser function")


def _limit_cells(rows: int, columns: int, owner: str) -> None:
    if rows * columns > MAX_CELLS:
        raise BadInput(
            f"{owner} needs a table of {rows:,} x {columns:,} = {rows * columns:,} cells, more than {MAX_CELLS:,}; "
            "use a smaller vocabulary or coarser functions"
        )
