"""Reading the formulas of `phrases` back into a program.

A line is `name = FORMULA`, the last one `return FORMULA`. Formulas are those of `rasp.formula` over `token`, `position`
and names, tables as `{"a": 1}[token]`, and, in brackets or as the whole line, what a head gathers:

    share of positions so far where FLAG                   mean of FORMULA over SELECTION
    number of SELECTION                                    most frequent FORMULA over SELECTION else VALUE
    FORMULA at position FORMULA else VALUE                 FORMULA at first of SELECTION else VALUE

A SELECTION is `positions in view`, `positions so far`, `positions before here` or `positions where CONDITION`; in a
condition a name is the value there, and a name followed by `here` the value at the own position. No code is evaluated.
"""

import ast
import io
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

from vesalius.errors import BadInput
from vesalius.rasp.formula import read_formula
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
from vesalius.rasp.program import Program, compile_program

Words = list[str]
OPEN, CLOSE = ("(", "[", "{"), (")", "]", "}")
HERE = "__here"
SCOPES = {"in view": Comparison.TRUE, "so far": Comparison.LEQ, "before here": Comparison.LT}


def read_phrased(text: str, *, vocab: Sequence[Value], max_len: int, causal: bool) -> Program:
    """The program that formulas stand for; BadInput names what cannot be read."""
    reader, output = _Reader(), None
    for line in text.strip().splitlines():
        if output is not None:
            raise BadInput("formulas: nothing may follow the return")
        words = _words(line)
        if words[:1] == ["return"]:
            output = reader.variable(words[1:])
        elif len(words) > 2 and words[0].isidentifier() and words[1] == "=":
            reader.define(words[0], reader.variable(words[2:]))
        else:
            raise BadInput(f"formulas: {line!r:.60} is neither 'name = formula' nor 'return formula'")
    if output is None:
        raise BadInput("formulas: the last line must return a formula")
    return compile_program(output, vocab, max_len, causal=causal, name="program")


def _words(line: str) -> Words:
    """The words of a line as Python's tokenizer sees them."""
    kept = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)
    try:
        return [word.string for word in tokenize.generate_tokens(io.StringIO(line).readline) if word.type in kept]
    except (tokenize.TokenError, SyntaxError, IndentationError):
        raise BadInput(f"formulas: {line!r:.60} has brackets or quotes that do not close") from None


def _split(words: Words, *phrase: str) -> tuple[Words, Words] | None:
    """What stands before and after a phrase outside all brackets."""
    depth, n = 0, len(phrase)
    for place, word in enumerate(words):
        depth += (word in OPEN) - (word in CLOSE)
        if depth == 0 and tuple(words[place : place + n]) == phrase:
            return words[:place], words[place + n :]
    return None


