"""Rivals differ from their program in one named change, and only there."""

import pytest
import torch

from vesalius.explanations.claims.rivals import RIVAL_KINDS, rivals
from vesalius.rasp import Aggregate, Comparison, Map, Select, compile_program, indices, random_inputs, tokens
from vesalius.rasp.language import shift_by
from vesalius_truth.fresh.generator import generate


@pytest.mark.slow
def test_rivals_of_generated_programs_differ_only_downstream_of_the_variable():
    for task in generate(21, 8, 3):
        program = task.program
        batch = random_inputs(program, 64, seed=3)
        before = program.run(*batch).values
        for placed in program.components:
            for rival in rivals(program, placed.variables[:1], seed=1, limit=6):
                after = rival.program.run(*batch).values
                assert rival.kind in RIVAL_KINDS
                assert placed.variables[0] in after
                upstream = [
                    n for n in before if n != placed.variables[0] and not _reads(program, n, placed.variables[0])
                ]
                for name in set(upstream) & set(after):
                    assert torch.equal(after[name], before[name])


def _reads(program, name, variable):
    """Whether a variable depends on another, by the program's graph."""
    by_name = {program.name_of(node): node for node in program.expressions if node.kind != "select"}
    start, goal = (by_name.get(n, by_name.get(n.removesuffix("_head"))) for n in (name, variable))
    queue = [start] if start else []  # an input that this program does not read depends on nothing
    while queue:
        node = queue.pop()
        if node is goal:
            return True
        queue += node.inputs
    return False


def test_a_shift_has_its_neighbours_as_rivals():
    program = compile_program(shift_by(1, tokens, name="moved"), ["a", "b", "c"], 5, causal=False)
    batch = program.encode([["a", "b", "c", "a", "b"]])
    outputs = {
        tuple(rival.program.decode(rival.program.run(*batch).output, batch[1])[0])
        for rival in rivals(program, ["moved"], seed=0, limit=20, kinds=["position"])
    }
    assert (None, "b", "c", "a", "b") in outputs  # its own position, and nothing beyond the edge
    assert (None, None, "a", "b", "c") in outputs


def test_a_shared_selection_is_changed_for_one_reader_only():
    before = Select(indices, indices, Comparison.LT)
    flag = Map(lambda t: int(t == "a"), tokens, name="flag")
    first = Aggregate(before, flag, numerical=True, name="first")
    second = Aggregate(before, first, numerical=True, name="second")
    program = compile_program(second, ["a", "b"], 4, causal=False)
    batch = program.encode([["a", "b", "a", "a"]])
    expected = program.run(*batch).values["first"]
    edited = rivals(program, ["second"], seed=0, limit=3, kinds=["comparison"])
    assert edited
    for rival in edited:
        assert torch.equal(rival.program.run(*batch).values["first"], expected)
        assert not torch.equal(rival.program.run(*batch).output, program.run(*batch).output)


def test_the_same_seed_gives_the_same_rivals():
    program = generate(5, 3, 3)[2].program
    variables = program.components[0].variables
    first, second = (rivals(program, variables, seed=4, limit=8) for _ in range(2))
    assert [rival.label for rival in first] == [rival.label for rival in second]
