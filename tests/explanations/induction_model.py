"""A two-layer attention-only transformer whose weights are set by hand to do induction.

The residual stream has four blocks of 64: token, position, previous token, answer. Tokens are random unit vectors.

    L0H0  previous-token head: the query is the position before its own, the key the position; copies the token there
          into the previous-token block
    L1H0  induction head: the query is the token, the key the previous-token block; copies the token there into the
          answer block, which the unembedding reads
    the other heads: small random weights

Other heads of layer 1 can be induction heads too, of any strength; a negative one works against the answer. With a norm
before the unembedding two strong ones are backups of each other: one alone already fills the stream.
"""

import torch

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from vesalius.behaviours import behaviour
from vesalius.model import Config, Transformer
from vesalius.model.specimen import Specimen, TextVocabulary

WIDTH, HEADS, CONTEXT = 64, 4, 48
#: How sharply heads attend; a norm scales the streams up, so less is needed behind one.
SHARP = {"none": 60.0, "rms": 3.5}
#: From this position on the switch is on; its coordinate is one of the position block that no position uses.
LATE, SWITCH = 12, 2 * WIDTH - 1
TOKEN, POSITION, PREVIOUS, ANSWER = (slice(i * WIDTH, (i + 1) * WIDTH) for i in range(4))


def induction_model(
    d_vocab: int, *, strengths: dict[int, float] | None = None, norm: str = "none", junk: float = 0.02
) -> Transformer:
    """The model; `strengths` gives the heads of layer 1 that do induction, each with how strongly it writes."""
    config = Config.model_validate(
        {
            "n_layers": 2,
            "n_heads": HEADS,
            "d_model": 4 * WIDTH,
            "d_head": WIDTH,
            "d_mlp": 1,
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab,
            "n_ctx": CONTEXT,
            "norm": norm,
            "bos_token": BOS,
        }
    )
    model = Transformer(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for block in model.blocks:
            for weight in (block.attn.qkv, block.attn.output):
                weight.copy_(junk * torch.randn(weight.shape, generator=generator))
        tokens = torch.randn(d_vocab, WIDTH, generator=generator)
        tokens = tokens / tokens.norm(dim=1, keepdim=True)
        model.W_E[:, TOKEN] = tokens
        model.W_pos[:, POSITION] = torch.eye(CONTEXT, WIDTH)
        _make_copy(model, 0, 0, source=TOKEN, goal=PREVIOUS, strength=1.0)
        model.blocks[0].attn.W_Q[0][POSITION] = SHARP[norm] * torch.diag(torch.ones(WIDTH - 1), -1)
        model.blocks[0].attn.W_K[0][POSITION] = torch.eye(WIDTH)
        for head, strength in (strengths or {0: 1.0}).items():
            _make_copy(model, 1, head, source=TOKEN, goal=ANSWER, strength=strength)
            model.blocks[1].attn.W_Q[head][TOKEN] = SHARP[norm] * torch.eye(WIDTH)
            model.blocks[1].attn.W_K[head][PREVIOUS] = torch.eye(WIDTH)
        model.unembed_weight[:, ANSWER] = 10 * tokens
    return model.eval().requires_grad_(False)


def with_late_switch(d_vocab: int) -> Transformer:
    """The model with one more head that matters, L0H1, and whose output is the position's alone: 1 in the second half
    of the context, 0 in the first. Without that 1 the induction head attends to BOS: its query gets BOS's key added at
    every position, and taken away again where the switch is on.
    """
    model = induction_model(d_vocab)
    first, second = (block.attn for block in model.blocks)
    with torch.no_grad():
        _make_copy(model, 0, 1, source=POSITION, goal=POSITION, strength=0.0)
        first.W_Q[1][POSITION] = 4 * SHARP["none"] * torch.eye(WIDTH)
        first.W_K[1][POSITION] = torch.eye(WIDTH)
        first.W_V[1].zero_()
        first.W_V[1][POSITION][LATE:, 0] = 1.0
        first.W_O[1][0, SWITCH] = 1.0
        away = 3 * SHARP["none"] * model.W_E[BOS, TOKEN]
        second.W_Q[0][POSITION] = away.expand(WIDTH, WIDTH)
        second.W_Q[0][SWITCH] = -away
    return model


def _make_copy(model: Transformer, layer: int, head: int, *, source: slice, goal: slice, strength: float) -> None:
    """Clear a head and let it copy one block into another."""
    attention = model.blocks[layer].attn
    for weight in (attention.W_Q, attention.W_K, attention.W_V):
        weight[head].zero_()
    attention.W_O[head].zero_()
    attention.W_V[head][source] = torch.eye(WIDTH)
    attention.W_O[head][:, goal] = strength * torch.eye(WIDTH)


def as_specimen(model: Transformer, task: str | None = "induction") -> Specimen:
    """A natural specimen of a model that reads the word tokenizer's tokens."""
    tokenizer = word_tokenizer()

    def draw(n: int, seed: int) -> list[str]:
        config = model.config
        source = behaviour(task or "induction")
        return source.sample(tokenizer, n, seed=seed, n_ctx=config.n_ctx, d_vocab=config.d_vocab).texts

    return Specimen(
        id="by_hand",
        name="by_hand",
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(tokenizer, model.config.n_ctx),
        components=tuple(model.components),
        examples=(),
        draw=draw,
        behaviour=task,
    )
