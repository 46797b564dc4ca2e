"""The answer of an interpreter that knows the function: its expected value. Its score is the ceiling."""

from typing import Any

from vesalius.errors import BadInput
from vesalius_functions.answer import Answer
from vesalius_functions.box import Function
from vesalius_functions.numeric.expressions import formula, number
from vesalius_functions.numeric.function import NOISE, NumericFunction
from vesalius_functions.numeric.programs import formula_program, net_program


def numeric(function: Function) -> NumericFunction:
    """The function, which must be a numeric one."""
    if not isinstance(function, NumericFunction):
        raise BadInput(f"function {function.id} is of category {function.category}, not numeric")
    return function


def oracle(function: Function) -> Answer:
    """The truth as an answer: the conditional mean as code, and the structure as the grader knows it."""
    known = numeric(function)
    truth = known.truth()
    if known.net is not None:
        code = net_program(known.net)
    else:
        text = formula(known.expression, quirks=known.quirks)
        if known.noise is not None and NOISE[known.noise][0]:
            text = f"({text}) + {number(NOISE[known.noise][0])}"
        corruption = known.corruption
        interval = None if corruption is None else (corruption.shape, corruption.boundary, corruption.mean)
        code = formula_program(text, interval=interval)
    structure = {
        key: truth[key] for key in ("family", "operands", "params", "noise", "interval", "outside") if key in truth
    }
    return Answer(
        description=f"{truth['kind']} {truth['family']}: {truth['formula']}",
        domain=None if truth["interval"] is None else _domain(truth),
        code=code,
        structure=structure,
        interpreter="oracle",
    )


def _domain(truth: dict[str, Any]) -> str:
    where = "outside" if truth.get("outside") else "in"
    return f"noise about {truth['corrupted_mean']:g} {where} {truth['interval']}"
