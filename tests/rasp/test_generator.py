"""The generator's promises: valid, non-trivial, different, reproducible, writable."""

import pytest
import torch

from tests.rasp.test_spec import assert_identical
from vesalius.errors import BadInput, Failed
from vesalius.rasp import (
    Aggregate,
    Comparison,
    Map,
    Role,
    Select,
    SequenceMap,
    compile_program,
    hist,
    indices,
    length,
    load_spec,
    random_inputs,
    roles_of,
    tokens,
)
from vesalius.rasp.inputs import interchange_effects
from vesalius.rasp.language import shift_by
from vesalius_truth.fresh.generator import behaviour_signature, generate, is_trivial


@pytest.fixture(scope="module")
def tasks():
    return generate(3, 20, 4)


def test_sizes_are_trainable_and_all_roles_occur(tasks):
    assert {role for task in tasks for role in roles_of(task.program).values()} == set(Role)
    for task in tasks:
        assert 1 <= len(task.program.components) <= 6
        assert 3 <= len(task.program.vocab) <= 12
        assert 5 <= task.program.max_len <= 9
        assert len(task.program.outputs) <= 20
        assert task.description.endswith(".")
    assert len({len(task.program.components) for task in tasks}) >= 4


@pytest.mark.slow
def test_five_tasks_already_cover_the_five_roles_at_every_depth():
    for depth in (1, 2, 5):
        found = {role for task in generate(11, 5, depth) for role in roles_of(task.program).values()}
        assert found == set(Role)


def test_no_task_is_trivial(tasks):
    for task in tasks:
        program = task.program
        codes, lengths = random_inputs(program, 400, seed=99)
        trace = program.run(codes, lengths)
        assert len(trace.output[codes >= 0].unique()) > 1
        said = program.decode(trace.output, lengths)
        heard = [[program.vocab[c] for c in row if c >= 0] for row in codes.tolist()]
        assert said != heard
        assert min(interchange_effects(program, seed=123).values()) > 0


@pytest.mark.slow
def test_the_seed_decides_and_a_longer_list_begins_with_the_shorter(tasks):
    again = generate(3, 8, 4)
    assert [task.spec for task in again] == [task.spec for task in tasks[:8]]
    assert [task.spec for task in generate(4, 8, 4)] != [task.spec for task in again]


@pytest.mark.slow
def test_behaviours_are_pairwise_different(tasks):
    assert len({behaviour_signature(task.program) for task in tasks}) == len(tasks)


def test_a_written_task_loads_as_the_same_program(tasks, tmp_path):
    for task in tasks:
        path = task.write(tmp_path / "tasks")
        assert path.name == f"{task.name}.py"
        assert_identical(task.program, load_spec(path))


def compiled(variable, vocab=("a", "b", "c", "d"), max_len=5):
    return compile_program(variable, list(vocab), max_len, causal=False)


def test_the_signature_ignores_names_and_nothing_else():
    is_a = compiled(Map(lambda t: t == "a", tokens))
    renamed = compiled(Map(lambda t: "yes" if t == 9 else "no", tokens), (7, 8, 9, 10))
    two = compiled(Map(lambda t: t in "ab", tokens))
    assert behaviour_signature(is_a) == behaviour_signature(renamed)
    others = [is_a, two, compiled(hist(tokens)), compiled(shift_by(1, tokens)), compiled(shift_by(-1, tokens))]
    assert len({behaviour_signature(program) for program in others}) == len(others)


def test_the_signature_sees_how_outputs_hang_on_inputs():
    opposite = SequenceMap(lambda n, i: n - 1 - i, length(), indices)
    mirror = compiled(Aggregate(Select(indices, opposite, Comparison.EQ), tokens))
    assert behaviour_signature(mirror) != behaviour_signature(compiled(Map(str.upper, tokens)))


@pytest.mark.parametrize(
    "variable",
    [
        Map(lambda t: 1, tokens),
        Aggregate(Select(indices, indices, Comparison.EQ), tokens),
        Map(lambda t: t, tokens),
        Map(lambda i: i % 2, indices),  # position only: no interchange shows
    ],
)
def test_trivial_programs_are_recognised(variable):
    assert is_trivial(compiled(variable))


def test_a_useful_program_is_not_trivial():
    assert not is_trivial(compiled(hist(tokens)))


def test_effects_are_shares_of_changed_outputs():
    program = compiled(Map(lambda t: t == "a", tokens), ("a", "b"))
    # A random source flips the flag at half of the positions it covers; the source ends early now and then.
    [effect] = interchange_effects(program, pairs=4_000).values()
    lengths = torch.tensor([3, 4, 5]).repeat(3), torch.tensor([3, 4, 5]).repeat_interleave(3)
    covered = torch.minimum(*lengths).sum() / lengths[0].sum()
    assert effect == pytest.approx(float(covered) / 2, abs=0.02)


def test_bad_requests_are_refused_in_one_line():
    with pytest.raises(BadInput, match="count=0 asks for no task"):
        generate(0, 0, 3)
    with pytest.raises(BadInput, match="depth=9 is out of range; give a number from 1 to 5"):
        generate(0, 1, 9)


def test_running_out_of_tasks_is_said(monkeypatch):
    monkeypatch.setattr("vesalius_truth.fresh.generator._ATTEMPTS", 1)
    with pytest.raises(Failed, match="different tasks found for seed 0 at depth 1; allow more depth"):
        generate(0, 20, 1)
