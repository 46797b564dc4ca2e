"""Building a program step by step, over whole-number codes.

A search reads codes off experiments: a class, a count, a share in units of 1 / scale, -1 for undefined. The language
computes with values. A `Draft` holds the variables defined so far, each with the way its values stand for codes
(`Coded`), so that every rule can be written over codes; `compile` makes the program. Three things differ:

1. *Undefined* is an ordinary code (-1): a table may map it to something. The language never hands None to a function,
   so undefined is written as a value of its own, the default of every Aggregate. What a table gives for arguments that
   were never seen is a code too, and it is written as the word "unseen": nothing is made up for them, and an output
   that no entry says anything about has no value.
2. The language fuses a Map of a Map. A table that reads a table is a SequenceMap of that variable with itself.
3. The language takes the most frequent value, ties to the first listed. "The first match" is therefore the value at the
   first matching *position* (positions occur once each and are listed in order), and "the largest" a vote in which each
   value has one ballot, over values listed in falling order.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import torch

from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
    indices,
    tokens,
)
from vesalius.rasp.placement import evaluation_order, graph_order, unique_names
from vesalius.rasp.program import Program, compile_program
from vesalius.rasp.values import tabulate

UNDEFINED = -1
#: Where a route leads that leads nowhere; no position has this number.
NOWHERE = -1
LENGTH, OUTPUT = "length", "output"
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq,
    "NEQ": operator.ne,
    "LT": operator.lt,
    "LEQ": operator.le,
    "GT": operator.gt,
    "GEQ": operator.ge,
}


@dataclass(frozen=True)
class Coded:
    """A variable and how its values stand for codes. `codes` are those it can have; a numerical variable has none."""

    variable: Variable
    codes: frozenset[int]
    nothing: str
    listed: tuple[Value, ...] | None = None
    scale: int = 1
    unseen: tuple[int, str] | None = None

    def value(self, code: int) -> Value:
        """The value that stands for a code."""
        if code == UNDEFINED:
            return self.nothing
        if self.unseen is not None and code == self.unseen[0]:
            return self.unseen[1]
        if self.listed is not None:
            return self.listed[code]
        return code if self.scale == 1 else code / self.scale

    @property
    def can_be_undefined(self) -> bool:
        """Whether undefined is among its codes."""
        return UNDEFINED in self.codes

    @property
    def seen(self) -> frozenset[int]:
        """Its codes but for that of arguments which were never seen."""
        return self.codes if self.unseen is None else self.codes - {self.unseen[0]}

    @property
    def is_flag(self) -> bool:
        """Whether its values are the numbers 0 and 1."""
        return self.codes == {0, 1} and self.listed is None and self.scale == 1 and self.unseen is None

    @property
    def is_ordered(self) -> bool:
        """Whether values compare as their codes do."""
        if self.listed is None:
            return self.unseen is None
        numbers = all(isinstance(value, int | float) for value in self.listed)
        return (numbers or all(isinstance(value, str) for value in self.listed)) and list(self.listed) == sorted(
            self.listed  # type: ignore[type-var]
        )

    def like(self, other: "Coded") -> bool:
        """Whether equal codes are equal values."""
        return self.listed == other.listed and self.scale == other.scale and self.unseen == other.unseen


class Draft:
    """The variables of a program so far, by name: `tokens`, `indices`, `length` (not in a causal program), and those
    that were put in. `numerical` names the shares and sums that are written as numbers; others are listed values.
    `outputs` are words that mean something already.
    """

    def __init__(
        self,
        vocab: tuple[Value, ...],
        max_len: int,
        *,
        causal: bool,
        numerical: Collection[str] = (),
        outputs: tuple[Value, ...] = (),
    ) -> None:
        self.vocab, self.max_len, self.causal, self.numerical = vocab, max_len, causal, numerical
        self.nothing, self.unseen = (_free_word(word, (*vocab, *outputs)) for word in ("nothing", "unseen"))
        # In a causal program the two are the same; LEQ says what is meant.
        self.view = Select(indices, indices, Comparison.LEQ if causal else Comparison.TRUE)
        self._seen = SelectorWidth(self.view, name="so_far" if causal else LENGTH)
        self._one = Map(lambda place: 1, indices, name="one")
        self.variables: dict[str, Coded] = {
            tokens.kind: Coded(tokens, frozenset(range(len(vocab))), self.nothing, vocab),
            indices.kind: Coded(indices, frozenset(range(max_len)), self.nothing),
        }
        if not causal:
            self.variables[LENGTH] = self._number(self._seen)

    def compile(self, output: Variable, carried: Collection[str], *, name: str) -> Program:
        """The program with this output. It reads every variable in `carried`, also an idle one."""
        read = set(graph_order(output))
        for each in carried:
            idle = self.variables[each].variable
            if idle in read:
                continue
            if output.numerical or idle.numerical:
                nought = idle if idle.numerical else self.rule(f"{each}_idle", (each,), lambda code: 0)
                output = LinearSequenceMap(output, nought, x_factor=1, y_factor=0)
            else:
                output = SequenceMap(lambda value, unused: value, output, idle)
            read |= set(graph_order(output))
        return compile_program(output, self.vocab, self.max_len, causal=self.causal, name=name)

    # Tables.

    def table(self, name: str, reads: Sequence[str], table: Mapping[tuple[int, ...], int], unseen: int) -> Coded:
        """A look-up from codes to codes; argument tuples that are not listed give the code `unseen`, whose value says
        that they are.
        """
        operands = [self.variables[read] for read in reads]
        known = {key: code for key, code in table.items() if _occurs(key, operands)}
        is_whole = len(known) == prod(len(operand.codes) for operand in operands)
        codes = frozenset(known.values()) | (frozenset() if is_whole else {unseen})
        coded = Coded(tokens, codes, self.nothing, unseen=None if is_whole else (unseen, self.unseen))
        values = {key: coded.value(code) for key, code in known.items()}
        return replace(coded, variable=self._look(name, operands, values, None if is_whole else self.unseen))

    def combinations(self, reads: Sequence[str]) -> int:
        """How many tuples of arguments there are, those that hold something unseen left out."""
        return prod(len(self.variables[read].seen) for read in reads)

    def unlisted(self, reads: Sequence[str], table: Mapping[tuple[int, ...], int]) -> int:
        """How many of them a table does not list."""
        seen = [self.variables[read].seen for read in reads]
        covered = sum(all(code in codes for code, codes in zip(key, seen, strict=True)) for key in table)
        return self.combinations(reads) - covered

    def output_table(self, reads: Sequence[str], table: Mapping[tuple[int, ...], Value]) -> Variable:
        """The output as a look-up from codes to values; argument tuples that are not listed have none."""
        operands = [self.variables[read] for read in reads]
        known = {key: value for key, value in table.items() if _occurs(key, operands)}
        return self._look(OUTPUT, operands, known, None)

    def rule(self, name: str, reads: Sequence[str], rule: Callable[..., Value]) -> Variable:
        """A look-up whose values follow from codes by a rule."""
        operands = [self.variables[read] for read in reads]
        return self._look(name, operands, {key: rule(*key) for key in product(*(o.codes for o in operands))}, None)

    def _look(
        self, name: str, operands: list[Coded], table: Mapping[tuple[int, ...], Value], otherwise: Value
    ) -> Variable:
        """The node of a look-up from codes of one, two or three variables to values."""
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
        values = tuple((first.value(a), second.value(b)) for a, b in pairs)
        spelled = set(values)
        variable = SequenceMap(
            lambda a, b: (a, b) if (a, b) in spelled else self.nothing,
            first.variable,
            second.variable,
            name=f"{name}_pair",
        )
        pair = Coded(variable, frozenset(number.values()) | {UNDEFINED}, self.nothing, values)
        return [pair, operands[2]], {(number[key[:2]], key[2]): value for key, value in table.items()}

    # Numbers.

    def count(self, name: str, select: Select) -> Coded:
        """How many positions are selected."""
        return self._number(SelectorWidth(select, name=name))

    def _number(self, variable: Variable) -> Coded:
        return Coded(variable, frozenset(range(self.max_len + 1)), self.nothing)

    def share(self, name: str, of: str, counted: set[int], scope: str, *, scale: int) -> Coded:
        """The share of positions with one of these codes, of those up to here (LEQ), before here (LT) or all (TRUE)."""
        whole = scope == "TRUE" or (self.causal and scope == "LEQ")
        if name in self.numerical:
            operand = self.variables[of]
            is_flag = operand.is_flag and counted == {1}
            flag = operand.variable if is_flag else self.rule(f"{name}_flag", (of,), lambda code: int(code in counted))
            view = self.view if whole else Select(indices, indices, Comparison[scope])
            return Coded(Aggregate(view, flag, numerical=True, name=name), frozenset(), self.nothing, scale=scale)
        select = self.one_of(name, of, counted) if whole else self._one_of_earlier(name, of, counted, scope)
        hits = self.count(f"{name}_hits", select)
        more = int(scope == "LEQ")
        among = self._seen if whole else Map(lambda place: place + more, indices, name=f"{name}_of")
        return self._ratio(name, hits, self._number(among), scale, can_be_none=scope == "LT")

    def _ratio(self, name: str, hits: Coded, of: Coded, scale: int, *, can_be_none: bool) -> Coded:
        """One count by another; undefined where the other is 0, if that can be."""
        counts = torch.arange(self.max_len + 1)
        shares = (counts[:, None] / counts.clamp(min=1) * scale).round().long().tolist()
        inside = {(h, n): shares[h][n] for n in range(1, self.max_len + 1) for h in range(n + 1)}
        codes = frozenset(inside.values()) | ({UNDEFINED} if can_be_none else frozenset())
        coded = Coded(tokens, codes, self.nothing, scale=scale)
        table: dict[tuple[int, ...], float | None] = {key: coded.value(code) for key, code in inside.items()}
        # More hits than positions cannot occur; what the table says of them must still be one of the codes.
        return replace(coded, variable=self._look(name, [hits, of], table, self.nothing if can_be_none else 0.0))

    def weighted_sum(
        self, name: str, reads: Sequence[str], weights: Sequence[float], offset: float, *, scale: int
    ) -> Coded:
        """A weighted sum of shares of one scale, plus an offset."""
        if name in self.numerical:
            terms = [(self._summand(name, read), weight) for read, weight in zip(reads, weights, strict=True)]
            if offset or len(terms) == 1:
                terms.append((self._one, offset))
            (total, factor), *others = terms
            for place, (other, weight) in enumerate(others, 1):
                called = name if place == len(others) else None
                total, factor = LinearSequenceMap(total, other, x_factor=factor, y_factor=weight, name=called), 1.0
            return Coded(total, frozenset(), self.nothing, scale=scale)
        operands = [self.variables[read] for read in reads]
        keys = list(product(*(sorted(operand.codes) for operand in operands)))
        sums = torch.full((len(keys),), offset * scale)
        for column, weight in zip(torch.tensor(keys).T, weights, strict=True):
            sums = sums + weight * column
        table = dict(zip(keys, sums.round().long().tolist(), strict=True))
        coded = Coded(tokens, frozenset(table.values()), self.nothing, scale=scale)
        look = self._look(name, operands, {key: coded.value(code) for key, code in table.items()}, None)
        return replace(coded, variable=look)

    def _summand(self, name: str, read: str) -> Variable:
        """A share that can be added up: undefined is the small number its code stands for."""
        share = self.variables[read]
        if not share.can_be_undefined:
            return share.variable
        return self.rule(f"{name}_of_{read}", (read,), lambda code: code / share.scale)

    def line(self, read: str, factor: float, offset: float, *, scale: int) -> Variable:
        """The output as a straight line; numbers can be added up only where each value is one."""
        operand = self.variables[read]
        if operand.variable.numerical and (factor, offset) == (1, 0):
            return operand.variable
        if operand.listed is None and operand.unseen is None and not operand.can_be_undefined:
            return LinearSequenceMap(operand.variable, self._one, x_factor=factor, y_factor=offset, name=OUTPUT)
        heights: dict[tuple[int, ...], float] = {
            (code,): code / scale * factor + offset for code in sorted(operand.codes)
        }
        return self._look(OUTPUT, [operand], heights, None)

    # Heads.

    def one_of(self, name: str, keys: str, codes: set[int]) -> Select:
        """Positions where a variable has one of these codes."""
        there = self.variables[keys]
        values = {there.value(code) for code in codes & there.codes}
        if len(values) != 1:
            return Select(there.variable, indices, lambda key, place: key in values)
        (value,) = values
        return Select(there.variable, Map(lambda place: value, indices, name=f"{name}_wanted"), Comparison.EQ)

    def _one_of_earlier(self, name: str, of: str, codes: set[int], scope: str) -> Select:
        """The same among positions up to here (LEQ) or before here (LT)."""
        place = self.rule(f"{name}_at", (indices.kind, of), lambda place, code: place if code in codes else NOWHERE)
        compare = COMPARE[scope]
        return Select(place, indices, lambda key, query: key != NOWHERE and compare(key, query))

    def compared(self, keys: str, queries: str, comparison: str) -> Select:
        """Comparison of codes, where both are defined; as a named comparison of values where that says the same."""
        there, here = self.variables[keys], self.variables[queries]
        plain = there.like(here) and not (there.can_be_undefined or here.can_be_undefined)
        if plain and (comparison in ("EQ", "NEQ") or there.is_ordered):
            return Select(there.variable, here.variable, Comparison[comparison])
        compare = COMPARE[comparison]
        pairs = {
            (there.value(key), here.value(query))
            for key, query in product(there.codes - {UNDEFINED}, here.codes - {UNDEFINED})
            if compare(key, query)
        }
        return Select(there.variable, here.variable, lambda key, query: (key, query) in pairs)

    def route(self, name: str, reads: Sequence[str], leads: Callable[..., int]) -> Select:
        """The position that a rule over codes leads to; `NOWHERE` selects none."""
        return Select(indices, self.rule(f"{name}_place", reads, leads), Comparison.EQ)

    def paired(self, keys: str, queries: str, pairs: Collection[tuple[int, int]]) -> Select:
        """The positions that listed pairs of codes, there and here, select."""
        there, here = self.variables[keys], self.variables[queries]
        values = {
            (there.value(key), here.value(query)) for key, query in pairs if key in there.codes and query in here.codes
        }
        return Select(there.variable, here.variable, lambda key, query: (key, query) in values)

    def first(self, name: str, select: Select, *, last: bool = False) -> Select:
        """The first (or last) of the selected positions: a vote in which the tie goes to the one listed first."""
        ballots: Variable = indices
        if last:
            places = self.variables[indices.kind]
            ballots = self._listed(f"{name}_reversed", places, sorted(places.codes, reverse=True))
        place = Aggregate(select, ballots, default=NOWHERE, name=f"{name}_place")
        return Select(indices, place, Comparison.EQ)

    def most_frequent(self, name: str, select: Select, of: str) -> Coded:
        """The code most often selected, of several the smallest; undefined comes last."""
        operand = self.variables[of]
        order = [operand.value(code) for code in sorted(operand.codes - {UNDEFINED})]
        ballots = self._listed(f"{name}_ordered", operand, order)
        variable = Aggregate(select, ballots, default=self.nothing, name=name)
        return replace(operand, variable=variable, codes=operand.codes | {UNDEFINED})

    def mean(self, name: str, select: Select, of: str, numbers: Sequence[float], *, scale: int) -> Coded:
        """The mean of the numbers that codes stand for over the selected positions, those undefined left out."""
        if name in self.numerical:
            operand = self.variables[of]
            plain = all(0 <= code < len(numbers) and operand.value(code) == numbers[code] for code in operand.codes)
            values = operand.variable if plain else self.rule(f"{name}_numbers", (of,), _number_of(numbers))
            return Coded(Aggregate(select, values, numerical=True, name=name), frozenset(), self.nothing, scale=scale)
        total = self._total(f"{name}_total", select, of, numbers)
        n = SelectorWidth(self._having(select, of, self.variables[of].codes - {UNDEFINED}), name=f"{name}_of")
        table = {
            (value, count): round(value / count * scale)
            for value in _totals(self._numbers_of(of, numbers), self.max_len)
            for count in range(1, self.max_len + 1)
        }
        coded = Coded(tokens, frozenset(table.values()) | {UNDEFINED}, self.nothing, scale=scale)
        mean = SequenceMap(lambda value, count: coded.value(table.get((value, count), UNDEFINED)), total, n, name=name)
        return replace(coded, variable=mean)

    def sum(self, name: str, select: Select, of: str, numbers: Sequence[float]) -> Coded:
        """The sum of the numbers that codes stand for over the selected positions."""
        total = self._total(name, select, of, numbers)
        return Coded(total, frozenset(map(int, _totals(self._numbers_of(of, numbers), self.max_len))), self.nothing)

    def _numbers_of(self, of: str, numbers: Sequence[float]) -> dict[int, float]:
        return {code: numbers[code] for code in sorted(self.variables[of].codes - {UNDEFINED}) if code < len(numbers)}

    def _total(self, name: str, select: Select, of: str, numbers: Sequence[float]) -> Variable:
        """The sum as counts of every code times its number, added up one after another."""
        total: Variable = Map(lambda place: 0, indices, name=f"{name}_zero")
        terms = [(code, number) for code, number in self._numbers_of(of, numbers).items() if number]
        for place, (code, number) in enumerate(terms, 1):
            count = SelectorWidth(self._having(select, of, {code}), name=f"{name}_of_{code}")
            total = SequenceMap(
                lambda before, n, number=number: before + number * n,
                total,
                count,
                name=name if place == len(terms) else f"{name}_to_{code}",
            )
        return total

    def _having(self, select: Select, of: str, codes: Collection[int]) -> Select:
        """The selected positions at which a variable has one of these codes."""
        operand = self.variables[of]
        values, predicate = {operand.value(code) for code in codes}, select.predicate
        if select.keys is operand.variable:
            return Select(operand.variable, select.queries, lambda key, query: key in values and predicate(key, query))
        both = SequenceMap(lambda key, value: (key, value), select.keys, operand.variable)
        return Select(both, select.queries, lambda pair, query: pair[1] in values and predicate(pair[0], query))

    def gathered(self, name: str, select: Select, of: str) -> Coded:
        """The value of a variable where the one selected position is, undefined where there is none."""
        operand = self.variables[of]
        variable = Aggregate(select, operand.variable, default=self.nothing, name=name)
        return replace(operand, variable=variable, codes=operand.codes | {UNDEFINED})

    def extreme(self, name: str, of: str, *, largest: bool) -> Coded:
        """The largest or smallest code in view: every value votes once, from its first position, and the tie goes to
        the one listed first.
        """
        operand = self.variables[of]
        first = Aggregate(Select(operand.variable, operand.variable, Comparison.EQ), indices, name=f"{name}_first")
        once = SequenceMap(lambda place, own: int(place == own), first, indices, name=f"{name}_once")
        order = [operand.value(code) for code in sorted(operand.codes, reverse=largest)]
        ballots = self._listed(f"{name}_ordered", operand, order)
        chosen = Select(once, self._one, Comparison.EQ)
        return replace(operand, variable=Aggregate(chosen, ballots, default=order[0], name=name))

    def _listed(self, name: str, coded: Coded, order: list[Value]) -> Variable:
        """The variable with its values listed in a given order.

        A list has the order in which enumeration meets the values, and that begins with a count of 0, which no run can
        show: there is always a position in view. So what is returned for 0 is free to set the order.
        """
        nodes = evaluation_order(graph_order(coded.variable))
        tables = tabulate(nodes, unique_names(nodes), vocab=self.vocab, max_len=self.max_len)
        values = tables.domains[coded.variable].values
        order = [value for value in order if value in values]
        order += [value for value in values if value not in order]
        if list(values) == order:
            return coded.variable
        at_zero = dict(zip(values, order, strict=True))
        return SequenceMap(lambda seen, value: value if seen else at_zero[value], self._seen, coded.variable, name=name)


def _number_of(numbers: Sequence[float]) -> Callable[[int], Value]:
    return lambda code: None if code == UNDEFINED or code >= len(numbers) else numbers[code]


def _totals(numbers: Mapping[int, float], n: int) -> set[float]:
    """Every sum that chains of `n` counts of each number can enumerate."""
    totals: set[float] = {0}
    for number in numbers.values():
        totals = {before + number * count for before in totals for count in range(n + 1)} if number else totals
    return totals


def _occurs(key: tuple[int, ...], operands: list[Coded]) -> bool:
    return all(code in operand.codes for code, operand in zip(key, operands, strict=True))


def _free_word(word: str, vocab: tuple[Value, ...]) -> str:
    """A word that is no token and no output."""
    return next(free for n in range(len(vocab) + 1) if (free := word + "_" * n) not in vocab)
