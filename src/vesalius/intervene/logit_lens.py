"""The logit lens: what a vector in the final residual stream says about two tokens.

The final norm's scale is held at its value in the run, so that the logit difference is a sum over what was written into
the residual stream.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.model.transformer import Transformer


@torch.no_grad()
def direct_difference(
    model: Transformer,
    vector: Float[Tensor, "prompt d_model"],
    *,
    resid: Float[Tensor, "prompt d_model"],
    correct: Int[Tensor, " prompt"],
    wrong: Int[Tensor, " prompt"],
) -> Float[Tensor, " prompt"]:
    """What `vector`, as a part of the final residual stream `resid`, adds to logit(correct) - logit(wrong)."""
    norm = model.ln_final
    if norm.w is not None:
        if norm.b is not None:
            vector, resid = vector - vector.mean(-1, keepdim=True), resid - resid.mean(-1, keepdim=True)
        vector = vector / (resid.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w
    difference = model.unembed_weight[correct.to(model.device)] - model.unembed_weight[wrong.to(model.device)]
    return (vector * difference).sum(-1)
