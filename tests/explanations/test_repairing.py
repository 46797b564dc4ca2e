"""Rare entries of tables are put right where natural inputs say so, and only there."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vesalius.components import Component
from vesalius_programs.program import TOKENS, CircuitProgram, OutputMap, Table
from vesalius_programs.repairing import repaired
from vesalius_programs.runs import Sequences
from vesalius_programs.yardstick import Quality

MLP = Component.parse("L0_MLP")
RIGHT = {(0,): 0, (1,): 1, (2,): 2, (3,): 2}
#: 60 inputs of three tokens; the rare token 3 is in the first three.
CODES = torch.tensor([[3, row % 3, 1] if row < 3 else [row % 3, (row // 3) % 3, 2] for row in range(60)])


def with_table(codes: dict[tuple[int, ...], int]) -> CircuitProgram:
    output = OutputMap(("L0_MLP",), {(code,): float(code) for code in range(3)}, 0.0)
    return CircuitProgram({MLP: Table((TOKENS,), codes, 3)}, output, causal=False, numeric=False)


def recorded() -> Any:
    """What a model answers that follows the right table."""
    inputs = Sequences(CODES)
    program = with_table(RIGHT)
    return SimpleNamespace(sequences=inputs, outputs=program.predict(program.environment(inputs)).long())


def yardstick(exchanged_right: dict[tuple[int, ...], float]) -> Any:
    """Exchanges that are predicted as well as is said of a table."""

    def quality(program: CircuitProgram) -> Quality:
        table = program.variables[MLP]
        assert isinstance(table, Table)
        return Quality(1.0, {MLP: exchanged_right.get(tuple(table.codes.values()), 0.9)})

    return SimpleNamespace(quality=quality)


def table_of(program: CircuitProgram) -> dict[tuple[int, ...], int]:
    table = program.variables[MLP]
    assert isinstance(table, Table)
    return dict(table.codes)


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_rare_entry_gets_the_class_that_natural_inputs_show(wrong: int) -> None:
    before = with_table({**RIGHT, (3,): wrong})
    assert table_of(repaired(before, recorded(), yardstick({}))) == RIGHT
    assert table_of(before)[3,] == wrong


def test_an_entry_stays_where_exchanges_are_predicted_worse_without_it() -> None:
    before = with_table({**RIGHT, (3,): 0})
    assert repaired(before, recorded(), yardstick({(0, 1, 2, 0): 1.0})) is before


def test_a_right_program_and_one_that_is_wrong_everywhere_stay() -> None:
    for codes in (RIGHT, {(0,): 1, (1,): 2, (2,): 0, (3,): 0}):
        before = with_table(codes)
        assert repaired(before, recorded(), yardstick({})) is before
