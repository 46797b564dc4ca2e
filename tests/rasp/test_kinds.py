"""Every kind of generated task draws what it promises; the interpreter runs it as the slow reading does."""

import random

import pytest
import torch

from tests.rasp.test_spec import assert_identical
from tests.rasp.test_twin import agree, spoken
from tests.rasp.twin import Reading
from vesalius.errors import BadInput
from vesalius.rasp import Aggregate, Select, indices, load_spec, random_inputs, tokens
from vesalius.rasp.inputs import interchange_effects
from vesalius_truth.fresh.generator import generate
from vesalius_truth.fresh.kinds import KINDS

PER_KIND = 5
NEW = [name for name in KINDS if name != "plain"]


@pytest.fixture(scope="module")
def tasks():
    return {name: generate(41, PER_KIND, 4, [name]) for name in NEW}


@pytest.mark.parametrize("kind", NEW)
def test_each_kind_draws_programs_that_run_as_the_slow_reading_says(kind, tasks, tmp_path):
    rng = random.Random(kind)
    for task in tasks[kind]:
        program = task.program
        assert task.kind == kind
        assert KINDS[kind].fewest <= len(program.components) <= KINDS[kind].most
        assert task.description.endswith(".")
        assert kind not in task.name
        sequences = [rng.choices(program.vocab, k=rng.randint(1, program.max_len)) for _ in range(6)]
        trace = program.run(*program.encode(sequences))
        ours = spoken(program, program.output, trace.output, trace.lengths)
        for said, sequence in zip(ours, sequences, strict=True):
            reading = Reading(sequence, program.vocab, program.max_len, program.causal)
            assert agree(program.output, said, reading.of(program.output)), task.description
        assert_identical(program, load_spec(task.write(tmp_path)))


def test_no_component_of_any_kind_is_idle(tasks):
    for kind, drawn in tasks.items():
        for task in drawn:
            assert min(interchange_effects(task.program, seed=77, pairs=2_048).values()) > KINDS[kind].min_effect / 4


def test_redundant_heads_hold_the_same_value(tasks):
    for task in tasks["redundant"]:
        program = task.program
        trace = program.run(*random_inputs(program, 300, seed=5, min_length=1))
        heads = [placed.variables[0] for placed in program.components if placed.kind == "head"]
        assert len(heads) == 2
        assert torch.equal(*(trace.values[name] for name in heads))


def test_rare_answers_are_rare_and_occur(tasks):
    for task in tasks["rare"]:
        program = task.program
        codes, lengths = random_inputs(program, 20_000, seed=6)
        counts = program.run(codes, lengths).output[codes >= 0].unique(return_counts=True)[1]
        assert 0 < int(counts.min()) < 0.025 * int(counts.sum())


def test_pointers_read_where_the_token_says(tasks):
    """A head whose query is made from the tokens and whose key is the position."""
    for task in tasks["pointer"]:
        selects = [node for node in task.program.expressions if isinstance(node, Select)]
        assert all(select.keys is indices and select.queries is not indices for select in selects)


def test_induction_by_hand(tasks):
    plain = [
        task
        for task in tasks["induction"]
        if isinstance(task.program.output, Aggregate) and task.program.output.values is tokens
    ]
    assert plain
    for task in plain:
        a, b, c = task.program.vocab[:3]
        program, blank = task.program, task.program.output.default
        output = program.decode(*[(t := program.run(*program.encode([[a, b, c, a, b]]))).output, t.lengths])[0]
        # The last a was followed by b once before, and by b once more where the future is in view.
        expected = [blank, blank, blank, b, c] if program.causal else [b, c, a, b, c]
        assert output == expected


def test_sorting_by_hand():
    for task in generate(3, 12, 4, ["sort"]):
        program = task.program
        if not task.description.startswith("The tokens from the"):
            continue
        low, middle, high = program.vocab
        ascending = "from the smallest" in task.description
        said = program.run(*program.encode([[high, low, middle, low]]))
        ordered = sorted([high, low, middle, low], reverse=not ascending)
        assert program.decode(said.output, said.lengths) == [ordered]
        return
    pytest.fail("no task of this seed sorts")


def test_deep_programs_have_six_components_or_more(tasks):
    assert min(len(task.program.components) for task in tasks["deep"]) >= 6


def test_kinds_take_turns_and_the_seed_decides():
    mixed = generate(9, 6, 4, ["mean", "rare", "pointer"])
    assert [task.kind for task in mixed] == ["mean", "rare", "pointer"] * 2
    assert [task.spec for task in generate(9, 3, 4, ["mean", "rare", "pointer"])] == [task.spec for task in mixed[:3]]


def test_unknown_kinds_are_refused_in_one_line():
    with pytest.raises(BadInput, match="kind 'sorts' of task does not exist; give one or more of plain, redundant"):
        generate(0, 1, 3, ["sorts"])
    with pytest.raises(BadInput, match="no kind of task is given"):
        generate(0, 1, 3, [])
