"""Programs as plain data: the round trip is exact, and nothing malformed gets through."""

import contextlib
import copy
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rasp.random_programs import random_program
from vesalius.errors import BadInput
from vesalius.rasp import Map, SequenceMap, compile_program, generate, indices, random_inputs, tokens
from vesalius.rasp.document import from_document, to_document
from vesalius.rasp.helpers import frac_prevs


def again(program):
    return from_document(json.loads(json.dumps(to_document(program), allow_nan=False)))


def assert_same(first, second):
    assert [first.name_of(v) for v in first.tables.domains] == [second.name_of(v) for v in second.tables.domains]
    for one, two in zip(first.expressions, second.expressions, strict=True):
        assert type(one) is type(two)
        if one in first.tables.domains:
            assert first.value_list(one) == second.value_list(two)
            assert [type(v) for v in first.value_list(one)] == [type(v) for v in second.value_list(two)]
    assert [p.variables for p in first.components] == [p.variables for p in second.components]
    assert (first.vocab, first.max_len, first.causal, first.name, first.description) == (
        second.vocab,
        second.max_len,
        second.causal,
        second.name,
        second.description,
    )
    inputs = random_inputs(first, 16, seed=1, min_length=1)
    for name, value in first.run(*inputs).values.items():
        assert torch.equal(value, second.run(*inputs).values[name])


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_any_program_survives_the_round_trip(seed):
    try:
        program = random_program(seed)
    except BadInput:
        return
    assert_same(program, again(program))
    assert to_document(again(program)) == to_document(program)


def test_generated_programs_survive_the_round_trip():
    for task in generate(3, 8, 3):
        assert_same(task.program, again(task.program))


def test_infinities_and_tuples_are_kept():
    program = compile_program(
        Map({"a": float("inf"), "b": (1, ("u", -float("inf")))}.get, tokens), ["a", "b"], 3, causal=False
    )
    assert again(program).outputs == (float("inf"), (1, ("u", -float("inf"))))


def test_what_most_entries_of_a_long_table_have_in_common_is_said_once():
    near = SequenceMap(lambda x, y: int(x == y), tokens, indices)
    program = compile_program(near, list(range(20)), 20, causal=False)
    entry = to_document(program)["nodes"][-1]
    assert (len(entry["table"]), entry["otherwise"]) == (20, 0)
    assert_same(program, again(program))


def document():
    return to_document(compile_program(frac_prevs(Map(lambda t: t == "x", tokens)), ["x", "y"], 4, causal=True))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda d: d.pop("vocab"), "lacks 'vocab'"),
        (lambda d: d.update(code="import os"), "unknown field 'code'"),
        (lambda d: d.update(schema=9), "schema 9"),
        (lambda d: d.update(output=99), "99 is no earlier node"),
        (lambda d: d.update(nodes=[]), "nodes must be"),
        (lambda d: d.update(vocab="xy"), "vocab is of type str"),
        (lambda d: d.update(max_len=0), "max_len=0"),
        (lambda d: d["nodes"].append({"op": "exec"}), "is not a node"),
        (lambda d: d["nodes"].append({"op": "select", "inputs": [0, 99]}), "99 is no earlier node"),
        (lambda d: d["nodes"].append({"op": "select", "inputs": [0, 0], "comparison": "~"}), "does not exist"),
        (lambda d: d["nodes"].append({"op": "map", "inputs": [0], "table": [["x"]]}), "list of lists of 2"),
        (lambda d: d["nodes"].append({"op": "map", "inputs": [0], "table": [["x", {"y": 1}]]}), "is not known"),
        (lambda d: d["nodes"].append({"op": "map", "inputs": [0], "table": [["x", float("nan")]]}), "NaN"),
        (lambda d: d["nodes"].append({"op": "linear_sequence_map", "inputs": [0, 0], "factors": ["1", 2]}), "finite"),
    ],
)
def test_malformed_documents_are_refused_in_one_line(change, line):
    broken = copy.deepcopy(document())
    change(broken)
    with pytest.raises(BadInput, match=line) as refused:
        from_document(broken)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", [None, [], "program", 3])
def test_other_data_is_refused(given):
    with pytest.raises(BadInput, match="program document is"):
        from_document(given)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=4)))
@settings(max_examples=60, deadline=None)
def test_rubbish_in_the_place_of_a_field_never_gets_past_badinput(rubbish):
    for field in ("name", "vocab", "max_len", "causal", "output", "nodes"):
        broken = {**document(), field: rubbish}
        with contextlib.suppress(BadInput):
            from_document(broken)
    for node in range(len(document()["nodes"])):
        for field in ("op", "inputs", "table", "comparison", "name", "numerical"):
            broken = document()
            if field in broken["nodes"][node]:
                broken["nodes"][node][field] = rubbish
                with contextlib.suppress(BadInput):
                    from_document(broken)
