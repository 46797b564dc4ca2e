"""SmolLM2-135M performs the behaviours about as well as earlier measurements with other code."""

import pytest
import torch

from vesalius.behaviours import Prompt, Prompts, behaviour, control, factbook, measure
from vesalius.behaviours.builtin import CAPITALS
from vesalius.intervene import Batch, Readout
from vesalius.model import Transformer
from vesalius.model.tokenizer import Tokenizer

pytestmark = pytest.mark.smollm
Natural = tuple[Transformer, Tokenizer]


def mean_score(model: Transformer, batch: Batch, readout: Readout) -> float:
    with torch.no_grad():
        logits = model(batch.tokens, mask=batch.mask, at=readout.at, choose=readout.choose)
    return float(readout.score(logits, torch.arange(len(batch))).mean())


@pytest.mark.parametrize(
    ("name", "accuracy", "top1"),
    [
        ("induction", 0.9, 0.3),
        ("ioi", 0.81, 0.6),
        ("docstring", 0.85, 0.7),
        ("greater-than", 0.9, 0.0),
        ("capitals", 0.95, 0.4),
    ],
)
def test_performs(smollm: Natural, name: str, accuracy: float, top1: float) -> None:
    result = measure(behaviour(name), *smollm, n=16)
    assert result.performs
    assert result.accuracy >= accuracy
    assert result.top1 >= top1


def test_counterfactuals_take_the_answer_away(smollm: Natural) -> None:
    model, tokenizer = smollm
    for name in ("induction", "capitals"):
        prompts = behaviour(name).sample(tokenizer, 8, seed=0, n_ctx=64, d_vocab=model.config.d_vocab)
        clean = mean_score(model, prompts.batch, prompts.readout())
        other = mean_score(model, prompts.counterfactual_batch, prompts.readout())
        assert clean > 5
        assert other < 2


def test_induction_heads_look_at_b(smollm: Natural) -> None:
    """Measured before on 50 random tokens said twice: L18H6 .90, L17H3 .76, L17H4 .73, L17H5 .65."""
    model, tokenizer = smollm
    prompts = behaviour("induction").sample(tokenizer, 12, seed=0, n_ctx=64, d_vocab=model.config.d_vocab)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in (17, 18)]
    with torch.no_grad():
        _, cache = model.run_with_cache(prompts.tokens, names=names, choose=prompts.correct[:, None])
    rows = torch.arange(len(prompts))
    for layer, head, before in [(18, 6, 0.90), (17, 3, 0.76), (17, 4, 0.73), (17, 5, 0.65)]:
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][:, head]
        seen = pattern[rows, prompts.roles["second A"], prompts.roles["B"]].mean()
        assert float(seen) == pytest.approx(before, abs=0.12)


def test_plain_capitals(smollm: Natural) -> None:
    """Measured before: 33 of 40 capitals are the likeliest next token after "The capital of X is"."""
    model, tokenizer = smollm
    pairs = [(country, capital) for country, capital in CAPITALS if tokenizer.is_single(f" {capital}")][:40]
    rows = []
    for country, capital in pairs:
        tokens = tuple(tokenizer.encode(f"The capital of {country} is"))
        rows.append(Prompt(tokens, tokens, tokenizer.token(f" {capital}"), tokenizer.token(" the"), {}, country))
    prompts = Prompts.from_rows(rows, pad=0, n_ctx=64, d_vocab=model.config.d_vocab)
    with torch.no_grad():
        logits = model(prompts.tokens, mask=prompts.mask, at=prompts.position[:, None])[:, 0]
    right = int((logits.argmax(1) == prompts.correct).sum())
    assert len(pairs) == 40
    assert 29 <= right <= 38


def test_probability_of_a_later_decade(smollm: Natural) -> None:
    """Measured before: P(digit > decade) - P(digit < decade) = 0.57 on 48 prompts."""
    model, tokenizer = smollm
    prompts = behaviour("greater-than").sample(tokenizer, 12, seed=0, n_ctx=64, d_vocab=model.config.d_vocab)
    digits = [tokenizer.token(str(digit)) for digit in range(10)]
    with torch.no_grad():
        logits = model(prompts.tokens, mask=prompts.mask, at=prompts.position[:, None])[:, 0]
    chance = logits.softmax(1)[:, digits]
    start = prompts.tokens.gather(1, prompts.roles["start year"][:, None])
    decade = (start == torch.tensor(digits)).int().argmax(1, keepdim=True)
    later, earlier = torch.arange(10) > decade, torch.arange(10) < decade
    assert float((chance * later - chance * earlier).sum(1).mean()) == pytest.approx(0.57, abs=0.2)


def test_ordinary_text_is_modelled(smollm: Natural) -> None:
    model, tokenizer = smollm
    text = control(factbook(), tokenizer, n=8, length=32, n_ctx=64)
    loss = -mean_score(model, text.batch, text.readout)
    assert 2.0 < loss < 5.5, "guessing among 49,152 tokens costs 10.8 nats"
