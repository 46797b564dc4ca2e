"""Performance figures against numbers worked out by hand, on a model whose logits do not depend on the input."""

import itertools
import math

import pytest
import torch

from tests.models import small_config
from vesalius.behaviours import Prompt, Prompts, behaviour, measure, performance
from vesalius.behaviours.performance import CLEAR_Z
from vesalius.errors import BadInput
from vesalius.model import Transformer
from vesalius.statistics import share_interval

from .word_tokenizer import word_tokenizer


def constant_model(scores: dict[int, float], *, d_vocab: int = 17, n_ctx: int = 16) -> Transformer:
    """A model whose logits are these at every position of every prompt (0 for tokens not named)."""
    model = Transformer(small_config(d_vocab=d_vocab, d_vocab_out=d_vocab, n_ctx=n_ctx))
    with torch.no_grad():
        for token, score in scores.items():
            model.b_U[token] = score
    return model.eval().requires_grad_(False)


def prompt(correct: int, wrong: int) -> Prompt:
    return Prompt((1, 2), (1, 3), correct, wrong, {}, "")


def test_three_right_of_four() -> None:
    model = constant_model({5: 4.0, 6: 1.0, 7: 3.0})
    rows = [prompt(5, 6), prompt(5, 7), prompt(7, 6), prompt(6, 5)]
    result = performance(model, Prompts.from_rows(rows, pad=0, n_ctx=16, d_vocab=17), rows=3)
    assert (result.accuracy, result.top1, result.n) == (0.75, 0.5, 4)
    assert result.logit_difference == pytest.approx((3 + 1 + 2 - 3) / 4)
    # Wilson by hand: p = 3/4, n = 4, z = 1.96.
    assert (result.accuracy_low, result.accuracy_high) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert result.ld_low < result.logit_difference < result.ld_high
    assert not result.performs


def test_performing_needs_both_bounds() -> None:
    model = constant_model({5: 4.0, 6: 1.0, 7: 3.0, 8: 90.0})
    right = [prompt(5, 6)] * 30
    always = performance(model, Prompts.from_rows(right, pad=0, n_ctx=16, d_vocab=17))
    assert (always.ld_low, always.ld_high, always.performs) == (3.0, 3.0, True)
    # Right on 30 of 33 prompts, yet wrong by so much on the others that the mean difference may be negative.
    mixed = performance(model, Prompts.from_rows([*right, *[prompt(5, 8)] * 3], pad=0, n_ctx=16, d_vocab=17))
    assert mixed.accuracy_low > 0.5
    assert mixed.ld_low < 0
    assert not mixed.performs
    assert "0.5" in mixed.rule


@pytest.mark.parametrize(("right", "run"), [(32, 32), (24, 32), (23, 64)])
def test_half_the_prompts_are_enough_where_they_leave_no_doubt(right: int, run: int) -> None:
    # Wilson by hand, z = 2.807, n = 32: the lower bound of 24 is 0.502, of 23 it is 0.471.
    model = constant_model({5: 4.0, 6: 1.0})
    rows = [*[prompt(5, 6)] * right, *[prompt(6, 5)] * (32 - right), *[prompt(5, 6)] * 32]
    prompts = Prompts.from_rows(rows, pad=0, n_ctx=16, d_vocab=17)
    result = performance(model, prompts, early=True)
    assert (result.n, result.accuracy, result.performs) == (run, (right + run - 32) / run, True)
    assert performance(model, prompts).n == 64
    assert performance(model, prompts.take(slice(0, 40)), early=True).n == 40, "a small file counts whole"


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.98])
def test_stopping_early_hardly_biases_the_accuracy_or_its_interval(share: float) -> None:
    """Every outcome of two batches of 32 prompts, by its chance: that the first is enough depends on what it shows, so
    the accuracy is a little high on average. A fixed 64 has the same coverage within the steps of so few prompts.
    """

    def chance(right: int) -> float:
        return math.comb(32, right) * share**right * (1 - share) ** (32 - right)

    mean = covered = covered_by_64 = performs = performs_by_64 = 0.0
    for first, second in itertools.product(range(33), repeat=2):
        weight = chance(first) * chance(second)
        enough = share_interval(first, 32, z=CLEAR_Z)[0] > 0.5
        right, n = (first, 32) if enough else (first + second, 64)
        (low, high), (low_64, high_64) = share_interval(right, n), share_interval(first + second, 64)
        mean += weight * right / n
        covered += weight * (low <= share <= high)
        covered_by_64 += weight * (low_64 <= share <= high_64)
        performs += weight * (low > 0.5)
        performs_by_64 += weight * (low_64 > 0.5)
    assert 0.0 <= mean - share < 0.016
    assert covered > min(0.94, covered_by_64) - 0.005
    assert 0.0 <= performs - performs_by_64 < 0.005


def test_a_tie_is_not_right() -> None:
    result = performance(constant_model({}), Prompts.from_rows([prompt(5, 6)] * 4, pad=0, n_ctx=16, d_vocab=17))
    assert (result.accuracy, result.logit_difference, result.performs) == (0.0, 0.0, False)


def test_measure_asks_the_model_for_its_context_and_vocabulary() -> None:
    tokenizer = word_tokenizer()
    model = constant_model({}, d_vocab=tokenizer.size, n_ctx=32)
    assert measure(behaviour("induction"), model, tokenizer, n=5).n == 5
    with pytest.raises(BadInput, match="the model's context holds 32"):
        measure(behaviour("docstring"), model, tokenizer, n=5)


def test_broken_weights_are_named() -> None:
    with pytest.raises(BadInput, match="logits are not finite"):
        performance(constant_model({5: math.nan}), Prompts.from_rows([prompt(5, 6)], pad=0, n_ctx=16, d_vocab=17))
