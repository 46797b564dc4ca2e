"""Merging, dropping and moving positions inside, by hand on small programs."""

import pytest
import torch

from vesalius.components import Component
from vesalius_programs.gathering import Copy, Mean
from vesalius_programs.program import INDICES, TOKENS, CircuitProgram, OutputMap, Table
from vesalius_programs.runs import Sequences, exchange_pairings, numbered
from vesalius_programs.settling import with_position_inside
from vesalius_programs.simplify import merged, without_argument, without_constant_arguments

FIRST, SECOND, HEAD = Component.parse("L0_MLP"), Component.parse("L1_MLP"), Component.parse("L1H0")
INPUTS = Sequences(torch.tensor([[0, 1, 2, 3], [3, 2, 1, -1], [1, 1, -1, -1], [2, 0, 3, 0]]))


def program(first: Table, *, second: Table | None = None, output: OutputMap | None = None) -> CircuitProgram:
    variables = {FIRST: first} if second is None else {FIRST: first, SECOND: second}
    return CircuitProgram(variables, output, causal=False, numeric=False)


def outputs(found: CircuitProgram) -> list[list[float]]:
    env = found.environment(INPUTS)
    return found.predict(env).masked_fill(~env.real, -1).tolist()


def apart() -> Table:
    return Table((TOKENS,), {(token,): token for token in range(4)}, 4)


