"""Grades by hand, hostile code, structure, and the oracle's ceiling."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions.box import Answer, Grade
from vesalius_functions.numeric import NumericFunction, grade, oracle, sample
from vesalius_functions.numeric.expressions import Atom, Expression, Pair
from vesalius_functions.numeric.function import Corruption
from vesalius_functions.numeric.grading import GRID, LONGEST_RULE, held_out_points
from vesalius_functions.submitted import Size, entry_of, size_of


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def function(expression: Expression, **parts: Any) -> NumericFunction:
    parts = {"kind": "clean", "mode": "fixed", **parts}
    return NumericFunction("f00000", expression, noise_key=7, **parts)


LINE = function(Atom("linear", (2.0, 1.0)))


def graded(known: NumericFunction, code: str | None, sandbox: Sandbox, **fields: Any) -> Grade:
    return grade(known, Answer(description="", code=code, **fields), sandbox=sandbox)


def test_the_published_error_by_hand(sandbox: Sandbox) -> None:
    found = graded(function(Atom("constant", (10,))), "def f(x):\n    return 12", sandbox).metrics
    assert found["nmse"] == pytest.approx(0.04)
    assert found["success"] == 1
    assert found["understood"] == 0  # a constant that is a fifth off is not right
    assert graded(function(Atom("constant", (10,))), "def f(x):\n    return 14", sandbox).metrics["success"] == 0


def test_constants_pass_the_published_metric_and_not_the_better_one(sandbox: Sandbox) -> None:
    far = function(Atom("sin", (1.0, 3.0, 0.0, 10.0)))
    found = graded(far, "f = lambda x: 10", sandbox).metrics
    assert found["success"] == 1
    assert found["r2"] == pytest.approx(0, abs=0.01)
    assert found["understood"] == 0


def test_points_without_an_answer_are_left_out(sandbox: Sandbox) -> None:
    log = function(Atom("logarithm", (2.0, 0.0, 2.0)))
    found = graded(log, "import math\ndef f(x):\n    return 2 * math.log2(x)", sandbox)
    assert (found.metrics["success"], found.fault) == (1, None)
    assert found.picture["truth"][0] is None


def test_complex_answers_are_compared_by_modulus(sandbox: Sandbox) -> None:
    root = function(Atom("root", (2.0, 1.0, 2)), mode="published")
    assert graded(root, "def f(x):\n    return 2 * x**0.5 + 1", sandbox).metrics["nmse"] == pytest.approx(0, abs=1e-20)
    real_only = graded(root, "def f(x):\n    return 2 * abs(x)**0.5 + 1", sandbox).metrics
    assert real_only["success"] == 0


def test_noise_counts_in_the_published_metric_and_not_in_the_better_one(sandbox: Sandbox) -> None:
    wave = function(Atom("square_wave", (4.0, 1.0)), kind="noised", noise="normal")
    found = grade(wave, oracle(wave), sandbox=sandbox).metrics
    assert found["nmse"] == pytest.approx(0.5, abs=0.1)
    assert (found["success"], found["r2"], found["understood"]) == (0, 1, 1)


HOSTILE = {
    "import os\ndef f(x):\n    return 2 * x + 1": "imports os",
    "def f(x):\n    import subprocess\n    return 2 * x + 1": "imports subprocess",
    "def f(x):\n    return '9' * 10_000_000": "returned a str",
    "def f(x):\n    return float('inf')": "returned inf",
    "def f(x):\n    return float('nan')": "returned nan",
    "def f(x):\n    return None": "returned a NoneType",
    "def f(x):\n    return [x]": "returned a list",
    "def f(x):\n    return 1 / 0": "ZeroDivisionError",
    "def f(x):\n    return __import__('os').system('true')": "uses __import__",
    "import builtins\n\ndef f(x):\n    return 1": "imports builtins",
    "__builtins__.float = None\n\ndef f(x):\n    return float(x)": "uses __builtins__",
    "float = isinstance = None\n\ndef f(x):\n    return 2 * x + 1": "TypeError",
    "def f(x):\n    raise SystemExit": "",
    "def f(x:": "does not parse",
    "x = 1": "defines no function",
    "": "there is no code",
    "def f(x):\n" + "    return 0\n" * 20_000: "characters, more than",
}


@pytest.mark.parametrize("code", HOSTILE, ids=lambda code: code[:40])
def test_hostile_code_is_a_fault_and_never_a_crash(code: str, sandbox: Sandbox) -> None:
    found = graded(LINE, code, sandbox)
    assert found.metrics["success"] == 0
    assert found.fault is not None
    assert HOSTILE[code] in found.fault
    assert "\n" not in found.fault
    assert graded(LINE, "def f(x):\n    return 2 * x + 1", sandbox).metrics["success"] == 1


def test_a_loop_for_ever_is_stopped(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius_functions.submitted.TOTAL_SECONDS", 1.5)
    found = graded(LINE, "def f(x):\n    while True:\n        pass", sandbox)
    assert found.metrics["success"] == 0
    assert found.fault is not None


def test_a_table_of_the_grid_succeeds_and_is_not_understood(sandbox: Sandbox) -> None:
    values = dict(zip(GRID.tolist(), LINE.clean(GRID).tolist(), strict=True))
    code = f"T = {values}\n\ndef f(x):\n    return T.get(x, 0)"
    found = graded(LINE, code, sandbox).metrics
    assert (found["success"], found["held_out_success"], found["understood"]) == (1, 0, 0)
    size = size_of(code)
    assert size is not None
    assert not size.within(LONGEST_RULE)


CODED = """
def f(x):
    t = min(max((x + 128) / {step}, 0), {last})
    i = int(t)
    a, b = ord(Y[i]) - 40, ord(Y[i + 1]) - 40
    return -255 + {unit} * (a + (b - a) * (t - i))

