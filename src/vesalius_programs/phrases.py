"""A program as formulas that read as sentences: every variable substituted by what it computes.

    return share of positions so far where token == "x"
    return token at position token
    return most frequent token over positions where (token at position position - 1) == token here

`phrased` writes a program so; `phrase_reader.read_phrased` makes a program of it again, which the same interpreter
runs. A variable gets a line and a name that says its value only where several others read it. Tables are written as
the operation that gives exactly their values (`naming`) and as tables only where none does. Where a program has no
value (arguments that were never seen), the formula may have one.

What is written is read back and run beside the program before it is returned: `phrased` gives None rather than a
formula that is not the program.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from vesalius.errors import BadInput
from vesalius.rasp.inputs import random_inputs
from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    Expression,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
    apply,
    indices,
    tokens,
)
from vesalius.rasp.program import Program
from vesalius_programs.naming.operation import ARGUMENTS, compiled, evaluate
from vesalius_programs.naming.single import ORDER, in_arguments
from vesalius_programs.naming.table import name_table
from vesalius_programs.occurring import Occurring, same_heads
from vesalius_programs.phrase_reader import read_phrased

#: Tables over so many tuples of arguments are composed; larger ones are written step by step.
MOST_COMPOSED = 3000
#: Longer tables are not shown as formulas.
MOST_WRITTEN = 40
#: Longer programs are shown line by line.
LONGEST = 1600
#: Inputs on which the formula is run beside the program.
INPUTS = 400
#: More values than this are a table.
MOST_CHOICES = 3
TOKEN, POSITION = "token", "position"


def phrased(program: Program, *, unseen: Value = None, none_is_said: bool = False) -> str | None:
    """The program as formulas; None where it cannot be written so, or not shortly. `unseen` is the word that its tables
    give for arguments that were never seen. With `none_is_said` None is an answer of the model, so that the formula has
    no value where the program has none.
    """
    try:
        text = _Writer(program, unseen, none_is_said).text()
        return text if text is not None and _is_the_program(text, program, unseen, none_is_said) else None
    except BadInput:
        return None


def _is_the_program(text: str, program: Program, unseen: Value, none_is_said: bool) -> bool:
    again = read_phrased(text, vocab=program.vocab, max_len=program.max_len, causal=program.causal)
    inputs, lengths = random_inputs(program, INPUTS, seed=0, min_length=1)
    said, meant = (each.decode(each.run(inputs, lengths).output, lengths) for each in (again, program))
    return all(
        (expected is None and (value is None or not none_is_said)) or expected == unseen or _same(value, expected)
        for row, expected_row in zip(said, meant, strict=True)
        for value, expected in zip(row, expected_row, strict=True)
    )


def _same(value: Value, expected: Value) -> bool:
    if isinstance(value, float) and isinstance(expected, float):
        return abs(value - expected) < 1e-4
    return bool(value == expected)


@dataclass
class _Writer:
    """Writes variables; `lines` are those that several others read."""

    program: Program
    unseen: Value = None
    none_is_said: bool = False
    lines: list[str] = field(default_factory=list)
    names: dict[Variable, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._same, self._occurring = same_heads(self.program), Occurring(self.program)
        self._n_readers: Counter[Expression] = Counter()
        for node in self.program.expressions:
            if self._same[node] is node:
                self._n_readers.update({self._same[each] for each in node.inputs})

    def text(self) -> str | None:
        """The lines, and the output after `return`."""
        output = _bare(self._variable(self.program.output))
        text = "\n".join([*self.lines, f"return {output}"])
        return text if len(text) <= LONGEST else None

    # Variables.

    def _variable(self, node: Variable) -> str:
        """A variable as an operand: a name, a formula or, in brackets, what a head gathers."""
        node = self._first(node)
        if node is tokens:
            return TOKEN
        if node is indices:
            return POSITION
        if node in self.names:
            return self.names[node]
        if isinstance(node, Map | SequenceMap):
            return self._table(node)
        written = self._linear(node) if isinstance(node, LinearSequenceMap) else f"({self._gathered(node)})"
        return self._named(node, written) if self._n_readers[node] > 1 else written

    def _first(self, node: Variable) -> Variable:
        """The first of the variables that are this one."""
        first = self._same[node]
        assert isinstance(first, Variable)
        return first

    def _named(self, node: Variable, written: str) -> str:
        start, number = _name_of(node), 1
        name = start
        while name in self.names.values():
            number, name = number + 1, f"{start}_{number + 1}"
        self.lines.append(f"{name} = {_bare(written)}")
        self.names[node] = name
        return name

    def _linear(self, node: LinearSequenceMap) -> str:
        terms = []
        for operand, factor in zip(node.inputs, (node.x_factor, node.y_factor), strict=True):
            if not factor:
                continue
            assert isinstance(operand, Variable)
            written = self._variable(operand)
            written = f"({written})" if _is_sum(written) else written
            size = f"{abs(factor):.12g}"
            shown = size if written == "1" else written if abs(factor) == 1 else f"{size} * {written}"
            terms.append(("-" if factor < 0 else "+", shown))
        terms.sort(key=lambda term: term[0] == "-")
        (sign, text), *rest = terms or [("+", "0 * position")]
        return ("-" if sign == "-" else "") + text + "".join(f" {sign} {term}" for sign, term in rest)

    # Heads.

    def _gathered(self, node: Variable, otherwise: Value = ...) -> str:
        """What a head gathers, without brackets; `otherwise` stands for its default."""
        if isinstance(node, SelectorWidth):
            return f"number of {self._selection(node.selector)}"
        if not isinstance(node, Aggregate):
            raise BadInput(f"{type(node).__name__} has no phrase")
        if node.numerical:
            return self._mean(node)
        default = node.default if otherwise is ... else otherwise
        missing = "" if default is None else f" else {default!r}"
        route = self._route(node.selector)
        if route is not None:
            return f"{self._variable(node.values)} {route}{missing}"
        return f"most frequent {self._variable(node.values)} over {self._selection(node.selector)}{missing}"

    def _mean(self, node: Aggregate) -> str:
        where, values = self._selection(node.selector), node.values
        scope = where.removeprefix("positions ")
        if "where" not in where and not values.numerical and set(self.program.value_list(values)) <= {0, 1}:
            written = self._variable(values)
            return f"share of positions {scope} where {_bare(written)}"
        return f"mean of {self._variable(values)} over {where}"

    def _route(self, select: Select) -> str | None:
        """Where the one selected position is, if there is at most one."""
        first = _first_place(select)
        if first is not None:
            return f"at first of {self._selection(first)}"
        if select.keys is not indices:
            return None
        query, relation = self._side(select.queries), self._relation(select)
        of: dict[Value, list[Value]] = {}
        for (there, here), holds in relation.items():
            of.setdefault(here, [])
            if holds:
                of[here].append(there)
        if any(len(places) > 1 for places in of.values()):
            return None
        to = {(here,): places[0] for here, places in of.items() if places}
        formula = _formula(to)
        if formula is None:
            return None
        nowhere = {here for here, places in of.items() if not places}
        if any(_value(formula, (here,)) in range(self.program.max_len) for here in nowhere):
            return None
        return f"at position {_filled(formula, [query[1]])}"

    def _side(self, node: Variable) -> tuple[Variable, str]:
        """The variable that one side of a selection follows from, and how it is written."""
        (base,) = self._atoms(node) if len(self._atoms(node)) == 1 else (node,)
        if isinstance(base, Map | SequenceMap) and base not in self.names:
            return base, self._named(base, self._table(base))
        return base, self._variable(base)

    def _relation(self, select: Select) -> dict[tuple[Value, Value], bool]:
        """Whether a value there is selected from a value here, for the variables that the two sides follow from."""
        (there, _), (here, _) = self._side(select.keys), self._side(select.queries)
        known = {}
        for key, query in product(self._values(there), self._values(here)):
            if there is here is indices and self.program.causal and key > query:
                continue
            left, right = self._computed(select.keys, {there: key}), self._computed(select.queries, {here: query})
            known[key, query] = bool(apply(_safe(select.predicate), left, right))
        return known

    def _selection(self, select: Select) -> str:
        (there, key), (here, query) = self._side(select.keys), self._side(select.queries)
        relation = self._relation(select)
        if all(relation.values()):
            return "positions so far" if self.program.causal else "positions in view"
        if there is here is indices:
            for comparison, words in ((Comparison.LEQ, "so far"), (Comparison.LT, "before here")):
                if all(holds == comparison(*pair) for pair, holds in relation.items()):
                    return f"positions {words}"
        alone: dict[tuple[Value], set[bool]] = {}
        for (value, _), holds in relation.items():
            alone.setdefault((value,), set()).add(holds)
        if all(len(holds) == 1 for holds in alone.values()):
            formula = _formula({value: holds == {True} for value, holds in alone.items()})
            if formula is not None:
                return f"positions where {_filled(formula, [key])}"
            chosen = tuple(value for (value,), holds in alone.items() if holds == {True})
            return f"positions where {key} in {chosen!r}"
        formula = _formula(relation)
        if formula is not None:
            return f"positions where {_filled(formula, [key, f'{query} here'])}"
        pairs = tuple(pair for pair, holds in relation.items() if holds)
        if len(pairs) > MOST_WRITTEN:
            raise BadInput("too many pairs for a formula")
        return f"positions where ({key}, {query} here) in {pairs!r}"

    # Tables.

    def _atoms(self, node: Variable) -> list[Variable]:
        """The variables that a chain of tables begins with."""
        node = self._first(node)
        if isinstance(node, Map | SequenceMap) and node not in self.names:
            found = [atom for operand in node.inputs if isinstance(operand, Variable) for atom in self._atoms(operand)]
            return list(dict.fromkeys(found))
        return [node]

    def _values(self, node: Variable) -> tuple[Value, ...]:
        return self.program.tables.domains[node].values

    def _table(self, node: Map | SequenceMap) -> str:
        """A chain of tables as one formula where there is one, else step by step, else as a table."""
        atoms = self._atoms(node)
        inputs = list(dict.fromkeys(self._first(each) for each in node.inputs if isinstance(each, Variable)))
        levels = [atoms] if atoms == inputs else [atoms, inputs]
        for operands in levels:
            if len(operands) > len(ARGUMENTS) or self._size(operands) > MOST_COMPOSED:
                continue
            written = self._formula_over(node, operands)
            if written is not None:
                return written
        operands = atoms if len(atoms) <= len(ARGUMENTS) and self._size(atoms) <= MOST_WRITTEN else inputs
        if self._size(operands) > MOST_WRITTEN:
            raise BadInput("a table is too long for a formula")
        entries = self._entries(node, operands)
        rows = ", ".join(f"{(key[0] if len(key) == 1 else key)!r}: {value!r}" for key, value in entries.items())
        return f"({{{rows}}}[{', '.join(map(self._looked_up, operands))}])"

    def _looked_up(self, node: Variable) -> str:
        """A variable that a table is looked up by: a name, or what a head gathers."""
        written = self._variable(node)
        is_plain = written.isidentifier() or not isinstance(node, Map | SequenceMap)
        return written if is_plain else self._named(node, written)

    def _size(self, operands: Sequence[Variable]) -> int:
        return prod(len(self._values(each)) for each in operands)

    def _entries(self, node: Variable, operands: Sequence[Variable]) -> dict[tuple[Value, ...], Value]:
        """What a chain of tables gives for the values of some variables that some input has."""
        occurring = self._occurring.together(operands)
        computed = {
            key: self._computed(node, dict(zip(operands, key, strict=True)))
            for key in product(*(self._values(each) for each in operands))
            if occurring is None or key in occurring
        }
        return {key: value for key, value in computed.items() if value is not None and value != self.unseen}

    def _computed(self, node: Variable, known: Mapping[Variable, Value]) -> Value:
        """The value of a chain of tables for given values of the variables that it begins with."""
        node = self._first(node)
        if node in known:
            return known[node]
        if not isinstance(node, Map | SequenceMap):
            raise BadInput("not a chain of tables")
        return apply(
            node.function, *(self._computed(each, known) for each in node.inputs if isinstance(each, Variable))
        )

    def _formula_over(self, node: Variable, operands: Sequence[Variable]) -> str | None:
        entries = self._entries(node, operands)
        if not entries:
            return None
        if len(operands) == 1:
            folded = self._with_default(operands[0], entries)
            if folded is not None:
                return folded
        formula = _formula(entries)
        if formula is not None:
            return self._with(formula, operands, entries)
        return self._where_defined(operands, entries)

    def _with(self, formula: str, operands: Sequence[Variable], entries: Mapping[tuple[Value, ...], Value]) -> str:
        """A formula of some variables; a head without which there is no answer is written without its default."""
        written = []
        for place, node in enumerate(operands):
            if not _uses(formula, ARGUMENTS[place]):
                written.append(POSITION)
            elif self.none_is_said and isinstance(node, Aggregate) and not self._answers_default(node, place, entries):
                written.append(f"({self._gathered(node, None)})")
            else:
                written.append(self._variable(node))
        return _filled(formula, written)

    def _answers_default(self, node: Aggregate, place: int, entries: Mapping[tuple[Value, ...], Value]) -> bool:
        """Whether the default of a head is a value like others: something is answered where the head gathers nothing,
        it stands for what may be gathered, or several read it.
        """
        shared = self._n_readers[node] > 1 or node.default is None or node.default in self._values(node.values)
        return shared or any(key[place] == node.default for key in entries)

    def _with_default(self, atom: Variable, entries: Mapping[tuple[Value, ...], Value]) -> str | None:
        """What one head gathers, with another word where nothing is selected."""
        if not isinstance(atom, Aggregate) or atom.numerical or atom.default is None or self._n_readers[atom] > 1:
            return None
        default = atom.default
        rest = {key: value for key, value in entries.items() if key != (default,)}
        if default in self._values(atom.values) or any(key != (value,) for key, value in rest.items()):
            return None
        return f"({self._gathered(atom, entries.get((default,)))})"

    def _where_defined(self, operands: Sequence[Variable], entries: Mapping[tuple[Value, ...], Value]) -> str | None:
        """A formula where every head gathered something, and one value elsewhere."""
        defaults = [each.default if isinstance(each, Aggregate) else None for each in operands]
        empty = [
            value is not None and value not in self._values(each.values) if isinstance(each, Aggregate) else False
            for each, value in zip(operands, defaults, strict=True)
        ]

        def is_open(key: tuple[Value, ...]) -> bool:
            return not any(e and part == d for part, e, d in zip(key, empty, defaults, strict=True))

        defined = {key: value for key, value in entries.items() if is_open(key)}
        other = {value for key, value in entries.items() if not is_open(key)}
        formula = _formula(defined) if defined and len(other) == 1 else None
        if formula is None:
            return None
        written = [self._variable(each) for each in operands]
        missing = " or ".join(
            f"{name} == {default!r}" for name, e, default in zip(written, empty, defaults, strict=True) if e
        )
        return f"({other.pop()!r} if {missing} else {_filled(formula, written)})"


def _safe(predicate: Any) -> Any:
    def holds(key: Value, query: Value) -> bool:
        try:
            return bool(predicate(key, query))
        except TypeError:
            return False

    return holds


def _first_place(select: Select) -> Select | None:
    """The selection of which a chosen position is the first."""
    place = select.queries
    if select.keys is not indices or select.predicate is not Comparison.EQ or not isinstance(place, Aggregate):
        return None
    return place.selector if place.values is indices and not place.numerical and place.default == -1 else None


def _formula(entries: Mapping[tuple[Value, ...], Value]) -> str | None:
    """The operation in x, y and z that gives exactly these values, or None."""
    if any(value is None for value in entries.values()) or len({len(key) for key in entries}) != 1:
        return None
    operation = name_table(dict(entries), values={value: value for value in entries.values()})
    if operation is None or operation.undefined != "absent":
        return _exclusive(entries)
    return operation.formula if operation.exact == "values" else _choice(operation.formula, entries)


def _choice(formula: str, entries: Mapping[tuple[Value, ...], Value]) -> str | None:
    """Two or three values that stand for those of a formula, chosen by conditions; None where the table is as short, or
    the formula chooses itself.
    """
    meant = {_value(formula, key): value for key, value in entries.items()}
    if len(meant) > MOST_CHOICES or " if " in formula:
        return None
    if formula == ORDER:
        conditions = {1: "x > y", -1: "x < y", 0: "x == y"}
    elif all(isinstance(found, bool) for found in meant):
        conditions = {True: formula, False: f"not ({formula})"}
    else:
        conditions = {found: f"({formula}) == {found!r}" for found in meant}
    *chosen, last = [found for found in conditions if found in meant]
    text = "".join(f"{meant[found]!r} if {conditions[found]} else " for found in chosen) + repr(meant[last])
    return text if len(text) < len(repr(dict(entries))) else None


def _exclusive(entries: Mapping[tuple[Value, ...], Value]) -> str | None:
    """Two values by whether just one of two arguments is in a set: x is in one of two classes, and so is y, so that the
    value says whether these are the same. None where no two such sets are.
    """
    results = sorted(set(entries.values()), key=repr)
    if len(results) != 2 or any(len(key) != 2 for key in entries):
        return None
    members: dict[tuple[int, Value], bool] = {}
    while left := [key for key in entries if (0, key[0]) not in members]:
        members[0, left[0][0]] = False
        more = True
        while more:
            before = len(members)
            for (x, y), result in entries.items():
                differ = result == results[1]
                if (0, x) in members:
                    members.setdefault((1, y), members[0, x] != differ)
                if (1, y) in members:
                    members.setdefault((0, x), members[1, y] != differ)
            more = len(members) > before
    if any((members[0, x] != members[1, y]) != (result == results[1]) for (x, y), result in entries.items()):
        return None
    sides = [{(value,): inside for (place, value), inside in members.items() if place == side} for side in (0, 1)]
    if any(len(set(side.values())) < 2 for side in sides):
        return None
    one, other = (_membership(side) for side in sides)
    condition = f"({one}) != ({in_arguments(other, {ARGUMENTS[0]: ARGUMENTS[1]})})"
    if results == [0, 1]:
        return condition
    text = f"{results[1]!r} if {condition} else {results[0]!r}"
    return text if len(text) < len(repr(dict(entries))) else None


def _membership(inside: Mapping[tuple[Value, ...], bool]) -> str:
    """The condition on x that holds for some of its values: a formula, or else the list of them."""
    operation = name_table(dict(inside), values={True: True, False: False})
    if operation is not None and operation.exact == "values":
        return operation.formula
    return f"{ARGUMENTS[0]} in {tuple(key[0] for key, holds in inside.items() if holds)!r}"


def _value(formula: str, key: tuple[Value, ...]) -> Value:
    return evaluate(compiled(formula, len(key)), key)


def _uses(formula: str, argument: str) -> bool:
    return in_arguments(formula, {argument: "_mark"}) != in_arguments(formula, {})


def _filled(formula: str, written: Sequence[str]) -> str:
    """A formula with its arguments written out."""
    marks = {ARGUMENTS[place]: f"_{place}_" for place in range(len(written))}
    text = in_arguments(formula, marks)
    for place, each in enumerate(written):
        text = text.replace(f"_{place}_", f"({each})" if _is_sum(each) and text != f"_{place}_" else each)
    return text


def _is_sum(text: str) -> bool:
    """Whether a formula needs brackets inside another."""
    return " " in text and not text.endswith(" here") and not (text.startswith("(") and _closes_last(text))


def _closes_last(text: str) -> bool:
    """Whether the bracket that a text begins with is closed by its last character."""
    depth, quoted = 0, ""
    for place, char in enumerate(text):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if not depth:
                return place == len(text) - 1
    return False


def _bare(text: str) -> str:
    """A formula without brackets around the whole of it."""
    return text[1:-1] if text.startswith("(") and _closes_last(text) else text


def _name_of(node: Variable) -> str:
    """A name that says what the value is."""
    what: dict[Variable, str] = {tokens: TOKEN, indices: POSITION}
    if isinstance(node, SelectorWidth):
        return "rank" if node.selector.predicate in (Comparison.LT, Comparison.GT) else "count"
    if isinstance(node, Aggregate) and node.numerical:
        return "share" if node.values is not tokens else "mean"
    if isinstance(node, Aggregate):
        return f"gathered_{what.get(node.values, 'value')}"
    return "sum" if isinstance(node, LinearSequenceMap) else "result"
