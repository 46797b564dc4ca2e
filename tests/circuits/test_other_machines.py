"""The shipped circuits on machines whose C library computes cbrt, exp or sin with other last bits.

The key calls functions of `math`; the cards were written where the circuits were trained. Here the key is read again
with every such result moved to the neighbouring float.
"""

import importlib.util
import math
from collections.abc import Callable
from itertools import chain

import pytest

from vesalius.api import load
from vesalius.model.specimen import json_value
from vesalius_truth.key.task import Task
from vesalius_truth.key.tasks import lookups

USED = {
    "50": "cosh", "52": "sqrt", "54": "tanh", "55": "sinh", "65": "cbrt", "70": "cos", "73": "sin", "77": "tan",
    "84": "atan", "104": "exp", "114": "log10", "121": "asin", "123": "acos",
}  # fmt: skip
MOVES = {
    "as it is": lambda y: y,
    "one down": lambda y: math.nextafter(y, -math.inf),
    "one up": lambda y: math.nextafter(y, math.inf),
}
#: cbrt(3) on the machine that made the cards, and as glibc 2.36 gives it on aarch64.
CBRT_OF_3 = (1.4422495703074083, 1.4422495703074085)
SEED = 51_020_119


def read_again(id: str) -> Task:
    """A task of a private copy of the key's module, which looks the functions of `math` up as they are now."""
    spec = importlib.util.find_spec(lookups.__name__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(task for task in module.TASKS if task.id == id)


def moved(function: Callable[[float], float], move: Callable[[float], float]) -> Callable[[float], float]:
    def computed(x: float) -> float:
        y = function(x)
        return y if y == 0 else move(y)  # zeros are exact in every library

    computed.__name__ = function.__name__
    return computed


def computed_by(task: Task, inputs: list[list]) -> list[list]:
    program = task.program()
    codes, lengths = program.encode(inputs)
    return [[json_value(value) for value in row] for row in program.decode(program.run(codes, lengths).output, lengths)]


def assert_the_card_fits(task: Task) -> None:
    """What the card lists and shows and what the model predicts is what the program gives, class by class."""
    specimen = load(task.id)
    assert repr(specimen.vocabulary.outputs) == repr(task.program().outputs)  # type: ignore[attr-defined]
    inputs, shown = ([example[side] for example in specimen.examples] for side in ("input", "output"))
    assert computed_by(task, inputs) == shown == specimen.predict(inputs)
    inputs = specimen.sample(300, seed=SEED)
    given, wanted = (list(chain(*rows)) for rows in (specimen.predict(inputs), computed_by(task, inputs)))
    right = [mine == theirs for mine, theirs in zip(given, wanted, strict=True)]
    assert sum(right) >= 0.99 * len(right)


def test_every_function_of_the_c_library_is_covered() -> None:
    exact = {"factorial"}
    used = {row[0]: row[3].__name__ for row in lookups.VALUES if row[3].__module__ == "math"}
    assert {id: name for id, name in used.items() if name not in exact} == USED


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("id", USED)
def test_last_bits_do_not_matter(id: str, move: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = USED[id]
    unmoved = raw_outputs(read_again(id))
    monkeypatch.setattr(math, name, moved(getattr(math, name), MOVES[move]))
    task = read_again(id)
    assert (raw_outputs(task) == unmoved) == (move == "as it is")
    assert_the_card_fits(task)


def raw_outputs(task: Task) -> tuple:
    program = task.program()
    return program.tables.domains[program.output].values


@pytest.mark.parametrize("value", CBRT_OF_3)
def test_both_known_cube_roots_of_three(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    cbrt = math.cbrt
    monkeypatch.setattr(math, "cbrt", moved(cbrt, lambda y: value if y in CBRT_OF_3 else y))
    task = read_again("65")
    assert value in raw_outputs(task)
    assert_the_card_fits(task)
