"""Scores of right, wrong, hostile and tabulated answers, and the unit tests they are scored by."""

from typing import Any

import pytest

from tests.functions.test_box import Halves
from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions import Answer, Grade
from vesalius_functions.box import Mode
from vesalius_functions.strings import StringFunction, grade, oracle, program, sample, unit_tests
from vesalius_functions.strings.grading import is_rule
from vesalius_functions.strings.program import Step, StringProgram, library
from vesalius_functions.strings.suite import run


def function(mode: Mode = "fixed") -> StringFunction:
    bare = StringFunction("f", program([("reverse_string", ())], mode), mode, "grading", ())
    return StringFunction("f", bare.program, mode, "grading", tuple(bare.fresh(10, seed="tests")))


def scored(code: str | None, sandbox: Sandbox, *, mode: Mode = "fixed", table: bool = False) -> Grade:
    return grade(function(mode), Answer(description="", code=code, table=table), sandbox=sandbox)


def test_the_truth_scores_one(sandbox: Sandbox) -> None:
    for drawn in sample(12, seed=13):
        result = grade(drawn, oracle(drawn), sandbox=sandbox)
        assert result.fault is None
        assert set(result.metrics.values()) == {1.0}
        assert [example["right"] for example in result.picture["examples"]] == [True] * 10


def test_what_is_wrong_scores_nothing_and_chance_is_a_third(sandbox: Sandbox) -> None:
    result = scored("def f(s):\n    return ''", sandbox)
    assert result.metrics["exact_match"] == result.metrics["exact_all"] == result.metrics["exact_held_out"] == 0
    assert result.metrics["unit_test"] == pytest.approx(1 / 3)
    assert result.metrics["operations_named"] is None


def test_part_of_the_pairs_is_part_of_the_score(sandbox: Sandbox) -> None:
    known = dict(function().tests[:4])
    result = scored(f"SEEN = {known!r}\ndef f(s):\n    return SEEN.get(s, '?')", sandbox)
    assert result.metrics["exact_match"] == 0.4
    assert result.metrics["exact_all"] == 0
    assert result.metrics["understood"] == 0


def test_the_published_rule_ends_at_the_first_exception(sandbox: Sandbox) -> None:
    third = function("published").tests[2][0]
    code = f"def f(s):\n    if s == {third!r}:\n        raise ValueError('no')\n    return s[::-1]"
    assert scored(code, sandbox, mode="published").metrics["exact_match"] == pytest.approx(2 / 3)
    fixed = code.replace(repr(third), repr(function().tests[2][0]))
    assert scored(fixed, sandbox).metrics["exact_match"] == 0.9


@pytest.mark.parametrize(("code", "fault"), [
    (None, "there is no code"),
    ("  \n", "there is no code"),
    ("def f(s) return s", "the code does not parse"),
    ("x\0y", "the code does not parse"),
    ("(" * 5000, "the code does not parse"),
    ("x = 1", "the code defines no function"),
    ("f = 3", "did not define a function 'f'"),
    ("raise SystemExit\ndef f(s): pass", "SystemExit"),
    ("def f(s, t):\n    return s", "TypeError"),
    ("import os\ndef f(s):\n    return str(os.fork())", "70 of 70 inputs"),
    ("import os\ndef f(s):\n    os._exit(3)", "ended its process"),
    ("def f(s):\n    return 'x' * 10_000_000", "70 of 70 inputs"),
    ("def f(s):\n    return 'x' * 20_000", "the output has more than 10000 characters"),
    ("import builtins\nbuiltins.len = builtins.dict = None\ndef f(s):\n    return len(s)", "70 of 70 inputs"),
    ("def f(s):\n    return f(s)", "RecursionError"),
])  # fmt: skip
def test_code_that_fails_is_a_fault_and_not_a_crash(code: str | None, fault: str, sandbox: Sandbox) -> None:
    result = scored(code, sandbox)
    assert fault in (result.fault or "")
    assert "\n" not in (result.fault or "")
    assert result.metrics["exact_match"] == result.metrics["understood"] == result.metrics["unit_test"] == 0


@pytest.mark.parametrize(
    "operations", [3, "reverse_string", ["reverse_string"], [{"names": "x"}], [{"name": None}], None]
)
def test_operations_that_cannot_be_read_are_one_line_and_wrong(operations: Any, sandbox: Sandbox) -> None:
    code, structure = "def f(s): return s[::-1]", {"operations": operations}
    result = grade(function(), Answer(description="", code=code, structure=structure), sandbox=sandbox)
    assert (result.metrics["operations_named"], result.metrics["exact_match"]) == (0.0, 1.0)
    assert result.fault is not None
    assert result.fault.startswith("structure: `operations` is not a list")
    assert "\n" not in result.fault