def test_values_that_are_kept_are_those_of_a_program_by_itself() -> None:
    """Programs that differ in one table, or in how a head reads it, one after the other and back on the same inputs."""
    halves = Table((TOKENS,), {(token,): token // 2 for token in range(4)}, 2)
    second = Table(("L0_MLP", "L1H0"), {(a, b): (a + b) % 3 for a in range(4) for b in range(4)}, 3)
    heads = (Copy("L0_MLP", "previous"), Copy("L0_MLP", "first"))
    compared = [
        CircuitProgram({FIRST: first, HEAD: head, SECOND: second}, None, causal=False, numeric=False)
        for head in heads
        for first in (apart(), halves)
    ]
    pairings = exchange_pairings(len(INPUTS), 6, [FIRST, HEAD], seed=0)
    for found in (*compared, *compared[::-1]):
        anew = Sequences(INPUTS.codes.clone())
        kept, computed = found.exchanged(INPUTS, pairings), found.exchanged(anew, pairings.take(torch.arange(12)))
        assert kept.values.keys() == computed.values.keys()
        assert all(torch.equal(kept[name], computed[name]) for name in kept.values)
        assert all(torch.equal(found.environment(INPUTS)[name], found.environment(anew)[name]) for name in kept.values)


@pytest.mark.parametrize("high", [1, 7, 300, 10**9])
def test_numbers_are_those_that_sorting_gives(high: int) -> None:
    keys = torch.randint(-3, high, (200,), generator=torch.Generator().manual_seed(high))
    assert all(map(torch.equal, numbered(keys), keys.unique(return_inverse=True)))


def test_classes_that_the_output_treats_alike_are_one() -> None:
    before = program(apart(), output=OutputMap(("L0_MLP",), {(0,): 7.0, (1,): 8.0, (2,): 7.0, (3,): 8.0}, 0.0))
    after = merged(before, FIRST)
    table = after.variables[FIRST]
    assert isinstance(table, Table)
    assert table.codes == {(0,): 0, (1,): 1, (2,): 0, (3,): 1}
    assert table.n_classes == 2
    assert outputs(after) == outputs(before)


def test_a_reader_that_tells_them_apart_keeps_classes_apart() -> None:
    mean = Mean("L0_MLP", 2)
    before = CircuitProgram(
        {FIRST: apart(), HEAD: mean},
        OutputMap(("L0_MLP",), {(0,): 7.0, (1,): 8.0, (2,): 7.0, (3,): 8.0}, 0.0),
        causal=False,
        numeric=False,
    )
    after = merged(before, FIRST)
    table = after.variables[FIRST]
    assert isinstance(table, Table)
    assert table.codes == {(0,): 0, (1,): 1, (2,): 2, (3,): 1}
    assert after.variables[HEAD] == mean


def test_a_copied_value_is_merged_by_who_reads_the_copy() -> None:
    before = CircuitProgram(
        {FIRST: apart(), HEAD: Copy("L0_MLP", "previous")},
        OutputMap(("L1H0",), {(-1,): 5.0, (0,): 7.0, (1,): 8.0, (2,): 7.0, (3,): 8.0}, 0.0),
        causal=False,
        numeric=False,
    )
    after = merged(before, FIRST)
    assert outputs(after) == outputs(before)
    table = after.variables[FIRST]
    assert isinstance(table, Table)
    assert table.n_classes == 2


def test_classes_that_share_no_context_stay_apart() -> None:
    """Nothing says that they are alike."""
    second = Table(("L0_MLP", INDICES), {(0, 0): 1, (1, 1): 1, (2, 0): 0, (3, 1): 0}, 2)
    before = program(apart(), second=second, output=OutputMap(("L1_MLP",), {(0,): 0.0, (1,): 1.0}, 0.0))
    table = merged(before, FIRST).variables[FIRST]
    assert isinstance(table, Table)
    assert table.codes[(0,)] != table.codes[(2,)]


def test_an_argument_that_a_table_is_constant_in_is_dropped() -> None:
    codes = {(token, place): token % 2 for token in range(4) for place in range(4)}
    found = without_constant_arguments(program(Table((TOKENS, INDICES), codes, 2)), FIRST)
    table = found.variables[FIRST]
    assert isinstance(table, Table)
    assert table.reads == (TOKENS,)
    assert table.codes == {(0,): 0, (1,): 1, (2,): 0, (3,): 1}


def test_a_dropped_argument_leaves_the_most_frequent_entry() -> None:
    codes = {(token, place): token % 2 for token in range(4) for place in range(4)}
    codes[0, 3] = 1  # once among the inputs, against two other zeros
    before = program(Table((TOKENS, INDICES), codes, 2))
    found = without_argument(before, FIRST, INDICES, before.environment(INPUTS))
    assert found is not None
    table = found.variables[FIRST]
    assert isinstance(table, Table)
    assert table.codes == {(0,): 0, (1,): 1, (2,): 0, (3,): 1}
    assert without_argument(found, FIRST, TOKENS, found.environment(INPUTS)) is None


def test_the_position_moves_from_the_reader_into_the_table() -> None:
    second = Table(("L0_MLP", INDICES), {(c, p): (c + p) % 3 for c in range(4) for p in range(4)}, 3)
    output = OutputMap(("L1_MLP",), {(0,): 0.0, (1,): 1.0, (2,): 2.0}, 0.0)
    before = program(apart(), second=second, output=output)
    occurring = {(token, place) for token in range(4) for place in range(4)}
    after = with_position_inside(before, FIRST, INDICES, occurring)
    assert after is not None
    assert after.variables[FIRST].reads == (TOKENS, INDICES)
    assert after.variables[SECOND].reads == ("L0_MLP",)
    assert outputs(after) == outputs(before)
    table = merged(after, FIRST).variables[FIRST]
    assert isinstance(table, Table)
    assert table.n_classes == 3
    assert all(table.codes[c, p] == table.codes[d, q] for c, p, d, q in [(0, 1, 1, 0), (3, 3, 2, 1), (1, 2, 0, 0)])


def test_a_comparing_head_keeps_the_position_out() -> None:
    heads = {FIRST: apart(), HEAD: Copy("L0_MLP", "previous")}
    before = CircuitProgram(heads, OutputMap(("L1H0", INDICES), {}, 0.0), causal=False, numeric=False)
    assert with_position_inside(before, FIRST, INDICES, {(0, 0), (1, 1)}) is None


def test_a_variable_of_the_position_moves_in_like_the_position() -> None:
    """The output reads a token table and the parity of the position; the parity belongs into the later table."""
    parity = Table((INDICES,), {(place,): place % 2 for place in range(4)}, 2)
    cells = {(token, odd): float(token if odd else 0) for token in range(4) for odd in range(2)}
    before = CircuitProgram(
        {FIRST: parity, SECOND: apart()}, OutputMap(("L1_MLP", "L0_MLP"), cells, 0.0), causal=False, numeric=False
    )
    after = with_position_inside(before, SECOND, "L0_MLP", {(token, odd) for token in range(4) for odd in range(2)})
    assert after is not None
    assert after.variables[SECOND].reads == (TOKENS, "L0_MLP")
    assert after.output is not None
    assert after.output.reads == ("L1_MLP",)
    assert outputs(after) == outputs(before)
