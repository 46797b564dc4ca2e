"""Looking at one prompt: attention and lens against plain tensors of the same model."""

import re
from typing import Any

import pytest
import torch

import vesalius as ves
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen


@pytest.fixture(scope="module")
def arithmetic() -> Specimen:
    return ves.load("arithmetic", device="cpu")


def test_a_prompt_with_its_tokens_and_answer(arithmetic: Specimen) -> None:
    shown = ves.look(arithmetic, "12 - 3 + 4 =")
    assert "".join(shown.tokens[1:]).replace(" ", "") == "12-3+4="
    assert shown.likely[0].token.strip() == "13"
    assert sum(one.probability for one in shown.likely) <= 1 + 1e-6
    assert len(repr(shown)) < 500


def test_attention_is_that_of_the_model(arithmetic: Specimen) -> None:
    shown = ves.attention(arithmetic, "12 - 3 + 4 =", layer=1)
    with torch.no_grad():
        _, cache = arithmetic.model.run_with_cache(arithmetic.tokenize(["12 - 3 + 4 ="]))
    pattern = cache["blocks.1.attn.hook_pattern"][0]
    assert [one.head for one in shown.heads] == [f"L1H{head}" for head in range(6)]
    for one, expected in zip(shown.heads, pattern, strict=True):
        assert torch.tensor(one.pattern) == pytest.approx(expected, abs=1e-4)
    assert len(shown.table()) == 6 * sum(range(1, len(shown.tokens) + 1))


def test_the_lens_sums_to_the_logits(arithmetic: Specimen) -> None:
    """What all components, the embedding and the biases add to a logit is the logit (the final norm's scale held)."""
    model = arithmetic.model
    tokens = arithmetic.tokenize(["12 - 3 + 4 ="])
    everything = [str(part) for part in model.components]
    shown = ves.lens(arithmetic, "12 - 3 + 4 =", everything, top=model.config.d_vocab)
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens)
        resid, embedded = cache["blocks.2.hook_resid_post"][0], cache["blocks.0.hook_resid_pre"][0]
        assert model.ln_final.w is not None
        direct = model.ln_final.share(embedded, model.ln_final.scale(resid)) @ model.unembed_weight.T
    piece = arithmetic.vocabulary.tokenizer.piece  # type: ignore[attr-defined]
    names = [piece(token) for token in range(model.config.d_vocab)]
    total = direct[-1] - direct[-1].mean()
    for places in shown.components.values():
        gains = dict(places[-1])
        total = total + torch.tensor([gains[name] for name in names])
    expected = logits[0, -1] - logits[0, -1].mean()
    assert total == pytest.approx(expected, abs=0.02)


def test_a_listed_vocabulary() -> None:
    shown = ves.look("frac_prevs", ["a", "x"])
    assert shown.tokens == ("BOS", "a", "x")
    assert shown.outputs == pytest.approx((0.0, 0.5), abs=0.01)
    assert len(ves.attention("frac_prevs", ["a", "x"], layer=0).heads) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: ves.attention(s, "1 - 2 + 3 =", layer=9), "layers 0 to 2"),
        (lambda s: ves.attention(s, "1 - 2 + 3 =", layer=-1), "layer -1"),
        (lambda s: ves.lens(s, "1 - 2 + 3 =", "L0H0", top=0), "top=0"),
        (lambda s: ves.lens("frac_prevs", ["a"], "L0H0"), "not a natural model"),
        (lambda s: ves.lens(s, "1 - 2 + 3 =", "L0H77"), "L0H77"),
        (lambda s: ves.look("frac_prevs", ["q"]), "q"),
    ],
)
def test_bad_questions_are_refused(call: Any, message: str, arithmetic: Specimen) -> None:
    with pytest.raises(BadInput, match=message):
        call(arithmetic)


def test_why_a_head_attends(arithmetic: Specimen) -> None:
    """The terms sum to the score of the run, by pair and by source; what is carried sums to the head's own output."""
    look = ves.why_attends(arithmetic, "12 - 3 + 4 =", "L1H0", top=6)
    with torch.no_grad():
        _, cache = arithmetic.model.run_with_cache(arithmetic.tokenize(["12 - 3 + 4 ="]))
    pattern, scores = (cache[f"blocks.1.attn.hook_{name}"][0, 0] for name in ("pattern", "attn_scores"))
    assert (look.query, look.key) == (6, int(pattern[6].argmax()))
    assert look.weight == pytest.approx(float(pattern[6, look.key]), abs=1e-5)
    assert look.score == pytest.approx(float(scores[6, look.key]), abs=1e-4)
    assert sum(one.value for one in look.pairs) + look.rest == pytest.approx(look.score, abs=1e-9)
    for terms in (look.by_query, look.by_key):
        assert sum(one.value for one in terms) == pytest.approx(look.score, abs=1e-9)
    every = ves.why_attends(arithmetic, "12 - 3 + 4 =", "L1H0", query=6, key=look.key, top=200)
    assert len(every.pairs) == every.n_pairs == 81
    assert sum(one.share for one in every.carries) == pytest.approx(1.0, abs=1e-6)
    assert (every.agreement or 0) > 0.9
    assert every.n_confirmed >= 30
    assert len(look.writes) == 5
    assert "why L1H0 attends" in look.view().title


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"head": "L0_MLP"}, "L0_MLP is an MLP, which has no attention"),
        ({"head": "L1H0", "query": 7}, "`query` 7: the prompt has positions 0 to 6"),
        ({"head": "L1H0", "query": 2, "key": 4}, "`key` 4: comes after `query` 2, which cannot see it"),
        ({"head": "L1H0", "top": 0}, "top=0 terms are none"),
        ({"head": "L9H0"}, "L9H0 is not in this model"),
    ],
)
def test_what_cannot_be_attended_is_refused(arithmetic: Specimen, asked: dict, words: str) -> None:
    with pytest.raises(ves.BadInput, match=re.escape(words)):
        ves.why_attends(arithmetic, "12 - 3 + 4 =", **asked)
