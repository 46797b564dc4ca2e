"""The arithmetic model with a planted layer: one head favours the answer under the logit lens, and nothing needs it.

The fourth layer is added by hand. L3H0 attends to its own position, by biases that rotary positions make largest there,
and writes a part of the residual stream again: its projection on the directions that tell the unembedded tokens apart
best. The answer is there already, so the head favours it under the logit lens; without the head the model is the
shipped one, which is right by itself. The other heads and the MLP of the layer write nothing. By probability, which has
no more to gain, no replacement of L3H0 costs anything.
"""

from dataclasses import replace

import torch

from vesalius.api import load
from vesalius.behaviours.natural import with_behaviour
from vesalius.model import Transformer
from vesalius.model.specimen import Specimen

PLANTED = "L3H0"
#: How strongly it writes, as a multiple of the normalised stream; and how sharply it attends.
STRENGTH, SHARP = 0.22, 8.0


def arithmetic_with_planted_head() -> Specimen:
    """The specimen, scored by the probability of the answer."""
    original = load("arithmetic", device="cpu")
    model = Transformer(original.model.config.model_copy(update={"n_layers": 4}))
    with torch.no_grad():
        for name, parameter in model.blocks[3].named_parameters():
            parameter.fill_(1.0 if name in ("ln1.w", "ln2.w") else 0.0)
        model.load_state_dict(original.model.state_dict(), strict=False)
        block, unembed = model.blocks[3], model.W_U.T  # [token, d_model]
        directions = torch.linalg.svd((unembed - unembed.mean(0)).double(), full_matrices=False).Vh
        copied = directions[: model.config.d_head].float()
        block.attn.b_Q[0].fill_(SHARP)
        block.attn.b_K[0].fill_(SHARP)
        block.attn.W_V[0].copy_(copied.T)
        block.attn.W_O[0].copy_(STRENGTH * copied)
    planted = replace(original, name="arithmetic, one head planted", model=model, components=tuple(model.components))
    return with_behaviour(planted, None, metric="probability")
