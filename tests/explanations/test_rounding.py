"""Numbers of a program keep the decimals that make a difference and no others."""

import pytest

import vesalius as ves
from vesalius.components import Component
from vesalius.model.specimen import FiniteVocabulary
from vesalius_programs.gathering import Mean
from vesalius_programs.program import MEAN_SCALE, CircuitProgram, Linear, OutputMap, StraightLine, Table
from vesalius_programs.runs import CircuitRuns, RecordedRun, draw_sequences
from vesalius_programs.simplify import with_few_decimals

FLAG, SHARE, SUM = Component(0), Component(1, 2), Component(1)
VARIABLES = {FLAG: Table(("tokens",), {(0,): 0, (1,): 0, (2,): 0, (3,): 1}, 2), SHARE: Mean("L0_MLP", 1)}


@pytest.fixture(scope="module")
def held_out() -> RecordedRun:
    specimen = ves.load("frac_prevs")
    assert isinstance(specimen.vocabulary, FiniteVocabulary)
    runs = CircuitRuns(specimen, specimen.vocabulary, [FLAG, SHARE])
    return runs.record(draw_sequences(specimen, 200, seed=4, natural_share=1.0))


def on_a_line(factor: float, offset: float, *, numeric: bool = True) -> CircuitProgram:
    line = StraightLine(factor, offset, MEAN_SCALE)
    return CircuitProgram(VARIABLES, OutputMap(("L1H2",), {}, 0.0, line), causal=True, numeric=numeric)


@pytest.mark.parametrize(
    ("fitted", "kept"),
    [
        ((1.00013757, 0.0000156), (1.0, 0.0)),
        ((1.00013626, -0.0000156), (1.0, 0.0)),
        ((0.9961, 0.0038), (1.0, 0.0)),
        ((0.9786, 0.0214), (0.98, 0.02)),  # 1 and 0 would move an output by two hundredths
        ((0.5, 0.25), (0.5, 0.25)),
    ],
)
def test_a_line_keeps_the_decimals_that_move_an_output(
    held_out: RecordedRun, fitted: tuple[float, float], kept: tuple[float, float]
) -> None:
    output = with_few_decimals(on_a_line(*fitted), held_out).output
    assert output is not None
    assert output.line == StraightLine(*kept, MEAN_SCALE)
    assert "-" not in str(output.line.offset)


def test_an_entry_of_a_table_moves_little_whether_or_not_an_input_reaches_it(held_out: RecordedRun) -> None:
    table = {(0,): 0.0057, (1,): 0.9924, (7,): 0.4785}
    program = CircuitProgram({FLAG: VARIABLES[FLAG]}, OutputMap(("L0_MLP",), table, 0.3333), causal=True, numeric=True)
    output = with_few_decimals(program, held_out).output
    assert output is not None
    assert output.table == {(0,): 0.01, (1,): 0.99, (7,): 0.48}
    assert output.default == 0.33


def test_weights_are_rounded_with_the_rest(held_out: RecordedRun) -> None:
    variables = {**VARIABLES, SUM: Linear(("L1H2",), (1.00027,), 0.00006)}
    output = OutputMap(("L1_MLP",), {}, 0.0, StraightLine(0.99989, 0.00001, MEAN_SCALE))
    rounded = with_few_decimals(CircuitProgram(variables, output, causal=True, numeric=True), held_out)
    assert rounded.variables[SUM] == Linear(("L1H2",), (1.0,), 0.0)
    assert rounded.output == OutputMap(("L1_MLP",), {}, 0.0, StraightLine(1.0, 0.0, MEAN_SCALE))


def test_listed_outputs_are_left_as_they_are(held_out: RecordedRun) -> None:
    program = on_a_line(1.00013757, 0.0, numeric=False)
    assert with_few_decimals(program, held_out) is program
