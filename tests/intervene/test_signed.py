"""Signed effects: right, wrong and the rest against plain hooks and on paper, and the words that follow from them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import EXACT
from tests.intervene.twin import naive_logits
from tests.model.test_transformer import PROMPT, paper_model
from tests.models import configs, random_model, small_config
from vesalius.behaviours.metrics import Question, metric_readout
from vesalius.intervene import Batch, Recordings, Row, activations, effects, logit_difference
from vesalius.intervene.signed import (
    ANSWER_SUPPRESSOR,
    CALIBRATES,
    MOVER,
    SUPPRESSOR,
    WRONG_MOVER,
    LogitSides,
    lost,
    parted,
    signed,
    word_of,
)
from vesalius.model import Config


def test_what_differs_in_the_last_digit_is_no_effect() -> None:
    """A part that the logits do not read was said to lower the answer: by half a digit of 60, on every prompt alike."""
    clean = torch.tensor([[2.0, 60.0, 58.0, 1.0], [2.0, 61.0, 59.0, 1.0]])
    last_digit = torch.tensor([0.0, 2**-18, 0.0, 0.0])
    edited = torch.stack([clean + last_digit, clean - torch.tensor([1.0, 1.0, 0.0, 0.0])], 1)
    change = lost(clean, edited)
    assert bool((change[:, 0] == 0).all())
    assert torch.equal(change[:, 1], torch.tensor([[1.0, 1.0, 0.0, 0.0]] * 2))
    assert lost(clean[:, 0], edited[:, :, 0]).tolist() == [[0.0, 1.0]] * 2


def test_on_paper() -> None:
    # Logits 0 and 1 of the paper model are its residual stream, logit 2 is their sum: clean (19/3, 13), with the head
    # zeroed (1, 3), with the MLP zeroed (19/3, 3). Right is logit 1, wrong is logit 0, the rest is logit 2.
    last, one, zero = torch.tensor([2]), torch.tensor([1]), torch.tensor([0])
    readout = signed(logit_difference(last, one, zero), one[:, None], zero[:, None], vocabulary=3)
    found = effects(paper_model(), Batch(PROMPT), readout, sets=[["L0H0"], ["L0_MLP"]])
    assert found.sides is not None
    assert found.baseline.tolist() == pytest.approx([20 / 3])
    assert found.matrix[0].tolist() == pytest.approx([14 / 3, 10])
    assert found.sides.right[0].tolist() == pytest.approx([10, 10])
    assert found.sides.wrong[0].tolist() == pytest.approx([16 / 3, 0])
    assert found.sides.rest[0].tolist() == pytest.approx([46 / 3, 10])
    row = found.rows()[0]
    assert (row.effect_right, row.effect_wrong) == pytest.approx((10, 16 / 3))
    assert (row.effect_right_low, row.acts) == (None, None)  # one prompt says nothing about others


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    configs().filter(lambda one: one.d_vocab_out >= 5),
    st.integers(0, 2**20),
    st.sampled_from(["logit-difference", "probability-difference"]),
    st.sampled_from([None, 3.0]),
)
def test_against_plain_hooks(config: Config, seed: int, metric: str, cap: float | None) -> None:
    """Answers of two tokens in one row and one in the other, capped logits too; every logit of a plain run is read."""
    model = random_model(config.model_copy(update={"final_softcap": cap}), seed).double()
    generator = torch.Generator().manual_seed(seed)
    batch, other = (Batch(torch.randint(0, config.d_vocab, (2, 5), generator=generator)) for _ in range(2))
    question = Question(torch.tensor([4, 3]), torch.tensor([[0, 3], [1, -1]]), torch.tensor([[1], [2]]))
    plain = metric_readout(metric, question)
    readout = signed(plain, question.answers, question.wrongs, vocabulary=config.d_vocab_out)
    sets = [["L0H0"], ["L0_MLP"]]
    found = effects(model, batch, readout, kind="resample", sets=sets, counterfactual=other)
    alone = effects(model, batch, plain, kind="resample", sets=sets, counterfactual=other)
    assert found.sides is not None
    assert alone.sides is None
    torch.testing.assert_close(found.matrix, alone.matrix, atol=EXACT, rtol=0)
    assert found.forwards == alone.forwards
    values, sides = activations(model, other), torch.stack(list(found.sides))

    def logits(row: Row) -> torch.Tensor:
        return naive_logits(model, batch, row, values)[question.position[row.prompt]]

    for prompt in range(2):
        right, wrong = ([i for i in ids[prompt].tolist() if i >= 0] for ids in (question.answers, question.wrongs))
        rest = [i for i in range(config.d_vocab_out) if i not in (*right, *wrong)]
        for place, members in enumerate(sets):
            clean, edited = logits(Row(prompt)), logits(Row(prompt, dict.fromkeys(members, prompt)))
            expected = [clean[ids].logsumexp(0) - edited[ids].logsumexp(0) for ids in (right, wrong)] + [
                clean[rest].mean() - edited[rest].mean()
            ]
            torch.testing.assert_close(sides[:, prompt, place], torch.stack(expected), atol=1e-9, rtol=0)


def test_the_score_is_right_minus_wrong() -> None:
    model, tokens = random_model(small_config(), 4), torch.arange(12).view(2, 6)
    last, right, wrong = torch.tensor([5, 5]), torch.tensor([3, 4]), torch.tensor([7, 8])
    readout = signed(logit_difference(last, right, wrong), right[:, None], wrong[:, None], vocabulary=17)
    score, sides = parted(Recordings(model, Batch(tokens), readout).scores())
    assert sides is not None
    torch.testing.assert_close(score, sides.right - sides.wrong)


def sides(right: float, wrong: float, rest: float, noise: float = 0.02) -> LogitSides:
    """What a component adds on 12 prompts, about these figures."""
    spread = torch.linspace(-noise, noise, 12)
    return LogitSides(right + spread, wrong + spread.flip(0), rest + spread.roll(3))


@pytest.mark.parametrize(
    ("right", "wrong", "rest", "word"),
    [
        (0.5, 0.0, 0.0, MOVER),
        (-0.01, -0.49, 0.0, SUPPRESSOR),  # L23H3 of SmolLM2 in IOI: it writes nothing to the answer
        (0.3, -0.5, 0.0, SUPPRESSOR),  # both; mostly the wrong one
        (0.5, -0.3, 0.0, MOVER),
        (-0.6, 0.0, 0.0, ANSWER_SUPPRESSOR),
        (0.1, 0.7, 0.0, WRONG_MOVER),
        (0.5, 0.5, 0.5, CALIBRATES),
        (-0.5, -0.5, -0.5, CALIBRATES),
        (0.6, 0.2, 0.6, CALIBRATES),  # the answer gains as much as every other token: nothing is moved to it
        (-0.1, -0.5, -0.5, CALIBRATES),  # all fall, the answer least: no token gains
        (0.0, 0.0, 0.5, None),
        (0.0, 0.0, 0.0, None),
    ],
)
def test_words_follow_from_the_sides(right: float, wrong: float, rest: float, word: str | None) -> None:
    assert word_of(sides(right, wrong, rest)) == word


def test_a_word_needs_more_than_chance_and_the_least_that_counts() -> None:
    assert word_of(sides(0.01, 0.0, 0.0, noise=0.5)) is None
    assert word_of(sides(0.2, 0.0, 0.0)) == MOVER
    assert word_of(sides(0.2, 0.0, 0.0), least=0.3) is None
    assert word_of(LogitSides(*(torch.tensor([x]) for x in (1.0, 0.0, 0.0)))) is None  # one prompt
