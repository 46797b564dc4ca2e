"""What a component writes where something is added to its inputs alone: one layer's arithmetic, no forward pass."""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.values import Batch, Values
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Transformer


@torch.no_grad()
def output_with(
    model: Transformer,
    component: Component,
    batch: Batch,
    *,
    resid: Float[Tensor, "prompt pos d_model"],
    values: Values,
    change: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos width"]:
    """A head's z, or an MLP's output without its bias, where it reads `change` beside what it reads in a run of the
    batch; `resid` enters its layer there, and `values` are what the components write.
    """
    block = model.blocks[component.layer]
    if component.head is None:
        after = resid + block.write_heads(values.z[component.layer], Tap())
        return block.write_mlp(block.mlp_input(resid, after) + change, Tap()) - block.mlp_bias
    heads = block.attn.heads(block.ln1(resid + change, Tap()), None, Tap())
    layout = model.layout(batch.tokens, batch.mask).on(block.device)
    return block.attn.mix(heads, layout, None, Tap())[:, :, component.head]


@torch.no_grad()
def logits_with(
    model: Transformer,
    *,
    resid: Float[Tensor, "prompt pos d_model"],
    values: Values,
    change: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos out"]:
    """The logits where the output reads `change` beside what it reads in a run; `resid` enters the last layer there."""
    last = model.config.n_layers - 1
    block = model.blocks[last]
    final = resid + block.write_heads(values.z[last], Tap()) + values.mlp[last] + block.mlp_bias
    return model.unembed(final + change, None, Tap())
