"""Interchange by variables: what a column of the mask stands for may be chosen freely."""

import pytest
import torch

from vesalius.errors import BadInput
from vesalius.rasp import Map, SequenceMap, compile_program, hist, random_inputs, tokens
from vesalius_truth.fresh.generator import generate


def test_the_default_carriers_are_the_placed_components():
    for task in generate(11, 6, 3):
        program = task.program
        base, source = (program.run(*random_inputs(program, 32, seed=seed)) for seed in (1, 2))
        patched = torch.rand(32, len(program.components)) < 0.5
        named = [placed.variables for placed in program.components]
        expected = program.interchange(base, source, patched)
        assert torch.equal(program.interchange(base, source, patched, carriers=named), expected)


def program():
    count = hist(tokens, name="count")
    return compile_program(
        SequenceMap(lambda t, n: f"{t}{n}", Map(str.upper, tokens, name="upper"), count, name="both"),
        ["a", "b"],
        3,
        causal=False,
    )


@pytest.mark.parametrize(
    ("carriers", "answer"),
    [([["upper"]], ["B2", "B2", "B1"]), ([["count"]], ["A3", "A3", "B3"]), ([["upper", "count"]], ["B3", "B3", "B3"])],
)
def test_a_group_carries_its_variables_and_no_others(carriers, answer):
    made = program()
    base, source = made.encode([["a", "a", "b"]]), made.encode([["b", "b", "b"]])
    output = made.interchange(base, source, torch.ones(1, 1, dtype=torch.bool), carriers=carriers)
    assert made.decode(output, base[1]) == [answer]


def test_a_variable_in_two_groups_is_patched_by_either():
    made = program()
    base, source = made.encode([["a", "a", "b"]] * 3), made.encode([["b", "b", "b"]] * 3)
    patched = torch.tensor([[True, False], [False, True], [False, False]])
    output = made.interchange(base, source, patched, carriers=[["upper"], ["upper", "count"]])
    assert made.decode(output, base[1]) == [["B2", "B2", "B1"], ["B3", "B3", "B3"], ["A2", "A2", "B1"]]


@pytest.mark.parametrize("carriers", [[["tokens"]], [["nothing"]], [[]] * 2])
def test_bad_carriers_are_refused(carriers):
    made = program()
    batch = made.encode([["a"]])
    with pytest.raises(BadInput):
        made.interchange(batch, batch, torch.ones(1, 1, dtype=torch.bool), carriers=carriers)
