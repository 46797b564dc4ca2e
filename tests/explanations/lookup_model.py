"""A three-layer transformer whose weights are set by hand to know capitals: heads move, MLPs look up.

The residual stream has three blocks of 96, token, moved token and answer, and two coordinates: whether the token is a
country, and a constant. Tokens are random unit vectors.

    L0H0     moves the country: from everywhere it attends to the country and copies its token into the moved block
    L0_MLP   writes the constant: nothing of its input is in it, and without it no later MLP does anything
    L1_MLP   looks the capital up: one neuron for each country reads the moved token and writes the capital
    L2_MLP   what `second` says: nothing; half of the lookup, L1_MLP having the other half; or twice the answer that
             stands there already
    the other heads: nothing
"""

from typing import Literal

import torch

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from vesalius.behaviours.builtin import CAPITALS
from vesalius.model import Config, Transformer

WIDTH, CONTEXT = 96, 32
TOKEN, MOVED, ANSWER = (slice(i * WIDTH, (i + 1) * WIDTH) for i in range(3))
COUNTRY, CONSTANT = 3 * WIDTH, 3 * WIDTH + 1
#: A neuron fires where the moved token is its country's: others have a smaller product.
THRESHOLD = 0.7
Second = Literal["nothing", "half", "twice"]


def countries() -> dict[int, int]:
    """The last token of each country, and its capital's."""
    tokenizer = word_tokenizer()
    known: dict[int, int] = {}
    for country, capital in CAPITALS:
        if tokenizer.is_single(f" {capital}"):
            known.setdefault(tokenizer.continuing(f" {country}")[-1], tokenizer.token(f" {capital}"))
    return known


def lookup_model(second: Second = "nothing") -> Transformer:
    """The model; it reads the word tokenizer's tokens."""
    known, d_vocab = countries(), word_tokenizer().size
    config = Config.model_validate(
        {
            "n_layers": 3,
            "n_heads": 2,
            "d_model": 3 * WIDTH + 2,
            "d_head": WIDTH,
            "d_mlp": len(known) + 8,
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab,
            "n_ctx": CONTEXT,
            "norm": "none",
            "activation": "relu",
            "bos_token": BOS,
        }
    )
    model = Transformer(config)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(d_vocab, WIDTH, generator=generator)
    tokens = tokens / tokens.norm(dim=1, keepdim=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.W_E[:, TOKEN] = tokens
        model.W_E[list(known), COUNTRY] = 1.0
        mover = model.blocks[0].attn
        mover.W_K[0][COUNTRY, 0] = 400.0
        mover.b_Q[0][0] = 1.0
        mover.W_V[0][TOKEN] = torch.eye(WIDTH)
        mover.W_O[0][:, MOVED] = torch.eye(WIDTH)
        model.blocks[0].mlp.b_in[0] = 1.0
        model.blocks[0].mlp.W_out[0, CONSTANT] = 1.0
        _look_up(model, 1, tokens, known, strength=0.5 if second == "half" else 1.0)
        if second == "half":
            _look_up(model, 2, tokens, known, strength=0.5)
        elif second == "twice":
            _double(model, tokens, known)
        model.unembed_weight[:, ANSWER] = 10 * tokens
    return model.eval().requires_grad_(False)


def _look_up(model: Transformer, layer: int, tokens: torch.Tensor, known: dict[int, int], *, strength: float) -> None:
    """One neuron a country. The constant lifts every neuron to its threshold: without it none fires."""
    mlp = model.blocks[layer].mlp
    for neuron, (country, capital) in enumerate(known.items()):
        mlp.W_in[MOVED, neuron] = tokens[country]
        mlp.W_in[CONSTANT, neuron] = 5.0
        mlp.b_in[neuron] = -5.0 - THRESHOLD
        mlp.W_out[neuron, ANSWER] = strength / (1 - THRESHOLD) * tokens[capital]


def _double(model: Transformer, tokens: torch.Tensor, known: dict[int, int]) -> None:
    """One neuron a capital, which reads it in the answer block and writes it once more."""
    mlp = model.blocks[2].mlp
    for neuron, capital in enumerate(dict.fromkeys(known.values())):
        mlp.W_in[ANSWER, neuron] = tokens[capital]
        mlp.b_in[neuron] = -THRESHOLD
        mlp.W_out[neuron, ANSWER] = 1 / (1 - THRESHOLD) * tokens[capital]
