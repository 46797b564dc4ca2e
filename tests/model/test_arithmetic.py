"""The arithmetic model of the package is found by name, is exact on prompts it never saw, and is the model stated."""

import random

import pytest
import torch

import vesalius as ves
from vesalius.api import load, show, specimens
from vesalius.model.sources import ARITHMETIC, BEHAVIOUR
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def arithmetic() -> Specimen:
    return load(ARITHMETIC, device="cpu")


def test_it_is_listed_as_it_is(arithmetic: Specimen) -> None:
    listed = next(one for one in specimens() if one["id"] == ARITHMETIC)
    assert listed == arithmetic.describe()
    assert list(show(ARITHMETIC).examples) == list(arithmetic.examples)


def test_its_own_behaviour_comes_with_it(arithmetic: Specimen) -> None:
    assert arithmetic.behaviour == BEHAVIOUR
    for example in arithmetic.examples:
        assert str(eval(example["input"].rstrip("="))) == example["output"]
    other = ves.load(ARITHMETIC, behaviour="addition:operands=2,high=40,shots=0", device="cpu")
    assert other.behaviour == "addition:operands=2,high=40,shots=0"


def test_it_runs_in_float32_unless_another_format_is_asked_for(arithmetic: Specimen) -> None:
    assert next(arithmetic.model.parameters()).dtype == torch.float32
    assert next(load(ARITHMETIC, dtype="float16", device="cpu").model.parameters()).dtype == torch.float16


@pytest.mark.slow
def test_it_subtracts_and_adds(arithmetic: Specimen) -> None:
    """2,000 prompts that were held out of training by the rule of `scripts/train_arithmetic.py`."""
    rng, texts, answers = random.Random(0), [], []
    while len(texts) < 2000:
        a, b, c = (rng.randrange(100) for _ in range(3))
        mixed = (a * 7919 + 13) * (b * 104729 + 7) * (c * 1299709 + 3)
        if 0 <= a - b + c < 100 and (mixed >> 5) % 10 < 1:
            texts.append(f"{a} - {b} + {c} =")
            answers.append(str(a - b + c))
    right = [row[-1] == answer for row, answer in zip(arithmetic.predict(texts), answers, strict=True)]
    assert sum(right) >= 1995, "20,000 of 20,000 when it was trained"
