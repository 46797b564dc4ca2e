"""Prompts refuse token ids and lengths that do not fit the model, and keep their rows together."""

import pytest
import torch

from vesalius.behaviours import Prompt, Prompts
from vesalius.errors import BadInput
from vesalius.intervene import Batch

SHORT = Prompt((9, 3, 4), (9, 5, 4), 6, 7, {"end": 2, "subject": 1}, "three tokens")
LONG = Prompt((9, 3, 4, 8), (9, 2, 2, 8), 7, 6, {"end": 3, "subject": 2}, "four tokens")


def padded(rows: list[Prompt], *, n_ctx: int = 4, d_vocab: int = 10) -> Prompts:
    return Prompts.from_rows(rows, pad=0, n_ctx=n_ctx, d_vocab=d_vocab)


def test_padding_by_hand() -> None:
    prompts = padded([SHORT, LONG])
    assert prompts.tokens.tolist() == [[9, 3, 4, 0], [9, 3, 4, 8]]
    assert prompts.counterfactual.tolist() == [[9, 5, 4, 0], [9, 2, 2, 8]]
    assert prompts.mask.tolist() == [[True, True, True, False], [True] * 4]
    assert prompts.position.tolist() == [2, 3]
    assert (prompts.correct.tolist(), prompts.wrong.tolist()) == ([6, 7], [7, 6])
    assert {role: where.tolist() for role, where in prompts.roles.items()} == {"end": [2, 3], "subject": [1, 2]}


def test_batches_share_the_mask() -> None:
    prompts = padded([SHORT, LONG])
    assert isinstance(prompts.batch, Batch)
    assert prompts.batch.tokens is prompts.tokens
    assert prompts.counterfactual_batch.tokens is prompts.counterfactual
    assert prompts.batch.mask is prompts.counterfactual_batch.mask


def test_readout_asks_for_two_logits_at_the_last_real_token() -> None:
    readout = padded([SHORT, LONG]).readout()
    assert readout.at is not None
    assert readout.choose is not None
    assert readout.at.tolist() == [[2], [3]]
    assert readout.choose.tolist() == [[6, 7], [7, 6]]
    score = readout.score(torch.tensor([[[2.0, 0.5]], [[1.0, 4.0]]]), torch.arange(2))
    assert score.tolist() == [1.5, -3.0]


def test_take_keeps_rows_together() -> None:
    prompts = padded([SHORT, LONG, SHORT])
    for subset in (prompts.take(torch.tensor([1])), prompts.take(slice(1, 2))):
        assert len(subset) == 1
        assert subset.texts == ["four tokens"]
        assert subset.tokens.tolist() == [[9, 3, 4, 8]]
        assert subset.roles["subject"].tolist() == [2]
    assert prompts.take(torch.tensor([2, 1])).texts == ["three tokens", "four tokens"]


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: padded([]), "the prompt list is empty"),
        (lambda: padded([SHORT]).take(slice(0, 0)), "the prompt list is empty"),
        (
            lambda: padded([SHORT, LONG], n_ctx=3),
            r"prompt 1 \('four tokens'...\) has 4 tokens; the model's context holds 3",
        ),
        (lambda: padded([SHORT, LONG], d_vocab=9), "prompt 0 has token 9, outside the model's vocabulary of 9"),
        (lambda: padded([LONG, SHORT], d_vocab=8).checked(n_ctx=4, d_vocab=8), "prompt 0 has token 9"),
        (lambda: Prompt((1, 2), (1,), 0, 0, {}, "uneven"), "'uneven': clean and counterfactual have 2 and 1 tokens"),
    ],
)
def test_refusals_are_one_line(make: object, part: str) -> None:
    with pytest.raises(BadInput, match=part) as error:
        make()  # type: ignore[operator]
    assert "\n" not in str(error.value)


def test_an_answer_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(BadInput, match="prompt 0 has token 12"):
        padded([Prompt((1,), (1,), 2, 12, {}, "")])
