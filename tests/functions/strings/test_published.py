"""The published layout, written here in miniature: both generations, odd characters, missing sources, scripts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vesalius.errors import BadInput, Failed
from vesalius.sandbox import Sandbox
from vesalius_functions import Answer, Box
from vesalius_functions.interpreters import check_askable
from vesalius_functions.interpreters import interpret as interpret_by_name
from vesalius_functions.scripts import definitions, entry
from vesalius_functions.strings import PublishedFunction, grade, interpret, load_published, oracle, unit_tests
from vesalius_functions.strings.program import program
from vesalius_functions.suite import Suite

INPUTS = ['"hello', "don't", "two\nlines", "back\\slash", "Ünï", "  pad ", "A1b2", "tail'", "xyz", "Zebra crossing"]


def record(name: str, steps: list[tuple[str, tuple[int | str, ...]]]) -> dict[str, Any]:
    """Ten tests of a function; the true pair is the first, second and third of the triplets in turn."""
    made = program(steps, "published")
    tests, answers = [], []
    for i, s in enumerate(INPUTS):
        three = [("wrong", "not it"), ("also wrong", "neither")]
        three.insert(i % 3, (s, made(s)))
        tests.append([[a for a, _ in three], [b for _, b in three]])
        answers.append(i % 3 + 1)
    return {"name": name, "test_vec": tests, "correct_inx": answers}


SECOND = [
    record("f00000", [("get_string_length", ())]),
    record("f00001", [("reverse_string", ()), ("insert_letter", ("q",))]),
]
FIRST = [record("f00000", [("reverse_string", ())]), record("f00001", [("string_concatenate", ("ab",))])]
PROSE = [
    {"name": "f00000", "description": ": Gives the length.\n\n", "test_inputs": ': "hello", "don\'t", “x y”'},
    {"name": "f00001", "description": "Reverses.", "test_inputs": ": a, b c, "},
]
SCRIPT = """import sys
VOWELS = set("aeiou")

def function1(x):
    return x[: len(x) // 2] + "q" + x[len(x) // 2 :]

def function2(x):
    return x[::-1]

def function(x):
    return function1(function2(x))

if __name__ == "__main__":
    args = sys.argv[1:]
    print("Function input - output pairs: ", [(a, function(a)) for a in args])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "strings").mkdir()
    write(tmp_path / "strings" / "unit_test_data.json", SECOND)
    write(tmp_path / "strings" / "test_data.json", PROSE)
    return tmp_path


def write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def test_pairs_and_descriptions_are_read(folder: Path) -> None:
    first, second = load_published(folder)
    assert (first.id, first.generation, first.source, first.mode) == ("f00000", "v1", "missing", "published")
    assert [s for s, _ in first.tests] == INPUTS
    assert first.tests[2] == ("two\nlines", "nine")
    assert second.tests[1] == ("don't", "t'qnod")
    assert first.description == "Gives the length."
    assert load_published(folder / "strings") == [first, second]


@pytest.mark.parametrize("text", ["[]", "{}", "[1", json.dumps([{**PROSE[0], "name": ".."}, 7])])
def test_descriptions_that_cannot_be_read_are_none(folder: Path, text: str) -> None:
    (folder / "strings" / "test_data.json").write_text(text, encoding="utf-8")
    assert [function.description for function in load_published(folder)] == ["", ""]


def test_descriptions_are_found_under_any_path(folder: Path) -> None:
    write(folder / "strings" / "test_data.json", [{**PROSE[0], "name": "/data/strings/f00000"}])
    assert load_published(folder)[0].description == "Gives the length."


def test_the_first_generation_is_recognised(tmp_path: Path) -> None:
    write(tmp_path / "eval_data_strings.json", FIRST)
    assert {f.generation for f in load_published(tmp_path)} == {"v0"}
    write(tmp_path / "eval_data_strings.json", SECOND)  # content outweighs the name
    assert {f.generation for f in load_published(tmp_path)} == {"v1"}


def test_many_functions_without_number_words_are_of_the_first_generation(tmp_path: Path) -> None:
    write(tmp_path / "unit_test_data.json", [FIRST[0] | {"name": f"f{i:05d}"} for i in range(50)])
    assert {f.generation for f in load_published(tmp_path)} == {"v0"}


