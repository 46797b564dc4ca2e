"""A two-layer model small enough for paper, with every number of its relevance patching.

One head in layer 0, one gated neuron in layer 1, RMSNorm everywhere, width 2. The prompt is [a, b], its counterfactual
[b, b], with embeddings a = (1, 1) and b = (1, -1), both of root mean square 1. At the last position:

- The head attends (3/4, 1/4): keys (ln 3)/2 and -(ln 3)/2, query 1. Values 38/3 and -6, so z = 8 (counterfactual: -6).
- It writes (0, z): the stream is (1, 7), its root mean square 5 (counterfactual: (1, -7), also 5).
- The neuron: gate ln 3, silu(ln 3) = 3/4 ln 3, other factor 7, product 21/4 ln 3; it writes (6, -6).
  Counterfactual: the other factor is -7, everything else the same, so it writes (-6, 6).
- The stream is (7, 1), again 5; the score is the difference of the two normalised coordinates, 6/5.

Backwards, with norms divided by a constant 5: the coefficients are (1/5, -1/5) at the end. Through the neuron, half to
each factor and ratio silu(g) / g = 3/4: 12/10 at the first coordinate of its input and 6/35 at the second. So after the
head (14/10, -1/35), which times (1, 7) is 6/5 again; at the head's z -1/35, at its values a quarter of that or three
quarters.
"""

from math import log

import torch

from vesalius.intervene import Batch, Readout, logit_difference
from vesalius.model import Config, Transformer


def hand_worked() -> tuple[Transformer, Batch, Batch, Readout]:
    """The model, its prompt, the counterfactual, and the readout."""
    config = Config(
        n_layers=2,
        n_heads=1,
        d_model=2,
        d_head=1,
        d_mlp=1,
        d_vocab=2,
        d_vocab_out=2,
        n_ctx=2,
        norm="rms",
        norm_eps=1e-12,
        activation="silu",
        gated=True,
    )
    model = Transformer(config).double().eval().requires_grad_(False)
    head, neuron = model.blocks[0].attn, model.blocks[1].mlp
    assert neuron.W_gate is not None
    for weight, numbers in (
        (model.W_E, [[1, 1], [1, -1]]),
        (head.query, [[1], [0]]),
        (head.key, [[0], [log(3) / 2]]),
        (head.value, [[10 / 3], [28 / 3]]),
        (head.output, [[0, 1]]),
        (neuron.W_gate, [[5 * log(3)], [0]]),
        (neuron.W_in, [[0], [5]]),
        (neuron.W_out, [[6 / (5.25 * log(3)), -6 / (5.25 * log(3))]]),
        (model.unembed_weight, [[1, 0], [0, 1]]),
    ):
        weight.copy_(torch.tensor(numbers, dtype=torch.float64))
    first, zero, one = torch.tensor([1]), torch.tensor([0]), torch.tensor([1])
    return model, Batch(torch.tensor([[0, 1]])), Batch(torch.tensor([[1, 1]])), logit_difference(first, zero, one)
