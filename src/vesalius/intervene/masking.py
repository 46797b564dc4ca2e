"""Runs in which every component is mixed with its value on the counterfactual, by a mask that can be learned."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.intervene.readout import Readout, chosen_logits
from vesalius.intervene.values import Batch, Values
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer


def masked_scores(
    model: Transformer,
    batch: Batch,
    counterfactual: Values,
    readout: Readout,
    mask: Float[Tensor, " component"],
    *,
    where: Bool[Tensor, "prompt pos"] | None = None,
    hooks: Sequence[Hook] = (),
) -> Float[Tensor, " prompt"]:
    """The score of each prompt where a component puts out `mask` times what it computes plus (1 - `mask`) times what it
    computes on the counterfactual; only at the positions `where` (None: everywhere). Gradients reach the mask; `hooks`
    may give them other slopes.
    """
    batch, n = batch.to(model.device), len(batch)
    mixing = _mixing(model, counterfactual, mask.to(model.device), None if where is None else where.to(model.device))
    with torch.set_grad_enabled(mask.requires_grad):
        logits = model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=[*hooks, *mixing])
        rows = torch.arange(n, device=logits.device)
        if readout.at is not None:
            logits = logits[rows[:, None], readout.at.to(logits.device)]
        return readout.score(chosen_logits(readout, logits, rows), rows).cpu()


def _mixing(model: Transformer, other: Values, mask: Float[Tensor, " component"], where: Tensor | None) -> list[Hook]:
    """Hooks that mix what heads and MLPs put out with the counterfactual's values."""
    n_heads = model.config.n_heads

    def heads(value: Tensor, hook: HookPoint) -> Tensor:
        layer = hook.layer()
        open_ = mask[layer * (n_heads + 1) : layer * (n_heads + 1) + n_heads].to(value)[None, None, :, None]
        return _mixed(value, other.z[layer], open_, None if where is None else where[:, :, None, None])

    def mlp(value: Tensor, hook: HookPoint) -> Tensor:
        layer = hook.layer()
        replaced = other.mlp[layer] + model.blocks[layer].mlp_bias
        open_ = mask[layer * (n_heads + 1) + n_heads].to(value)
        return _mixed(value, replaced, open_, None if where is None else where[:, :, None])

    return [
        (lambda name: name.endswith("attn.hook_z"), heads),
        (lambda name: name.endswith("hook_mlp_out"), mlp),
    ]


def _mixed(value: Tensor, replaced: Tensor, open_: Tensor, where: Tensor | None) -> Tensor:
    mixed = open_ * value + (1 - open_) * replaced.to(value.device)
    return mixed if where is None else torch.where(where, mixed, value)