@pytest.mark.slow
def test_a_program_that_agrees_with_all_pairs_stands_in_for_a_missing_source(folder: Path, sandbox: Sandbox) -> None:
    first, _ = load_published(folder)
    stored, unknown, number = first.replies(["don't", "other!!", 5])
    assert (stored.value, unknown.value) == ("five", "seven")
    assert number.error == "the input is a int; this function takes a string"
    assert first.fresh(5, seed=0) == []  # what the stand-in says is not the truth to be graded by
    answer = interpret(Box(first, budget=100))
    scored = grade(first, answer, sandbox=sandbox)
    assert (scored.metrics["exact_match"], scored.metrics["exact_held_out"]) == (1, None)


@pytest.mark.slow
def test_where_nothing_stands_in_only_stored_inputs_are_answered(folder: Path) -> None:
    odd = record("f00000", [("reverse_string", ())])
    odd["test_vec"][0][1][0] = "something else"
    write(folder / "strings" / "unit_test_data.json", [odd])
    suite = Suite("strings", dataset=str(folder))
    (function,) = suite.functions()
    stored, unknown = function.replies(["don't", "other"])
    assert stored.value == "t'nod"
    assert "no program of two operations agrees with all its 10 stored pairs" in (unknown.error or "")
    with pytest.raises(Failed, match=r"published without its source.*only the oracle"):
        interpret_by_name("builtin", function, Box(function), suite=suite)
    assert interpret_by_name("oracle", function, Box(function), suite=suite).answer.table


def test_a_correct_program_scores_one_on_the_pairs_of_its_generation(folder: Path, sandbox: Sandbox) -> None:
    for function in load_published(folder):
        answer = oracle(function)
        assert not answer.table
        scored = grade(function, answer, sandbox=sandbox)
        assert (scored.metrics["exact_match"], scored.metrics["unit_test"]) == (1, 1)
        assert scored.metrics["exact_held_out"] is None
        assert scored.metrics["understood"] is None


def test_the_same_program_fails_on_the_other_generation(folder: Path, tmp_path: Path, sandbox: Sandbox) -> None:
    second = load_published(folder)[0]
    write(tmp_path / "eval_data_strings.json", FIRST)
    first = PublishedFunction("f00000", "v0", load_published(tmp_path / "strings")[1].triplets)
    assert grade(first, oracle(second), sandbox=sandbox).metrics["exact_match"] == 0


def test_pairs_that_no_program_explains_are_a_table(sandbox: Sandbox, folder: Path) -> None:
    odd = [record("f00000", [("reverse_string", ())])]
    odd[0]["test_vec"][0][1][0] = "something else"
    write(folder / "strings" / "unit_test_data.json", odd)
    function = load_published(folder)[0]
    answer = oracle(function)
    assert answer.table
    assert grade(function, answer, sandbox=sandbox).metrics["exact_match"] == 1


def test_scripts_run_in_the_sandbox(folder: Path, sandbox: Sandbox) -> None:
    (folder / "strings" / "f00001").mkdir()
    (folder / "strings" / "f00001" / "function_code.py").write_text(SCRIPT)
    without, function = load_published(folder)
    assert (without.source, function.source) == ("missing", "script")
    assert [reply.value for reply in function.replies(["abcd", "it's"])] == ["dcqba", "s'qti"]
    assert function.replies([4, ""])[0].error == "the input is a int; this function takes a string"
    scored = grade(function, oracle(function), sandbox=sandbox)
    assert scored.metrics["exact_match"] == scored.metrics["exact_held_out"] == 1


def test_scripts_of_the_other_generation_are_refused(folder: Path, sandbox: Sandbox) -> None:
    (folder / "strings" / "f00001").mkdir()
    (folder / "strings" / "f00001" / "function_code.py").write_text("def function(x):\n    return x.upper()\n")
    with pytest.raises(BadInput, match="of another generation"):
        load_published(folder)