def test_a_pair_that_the_code_fails_on_is_never_picked(sandbox: Sandbox) -> None:
    """Whoever answers the right inputs of the tests alone, even wrongly, points at them by failing on the others."""
    own = [s for s, _ in function().tests]
    only_own = f"OWN = {own!r}\ndef f(s):\n    return '' if s in OWN else 1 / 0"
    assert scored(only_own, sandbox).metrics["unit_test"] == 1
    all_but_own = f"OWN = {own!r}\ndef f(s):\n    return s[::-1] if s not in OWN else 1 / 0"
    assert scored(all_but_own, sandbox).metrics["unit_test"] == 0


def test_an_endless_loop_is_stopped(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius_functions.strings.grading._ALL_SECONDS", 1.5)
    result = scored("def f(s):\n    while True:\n        pass", sandbox)
    assert "70 of 70 inputs" in (result.fault or "")
    assert result.metrics["exact_match"] == 0


@pytest.mark.parametrize("value", ["5", "None", "['a']", "b'x'", "object()"])
def test_outputs_that_are_no_strings_are_wrong(value: str, sandbox: Sandbox) -> None:
    assert scored(f"def f(s):\n    return {value}", sandbox).metrics["exact_match"] == 0


def test_the_last_function_counts_where_none_is_named_f(sandbox: Sandbox) -> None:
    code = "def helper(s):\n    return s[::-1]\n\ndef answer(s):\n    return helper(s)\n"
    assert scored(code, sandbox).metrics["exact_match"] == 1
    assert scored("def f(s):\n    return s[::-1]\ndef other(s):\n    return s", sandbox).metrics["exact_match"] == 1
    assert scored("f = lambda s: s[::-1]", sandbox).metrics["exact_match"] == 1


def test_a_table_is_not_understood(sandbox: Sandbox) -> None:
    right = "def f(s):\n    return s[::-1]"
    assert scored(right, sandbox).metrics["understood"] == 1
    assert scored(right, sandbox, table=True).metrics["understood"] == 0
    padded = f"SEEN = {dict.fromkeys(map(str, range(1000)), 'x')!r}\n{right}"
    result = scored(padded, sandbox)
    assert (result.metrics["exact_held_out"], result.metrics["understood"]) == (1, 0)


def test_a_table_in_a_docstring_is_no_rule() -> None:
    table = {f"k{i}": "v" * 20 for i in range(300)}
    code = f'def f(s):\n    """{table}"""\n    import ast\n    return ast.literal_eval(HERE).get(s, s)\n'
    reading = ["f.__doc__", "getattr(f, '__' + 'doc__')", "vars(f)", "globals()['f']", "f.__code__.co_consts[0]"]
    assert not any(is_rule(Answer(description="", code=code.replace("HERE", how))) for how in reading)
    assert is_rule(Answer(description="", code=f'def f(s):\n    """{table}"""\n    return s[::-1]'))


@pytest.mark.parametrize("mode", ["fixed", "published"])
def test_the_true_code_of_every_operation_is_short_enough_for_a_rule(mode: Mode) -> None:
    operations = [op for op in library(mode).values() if not op.random]
    for first, last in zip(operations, reversed(operations), strict=True):
        both = StringProgram(
            tuple(Step(op, op.kind.values[0] if op.kind.values else ("a", "b")) for op in (first, last))
        )
        assert is_rule(Answer(description="", code=both.code)), str(both)


def test_only_string_functions_are_graded(sandbox: Sandbox) -> None:
    with pytest.raises(BadInput, match="category numeric"):
        grade(Halves(), Answer(description=""), sandbox=sandbox)
    with pytest.raises(BadInput, match="category numeric"):
        oracle(Halves())


@pytest.mark.parametrize("mode", ["fixed", "published"])
def test_unit_tests_have_one_right_pair_each(mode: Mode) -> None:
    for drawn in sample(15, seed=14, mode=mode):
        if drawn.program.random:
            continue
        tests = unit_tests(drawn, seed=2)
        assert tests == unit_tests(drawn, seed=2) != unit_tests(drawn, seed=3)
        assert len(tests) == 10
        for number, test in enumerate(tests):
            right = [run(drawn.program, s).value == out for s, out in zip(test.inputs, test.outputs, strict=True)]
            assert right == [i == test.correct for i in range(3)]
            assert test.inputs[test.correct] == drawn.tests[number][0]


def test_relatives_are_harder_to_tell_apart_than_strangers(sandbox: Sandbox) -> None:
    """Code that knows one of two operations does better against unrelated pairs than against related ones."""
    fixed = published = 0.0
    for drawn in [f for f in sample(60, seed=15) if len(f.program.steps) == 2][:15]:
        half = Answer(description="", code=StringProgram(drawn.program.steps[:1]).code)
        fixed += grade(drawn, half, sandbox=sandbox).metrics["unit_test"] or 0
        as_published = StringFunction(drawn.id, drawn.program, "published", drawn.seed, drawn.tests)
        published += grade(as_published, half, sandbox=sandbox).metrics["unit_test"] or 0
    assert fixed < published
