"""Formulas of strangers: each is refused in one line or computes a small value at once, whatever it was written for."""

import pytest

from vesalius.errors import BadInput
from vesalius.rasp.formula import LARGEST_VALUE, LONGEST, LONGEST_VALUE, read_formula
from vesalius_programs.phrase_reader import read_phrased

#: Formulas that would compute without end, or fill the memory, if they were computed as they stand.
EXPENSIVE = {
    "a power of ten by rounding": "round(1, -999999 * 1000)",
    "the same of a value": "round(x, 0 - y)",
    "a power of ten to the right": "round(0.5, 999999 * 1000)",
    "a product of large numbers": " * ".join(["999999"] * 33),
    "a text twice and again": "(" + " + ".join(["x"] * 70) + ")",
    "a text times a number": "str(x) * 999999",
    "a tuple times a number": "(x, x) * 999999",
    "a text by a format": "'%999999d' % x",
    "digits of a product": "str(" + " * ".join(["999999"] * 33) + ")",
    "digits as a number": "int('9' + '" + "9" * 250 + "')",
    "many arguments": "max(" + ",".join(["x"] * 140) + ")",
    "a large quotient": "999999 // 1e-300",
    "infinity": "float('inf')",
    "no number": "float('nan')",
    "infinity as a whole number": "int(float('inf'))",
}
#: Formulas that reach for something, or break their reader.
REFUSED = {
    "half a character": "'\ud800'",
    "half a character outside a text": "\ud800",
    "a null byte": "x\0",
    "brackets": "(" * (LONGEST // 2),
    "too long": "x + " * LONGEST + "x",
    "two lines": "x\n__import__('os')",
    "a statement": "x = 1",
    "an assignment inside": "(y := x)",
    "a format": "f'{x.__class__}'",
    "a key": "max(x, key=str)",
    "a star": "max(*x)",
    "a star of names": "max(**x)",
    "another function": "getattr(x, 'real')",
    "a function by a function": "(str)(x)(x)",
    "a name of ours": "_FUNCTIONS",
    "a comprehension": "[x for x in x]",
    "a generator": "sum(i for i in x)",
    "bytes": "b'x'",
    "a complex number": "1j",
    "an ellipsis": "...",
    "an await": "await x",
    "an attribute of a text": "''.join",
    "an index": "(x, x)[0]",
    "a matrix product": "x @ x",
    "a shift": "1 << 999999",
    "a large number": "1e999",
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_no_formula_is_expensive(name: str) -> None:
    function = read_formula(EXPENSIVE[name], ("x", "y"))
    for x, y in ((LARGEST_VALUE, LARGEST_VALUE), ("9" * LONGEST_VALUE, 1), (-1.5, LARGEST_VALUE), (None, None)):
        value = function(x, y)
        assert value is None or len(str(value)) <= LONGEST_VALUE


@pytest.mark.parametrize("name", REFUSED)
def test_no_formula_reaches_anything_or_breaks_its_reader(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_formula(REFUSED[name], ("x", "y"))
    assert "\n" not in str(refused.value)


def test_rounding_still_rounds() -> None:
    assert read_formula("round(x)", ("x",))(2.6) == 3
    assert read_formula("round(x, 1)", ("x",))(2.64) == 2.6
    assert read_formula("round(x, -1)", ("x",))(126) == 130


@pytest.mark.parametrize(
    "text",
    [
        "return {[1]: 2}[token]",
        "return {{}: 2}[token]",
        "return {1: __import__}[token]",
        "return {" + "[" * 90 + "]" * 90 + ": 1}[token]",
        "return '\ud800'",
        "return token at position 0 else {[1]: 2}",
    ],
)
def test_no_table_breaks_its_reader(text: str) -> None:
    with pytest.raises(BadInput):
        read_phrased(text, vocab=["a", "b"], max_len=3, causal=True)
