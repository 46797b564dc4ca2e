"""The scientist's program as one that anybody can run: compiled RASP, and which variable each component carries.

The scientist computes with codes, RASP with values. `Coded` is a RASP variable together with the way its values stand
for codes, so that every rule can be written over codes. Three things differ between the two languages:

1. *Undefined* is an ordinary code (-1) for the scientist: a table may map it to something. RASP never hands None to a
   function, so undefined is written as a value of its own, the default of every Aggregate.
2. RASP fuses a Map of a Map. A table that reads a table is a SequenceMap of that variable with itself.
3. RASP takes the most frequent value, ties to the first listed. "The first match" is therefore the value at the first
   matching *position* (positions occur once each and are listed in order), and "the largest" a vote in which each value
   has one ballot, over values listed in falling order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import torch

from vesalius.documents.explanation import Executable
from vesalius.errors import BadInput
from vesalius.explanations.scientist.assemble import Line, OutputMap, Program
from vesalius.explanations.scientist.gathering import COMPARE, Copy, Extreme, Gated, Matched, Mean, Selector, Width
from vesalius.explanations.scientist.variables import INDICES, MEAN_SCALE, TOKENS, UNDEFINED, Hypothesis, Linear, Table
from vesalius.model.specimen import FiniteVocabulary
from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
    compile_program,
    indices,
    tokens,
)
from vesalius.rasp import Program as RaspProgram
from vesalius.rasp.document import to_document
from vesalius.rasp.graph import evaluation_order, graph_order, head_name, unique_names
from vesalius.rasp.language import Value
from vesalius.rasp.values import tabulate

LENGTH, OUTPUT, NAME = "length", "output", "found"
#: Where a route leads that leads nowhere; no position has this number.
_NOWHERE = -1
_ROUTES: dict[str, Callable[[int, int], bool]] = {
    "self": lambda key, query: key == query,
    "next": lambda key, query: key == query + 1,
    "previous": lambda key, query: key == query - 1,
    "next_but_one": lambda key, query: key == query + 2,
    "previous_but_one": lambda key, query: key == query - 2,
    "half": lambda key, query: key == query // 2,
    "first": lambda key, query: key == 0,
    "second": lambda key, query: key == 1,
}


@dataclass(frozen=True)
class Translation:
    """A compiled program and the variables each component carries; components without a found variable are left out."""

    program: RaspProgram
    carriers: dict[str, tuple[str, ...]]

    def executable(self) -> Executable:
        """The same as plain data."""
        return Executable(program=to_document(self.program), carriers=self.carriers)


def translate(program: Program, vocabulary: FiniteVocabulary) -> Translation:
    """The program in RASP. BadInput where RASP cannot say it: too many values, or a causal model that is said to know
    the length.
    """
    return _Translator(program, vocabulary).translation()


@dataclass(frozen=True)
class Coded:
    """A RASP variable and how its values stand for the scientist's codes. `codes` are those it can have; a numerical
    variable has none.
    """

    variable: Variable
    codes: frozenset[int]
    nothing: str
    listed: tuple[Value, ...] | None = None
    scale: int = 1

    def value(self, code: int) -> Value:
        """The value that stands for a code."""
        if code == UNDEFINED:
            return self.nothing
        if self.listed is not None:
            return self.listed[code]
        return code if self.scale == 1 else code / self.scale

    def code_of(self) -> dict[Value, int]:
        """The code of every value."""
        return {self.value(code): code for code in self.codes}

    @property
    def can_be_undefined(self) -> bool:
        """Whether undefined is among its codes."""
        return UNDEFINED in self.codes

    @property
    def is_ordered(self) -> bool:
        """Whether values compare as their codes do."""
        if self.listed is None:
            return True
        numbers = all(isinstance(value, int | float) for value in self.listed)
        return (numbers or all(isinstance(value, str) for value in self.listed)) and list(self.listed) == sorted(
            self.listed  # type: ignore[type-var]
        )

    def like(self, other: "Coded") -> bool:
        """Whether equal codes are equal values."""
        return self.listed == other.listed and self.scale == other.scale


class _Translator:
    def __init__(self, program: Program, vocabulary: FiniteVocabulary) -> None:
        self.source, self.vocabulary = program, vocabulary
        self.max_len = vocabulary.max_len
        taken = set(vocabulary.tokens)
        self.nothing = next(word for n in range(len(taken) + 1) if (word := "nothing" + "_" * n) not in taken)
        self.made: dict[str, Coded] = {
            TOKENS: Coded(tokens, frozenset(range(len(vocabulary.tokens))), self.nothing, vocabulary.tokens),
            INDICES: Coded(indices, frozenset(range(self.max_len)), self.nothing),
        }
        self.carriers: dict[str, tuple[str, ...]] = {}
        self.numerical = _numerical(program)
        self._one = Map(lambda place: 1, indices, name="one")
        # In a causal program the two are the same; LEQ says what is meant.
        self._view = Select(indices, indices, Comparison.LEQ if program.causal else Comparison.TRUE)
        self._seen = SelectorWidth(self._view, name=LENGTH if not program.causal else "so_far")

    def translation(self) -> Translation:
        """Translate every found variable, then the output."""
        for component, hypothesis in self.source.variables.items():
            if hypothesis.family == "nothing":
                continue
            name = str(component)
            made = self._make(name, hypothesis)
            self.made[name] = made
            self.carriers[name] = (head_name(name) if isinstance(made.variable, SelectorWidth) else name,)
        assert self.source.output is not None
        program = compile_program(
            self._keeping(self._output(self.source.output)),
            self.vocabulary.tokens,
            self.max_len,
            causal=self.source.causal,
            name=NAME,
        )
        return Translation(program, self.carriers)

    def _make(self, name: str, hypothesis: Hypothesis) -> Coded:
        if isinstance(hypothesis, Table):
            return self._table(name, hypothesis.reads, hypothesis.codes, hypothesis.n_classes)
        if isinstance(hypothesis, Linear):
            return self._linear(name, hypothesis)
        if isinstance(hypothesis, Width):
            return self._whole(SelectorWidth(self._selector(name, hypothesis.selector), name=name), self.max_len)
        if isinstance(hypothesis, Mean):
            return self._mean(name, hypothesis)
        if isinstance(hypothesis, Copy):
            return self._gathered(name, self._route(name, hypothesis), hypothesis.of)
        if isinstance(hypothesis, Gated):
            gate = self._by_codes(
                f"{name}_gate",
                (INDICES, hypothesis.by),
                lambda place, value: place if value == hypothesis.value else _NOWHERE,
            )
            return self._gathered(name, Select(indices, gate, Comparison.EQ), hypothesis.of)
        if isinstance(hypothesis, Matched):
            return self._matched(name, hypothesis)
        if isinstance(hypothesis, Extreme):
            return self._extreme(name, hypothesis)
        raise BadInput(f"{name}: a {hypothesis.family} has no translation into RASP")

    # Tables.

    def _table(self, name: str, reads: tuple[str, ...], table: Mapping[tuple[int, ...], int], unseen: int) -> Coded:
        """A look-up by codes; argument tuples that are not listed give `unseen`."""
        operands = [self.made[read] for read in reads]
        known = {
            key: code for key, code in table.items() if all(c in o.codes for c, o in zip(key, operands, strict=True))
        }
        full = 1
        for operand in operands:
            full *= len(operand.codes)
        codes = frozenset(known.values()) | ({unseen} if len(known) < full else frozenset())
        coded = Coded(tokens, codes, self.nothing)
        variable = self._look(name, operands, {key: coded.value(code) for key, code in known.items()}, unseen)
        return replace(coded, variable=variable)

    def _look(
        self, name: str, operands: list[Coded], table: Mapping[tuple[int, ...], Value], otherwise: Value
    ) -> Variable:
        """The RASP node of a table from codes of one, two or three variables to values."""
        if len(operands) == 3:
            operands, table = self._paired(name, operands, table)
        spelled = {
            tuple(operand.value(code) for operand, code in zip(operands, key, strict=True)): value
            for key, value in table.items()
        }
        x = operands[0].variable
        if len(operands) == 2:
            return SequenceMap(lambda a, b: spelled.get((a, b), otherwise), x, operands[1].variable, name=name)
        if not isinstance(x, Map):
            return Map(lambda a: spelled.get((a,), otherwise), x, name=name)
        # Off the diagonal nothing can occur; leaving it undefined keeps documents small.
        return SequenceMap(lambda a, b: spelled.get((a,), otherwise) if a == b else None, x, x, name=name)

    def _paired(
        self, name: str, operands: list[Coded], table: Mapping[tuple[int, ...], Value]
    ) -> tuple[list[Coded], dict[tuple[int, ...], Value]]:
        """The first two of three arguments as one; pairs that no entry has are one value."""
        pairs = list(dict.fromkeys(key[:2] for key in table))
        number = {pair: place for place, pair in enumerate(pairs)}
        first, second = operands[:2]
        listed = tuple((first.value(a), second.value(b)) for a, b in pairs)
        spelled = set(listed)
        variable = SequenceMap(
            lambda a, b: (a, b) if (a, b) in spelled else self.nothing,
            first.variable,
            second.variable,
            name=f"{name}_pair",
        )
        pair = Coded(variable, frozenset(number.values()) | {UNDEFINED}, self.nothing, listed)
        return [pair, operands[2]], {(number[key[:2]], key[2]): value for key, value in table.items()}

    def _by_codes(self, name: str, reads: tuple[str, ...], rule: Callable[..., Value]) -> Variable:
        """A table whose entries follow a rule over codes."""
        operands = [self.made[read] for read in reads]
        return self._look(name, operands, {key: rule(*key) for key in product(*(o.codes for o in operands))}, None)

    def _whole(self, variable: Variable, most: int) -> Coded:
        return Coded(variable, frozenset(range(most + 1)), self.nothing)

    # Numbers.

    def _mean(self, name: str, mean: Mean) -> Coded:
        of, counted = self.made[mean.of], {mean.value, *mean.others}
        whole = mean.scope == "TRUE" or (self.source.causal and mean.scope == "LEQ")
        if name in self.numerical:
            flag = of.variable
            if of.codes != {0, 1} or of.listed is not None or of.scale != 1 or counted != {1}:
                flag = self._by_codes(f"{name}_flag", (mean.of,), lambda code: int(code in counted))
            view = self._view if whole else Select(indices, indices, Comparison[mean.scope])
            return Coded(Aggregate(view, flag, numerical=True, name=name), frozenset(), self.nothing, scale=MEAN_SCALE)
        select = self._one_of(name, of, counted) if whole else self._one_of_earlier(name, mean.of, counted, mean.scope)
        hits = self._whole(SelectorWidth(select, name=f"{name}_hits"), self.max_len)
        none = frozenset({UNDEFINED} if mean.scope == "LT" else ())
        return self._share(name, hits, self._in_scope(name, mean.scope, whole=whole), none)

    def _in_scope(self, name: str, scope: str, *, whole: bool) -> Coded:
        """How many positions a share is taken over."""
        if whole:
            return self._whole(self._seen, self.max_len)
        more = int(scope == "LEQ")
        return self._whole(Map(lambda place: place + more, indices, name=f"{name}_of"), self.max_len)

    def _share(self, name: str, hits: Coded, of: Coded, none: frozenset[int]) -> Coded:
        """One count by another; undefined where the other is none, if `none` says that can be."""
        counts = torch.arange(self.max_len + 1)
        shares = (counts[:, None] / counts.clamp(min=1) * MEAN_SCALE).round().long().tolist()
        inside = {(h, n): shares[h][n] for n in range(1, self.max_len + 1) for h in range(n + 1)}
        coded = Coded(tokens, frozenset(inside.values()) | none, self.nothing, scale=MEAN_SCALE)
        table = {key: coded.value(code) for key, code in inside.items()}
        # More hits than positions cannot occur; what the table says of them must still be one of the codes.
        return replace(coded, variable=self._look(name, [hits, of], table, self.nothing if none else 0.0))

    def _linear(self, name: str, linear: Linear) -> Coded:
        operands = [self.made[read] for read in linear.reads]
        if name in self.numerical:
            terms = [
                (self._number(name, read), weight) for read, weight in zip(linear.reads, linear.weights, strict=True)
            ]
            if linear.offset or len(terms) == 1:
                terms.append((self._one, linear.offset))
            (total, factor), *others = terms
            for place, (other, weight) in enumerate(others, 1):
                called = name if place == len(others) else None
                total, factor = LinearSequenceMap(total, other, x_factor=factor, y_factor=weight, name=called), 1.0
            return Coded(total, frozenset(), self.nothing, scale=MEAN_SCALE)
        keys = list(product(*(sorted(operand.codes) for operand in operands)))
        columns = torch.tensor(keys).T
        sums = torch.full((len(keys),), linear.offset * MEAN_SCALE)
        for column, weight in zip(columns, linear.weights, strict=True):
            sums = sums + weight * column
        table = dict(zip(keys, sums.round().long().tolist(), strict=True))
        coded = Coded(tokens, frozenset(table.values()), self.nothing, scale=MEAN_SCALE)
        look = self._look(name, operands, {key: coded.value(code) for key, code in table.items()}, None)
        return replace(coded, variable=look)

    def _number(self, name: str, read: str) -> Variable:
        """A share that can be added up: undefined is the small number its code stands for."""
        share = self.made[read]
        if not share.can_be_undefined:
            return share.variable
        return self._by_codes(f"{name}_of_{read}", (read,), lambda code: code / share.scale)

    # Heads.

    def _selector(self, name: str, selector: Selector) -> Select:
        if selector.kind == "all":
            return self._view
        if selector.kind == "constant":
            return self._one_of(name, self.made[selector.keys], {selector.constant, *selector.others})
        return self._compared(self.made[selector.keys], self.made[selector.queries], selector.comparison)

    def _one_of(self, name: str, keys: Coded, codes: set[int]) -> Select:
        """Positions where a variable has one of these values."""
        values = {keys.value(code) for code in codes & keys.codes}
        if len(values) != 1:
            return Select(keys.variable, indices, lambda key, place: key in values)
        (value,) = values
        return Select(keys.variable, Map(lambda place: value, indices, name=f"{name}_wanted"), Comparison.EQ)

    def _one_of_earlier(self, name: str, of: str, codes: set[int], scope: str) -> Select:
        """The same among positions up to here (LEQ) or before here (LT)."""
        place = self._by_codes(f"{name}_at", (INDICES, of), lambda place, code: place if code in codes else _NOWHERE)
        compare = COMPARE[scope]
        return Select(place, indices, lambda key, query: key != _NOWHERE and compare(key, query))

    def _compared(self, keys: Coded, queries: Coded, comparison: str) -> Select:
        """Comparison of codes, where both are defined; as a named comparison of values where that says the same."""
        plain = keys.like(queries) and not (keys.can_be_undefined or queries.can_be_undefined)
        if plain and (comparison in ("EQ", "NEQ") or keys.is_ordered):
            return Select(keys.variable, queries.variable, Comparison[comparison])
        compare, there, here = COMPARE[comparison], keys.code_of(), queries.code_of()
        pairs = {
            (key, query)
            for key, k in there.items()
            for query, q in here.items()
            if UNDEFINED not in (k, q) and compare(k, q)
        }
        return Select(keys.variable, queries.variable, lambda key, query: (key, query) in pairs)

    def _gathered(self, name: str, select: Select, of: str) -> Coded:
        """The value of a variable where the one selected position is, undefined where there is none."""
        gathered = self.made[of]
        variable = Aggregate(select, gathered.variable, default=self.nothing, name=name)
        return replace(gathered, variable=variable, codes=gathered.codes | {UNDEFINED})

    def _route(self, name: str, copy: Copy) -> Select:
        if copy.by is None and copy.route in _ROUTES:
            return Select(indices, indices, _ROUTES[copy.route])
        if self.source.causal and copy.by in (None, LENGTH):
            raise BadInput(f"{name}: a causal program does not know the length, which {copy.route!r} needs")
        place = f"{name}_place"
        if copy.by is None:
            self.made[LENGTH] = self._whole(self._seen, self.max_len)
            if copy.route == "last":
                leads = self._by_codes(place, (LENGTH,), lambda length: length - 1)
            else:
                leads = self._by_codes(place, (INDICES, LENGTH), lambda own, length: length - 1 - own)
        else:
            if copy.by == LENGTH:
                self.made[LENGTH] = self._whole(self._seen, self.max_len)
            if copy.anywhere:
                leads = self._by_codes(place, (copy.by,), lambda value: copy.table.get((0, value), _NOWHERE))
            else:
                leads = self._by_codes(
                    place, (INDICES, copy.by), lambda own, value: copy.table.get((own, value), _NOWHERE)
                )
        return Select(indices, leads, Comparison.EQ)

    def _matched(self, name: str, matched: Matched) -> Coded:
        select = self._compared(self.made[matched.keys], self.made[matched.queries], "EQ")
        if matched.keys != INDICES:
            first = Aggregate(select, indices, default=_NOWHERE, name=f"{name}_place")
            select = Select(indices, first, Comparison.EQ)
        return self._gathered(name, select, matched.of)

    def _extreme(self, name: str, extreme: Extreme) -> Coded:
        """Every value in view votes once, from its first position; the tie goes to the one listed first."""
        of = self.made[extreme.of]
        first = Aggregate(Select(of.variable, of.variable, Comparison.EQ), indices, name=f"{name}_first")
        once = SequenceMap(lambda place, own: int(place == own), first, indices, name=f"{name}_once")
        order = [of.value(code) for code in sorted(of.codes, reverse=extreme.largest)]
        ballots = self._listed(f"{name}_ordered", of, order)
        chosen = Select(once, self._one, Comparison.EQ)
        return replace(of, variable=Aggregate(chosen, ballots, default=order[0], name=name))

    def _listed(self, name: str, coded: Coded, order: list[Value]) -> Variable:
        """The variable with its values listed in a given order.

        A list has the order in which enumeration meets the values, and that begins with a count of 0, which no run can
        show: there is always a position in view. So what is returned for 0 is free to set the order.
        """
        nodes = evaluation_order(graph_order(coded.variable))
        found = tabulate(nodes, unique_names(nodes), vocab=self.vocabulary.tokens, max_len=self.max_len)
        listed = found.domains[coded.variable].values
        order = [value for value in order if value in listed]
        order += [value for value in listed if value not in order]
        if list(listed) == order:
            return coded.variable
        at_zero = dict(zip(listed, order, strict=True))
        return SequenceMap(lambda seen, value: value if seen else at_zero[value], self._seen, coded.variable, name=name)

    # The output.

    def _output(self, output: OutputMap) -> Variable:
        operands = [self.made[read] for read in output.reads]
        if output.line is not None:
            return self._line(operands[0], output.line)
        table = {
            key: self._answer(value)
            for key, value in output.table.items()
            if all(code in operand.codes for code, operand in zip(key, operands, strict=True))
        }
        return self._look(OUTPUT, operands, table, self._answer(output.default))

    def _line(self, operand: Coded, line: Line) -> Variable:
        """A straight line; RASP can add numbers up only where each value is one."""
        if operand.variable.numerical and (line.factor, line.offset) == (1, 0):
            return operand.variable
        if operand.listed is None and not operand.can_be_undefined:
            factors = {"x_factor": line.factor, "y_factor": line.offset}
            return LinearSequenceMap(operand.variable, self._one, **factors, name=OUTPUT)
        heights = {(code,): code / line.scale * line.factor + line.offset for code in sorted(operand.codes)}
        return self._look(OUTPUT, [operand], heights, None)

    def _answer(self, value: float) -> Value:
        outputs = self.vocabulary.outputs
        return value if outputs is None else outputs[int(value)]

    def _keeping(self, output: Variable) -> Variable:
        """The output, made to read every variable a component is said to carry: an idle one belongs to the claim."""
        read = set(graph_order(output))
        for name in self.carriers:
            idle = self.made[name].variable
            if idle in read:
                continue
            if output.numerical or idle.numerical:
                nought = idle if idle.numerical else self._by_codes(f"{name}_idle", (name,), lambda code: 0)
                output = LinearSequenceMap(output, nought, x_factor=1, y_factor=0)
            else:
                output = SequenceMap(lambda value, unused: value, output, idle)
            read |= set(graph_order(output))
        return output


def _numerical(program: Program) -> set[str]:
    """Shares and sums of shares that only sums and a straight-line output read: RASP's numerical variables."""
    by_name = {str(component): variable for component, variable in program.variables.items()}
    shares = {name for name, variable in by_name.items() if isinstance(variable, Mean | Linear)}
    sums = {name for name in shares if isinstance(by_name[name], Linear) and shares.issuperset(by_name[name].reads)}
    output, found = program.output, set()
    for name in reversed(by_name) if program.numeric else ():
        if not (isinstance(by_name[name], Mean) or name in sums):
            continue
        readers = {reader for reader, variable in by_name.items() if name in variable.reads}
        on_a_line = output is None or name not in output.reads or output.line is not None
        if on_a_line and readers <= sums & found:
            found.add(name)
    return found
