"""Programs as plain data: the round trip is exact, and nothing malformed gets through."""

import contextlib
import copy
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rasp.random_programs import random_program
from vesalius.errors import BadInput
from vesalius.rasp import Map, SequenceMap, compile_program, indices, random_inputs, tokens
from vesalius.rasp.document import from_document, to_document
from vesalius.rasp.language import frac_prevs
from vesalius_truth.fresh.generator import generate

GOLDEN = json.loads((Path(__file__).parent / "golden" / "programs.json").read_text())


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


@pytest.mark.slow
@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_any_program_survives_the_round_trip(seed):
    try:
        program = random_program(seed)
    except BadInput:
        return
    assert_same(program, again(program))
    assert to_document(again(program)) == to_document(program)


@pytest.mark.slow
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
    entry = to_document(program)["variables"][-1]
    assert (len(entry["table"]), entry["otherwise"]) == (20, 0)
    assert_same(program, again(program))


def add(document, **entry):
    document["variables"].append({"name": "v", **entry})


def document():
    return to_document(compile_program(frac_prevs(Map(lambda t: t == "x", tokens)), ["x", "y"], 4, causal=True))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda d: d.pop("vocab"), "lacks 'vocab'"),
        (lambda d: d.update(code="import os"), "unknown field 'code'"),
        (lambda d: d.update(schema=9), "schema 9"),
        (lambda d: d.update(output="mean"), "output 'mean' is not a variable; it has tokens, indices, select_1, map_1"),
        (lambda d: d.update(output="select_1"), "output 'select_1' is not a variable"),
        (lambda d: d.update(output=["map_1"]), "is not a variable"),
        (lambda d: d.update(variables={}), "variables must be a list"),
        (lambda d: d.update(vocab="xy"), "vocab is of type str"),
        (lambda d: d.update(max_len=0), "max_len=0"),
        (lambda d: add(d, op="exec"), "variable 'v': op 'exec' does not exist"),
        (lambda d: add(d, op=["map"]), "does not exist"),
        (lambda d: d["variables"].append("map"), "variable 3: needs its own name, not None"),
        (lambda d: add(d, name="map_1", op="map"), "variable 3: needs its own name, not 'map_1'"),
        (lambda d: add(d, name="tokens", op="map"), "needs its own name, not 'tokens'"),
        (lambda d: add(d, op="select", of=["tokens", "w"]), "'w' is not defined before it; there is tokens, indices"),
        (lambda d: add(d, op="select", of=["tokens"]), "select reads 2: keys, queries"),
        (lambda d: add(d, op="select", of=["tokens", "tokens"], comparison="~"), "'~' does not exist"),
        (lambda d: add(d, op="select", of=["tokens", "tokens"]), 'either a "comparison" or the selected "pairs"'),
        (lambda d: add(d, op="map", of=["map_1"], table=[]), "reads the map 'map_1'"),
        (lambda d: add(d, op="map", of=["tokens"]), 'either a "formula" or a "table"'),
        (lambda d: add(d, op="map", of=["tokens"], table=[["x"]]), "list of lists of 2"),
        (lambda d: add(d, op="map", of=["tokens"], table=[["x", {"y": 1}]]), "is not known"),
        (lambda d: add(d, op="map", of=["tokens"], table=[["x", float("nan")]]), "NaN"),
        (lambda d: add(d, op="map", of=["tokens"], table=[["x", 10**400]]), "a number is too large"),
        (lambda d: add(d, op="map", of=["tokens"], table=[["x", 10**305]]), "the number 1e.305 is too large"),
        (lambda d: add(d, op="map", of=["tokens"], formula="x", otherwise=0), "a formula gives every result"),
        (lambda d: add(d, op="map", of=["tokens"], formula="x()"), "is not allowed"),
        (lambda d: add(d, op="linear_sequence_map", of=["tokens"] * 2, factors=["1", 2]), "finite"),
        (lambda d: add(d, op="linear_sequence_map", of=["tokens"] * 2, factors=[10**400, 2]), "too large"),
        (lambda d: add(d, op="aggregate", of=["select_1", "map_1"], mean=True), "unknown field 'mean'"),
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


@pytest.mark.slow
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda x: st.lists(x, max_size=4)))
@settings(max_examples=60, deadline=None)
def test_rubbish_in_the_place_of_a_field_never_gets_past_badinput(rubbish):
    for field in ("name", "vocab", "max_len", "causal", "output", "variables"):
        broken = {**document(), field: rubbish}
        with contextlib.suppress(BadInput):
            from_document(broken)
    for place in range(len(document()["variables"])):
        for field in ("op", "of", "table", "comparison", "name", "numerical"):
            broken = document()
            if field in broken["variables"][place]:
                broken["variables"][place][field] = rubbish
                with contextlib.suppress(BadInput):
                    from_document(broken)
    for broken in ({**GOLDEN[0]["document"], "variables": rubbish}, {**GOLDEN[0]["document"], "output": rubbish}):
        with contextlib.suppress(BadInput):
            from_document(broken)


def test_a_writer_may_leave_out_what_the_specimen_gives_and_write_formulas():
    short = {
        "variables": [
            {"name": "flag", "op": "map", "of": "tokens", "formula": "x == 'x'"},
            {"name": "past", "op": "select", "of": ["indices", "indices"], "comparison": "leq"},
            {"name": "mean", "op": "aggregate", "of": ["past", "flag"], "numerical": True, "default": 0},
        ],
        "output": "mean",
    }
    defaults = {"schema": 2, "name": "program", "description": "", "vocab": ["x", "y"], "max_len": 4, "causal": True}
    program = from_document(short, defaults=defaults)
    assert to_document(program)["variables"][1]["table"] == [["x", True], ["y", False]]
    table = {"name": "flag", "op": "map", "of": ["tokens"], "table": {"x": True, "y": False}}
    same = from_document({**short, "variables": [table, *short["variables"][1:]]}, defaults=defaults)
    assert to_document(same) == to_document(program)
    assert_same(same, from_document({**to_document(program), "vocab": ["x", "y"]}, defaults={"vocab": ["z"]}))


@pytest.mark.parametrize("golden", GOLDEN, ids=["share", "long table", "numbers"])
def test_recorded_documents_give_the_programs_they_gave(golden):
    program = from_document(golden["document"])
    codes, lengths = program.encode(golden["inputs"])
    assert program.decode(program.run(codes, lengths).output, lengths) == golden["outputs"]
    assert [[str(placed.component), list(placed.variables)] for placed in program.components] == golden["components"]
    assert_same(program, again(program))


def test_documents_of_another_schema_and_broken_ones_are_refused_in_one_line():
    operation = {"name": "x", "op": "exec", "of": ["tokens"]}
    for change, line in [
        ({"schema": 1}, "schema 1 is not known; this version reads 2"),
        ({"output": 99}, "output 99 is not a variable"),
        ({"variables": [operation], "output": "x"}, "op 'exec' does not exist"),
    ]:
        with pytest.raises(BadInput, match=line):
            from_document({**GOLDEN[0]["document"], **change})
