"""A slow reference implementation: one hooked run of one transformer per intervention."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vesalius.model import Component, Transformer


def node_outputs(model: Transformer, tokens: Tensor) -> dict[Component, Tensor]:
    """The output of each component: a head's z, an MLP's output without its bias; [batch, pos, width]."""
    _, cache = model.run_with_cache(tokens)
    outputs = {}
    for layer, block in enumerate(model.blocks):
        for head in range(model.config.n_heads):
            outputs[Component(layer, head)] = cache[f"blocks.{layer}.attn.hook_z"][:, :, head]
        outputs[Component(layer)] = cache[f"blocks.{layer}.hook_mlp_out"] - block.mlp.b_out
    return outputs


def patched_logits(model: Transformer, tokens: Tensor, new: Mapping[Component, Tensor], where: Tensor) -> Tensor:
    """Logits when the components in `new` take these values at the positions in `where` [batch, pos]."""
    hooks = []
    for layer, block in enumerate(model.blocks):

        def heads(z: Tensor, hook: object, layer: int = layer) -> Tensor:
            z = z.clone()
            for component, value in new.items():
                if component.layer == layer and component.head is not None:
                    z[:, :, component.head] = torch.where(where[..., None], value, z[:, :, component.head])
            return z

        def mlp(out: Tensor, hook: object, layer: int = layer, bias: Tensor = block.mlp.b_out) -> Tensor:
            if Component(layer) not in new:
                return out
            return torch.where(where[..., None], new[Component(layer)] + bias, out)

        hooks += [(f"blocks.{layer}.attn.hook_z", heads), (f"blocks.{layer}.hook_mlp_out", mlp)]
    return model.run_with_hooks(tokens, fwd_hooks=hooks)
