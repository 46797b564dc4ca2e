"""The logit lens: what a vector in the final residual stream says about two tokens.

The final norm's scale is held at its value in the run, so that the logit difference is a sum over what was written into
the residual stream. A soft cap on the logits is left out: the difference is of uncapped logits.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.model.mlp import widened
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
    """What `vector`, as a part of the final residual stream `resid`, adds to logit(correct) - logit(wrong), or to
    logit(correct) minus the mean logit where `wrong` is -1.
    """
    norm, weight = model.ln_final, model.unembed_weight
    vector, resid, rival = widened(vector.to(weight.device)), resid.to(weight.device), wrong.to(weight.device)
    if norm.w is not None:
        vector = norm.share(vector, norm.scale(resid))
    against = weight[rival.clamp(min=0)]
    if bool((rival < 0).any()):
        against = torch.where((rival < 0)[:, None], weight.mean(0), against)
    return (vector * widened(weight[correct.to(weight.device)] - against)).sum(-1)


@torch.no_grad()
def direct_logits(
    model: Transformer, vector: Float[Tensor, "prompt d_model"], *, resid: Float[Tensor, "prompt d_model"]
) -> Float[Tensor, "prompt vocab"]:
    """What `vector`, as a part of the final residual stream `resid`, adds to every logit; the norm's and the
    unembedding's own biases and a soft cap are left out.
    """
    norm, weight = model.ln_final, model.unembed_weight
    vector, resid = widened(vector.to(weight.device)), resid.to(weight.device)
    if norm.w is not None:
        vector = norm.share(vector, norm.scale(resid))
    return vector @ widened(weight).T


@torch.no_grad()
def neuron_logits(model: Transformer, neuron: Component) -> Float[Tensor, " vocab"]:
    """What a neuron's output direction adds to every logit where its activation is positive, but for a positive factor:
    the scale of the norms behind it is that of the direction alone.
    """
    block = model.blocks[neuron.layer]
    direction = block.mlp.W_out[neuron.neuron][None]
    if block.ln2_post.w is not None:
        direction = block.ln2_post.share(direction, block.ln2_post.scale(direction))
    return direct_logits(model, direction, resid=direction)[0]
