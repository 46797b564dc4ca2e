"""The name of a table: the first operation, in a fixed order, that is exact on every entry.

1. Entries with an undefined argument are set aside; the name says what they give.
2. Where the values of the classes are known, a formula that gives them is looked for first.
3. Then a formula whose values are the classes. A table that keeps all its arguments apart is never given arithmetic:
   any formula that keeps them apart would do.
4. If other operations fit the entries too, they must agree about the legal arguments that no entry shows. Among those
   that agree everywhere, the first is taken: the argument itself, one value, threshold, parity, multiple, range, set;
   comparisons before arithmetic; one operation before a condition on another.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vesalius.rasp.formula import LONGEST
from vesalius_programs.draft import UNDEFINED
from vesalius_programs.naming.operation import (
    ARGUMENTS,
    FAILED,
    Candidate,
    Entries,
    Key,
    Label,
    Operation,
    Value,
    class_of_value,
    compiled,
    evaluate,
    gives_values,
    said_value,
)
from vesalius_programs.naming.single import (
    conjunctions,
    escaped,
    formulas,
    functions,
    gates,
    of_three,
    of_two,
    predicates,
    renamed,
)

PAIR = {2: Candidate("pair", "(x, y)", "both {x} and {y}"), 3: Candidate("pair", "(x, y, z)", "{x}, {y} and {z}")}


def name_table(
    entries: Entries, *, values: Mapping[Hashable, Value] | None = None, legal: Collection[Key] = ()
) -> Operation | None:
    """The operation a table computes, or None.

    `entries` maps argument values (None: undefined; a `Label` where only the class is known) to classes, `values` says
    what each class stands for where that is known, `legal` lists arguments that can occur though no entry shows them.
    """
    defined = {key: label for key, label in entries.items() if None not in key}
    undefined = {label for key, label in entries.items() if None in key}
    if not defined or not 1 <= len(next(iter(defined))) <= len(ARGUMENTS):
        return None
    unseen = [key for key in legal if None not in key and key not in entries]
    if len(set(defined.values())) == 1:
        return _constant(defined, undefined, values)
    chosen = _of_values(defined, values, unseen) if values is not None else None
    chosen = chosen or _of_classes(defined, unseen, valued=values is not None)
    return None if chosen is None else _with_undefined(chosen, defined, undefined, values)


def _constant(defined: Entries, undefined: set[Hashable], values: Mapping[Hashable, Value] | None) -> Operation | None:
    """One class for everything that is defined."""
    label = next(iter(defined.values()))
    if undefined <= {label}:
        value = "" if values is None else f", {escaped(said_value(values[label]))}"
        known = 0 if values is None else values[label]
        exact = "classes" if values is None else "values"
        return Operation("constant", repr(known), f"a constant{value}", exact, len(defined))
    if len(undefined) == 1 and len(next(iter(defined))) == 1:
        return Operation("definedness", "1", "whether {x} is defined", "classes", len(defined), "as", 0)
    return None


def _of_values(defined: Entries, values: Mapping[Hashable, Value], unseen: list[Key]) -> Operation | None:
    known = {key: values[label] for key, label in defined.items()}
    if any(not isinstance(value, Hashable) for value in known.values()):
        return None

    def gives(function: Callable[..., Value]) -> bool:
        return gives_values(function, defined, values)

    chosen = _first(
        _candidates(known, unseen, valued=True), gives, unseen, len(next(iter(defined))), lambda value: value
    )
    return (
        None if chosen is None else Operation(chosen.operation, chosen.formula, chosen.template, "values", len(defined))
    )


def _of_classes(defined: Entries, unseen: list[Key], *, valued: bool) -> Operation | None:
    arity = len(next(iter(defined)))
    if len(set(defined.values())) == len(defined) > 2:
        chosen = Candidate("identity", "x", "{x}") if arity == 1 else PAIR[arity]
    else:
        classes: dict[Value, Hashable] = {}

        def fits(function: Callable[..., Value]) -> bool:
            class_names = class_of_value(function, defined)
            classes.clear()
            classes.update(class_names or {})
            return class_names is not None

        chosen = _first(
            _candidates(defined, unseen, valued=False),
            fits,
            unseen,
            arity,
            lambda value: classes.get(value, ("new", value)),
        )
    if chosen is None:
        return None
    template = _apart(chosen, len(set(defined.values())))
    if valued and template == chosen.template:
        template = f"a value that depends only on {template}"
    return Operation(chosen.operation, chosen.formula, template, "classes", len(defined))


def _apart(chosen: Candidate, n: int) -> str:
    """What keeps all values apart says how many there are."""
    return f"{chosen.template}, all {n} values kept apart" if chosen.operation == "identity" else chosen.template


def _candidates(entries: Entries, unseen: list[Key], *, valued: bool) -> Iterator[Candidate]:
    """Every operation that could be this table, simplest first."""
    keys = [*entries, *unseen]
    columns = [sorted({key[i] for key in keys}, key=repr) for i in range(len(keys[0]))]
    for place, column in enumerate(columns):
        for make in (predicates, functions, *((formulas,) if valued else ())):
            for candidate in make(column):
                yield renamed(candidate, (ARGUMENTS[place],))
    if len(columns) == 2:
        yield from of_two(columns)
        yield from conjunctions(entries)
        yield from gates(entries, valued=valued)
    elif len(columns) == 3:
        for one, two in ((0, 1), (0, 2), (1, 2)):
            for candidate in of_two((columns[one], columns[two])):
                yield renamed(candidate, (ARGUMENTS[one], ARGUMENTS[two]))
        yield from of_three(columns)


def _first(
    candidates: Iterator[Candidate],
    holds: Callable[[Callable[..., Value]], bool],
    unseen: list[Key],
    arity: int,
    standing: Callable[[Value], Value],
) -> Candidate | None:
    """The first that holds; None if another that holds says something else about an unseen argument."""
    chosen, said = None, []
    for candidate in candidates:
        if len(candidate.formula) > LONGEST:
            continue
        function = compiled(candidate.formula, arity)
        if not holds(function):
            continue
        values = [evaluate(function, key) for key in unseen]
        if any(value is FAILED for value in values):
            continue
        about = [standing(value) for value in values]
        if chosen is None:
            chosen, said = candidate, about
            if not unseen:
                return chosen
        elif about != said:
            return None
    return chosen


def _with_undefined(
    chosen: Operation, defined: Entries, undefined: set[Hashable], values: Mapping[Hashable, Value] | None
) -> Operation:
    """The name with what undefined arguments give."""
    if not undefined:
        return chosen
    if len(undefined) > 1:
        return replace(chosen, undefined="table")
    label = next(iter(undefined))
    if chosen.exact == "values" and values is not None:
        return replace(chosen, undefined="as", otherwise=values[label])
    member = next((key for key, each in defined.items() if each == label), None)
    if member is None:
        return replace(chosen, undefined="apart")
    value = evaluate(compiled(chosen.formula, len(member)), member)
    return replace(chosen, undefined="as", otherwise=value)


# What the codes of variables stand for, and the names of the tables over them.
#
# Tables hold codes; names speak of values. The codes of tokens, positions, counts, shares and copies stand for values.
# Those of a table stand for the values of its own name where it has one, for labels otherwise: classes are never
# ordered or added up.

#: Larger tables are shown, not named: the search for a name would take longer than the explanation.
MOST_ENTRIES = 3000

Codes = tuple[int, ...]


class Same(dict[int, Any]):
    """Codes that are their own values."""

    def __missing__(self, code: int) -> int:
        return code


class Labels(dict[int, Any]):
    """Codes that are only labels, but for those that are listed."""

    def __missing__(self, code: int) -> Label:
        return Label(code)


class Scaled(dict[int, Any]):
    """Codes that are values times a scale."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def __missing__(self, code: int) -> float:
        return code / self.scale


