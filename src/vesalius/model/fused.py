"""Attention without its table of scores: long prompts whose scores and patterns nobody reads.

The table of scores grows with the square of the length, and at 4,096 tokens it is most of the memory and time of a
large model. `scaled_dot_product_attention` gives z without it. Short prompts keep our own sums, which are as fast there
and the same on every machine.
"""

from collections.abc import Sequence
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
    *,
    sinks: Float[Tensor, " head"] | None = None,
    by_key: Float[Tensor, "rows key 1 head"] | None = None,
) -> Float[Tensor, "batch query head d_head"]:
    """z of every head; without `attend`, every token sees itself and all before it. `sinks` are scores that take their
    share of the softmax and have no value; `by_key` is added to the scores of all queries on a key.
    """
    share, first, width = q.shape[2] // k.shape[2], 0, v.shape[-1]
    plain = attend is None and sinks is None and by_key is None
    shared = share > 1 and plain and shares_keys(q, k, v)
    if share > 1 and not shared:
        k, v = (x.repeat_interleave(share, 2) for x in (k, v))
    if by_key is not None:
        q, k = _with_scores_of_keys(q, k, by_key * divisor)
    if sinks is not None:
        first = int(attend is None)
        q, k, v, attend = _behind_sinks(q, k, v, attend, sinks * divisor)
    # The kernels without a table want one size of queries, keys and values.
    q, k, v = (x.transpose(1, 2) for x in as_wide((q, k, v)))
    bias = None
    if attend is not None:
        # Half of the least number: a kernel multiplies it, and a query that sees nothing must not become NaN.
        bias = q.new_zeros(attend.shape).masked_fill_(~attend, torch.finfo(q.dtype).min / 2)
        bias = bias.expand(len(q), q.shape[1], -1, -1)
    if q.is_meta:
        z = _Planned.apply(q, k, v)
    else:
        causal, scale = bias is None, 1 / divisor
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal, scale=scale, enable_gqa=shared)
    return z.transpose(1, 2)[:, first:, :, :width]


def as_wide(parts: Sequence[Tensor]) -> list[Tensor]:
    """Queries, keys and values as wide as the widest, zeros behind the others: values of latent attention have a size
    of their own.
    """
    widest = max(part.shape[-1] for part in parts)
    return [part if part.shape[-1] == widest else F.pad(part, (0, widest - part.shape[-1])) for part in parts]


def shares_keys(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether there is a kernel in which query heads share keys and values. Only some do, on a GPU; the others would
    fall back on the whole table.
    """
    if not q.is_cuda or torch.is_grad_enabled():
        return False
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    given = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, True, True)  # no mask, no dropout, causal, shared
    return torch.backends.cuda.can_use_flash_attention(given)


#: Kernels want head sizes that are multiples of this.
_ALIGNED = 8


def _behind_sinks(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key head d_head"],
    v: Float[Tensor, "batch key head d_head"],
    attend: Bool[Tensor, "rows 1 query key"] | None,
    product: Float[Tensor, " head"],
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The same with one more key in front, which every query sees: it has no value, and one more number of queries and
    keys gives it the `product` of each head's sink, since a mask would need a table for every head. Without a mask, a
    query in front keeps the order of queries and keys.
    """
    q = torch.cat([q, q.new_ones(*q.shape[:-1], 1), q.new_zeros(*q.shape[:-1], _ALIGNED - 1)], -1)
    k = F.pad(k, (0, _ALIGNED))
    sink = F.pad(product.to(k.dtype).view(1, 1, -1, 1), (k.shape[-1] - _ALIGNED, _ALIGNED - 1))
    k = torch.cat([sink.expand(len(k), -1, -1, -1), k], 1)
    v = F.pad(v, (0, 0, 0, 0, 1, 0))
    if attend is None:
        return F.pad(q, (0, 0, 0, 0, 1, 0)), k, v, None
    return q, k, v, F.pad(attend, (1, 0), value=True)


#: Numbers of half precision that hold one of float32 as their sum.
_PIECES = 3


def _with_scores_of_keys(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key head d_head"],
    product: Float[Tensor, "rows key 1 head"],
) -> tuple[Tensor, Tensor]:
    """Queries and keys with more numbers, whose products add a `product` of each key and head; in half precision it is
    cut into pieces, since one number there is too coarse for far positions.
    """
    pieces, rest = [], product.transpose(2, 3)
    for _ in range(_PIECES):
        pieces.append(rest.to(k.dtype))
        rest = rest - pieces[-1].to(rest.dtype)
    more = F.pad(torch.cat(pieces, -1), (0, _ALIGNED - _PIECES)).expand(len(k), -1, -1, -1)
    return torch.cat([q, q.new_ones(*q.shape[:-1], _ALIGNED)], -1), torch.cat([k, more], -1)


class _Planned(torch.autograd.Function):
    """What the kernels hold, for plans of memory: on tensors without numbers torch takes the formula with the table."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(x) for x in ctx.saved_tensors)
