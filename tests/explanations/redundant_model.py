"""Transformers whose weights are written by hand, in which several heads hold the same value.

The task: at each position, the token joined with the one before it by a table. `two`: two heads copy the token before,
each writes half of its letter, and the MLP takes what they say together. `majority`: three heads do, and the MLP takes
what two of them say. The MLP of the second form is all there is, so that nothing else can tell the heads apart.
"""

from pathlib import Path

import torch

from vesalius.circuits.specimens import Card, as_examples, write_specimen
from vesalius.components import all_components
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer

LETTERS = "abcd"
Q, LONGEST, SHARP = len(LETTERS), 6, 80.0


@torch.no_grad()
def write_redundant(directory: Path, *, majority: bool) -> Path:
    """Write the specimen; its MLP is L0_MLP and its heads L0H0, L0H1 and, for a majority, L0H2."""
    heads, n = 3 if majority else 2, LONGEST + 1
    token, position, copied = slice(0, Q), slice(Q, Q + n), slice(Q + n, 2 * Q + n)
    output = slice(2 * Q + n, 3 * Q + n)
    config = Config(
        n_layers=1,
        n_heads=heads,
        d_model=output.stop,
        d_head=n,
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
    model.unembed_weight[:, output] = torch.eye(Q)
    block = model.blocks[0]
    for head in range(heads):
        query, key, value, out = (
            weight[head] for weight in (block.attn.W_Q, block.attn.W_K, block.attn.W_V, block.attn.W_O)
        )
        query[position, :n] = SHARP * torch.eye(n)
        key[position, :n] = torch.eye(n).roll(1, 1)
        key[position.stop - 1] = 0
        key[position.start, 0] = 1
        value[token, :Q] = torch.eye(Q)
        out[:Q, copied] = torch.eye(Q)
    mlp = block.mlp
    # A unit for each letter that rises from one vote on, or from more than one and less than two, and stays from there.
    for first, edge, sign in ((0, 1.3, 2.0), (Q, 1.8, -2.0)) if majority else ((0, 0.0, 1.0),):
        units = slice(first, first + Q)
        mlp.W_in[copied, units] = torch.eye(Q)
        mlp.b_in[units] = -edge
        mlp.W_out[units, output] = sign * torch.eye(Q)
    card = Card(
        id="majority" if majority else "two",
        name="majority" if majority else "two",
        kind="trained",
        vocab=tuple(LETTERS),
        max_len=LONGEST,
        min_len=3,
        outputs=tuple(LETTERS),
        components=tuple(map(str, all_components(config))),
        layers=1,
        heads=heads,
        d_model=config.d_model,
        examples=as_examples([(list("abcd"), list("aabc"))]),
        gate={},
        made_by="tests",
    )
    write_specimen(directory, model, card)
    return directory
