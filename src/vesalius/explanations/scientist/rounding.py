"""The numbers of a program with as few decimals as make no difference.

A fit gives 1.00014 where the circuit means 1, and other digits on another machine. Such digits are not part of the
claim, so the numbers of a program (weights, offsets, outputs read off) are rounded to the fewest decimals at which, on
inputs that nothing was fitted on, no output moves noticeably and as many inputs agree with the model as before.
"""

from dataclasses import replace

from vesalius.explanations.scientist.assemble import TOLERANCE, CircuitProgram, OutputMap
from vesalius.explanations.scientist.circuit_runs import RecordedRun
from vesalius.explanations.scientist.validate import agreement
from vesalius.explanations.scientist.variables import Hypothesis, Linear

#: Rounding may move an output by so much, a fifth of what tells two outputs apart.
LARGEST_MOVE = TOLERANCE / 5
MOST_DECIMALS = 6


def with_few_decimals(program: CircuitProgram, held_out: RecordedRun) -> CircuitProgram:
    """The program with its numbers rounded; one without numbers is returned as it is."""
    if not program.numeric or program.output is None:
        return program
    right = int(agreement(program, held_out).sum())
    for decimals in range(MOST_DECIMALS):
        candidate = _rounded(program, decimals)
        if _largest_move(program, candidate, held_out) > LARGEST_MOVE:
            continue
        if int(agreement(candidate, held_out).sum()) >= right:
            return candidate
    return _rounded(program, MOST_DECIMALS)


def _largest_move(program: CircuitProgram, rounded: CircuitProgram, held_out: RecordedRun) -> float:
    """How far an output moves, on the inputs and in any entry of the table: exchanges reach what inputs do not."""
    assert program.output is not None
    assert rounded.output is not None
    envs = [each.environment(held_out.sequences) for each in (program, rounded)]
    moved = (rounded.predict(envs[1]) - program.predict(envs[0]))[envs[0].real].abs()
    if program.output.line is not None:
        return float(moved.max())
    pairs = zip(program.output.table.values(), rounded.output.table.values(), strict=True)
    entries = [abs(before - after) for before, after in pairs]
    return max(float(moved.max()), abs(program.output.default - rounded.output.default), *entries)


def _rounded(program: CircuitProgram, decimals: int) -> CircuitProgram:
    assert program.output is not None
    variables = {component: _variable(variable, decimals) for component, variable in program.variables.items()}
    return replace(program, variables=variables, output=_output(program.output, decimals))


def _variable(variable: Hypothesis, decimals: int) -> Hypothesis:
    if not isinstance(variable, Linear):
        return variable
    weights = tuple(_decimal(weight, decimals) for weight in variable.weights)
    return replace(variable, weights=weights, offset=_decimal(variable.offset, decimals))


def _output(output: OutputMap, decimals: int) -> OutputMap:
    line = output.line
    if line is not None:
        line = replace(line, factor=_decimal(line.factor, decimals), offset=_decimal(line.offset, decimals))
    table = {key: _decimal(value, decimals) for key, value in output.table.items()}
    return replace(output, table=table, default=_decimal(output.default, decimals), line=line)


def _decimal(number: float, decimals: int) -> float:
    return round(number, decimals) + 0.0  # and no minus zero
