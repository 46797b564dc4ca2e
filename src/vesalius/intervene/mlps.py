"""One MLP taken apart: what it reads, what it writes with some of its neurons kept or from another input, and where a
token stands in that. One layer's arithmetic each; no forward pass.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.written_tokens import last_norm
from vesalius.model.hooks import Cache, HookPoint, Tap
from vesalius.model.mlp import widened
from vesalius.model.transformer import Transformer


def mlp_input(model: Transformer, layer: int, cache: Cache) -> Float[Tensor, "prompt pos d_model"]:
    """What a layer's MLP reads, before its norm, in a run that has kept `RECORDED_HOOKS`."""
    before = cache[f"blocks.{layer}.hook_resid_pre"]
    return model.blocks[layer].mlp_input(before, before + cache[f"blocks.{layer}.hook_attn_out"])


@torch.no_grad()
def mlp_output(model: Transformer, mlp: Component, read: Float[Tensor, "prompt d_model"]) -> Tensor:
    """What an MLP writes from an input, without its output bias."""
    block = model.blocks[mlp.layer]
    return (block.write_mlp(read[:, None], Tap()) - block.mlp_bias)[:, 0]


@torch.no_grad()
def with_neurons_kept(
    model: Transformer,
    mlp: Component,
    neurons: Sequence[int],
    *,
    read: Float[Tensor, "prompt pos d_model"],
    other: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos d_model"]:
    """What an MLP writes where some neurons put out what they do for one input and all others what they do for
    another, without its output bias.
    """
    block, name = model.blocks[mlp.layer], f"blocks.{mlp.layer}.mlp.hook_post"
    tap = Tap(keep=lambda kept: kept == name)
    block.write_mlp(other, tap)
    put_out, kept = tap.stored[name], torch.tensor(list(neurons), dtype=torch.long, device=block.device)

    def swap(post: Tensor, _: HookPoint) -> Tensor:
        new = put_out.clone()
        new[..., kept] = post[..., kept]
        return new

    return block.write_mlp(read, Tap([(name, swap)])) - block.mlp_bias


@torch.no_grad()
def ranks(
    model: Transformer, vectors: Float[Tensor, "prompt d_model"], tokens: Int[Tensor, " prompt"]
) -> Float[Tensor, " prompt"]:
    """Of the other prompts' tokens the share that each prompt's own lies above, under the unembedding of a vector of
    each prompt; half of those that are equal. NaN where all prompts have one token.
    """
    ids = tokens.unique()
    read = last_norm(model, vectors)  # at any scale: the order of the logits is the same
    logits = (read @ widened(model.unembed_weight[ids.to(read.device)]).T).cpu()
    own = logits[torch.arange(len(tokens)), torch.searchsorted(ids, tokens)][:, None]
    above = (own > logits).float().sum(1) + 0.5 * ((own == logits).float().sum(1) - 1)
    return above / (len(ids) - 1) if len(ids) > 1 else torch.full((len(tokens),), torch.nan)


@torch.no_grad()
def final_margin(
    model: Transformer,
    resid: Float[Tensor, "prompt d_model"],
    over: Int[Tensor, " prompt"],
    under: Int[Tensor, " prompt"],
) -> Float[Tensor, " prompt"]:
    """logit(over) - logit(under) of last residual streams."""
    logits = model.unembed(resid[:, None], None, Tap())[:, 0]
    rows = torch.arange(len(resid), device=logits.device)
    return (logits[rows, over.to(logits.device)] - logits[rows, under.to(logits.device)]).float().cpu()
