"""Trials drawn apart from others share no input with them, and an exhausted vocabulary is reported."""

from dataclasses import replace

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.trial import NothingUnseen, Trial, distinct_inputs, rows_of, trial
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    """Four tokens, one to four of them: 4 + 16 + 64 + 256 = 340 inputs in all."""
    return ves.load("frac_prevs")


def inputs_of(specimen: Specimen, material: Trial) -> list[tuple[int, ...]]:
    """The prompts, read without the masks: all ids below BOS."""
    bos = len(specimen.vocabulary.summary())
    return [tuple(code for code in row if code < bos) for row in material.batch.tokens.tolist()]


def test_random_inputs_repeat_unless_drawn_apart(specimen: Specimen) -> None:
    seen = trial(specimen, 32)
    prompts = set(inputs_of(specimen, seen))
    repeated = [row in prompts for row in inputs_of(specimen, trial(specimen, 32, seed=500_003))]
    assert sum(repeated) / 32 == pytest.approx(0.41, abs=0.01)
    apart = trial(specimen, 32, seed=500_003, apart_from=seen)
    assert len(apart.batch) == 32
    assert len(set(inputs_of(specimen, apart))) == 32
    assert rows_of(apart).isdisjoint(rows_of(seen))
    assert len(rows_of(apart)) == 64, "counterfactuals are different inputs too"


def test_a_trial_holds_two_samples_of_the_specimen(specimen: Specimen) -> None:
    material = trial(specimen, 8, seed=5)
    tokens = specimen.tokenize([*specimen.sample(8, 5), *specimen.sample(8, 6)])
    assert material.batch.tokens.equal(tokens[:8])
    assert material.counterfactual.tokens.equal(tokens[8:])


def test_few_inputs_give_few_prompts(specimen: Specimen) -> None:
    """Six inputs, of which the first trial holds three: three are left, and each is another's counterfactual."""
    small = [[token] for token in specimen.vocabulary.summary()] + [
        [specimen.vocabulary.summary()[0]] * k for k in (2, 3)
    ]
    few = replace(specimen, draw=lambda n, seed: [small[(seed + i) % 3 + 3 * (seed >= 100)] for i in range(n)])
    seen = trial(few, 4, seed=0)
    assert len(rows_of(seen)) == 3
    left = trial(few, 10, seed=100, apart_from=seen)
    assert len(left.batch) == len(set(inputs_of(few, left))) == 3
    assert rows_of(left).isdisjoint(rows_of(seen))
    rows = zip(left.batch.tokens.tolist(), left.counterfactual.tokens.tolist(), strict=True)
    assert all(clean != other for clean, other in rows)
    with pytest.raises(NothingUnseen, match=r"0 unseen inputs are left, .* discover on fewer prompts"):
        trial(few, 10, seed=0, apart_from=seen)


def test_all_inputs_of_a_vocabulary_are_drawn(specimen: Specimen) -> None:
    assert len(distinct_inputs(specimen, 1000, seed=0)) == 340
    seen = trial(specimen, 32)
    assert len(distinct_inputs(specimen, 1000, seed=0, seen=rows_of(seen))) == 340 - len(rows_of(seen))


def test_one_split_holds_nothing_apart_from_itself() -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    seen = trial(specimen, 4, split="validation")
    with pytest.raises(NothingUnseen, match="from the validation split were seen before; choose another"):
        trial(specimen, 4, split="validation", apart_from=seen)
    more = trial(specimen, 12, split="validation", seed=1)
    assert more.prompts is not None
    half = Trial(more.batch.take(torch.arange(6)), more.counterfactual.take(torch.arange(6)), more.readout)
    left = trial(specimen, 12, split="validation", seed=1, apart_from=half)
    rows = [tuple(row) for row in more.batch.tokens.tolist()]
    unseen = [row for row in rows[6:] if row not in rows[:6]]
    assert [tuple(row) for row in left.batch.tokens.tolist()] == unseen
    assert 0 < len(unseen) <= 6
    other = trial(specimen, 4, split="test", apart_from=seen)
    assert other.batch.tokens.equal(trial(specimen, 4, split="test").batch.tokens)