@dataclass(frozen=True)
class Standing:
    """The operation of every table that has a name (for a head: of the positions it looks up), and what the codes of
    each variable stand for. Variables are named in order, arguments before tables.
    """

    operations: dict[str, Operation] = field(default_factory=dict)
    values: dict[str, Mapping[int, Any]] = field(default_factory=dict)

    def name(
        self,
        name: str,
        reads: Sequence[str],
        codes: Mapping[Codes, int],
        *,
        occurring: Collection[Codes] = (),
        outputs: Mapping[Hashable, Any] | None = None,
    ) -> None:
        """Name a table over the variables `reads`; its codes then stand for the values of the name, or for labels.

        `occurring` lists arguments that count as legal, `outputs` says what each class stands for where that is known.
        """
        self.values.setdefault(name, Labels())
        if any(read not in self.values for read in reads) or len(codes) > MOST_ENTRIES:
            return
        entries: dict[tuple[Any, ...], int] = {}
        for arguments, label in codes.items():
            if entries.setdefault(self._key(reads, arguments), label) != label:
                return  # two codes with the same value
        known = outputs if outputs is not None and set(entries.values()) <= set(outputs) else None
        legal = [self._key(reads, arguments) for arguments in occurring]
        operation = name_table(entries, values=known, legal=legal)
        if operation is None:
            return
        self.operations[name] = operation
        function = compiled(operation.formula, len(reads))
        values: dict[int, Any] = {}
        for key, label in entries.items():
            if None not in key:
                values[label] = evaluate(function, key)
            elif operation.undefined == "apart":
                values[label] = None
        self.values[name] = Labels(values)

    def name_route(self, name: str, reads: Sequence[str], positions: Mapping[Codes, int]) -> None:
        """Name the table of positions that a head looks up by the variables `reads`, where it has a name."""
        if any(read not in self.values for read in reads):
            return
        entries = {self._key(reads, codes): to for codes, to in positions.items() if UNDEFINED not in codes}
        operation = name_table(entries, values={to: to for to in entries.values()})
        if operation is not None and operation.exact == "values":
            self.operations[name] = operation

    def _key(self, reads: Sequence[str], codes: Codes) -> tuple[Any, ...]:
        return tuple(
            None if code == UNDEFINED else self.values[read][code] for read, code in zip(reads, codes, strict=True)
        )