class _Reader:
    """Makes variables of formulas; `names` are those defined so far."""

    def __init__(self) -> None:
        self.names: dict[str, Variable] = {"token": tokens, "position": indices}
        self._bracketed_names: dict[str, str] = {}

    def define(self, name: str, variable: Variable) -> None:
        """Give a variable a name; brackets that were read with another meaning of it are forgotten."""
        if name in self.names:
            self._bracketed_names.clear()
        self.names[name] = variable

    def variable(self, words: Words) -> Variable:
        """The variable that a formula or a head's phrase stands for."""
        gathered = self._gathered(words)
        return gathered if gathered is not None else self._formula(words)

    def _gathered(self, words: Words) -> Variable | None:
        if words[:4] == ["share", "of", "positions", "where"]:
            raise BadInput("formulas: say which positions the share is of, as in 'share of positions so far where ...'")
        if words[:2] == ["share", "of"]:
            parts = _split(words, "where")
            if parts is None:
                raise BadInput("formulas: a share needs 'where' and a condition")
            return Aggregate(self._selection(parts[0][2:]), self.variable(parts[1]), numerical=True)
        if words[:2] == ["mean", "of"]:
            parts = _split(words[2:], "over")
            if parts is None:
                raise BadInput("formulas: a mean needs 'over' and positions")
            return Aggregate(self._selection(parts[1]), self.variable(parts[0]), numerical=True)
        if words[:2] == ["number", "of"]:
            return SelectorWidth(self._selection(words[2:]))
        words, default = _default(words)
        if words[:2] == ["most", "frequent"]:
            parts = _split(words[2:], "over")
            if parts is None:
                raise BadInput("formulas: 'most frequent' needs 'over' and positions")
            return Aggregate(self._selection(parts[1]), self.variable(parts[0]), default=default)
        if parts := _split(words, "at", "first", "of"):
            place = Aggregate(self._selection(parts[1]), indices, default=-1)
            return Aggregate(Select(indices, place, Comparison.EQ), self.variable(parts[0]), default=default)
        if parts := _split(words, "at", "position"):
            place = self.variable(parts[1])
            return Aggregate(
                Select(indices, place, lambda key, query: bool(key == query)),
                self.variable(parts[0]),
                default=default,
            )
        return None

    def _selection(self, words: Words) -> Select:
        if words[:1] != ["positions"]:
            raise BadInput(f"formulas: {' '.join(words)!r:.60} is not a selection; write 'positions where ...'")
        rest = words[1:]
        if " ".join(rest) in SCOPES:
            return Select(indices, indices, SCOPES[" ".join(rest)])
        if rest[:1] != ["where"]:
            raise BadInput(
                f"formulas: positions {' '.join(rest)!r:.40}; write 'in view', 'so far', 'before here' or 'where'"
            )
        text, leaves = self._leaves(rest[1:])
        there = {name: leaf for name, leaf in leaves.items() if not name.endswith(HERE)}
        here = {name: leaf for name, leaf in leaves.items() if name.endswith(HERE)}
        if len(there) > 1 or len(here) > 1:
            raise BadInput("formulas: a selection compares one value there with one value here")
        key, query = next(iter(there), "there__"), next(iter(here), "here__")
        holds = read_formula(text, (key, query))
        return Select(there.get(key, indices), here.get(query, indices), lambda k, q: bool(holds(k, q)))

    def _leaves(self, words: Words) -> tuple[str, dict[str, Variable]]:
        """A formula as text in which brackets with heads or tables are names, and the variables of its names."""
        text, leaves, place = [], {}, 0
        while place < len(words):
            word = words[place]
            if word in OPEN:
                end = _closing(words, place)
                name = self._bracketed(words[place + 1 : end]) if word == "(" else None
                if name is not None:
                    place, word = end, name
            if word in self.names:
                name = word
                if words[place + 1 : place + 2] == ["here"]:
                    name, place = word + HERE, place + 1
                leaves[name] = self.names[word]
                word = name
            text.append(word)
            place += 1
        return " ".join(text), leaves

    def _bracketed(self, inside: Words) -> str | None:
        """A name for what stands in brackets if that is a variable by itself: a head's phrase, or a table. The same
        words are the same variable.
        """
        key = " ".join(inside)
        if key not in self._bracketed_names:
            gathered = self._gathered(inside)
            if gathered is None and inside[:1] == ["{"] and inside[-1] == "]":
                gathered = self._formula(inside)
            if gathered is None:
                return None
            self._bracketed_names[key] = f"gathered_{len(self.names)}__"
            self.names[self._bracketed_names[key]] = gathered
        return self._bracketed_names[key]

    def _formula(self, words: Words) -> Variable:
        text, leaves = self._leaves(words)
        listed = _table(text, leaves)
        if listed is not None:
            return listed
        if any(leaf.numerical for leaf in leaves.values()):
            return _linear(text, leaves)
        names, variables = list(leaves), list(leaves.values())
        if len(leaves) == 1 and text == names[0]:
            return variables[0]
        if not leaves:
            constant = read_formula(text, ("none__",))
            return Map(lambda place: constant(place), indices)
        return _mapped(read_formula(text, tuple(names)), variables) if len(leaves) <= 3 else _refuse(text)


