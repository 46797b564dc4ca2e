"""Attention without its table of scores: long prompts whose scores and patterns nobody reads.

The table of scores grows with the square of the length, and at 4,096 tokens it is most of the memory and time of a
large model. `scaled_dot_product_attention` gives z without it. Short prompts keep our own sums, which are as fast there
and the same on every machine.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from vesalius.model.config import Config

#: Keys from which on attention is fused where it can be.
FUSED_FROM: int = 128


def may_fuse(config: Config, keys: int) -> bool:
    """Whether attention over so many keys is fused where its scores and patterns are not asked for."""
    return keys >= FUSED_FROM and config.attn_softcap is None


def attend_fused(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_head"],
    attend: Bool[Tensor, "rows 1 query key"] | None,
    divisor: float,
) -> Float[Tensor, "batch query head d_head"]:
    """z of every head; without `attend`, every token sees itself and all before it."""
    share = q.shape[2] // k.shape[2]
    if share > 1:  # only some kernels share keys between heads, and the others would fall back on the whole table
        k, v = (x.repeat_interleave(share, 2) for x in (k, v))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    bias = None
    if attend is not None:
        # Half of the least number: a kernel multiplies it, and a query that sees nothing must not become NaN.
        bias = q.new_zeros(attend.shape).masked_fill_(~attend, torch.finfo(q.dtype).min / 2)
        bias = bias.expand(len(q), q.shape[1], -1, -1)
    if q.is_meta:
        z = _Planned.apply(q, k, v)
    else:
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None, scale=1 / divisor)
    return z.transpose(1, 2)


class _Planned(torch.autograd.Function):
    """What the kernels hold, for plans of memory: on tensors without numbers torch takes the formula with the table."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors)
