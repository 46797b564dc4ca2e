"""Copies of a transformer whose weights were changed so that one thing about it is known to be different."""

from copy import deepcopy

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.model.transformer import Transformer


@torch.no_grad()
def component_output(
    model: Transformer, component: Component, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_model"]:
    """What a head or an MLP writes into the residual stream, a head without the bias that all share."""
    _, cache = model.run_with_cache(tokens, mask=mask)
    prefix = f"blocks.{component.layer}."
    if component.head is None:
        return cache[f"{prefix}hook_mlp_out"]
    return cache[f"{prefix}attn.hook_z"][:, :, component.head] @ model.blocks[component.layer].attn.W_O[component.head]


@torch.no_grad()
def with_constant(model: Transformer, component: Component, output: Float[Tensor, " d_model"]) -> Transformer:
    """The model with a head or an MLP that writes the same vector whatever it reads."""
    model = deepcopy(model)
    block = model.blocks[component.layer]
    if component.head is None:
        block.mlp.W_out.zero_()
        block.mlp.b_out.copy_(output)
    else:
        block.attn.W_O[component.head] = 0.0
        block.attn.b_O.add_(output)
    return model


@torch.no_grad()
def with_heads_swapped(model: Transformer, first: Component, second: Component) -> Transformer:
    """The model with two heads of a layer in each other's place; it computes what it computed. Heads that share keys
    and values cannot change places.
    """
    assert first.head is not None
    assert second.head is not None
    assert first.layer == second.layer
    model = deepcopy(model)
    attention, width = model.blocks[first.layer].attn, model.config.d_head
    order = torch.arange(model.config.n_heads)
    order[[first.head, second.head]] = order[[second.head, first.head]]
    places = (order[:, None] * width + torch.arange(width)).flatten()
    thirds = torch.cat([places + start for start in (0, *attention.ends[:2])])
    attention.qkv.copy_(attention.qkv[:, thirds].clone())
    attention.b_qkv.copy_(attention.b_qkv[thirds].clone())
    attention.output.copy_(attention.output[places].clone())
    return model


@torch.no_grad()
def with_tokens_swapped(model: Transformer, first: int, second: int) -> Transformer:
    """The model that takes each of two tokens, by their ids, for the other."""
    model = deepcopy(model)
    model.W_E[[first, second]] = model.W_E[[second, first]].clone()
    return model