Y = {values}
"""


@pytest.mark.parametrize("count", [400, 100, 25])
def test_a_table_of_one_character_a_value_is_not_understood(count: int, sandbox: Sandbox) -> None:
    values = "".join(chr(40 + round(85 * i / (count - 1))) for i in range(count))
    unit, step, last = 512 / 85, 256 / (count - 1), count - 1.001
    found = graded(LINE, CODED.format(step=step, last=last, unit=unit, values=repr(values)), sandbox).metrics
    assert (found["r2"] or 0) > 0.99
    assert found["understood"] == 0


def test_a_table_in_a_docstring_is_not_understood(sandbox: Sandbox) -> None:
    values = " ".join(f"{2 * x + 1:g}" for x in GRID)
    code = f"def f(x):\n    '{values}'\n    return float(f.__doc__.split()[min(max(round(x + 127.5), 0), 255)])"
    found = graded(LINE, code, sandbox).metrics
    assert (found["r2"] or 0) > 0.99
    assert (found["code_length"] or 0) < 100
    assert found["understood"] == 0


SPELT = {
    "in names": "a, b = 0, 1\nY = [{}]".format(", ".join("ab" * 60)),
    "in brackets": "Y = [{}]".format(", ".join(["[[]]", "[]"] * 60)),
    "in nested pairs": f"Y = {'(' * 60}0{', 1)' * 60}",
    "in one name": f"Y = list(dict({'abc' * 60}=0))[0]",
    "in one number": f"Y = {'123' * 60}",
    "in short texts": "Y = {}".format(" + ".join(["'abcdefgh'"] * 25)),
}


@pytest.mark.parametrize("table", SPELT.values(), ids=SPELT.keys())
def test_however_a_long_table_is_spelt_it_is_too_large(table: str) -> None:
    size = size_of(f"{table}\n\ndef f(x):\n    return Y[int(x)]")
    assert size is not None
    assert not size.within(LONGEST_RULE)


def test_sizes_by_hand() -> None:
    code = "def f(x):\n    'words'\n    # more\n    return   [10, 'ab']"
    # Nodes: the module, f, its arguments, x, return, the list and its two items.
    assert size_of(code) == Size(characters=len("def f(x):\n    return [10, 'ab']"), literals=4, longest=2, parts=8)
    assert size_of("def f(:") is None


def test_a_rule_marked_as_a_table_is_not_understood(sandbox: Sandbox) -> None:
    code = "def f(x):\n    return 2 * x + 1"
    assert graded(LINE, code, sandbox).metrics["understood"] == 1
    assert graded(LINE, code, sandbox, table=True).metrics["understood"] == 0


def test_which_function_counts() -> None:
    assert entry_of("def f(x): pass\ndef g(x): pass") == "f"
    assert entry_of("def g(x): pass\ndef h(x): pass") == "h"
    assert entry_of("f = lambda x: x\ndef g(x): pass") == "f"


def structured(known: NumericFunction, sandbox: Sandbox, code: str = "def f(x):\n    return 0", **said: Any) -> Any:
    return graded(known, code, sandbox, structure=said).metrics


def test_structure_is_graded_where_there_is_one(sandbox: Sandbox) -> None:
    assert graded(LINE, "def f(x):\n    return 0", sandbox).metrics["family_named"] is None
    assert structured(LINE, sandbox, family="linear")["family_named"] == 1
    assert structured(LINE, sandbox, family="absolute")["family_named"] == 0
    assert structured(LINE, sandbox, family="sum", operands=7)["family_named"] == 0
    assert structured(LINE, sandbox, family="linear", interval=[0, 1])["false_alarm"] == 1
    assert structured(LINE, sandbox, family="linear", noise="normal")["noise_named"] == 0
    wave = function(Atom("cos", (1.0, 3.0, 0.0, 0.0)))
    assert structured(wave, sandbox, family="sin")["family_named"] == 1
    first_root = function(Atom("root", (2.0, 1.0, 1)), mode="published")
    assert structured(first_root, sandbox, family="linear")["family_named"] == 1
    assert structured(first_root, sandbox, family="root")["family_named"] == 1


def test_the_same_function_by_another_name_is_named(sandbox: Sandbox) -> None:
    total = function(Pair("sum", Atom("linear", (1.0, 1.0)), Atom("linear", (1.0, 0.0))))
    right, wrong = "def f(x):\n    return 2 * x + 1", "def f(x):\n    return 2 * x + 1.1"
    assert structured(total, sandbox, right, family="linear")["family_named"] == 1
    assert structured(total, sandbox, wrong, family="linear")["family_named"] == 0
    assert structured(total, sandbox, right, family="banana")["family_named"] == 0
    assert structured(total, sandbox, wrong, family="sum", operands=["linear", "linear"])["family_named"] == 1


POLYNOMIAL = Atom("polynomial", (1.0, -2.0, 0.5))
BOX, WAVE = Atom("rectangle", (9.0,)), Atom("square_wave", (3.0, 1.0))


@pytest.mark.parametrize(("expression", "names", "wrong"), [
    (Atom("linear", (2.0, 1.0)), ["polynomial", "relu", "sum constant linear"], ["constant", "absolute", "step"]),
    (Atom("tanh", (2.0, 3.0, 1.0, 0.5)), [], ["gaussian", "sin", "step", "sum step constant", "rational"]),
    (Atom("sin", (2.0, 3.0, 1.0, 0.5)), ["cos"], ["tanh", "square_wave", "constant"]),
    (Atom("absolute", (2.0, 1.0)), ["sum linear relu"], ["relu", "linear", "product linear linear"]),
    (Atom("relu", (-2.0, 1.0, 0.1)), ["sum relu linear"], ["absolute", "linear"]),
    (Pair("product", Atom("linear", (1.0, 1.0)), Atom("linear", (1.0, 0.0))), ["polynomial"], ["linear", "absolute"]),
    (Pair("product", Atom("constant", (2.0,)), BOX), [], ["rectangle", "product rectangle rectangle", "constant"]),
    (Pair("product", BOX, Atom("rectangle", (4.0,))), [], ["sum rectangle rectangle", "product rectangle square_wave"]),
    (Pair("sum", Atom("constant", (0.0,)), BOX), ["rectangle"], ["square_wave", "sum rectangle rectangle"]),
    (Pair("sum", WAVE, POLYNOMIAL), [], ["polynomial", "product square_wave polynomial", "sum step polynomial"]),
    (Pair("sum", Atom("ceil"), Atom("step", (1.0, 0.0, 0.0))), ["sum floor step"], ["sum floor constant", "linear"]),
], ids=str)  # fmt: skip
def test_another_name_is_right_only_if_the_family_has_that_function(
    expression: Expression, names: list[str], wrong: list[str], sandbox: Sandbox
) -> None:
    """The code is right every time: it alone does not make a name right."""
    known = function(expression)
    truth = oracle(known)
    for name in [*names, *wrong]:
        family, *parts = name.split()
        said = truth.model_copy(update={"structure": {"family": family, "operands": parts}})
        assert grade(known, said, sandbox=sandbox).metrics["family_named"] == float(name in names), name


def test_overlap_of_intervals_by_hand(sandbox: Sandbox) -> None:
    corrupted = function(
        Atom("linear", (2.0, 1.0)), kind="corrupted", corruption=Corruption("inside", (10.0, 20.0), 0.0)
    )
    assert structured(corrupted, sandbox, family="linear", interval=[15.0, 25.0])["interval_iou"] == pytest.approx(
        1 / 3
    )
    missed = structured(corrupted, sandbox, family="linear", interval=None)
    assert (missed["interval_found"], missed["interval_iou"], missed["false_alarm"]) == (0, 0, None)
    half = function(Atom("linear", (2.0, 1.0)), kind="corrupted", corruption=Corruption("larger", (64.0,), 0.0))
    assert structured(half, sandbox, family="linear", interval=[0.0, None])["interval_iou"] == pytest.approx(0.5)
    found = {
        end: structured(half, sandbox, family="linear", interval=[*end])["interval_found"]
        for end in ((0.0, None), (-1.0, None), (96.0, None), (200.0, 201.0), (-5.0, 5.0), (None, 64.0))
    }
    assert [end for end, value in found.items() if value] == [(0.0, None), (96.0, None)]


OUTSIDE = Corruption("outside", (10.0, 20.0), 5.0)


@pytest.mark.parametrize(
    ("corruption", "domain", "structure", "figures"),
    [
        (Corruption("inside", (10.0, 20.0), 5.0), "for x in [10, 20] the outputs are random", {}, (1, None, 1)),
        (Corruption("inside", (10.0, 20.0), 5.0), "for x in [50, 60] the outputs are random", {}, (0, None, 1)),
        (Corruption("inside", (10.0, 20.0), 5.0), "all real numbers", {}, (0, None, 0)),
        (OUTSIDE, "random outside [10, 20]", {}, (1, None, 1)),
        (OUTSIDE, "random in [10, 20]", {}, (0, None, 1)),
        (OUTSIDE, None, {"interval": [10.0, 20.0], "outside": True}, (1, None, 1)),
        # What a program reads comes before the words.
        (OUTSIDE, "no unexpected interval", {"interval": [10.0, 20.0], "outside": True}, (1, None, 1)),
        (None, "for x in [10, 20] the outputs are random", {}, (None, 1, 1)),
        (None, "there is no interval of unexpected behaviour", {}, (None, 0, 1)),
        (None, None, {}, (None, 0, 0)),
    ],
)
def test_the_domain_of_a_language_models_answer_is_graded(
    sandbox: Sandbox,
    corruption: Corruption | None,
    domain: str | None,
    structure: dict[str, Any],
    figures: tuple[float | None, ...],
) -> None:
    kind = "clean" if corruption is None else "corrupted"
    known = function(Atom("linear", (2.0, 1.0)), kind=kind, corruption=corruption)
    metrics = graded(known, None, sandbox, domain=domain, structure=structure, rounds=1).metrics
    assert tuple(metrics[name] for name in ("interval_found", "false_alarm", "domain_read")) == figures
    assert metrics["family_named"] is metrics["noise_named"] is None  # it was not asked for these


def test_success_inside_and_outside_the_corrupted_part(sandbox: Sandbox) -> None:
    known = function(Atom("linear", (2.0, 1.0)), kind="corrupted", corruption=Corruption("inside", (10.0, 40.0), -9.0))
    parts = ("inside_success", "outside_success")
    rule = graded(known, "def f(x):\n    return 2 * x + 1", sandbox).metrics
    assert [rule[name] for name in parts] == [0, 1]
    constant = graded(known, "def f(x):\n    return -9", sandbox).metrics
    assert [constant[name] for name in parts] == [1, 0]
    assert [graded(LINE, "def f(x):\n    return -9", sandbox).metrics[name] for name in parts] == [None, None]


def test_held_out_points_lie_off_the_grid_and_close_to_features() -> None:
    corrupted = function(
        Atom("rectangle", (4.0,)), kind="corrupted", corruption=Corruption("inside", (10.0, 20.0), 0.0)
    )
    points = held_out_points(corrupted, seed=0)
    assert not set(points) & set(GRID)
    for feature in (-2.0, 0.0, 2.0, 10.0, 20.0):
        assert (np.abs(points - feature) < 0.05).sum() >= 4


def test_the_oracle_is_always_right_about_the_mean(sandbox: Sandbox) -> None:
    for known in sample(40, seed=0):
        found = grade(known, oracle(known), sandbox=sandbox)
        assert found.fault is None, known.truth()
        assert found.metrics["r2"] == pytest.approx(1, abs=1e-6)
        assert found.metrics["family_named"] == 1
        assert found.metrics["understood"] == float(known.kind != "mlp")


def test_functions_of_other_categories_are_refused() -> None:
    class Word:
        id, category, family = "f1", "strings", "upper"

    with pytest.raises(BadInput, match="of category strings"):
        oracle(Word())  # type: ignore[arg-type]
