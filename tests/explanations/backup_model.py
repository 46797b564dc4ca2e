"""A transformer whose weights are written by hand, in which one head acts only where another one is silent.

The task: the token before, the first letter at the start. L0H0 copies it. L1H0 copies it as well, but looks at BOS,
which holds nothing, wherever L0H0 has written something: replacing L1H0 changes nothing, whatever takes its place,
until L0H0 is zeroed.
"""

from pathlib import Path

import torch

from vesalius.circuits.specimens import Card, as_examples, write_specimen
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer

LETTERS = "abcd"
Q, LONGEST, SHARP = len(LETTERS), 6, 80.0


@torch.no_grad()
def write_backup(directory: Path) -> Path:
    """Write the specimen; its circuit is L0H0 and L1H0."""
    n = LONGEST + 1
    token, position, copied, spare = slice(0, Q), slice(Q, Q + n), slice(Q + n, 2 * Q + n), slice(2 * Q + n, 3 * Q + n)
    config = Config(
        n_layers=2,
        n_heads=2,
        d_model=spare.stop,
        d_head=n + 1,
        d_mlp=2 * Q,
        d_vocab=Q + 2,
        d_vocab_out=Q,
        n_ctx=n,
        activation="relu",
        bos_token=Q,
        pad_token=Q + 1,
    )
    model = Transformer(config)
    for weight in model.parameters():
        weight.zero_()
    assert model.W_pos is not None
    model.W_E[:Q, token] = torch.eye(Q)
    model.W_E[Q, 0] = 1  # BOS counts as the first letter
    model.W_pos[:, position] = torch.eye(n)
    for layer, written in enumerate((copied, spare)):
        model.unembed_weight[:, written] = torch.eye(Q)
        attention = model.blocks[layer].attn
        query, key, value, out = (weight[0] for weight in (attention.W_Q, attention.W_K, attention.W_V, attention.W_O))
        query[position, :n] = SHARP * torch.eye(n)
        key[position, :n] = torch.eye(n).roll(1, 1)
        key[position.stop - 1] = 0
        key[position.start, 0] = 1
        value[token, :Q] = torch.eye(Q)
        out[:Q, written] = torch.eye(Q)
        if layer:
            query[copied, n] = 3 * SHARP
            key[position.start, n] = 1
            value[position.start, 0] = -1  # takes the letter of BOS off
    card = Card(
        id="backup",
        name="backup",
        kind="trained",
        vocab=tuple(LETTERS),
        max_len=LONGEST,
        min_len=3,
        outputs=tuple(LETTERS),
        components=("L0H0", "L1H0"),
        layers=2,
        heads=2,
        d_model=config.d_model,
        examples=as_examples([(list("abcd"), list("aabc"))]),
        gate={},
        made_by="tests",
    )
    write_specimen(directory, model, card)
    return directory
