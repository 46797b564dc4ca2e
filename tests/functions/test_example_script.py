"""The example script and a real small model, in every setting, on real functions."""

from pathlib import Path

import pytest

from tests.functions.fakes import Line
from vesalius_backbones import RetryPolicy, open_backbone
from vesalius_backbones.local import NAME, LocalServer
from vesalius_functions import Box
from vesalius_functions.agents import DialogueLimits
from vesalius_functions.box import Category
from vesalius_functions.interpreters import WITH_MODEL, interpret
from vesalius_functions.suite import CATEGORIES, Suite

SCRIPT = Path(__file__).parents[2] / "examples" / "functions_aia.py"
ROUNDS = {"aia": 2, "milan": 1, "aia+milan": 2}


@pytest.mark.parametrize("name", WITH_MODEL)
def test_numeric(name: str) -> None:
    suite = Suite("numeric", seed=1, count=3)
    with open_backbone(f"scripted:{SCRIPT}") as backbone:
        found = [
            interpret(name, function, Box(function), suite=suite, backbone=backbone).answer
            for function in suite.functions()
        ]
    assert {answer.rounds for answer in found} == {ROUNDS[name]}
    assert {answer.hallucinated for answer in found} == {0}
    step, constant = found[1], found[2]
    assert step.queries == {"aia": 10, "milan": 10, "aia+milan": 20}[name]
    scope: dict[str, object] = {}
    exec(constant.code or "", scope)
    assert scope["f"](17.0) == pytest.approx(84.0)  # type: ignore[operator] # the third function is the constant 84


@pytest.mark.parametrize("name", WITH_MODEL)
@pytest.mark.parametrize("category", ["strings", "entities", "relations"])
def test_other_categories(name: str, category: Category, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATEGORIES, category, "tests.functions.fakes")
    function = Line(0, category=category)
    with open_backbone(f"scripted:{SCRIPT}") as backbone:
        answer = interpret(
            name, function, Box(function), suite=Suite(category, seed=0, count=1), backbone=backbone
        ).answer
    assert answer.description
    assert (answer.code == "def f(x):\n    return x[::-1]") == (category == "strings")


@pytest.mark.slow
@pytest.mark.smollm
def test_a_real_model_far_too_small_for_the_task(shallow_server: LocalServer) -> None:
    """A few layers of SmolLM2, in the setting that goes through the other two: exemplars first, then queries."""
    suite = Suite("numeric", seed=1, count=1)
    function = suite.functions()[0]
    box = Box(function, budget=40)
    options = {"max_tokens": 48, "timeout": 600, "retry": RetryPolicy(tries=2)}
    with open_backbone(f"local:{NAME}", base_url=shallow_server.url, **options) as backbone:
        answer = interpret(
            "aia+milan", function, box, suite=suite, backbone=backbone, limits=DialogueLimits(rounds=2)
        ).answer
    assert 1 <= (answer.rounds or 0) <= 3
    assert (answer.input_tokens or 0) > 100
    assert (answer.output_tokens or 0) > 0
    assert answer.queries == box.asked <= 40
