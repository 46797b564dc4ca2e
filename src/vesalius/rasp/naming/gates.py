"""Two conditions at once, and a value that passes only under a condition.

A conjunction holds on a product of two sets, each of which must have a name. A gate gives one argument (or a function
of it) where a condition holds, and the same value everywhere else.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from vesalius.rasp.naming.operation import (
    ARGUMENTS,
    NOTHING,
    Candidate,
    Entries,
    Key,
    Value,
    class_of_value,
    compiled,
    is_true,
    ordered,
    said_value,
)
from vesalius.rasp.naming.renaming import renamed
from vesalius.rasp.naming.single import escaped, functions, predicates


class _Condition(NamedTuple):
    """A condition on both arguments: its candidate, and the keys it holds for."""

    candidate: Candidate
    holds: frozenset[Key]


def conjunctions(entries: Entries) -> Iterator[Candidate]:
    """Two-class tables whose one class is a product of two named sets (its complement: a disjunction)."""
    labels = sorted(set(entries.values()), key=repr)
    if len(labels) != 2:
        return
    for label in labels:
        members = [key for key, each in entries.items() if each == label]
        columns = [frozenset(key[i] for key in members) for i in (0, 1)]
        if any(key[0] in columns[0] and key[1] in columns[1] and each != label for key, each in entries.items()):
            continue
        first, second = (_named_set(columns[i], {key[i] for key in entries}, ARGUMENTS[i]) for i in (0, 1))
        if first is not None and second is not None:
            conditions = _bare(first), _bare(second)
            both = f"({first.formula}) and ({second.formula})"
            yield Candidate("conjunction", both, f"whether {conditions[0]} and {conditions[1]}")
            yield Candidate(
                "conjunction", f"not ({both})", f"whether it is not so that {conditions[0]} and {conditions[1]}"
            )


def _named_set(members: frozenset[Value], values: set[Value], argument: str) -> Candidate | None:
    """The condition on one argument that holds for the members and no other value."""
    for candidate in _whether(values):
        function = compiled(candidate.formula, 1)
        if all(is_true(function, (value,)) == (value in members) for value in values):
            return renamed(candidate, (argument,))
    return None


def _whether(values: set[Value]) -> Iterator[Candidate]:
    """The conditions on one argument that can be said as "if ..."."""
    return (each for each in predicates(sorted(values, key=repr)) if each.template.startswith("whether "))


def _bare(condition: Candidate) -> str:
    return condition.template.removeprefix("whether ")


def gates(entries: Entries, *, valued: bool) -> Iterator[Candidate]:
    """One argument, or a function of it, under a condition; elsewhere one class. With `valued` the entries are values,
    else they are only classes.
    """
    for condition in _conditions(entries):
        for is_open in (True, False):
            inside = {key: each for key, each in entries.items() if (key in condition.holds) == is_open}
            outside = {each for key, each in entries.items() if (key in condition.holds) != is_open}
            if len(outside) == 1 and len(set(inside.values())) > 1:
                yield from _passing(condition.candidate, inside, outside.pop(), is_open=is_open, valued=valued)


def _passing(
    condition: Candidate, inside: Entries, closed: Hashable, *, is_open: bool, valued: bool
) -> Iterator[Candidate]:
    test = condition.formula if is_open else f"not ({condition.formula})"
    when = f"where {_bare(condition)}, otherwise" if is_open else f"except where {_bare(condition)}: there"
    for place in (0, 1):
        table = {(key[place],): each for key, each in inside.items()}
        if any(table[(key[place],)] != each for key, each in inside.items()):
            continue
        for candidate in functions([key[0] for key in table]):
            of_value = class_of_value(compiled(candidate.formula, 1), table)
            if of_value is None:
                continue
            shut, said = _shut(of_value, closed, valued=valued)
            passed = renamed(candidate, (ARGUMENTS[place],))
            formula = f"{passed.formula} if {test} else {shut!r}"
            yield Candidate("gate", formula, f"{passed.template} {when} {escaped(said)}")
            break


def _shut(of_value: dict[Value, Hashable], closed: Hashable, *, valued: bool) -> tuple[Value, str]:
    """What a closed gate gives, as a value and in words."""
    if valued:
        return (NOTHING, "nothing") if closed is None else (closed, said_value(closed))
    for value, each in of_value.items():
        if each == closed and isinstance(value, str | int | float):
            return value, said_value(value)
    return NOTHING, "nothing"


def _conditions(entries: Entries) -> Iterator[_Condition]:
    for place in (0, 1):
        for candidate in _whether({key[place] for key in entries}):
            yield _condition(renamed(candidate, (ARGUMENTS[place],)), entries)
    yield _condition(Candidate("equality", "x == y", "whether {x} equals {y}"), entries)
    if ordered(value for key in entries for value in key) is not None:
        yield _condition(Candidate("order", "x < y", "whether {x} is smaller than {y}"), entries)
        yield _condition(Candidate("order", "x <= y", "whether {x} is at most {y}"), entries)


def _condition(candidate: Candidate, keys: Iterable[Key]) -> _Condition:
    function = compiled(candidate.formula, 2)
    return _Condition(candidate, frozenset(key for key in keys if is_true(function, key)))