def _refuse(text: str) -> Variable:
    raise BadInput(f"formulas: {text!r:.60} reads more than three variables; give one of its parts a line")


def _mapped(function: Any, variables: list[Variable]) -> Variable:
    """A function of one, two or three variables."""
    if len(variables) == 1:
        return Map(lambda x: function(x), variables[0])
    if len(variables) == 2:
        return SequenceMap(lambda x, y: function(x, y), variables[0], variables[1])
    pair = SequenceMap(lambda x, y: (x, y), variables[0], variables[1])
    return SequenceMap(lambda xy, z: function(xy[0], xy[1], z), pair, variables[2])


def _table(text: str, leaves: dict[str, Variable]) -> Variable | None:
    """`{...}[x, y]`."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(f"formulas: {text!r:.60} is not a formula") from None
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Dict):
        return None
    try:
        table = ast.literal_eval(node.value)
    except (ValueError, TypeError, RecursionError, MemoryError):  # TypeError: a list as a key
        raise BadInput(f"formulas: {text!r:.60}: a table holds nothing but values") from None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    if len(names) != len(parts) or any(name not in leaves for name in names) or len(names) > 3:
        raise BadInput(f"formulas: {text!r:.60}: a table is looked up by up to three variables")
    variables = [leaves[name] for name in names]
    return _mapped(_look_up(table), variables)


def _look_up(table: dict[Any, Value]) -> Callable[..., Value]:
    def looked_up(*key: Value) -> Value:
        return table.get(key if len(key) > 1 else next(iter(key)))

    return looked_up


def _linear(text: str, leaves: dict[str, Variable]) -> Variable:
    """A weighted sum of variables that are numbers."""
    factors, constant = _weights(ast.parse(text.strip(), mode="eval").body, text)
    terms: list[tuple[Variable, float]] = [(leaves[name], factor) for name, factor in factors.items()]
    if len(terms) == 1 and terms[0][1] == 1 and not constant:
        return terms[0][0]
    if constant or len(terms) == 1:
        terms.append((Map(lambda place: 1, indices), constant))
    (total, factor), *rest = terms
    for other, weight in rest:
        total, factor = LinearSequenceMap(total, other, x_factor=factor, y_factor=weight), 1.0
    return total


def _weights(node: ast.expr, text: str) -> tuple[dict[str, float], float]:
    match node:
        case ast.Name(id=name):
            return {name: 1.0}, 0.0
        case ast.Constant(value=int() | float() as value):
            return {}, float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            factors, constant = _weights(operand, text)
            return {name: -factor for name, factor in factors.items()}, -constant
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            (one, first), (two, second) = _weights(left, text), _weights(right, text)
            sign = 1 if isinstance(op, ast.Add) else -1
            names = dict.fromkeys([*one, *two])
            return {n: one.get(n, 0.0) + sign * two.get(n, 0.0) for n in names}, first + sign * second
        case ast.BinOp(left=ast.Constant(value=int() | float() as factor), op=ast.Mult(), right=right):
            factors, constant = _weights(right, text)
            return {name: factor * each for name, each in factors.items()}, factor * constant
    raise BadInput(f"formulas: {text!r:.60}: shares and means can only be added up, each times a number")


def _default(words: Words) -> tuple[Words, Value]:
    """The words before `else`, outside brackets and outside any `if`, and the value after it."""
    parts = _split(words, "else")
    if parts is None or "if" in parts[0] or not (_split(words, "at") or words[:2] == ["most", "frequent"]):
        return words, None
    try:
        return parts[0], ast.literal_eval(" ".join(parts[1]))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise BadInput(f"formulas: {' '.join(parts[1])!r:.40} after 'else' is not a value") from None


def _closing(words: Words, place: int) -> int:
    depth = 0
    for end in range(place, len(words)):
        depth += (words[end] in OPEN) - (words[end] in CLOSE)
        if not depth:
            return end
    raise BadInput("formulas: a bracket does not close")