def test_a_script_is_cut_down_to_its_definitions() -> None:
    assert "argv" not in definitions(SCRIPT)
    assert "VOWELS = set('aeiou')" in definitions(SCRIPT)
    assert entry(SCRIPT) == "function"
    assert entry("def a(x): pass\ndef b(x): pass") == "b"
    with pytest.raises(BadInput, match="defines no function"):
        entry("x = 1")
    with pytest.raises(BadInput, match="is not Python"):
        entry("def")


def test_the_unit_tests_of_a_published_function_are_its_own(folder: Path) -> None:
    first = load_published(folder)[0]
    tests = unit_tests(first, seed=3)
    assert [t.correct for t in tests] == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert tests[1].inputs == ("wrong", "don't", "also wrong")


@pytest.mark.parametrize(("document", "said"), [
    ("not json", "not readable as JSON"),
    ([{"name": "f00000"}], "not in the published layout: at test_vec"),
    ([SECOND[0] | {"correct_inx": [4] * 10}], "at correct_inx.0"),
    ([SECOND[0] | {"correct_inx": [1]}], "10 tests and 1 answers"),
])  # fmt: skip
def test_files_in_another_layout_are_refused(folder: Path, document: object, said: str) -> None:
    path = folder / "strings" / "unit_test_data.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(BadInput) as refusal:
        load_published(folder)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_folder_without_string_functions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no strings/unit_test_data\.json nor strings/eval_data_strings\.json"):
        load_published(tmp_path)


def test_an_answer_without_code_gets_nothing(folder: Path, sandbox: Sandbox) -> None:
    scored = grade(load_published(folder)[0], Answer(description="the length"), sandbox=sandbox)
    assert scored.metrics["exact_match"] == 0
    assert scored.fault == "there is no code"


def test_functions_with_a_source_come_first(folder: Path) -> None:
    (folder / "strings" / "f00001").mkdir()
    (folder / "strings" / "f00001" / "function_code.py").write_text("\ufeff" + SCRIPT.replace("\n", "\r\n"))
    mixed = Suite("strings", dataset=str(folder), mode="published")
    assert [function.id for function in mixed.functions()] == ["f00001", "f00000"]
    for function in mixed.functions():
        check_askable(function)


RANDOM_SCRIPT = """import random

def function(x):
    return x + random.choice("abcdefghijklmnopqrstuvwxyz") + str(random.random())
"""


def test_draws_of_a_script_are_those_of_the_call(folder: Path) -> None:
    write(folder / "strings" / "unit_test_data.json", [SECOND[0]])
    (folder / "strings" / "f00000").mkdir()
    path = folder / "strings" / "f00000" / "function_code.py"
    path.write_text("def function(x):\n    raise KeyError(x)\n")  # no outputs, so no wrong ones
    (function,) = load_published(folder)
    function = replace(function, script=RANDOM_SCRIPT)
    together = function.replies(["a", 3, "a"])
    assert together[0] == function.replies(["a"])[0]
    assert together[2] == function.replies(["a"], first_call=2)[0] != together[0]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("raise SystemExit(3)\n", "defines no function"),
        ("def function(x)\n", "is not Python"),
        ("\x00", "is not Python"),
    ],
)
def test_a_script_that_is_none_leaves_one_function_out(folder: Path, script: str, said: str) -> None:
    (folder / "strings" / "f00001").mkdir()
    (folder / "strings" / "f00001" / "function_code.py").write_text(script)
    loaded = load_published(folder)
    assert [function.id for function in loaded] == ["f00000"]
    assert said in loaded.left_out["f00001"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os\nX = 1 / 0\ndef function(x):\n    return x\n", "ZeroDivisionError"),
        ("def function(x):\n    return open('/etc/passwd', 'w').write(x)\n", "Error"),
        ("import socket\ndef function(x):\n    return socket.create_connection(('127.0.0.1', 9))\n", "Error"),
    ],
)
def test_a_hostile_script_harms_its_own_replies(folder: Path, script: str, said: str) -> None:
    (folder / "strings" / "f00001").mkdir()
    (folder / "strings" / "f00001" / "function_code.py").write_text(script)
    hostile = next(function for function in load_published(folder) if function.id == "f00001")
    assert all(said in (reply.error or "") for reply in hostile.replies(["a", "b"]))
