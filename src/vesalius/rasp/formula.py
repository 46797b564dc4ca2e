"""Small formulas that a language model may write instead of a table: `x + y`, `x == "a" or x > 2`, `min(x, 3)`.

Read by Python's own parser, then rebuilt from the few parts that are allowed; nothing else is ever evaluated. There is
no power, no repetition of text, no attribute and no rounding to more than 20 digits, so a formula of bounded length
takes bounded time and memory.
"""

import ast
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from vesalius.errors import BadInput, choices

LONGEST = 300
LARGEST = 1_000_000
LARGEST_VALUE, LONGEST_VALUE = 10**9, 64
#: Digits that a number may be rounded to, on either side of the point.
MOST_DIGITS = 20
MOST_FACTORIAL = 20
#: Functions of one number, as they are said.
ELEMENTARY = {
    "sqrt": "square root",
    "cbrt": "cube root",
    "exp": "exponential",
    "log": "natural logarithm",
    "log2": "logarithm to the base 2",
    "log10": "logarithm to the base 10",
    "sin": "sine",
    "cos": "cosine",
    "tan": "tangent",
    "asin": "arcsine",
    "acos": "arccosine",
    "atan": "arctangent",
    "sinh": "hyperbolic sine",
    "cosh": "hyperbolic cosine",
    "tanh": "hyperbolic tangent",
    "factorial": "factorial",
}
Environment = dict[str, object]
Evaluator = Callable[[Environment], Any]
#: What a formula computes with; a value that an operator or a function cannot take raises, and the result is None.
Operator = Callable[[Any, Any], Any]
Function = Callable[..., Any]
Scalar = str | float | bool | None


def _numbers_only(function: Operator) -> Operator:
    """Multiplying a text, or formatting it by %, could fill the memory."""

    def checked(left: object, right: object) -> object:
        if isinstance(left, str | tuple) or isinstance(right, str | tuple):
            raise ValueError("not a number")
        return function(left, right)

    return checked


def _rounded(value: float, digits: int | None = None) -> float:
    """Rounding to the left of the point computes a power of ten, which could take hours."""
    if digits is not None and abs(digits) > MOST_DIGITS:
        raise ValueError("too many digits")
    return round(value, digits)


_BINARY: dict[type, Operator] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _numbers_only(operator.mul),
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _numbers_only(operator.mod),
}
_UNARY: dict[type, Function] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_COMPARE: dict[type, Operator] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


def _factorial(value: object) -> int:
    """Larger factorials than these are no value of a variable."""
    if not isinstance(value, int) or value > MOST_FACTORIAL:
        raise ValueError("not a small whole number")
    return math.factorial(value)


def _of_text(function: Callable[[str], str]) -> Callable[[object], str]:
    def checked(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("not a text")
        return function(value)

    return checked


_FUNCTIONS: dict[str, Function] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": _rounded,
    "int": int,
    "float": float,
    "str": str,
    "len": len,
    **{name: getattr(math, name) for name in ELEMENTARY},
    "factorial": _factorial,
    "upper": _of_text(str.upper),
    "lower": _of_text(str.lower),
    "reverse": _of_text(lambda text: text[::-1]),
}


def read_formula(text: object, names: Sequence[str]) -> Function:
    """The function a formula stands for, of as many values as there are names. What it cannot compute is None."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise BadInput(f"formula {text!r:.60}: write text of at most {LONGEST} characters")
    try:
        part = _part(ast.parse(text.strip(), mode="eval").body, frozenset(names))
    except BadInput:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ValueError: halves of characters
        raise BadInput(f"formula {text!r:.60} is not an expression; write for example '{names[0]} + 1'") from None

    def of_one(x: object) -> Scalar:
        return _defined(part, {names[0]: x})

    def of_two(x: object, y: object) -> Scalar:
        return _defined(part, {names[0]: x, names[1]: y})

    def of_three(x: object, y: object, z: object) -> Scalar:
        return _defined(part, {names[0]: x, names[1]: y, names[2]: z})

    return (of_one, of_two, of_three)[len(names) - 1]


def _defined(part: Evaluator, environment: Environment) -> Scalar:
    try:
        return bounded(part(environment))
    except (TypeError, ValueError, ArithmeticError):
        return None


def bounded(value: object) -> Scalar:
    """A value of a variable, or None where it is too large: values feed on each other from one variable to the next."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_VALUE else None
    if isinstance(value, bool) or value is None:
        return value
    return value if isinstance(value, int | float) and abs(value) <= LARGEST_VALUE else None


def _part(node: ast.AST, names: frozenset[str]) -> Evaluator:
    match node:
        case ast.Constant(value=value) if isinstance(value, bool | str) or (
            isinstance(value, int | float) and abs(value) <= LARGEST
        ):
            return lambda _: value
        case ast.Name(id=name) if name in names:
            return lambda environment: environment[name]
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            members = [_part(part, names) for part in parts]
            return lambda environment: tuple(member(environment) for member in members)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            function, inner = _UNARY[type(op)], _part(operand, names)
            return lambda environment: function(inner(environment))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            combine, one, two = _BINARY[type(op)], _part(left, names), _part(right, names)
            return lambda environment: combine(one(environment), two(environment))
        case ast.BoolOp(op=op, values=values):
            return _boolean(isinstance(op, ast.And), [_part(value, names) for value in values])
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            return _comparison([_part(one, names) for one in (left, *others)], [_COMPARE[type(op)] for op in ops])
        case ast.IfExp(test=test, body=body, orelse=other):
            condition, yes, no = (_part(one, names) for one in (test, body, other))
            return lambda environment: yes(environment) if condition(environment) else no(environment)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            call, given = _FUNCTIONS[name], [_part(argument, names) for argument in arguments]
            return lambda environment: call(*(one(environment) for one in given))
    allowed = f"{choices(sorted(names))}, numbers, texts, + - * / // %, comparisons, and/or/not, if-else, in"
    raise BadInput(f"formula: {ast.unparse(node)!r:.40} is not allowed; use {allowed} and {choices(_FUNCTIONS)}")


def _boolean(every: bool, parts: list[Evaluator]) -> Evaluator:
    combine = all if every else any
    return lambda environment: combine(part(environment) for part in parts)


def _comparison(parts: list[Evaluator], operators: list[Operator]) -> Evaluator:
    def compare(environment: Environment) -> bool:
        values = [part(environment) for part in parts]
        return all(holds(values[i], values[i + 1]) for i, holds in enumerate(operators))

    return compare
