"""Attention: projections, rotation, scores, and what each head writes.

Queries, keys and values carry the norms and limits that a family puts on them; hook points `hook_q`, `hook_k` and
`hook_v` stand after those and before the rotation.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vesalius.model.config import Config
from vesalius.model.fused import attend_fused, may_fuse
from vesalius.model.hooks import Tap
from vesalius.model.mlp import NormLayer, affine, widened
from vesalius.model.positions import Layout, rotate

HeadPort = Literal["q", "k", "v"]
_QUIET = Tap()
#: What fused attention never holds.
_TABLES = ("hook_attn_scores", "hook_pattern")
#: Where attention is computed rows-last: many rows, small heads, short prompts.
_MANY_ROWS, SMALL_HEAD, _SHORT = 64, 8, 16


class Heads(NamedTuple):
    """Queries, keys and values before mixing; keys and values may have fewer heads (grouped-query attention)."""

    q: Float[Tensor, "batch query head d_head"]
    k: Float[Tensor, "batch key kv_head d_head"]
    v: Float[Tensor, "batch key kv_head d_head"]


class Attention(nn.Module):
    """Attention with its weights as matrices over all heads; `W_Q`, `W_K`, `W_V`, `W_O` are views per head in
    TransformerLens shape.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.prefix = config, f"blocks.{layer}.attn."
        self.reach, self.rotary = config.reach_of(layer), config.rotary_of(layer)
        self.qk_norm = config.qk_norm_of(layer)
        self.scales_queries = config.query_scale is not None and layer in config.query_scale.layers
        self.divisor = config.divisor
        d, wide = config.d_model, config.n_heads * config.d_value
        self.make_inputs()
        self.output, self.b_O = nn.Parameter(torch.zeros(wide, d)), nn.Parameter(torch.zeros(d))
        self.sinks = nn.Parameter(torch.zeros(config.n_heads)) if config.sinks else None

    def make_inputs(self) -> None:
        """The weights of queries, keys and values."""
        config = self.config
        d, dh, h, kv = config.d_model, config.d_head, config.n_heads, config.n_kv_heads
        self.ends = (h * dh, (h + kv) * dh, (h + 2 * kv) * dh)
        self.qkv, self.b_qkv = nn.Parameter(torch.zeros(d, self.ends[2])), nn.Parameter(torch.zeros(self.ends[2]))
        widths = {"none": (1, 1), "head": (dh, dh), "all": (h * dh, kv * dh)}[self.qk_norm]
        kind = "none" if self.qk_norm == "none" else "rms"
        self.q_norm, self.k_norm = (
            NormLayer(kind, width, config.norm_eps, f"{self.prefix}{letter}_norm")
            for letter, width in zip("qk", widths, strict=True)
        )

    query = property(lambda self: self.qkv[:, : self.ends[0]], doc="[d_model, n_heads * d_head]")
    key = property(lambda self: self.qkv[:, self.ends[0] : self.ends[1]], doc="[d_model, n_kv_heads * d_head]")
    value = property(lambda self: self.qkv[:, self.ends[1] :], doc="[d_model, n_kv_heads * d_head]")
    W_Q = property(lambda self: per_head(self.query, self.config.n_heads), doc="[n_heads, d_model, d_head]")
    W_K = property(lambda self: per_head(self.key, self.config.n_kv_heads), doc="[n_kv_heads, d_model, d_head]")
    W_V = property(lambda self: per_head(self.value, self.config.n_kv_heads), doc="[n_kv_heads, d_model, d_head]")
    W_O = property(
        lambda self: self.output.view(self.config.n_heads, self.config.d_value, -1), doc="[n_heads, d_value, d_model]"
    )
    b_Q = property(lambda self: self.b_qkv[: self.ends[0]].view(self.config.n_heads, -1), doc="[n_heads, d_head]")
    b_K = property(
        lambda self: self.b_qkv[self.ends[0] : self.ends[1]].view(self.config.n_kv_heads, -1),
        doc="[n_kv_heads, d_head]",
    )
    b_V = property(lambda self: self.b_qkv[self.ends[1] :].view(self.config.n_kv_heads, -1), doc="[n_kv_heads, d_head]")

    #: The weights under TransformerLens' names, and the norms within; a weight that is None is not there.
    weights: tuple[str, ...] = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "sinks")
    norms: tuple[str, ...] = ("q_norm", "k_norm")

    @property
    def linear(self) -> bool:
        """Whether queries, keys and values are linear in their input."""
        return self.qk_norm == "none" and self.config.clip_qkv is None

    def heads(self, x: Float[Tensor, "batch pos d_model"], at: Int[Tensor, "batch query"] | None, tap: Tap) -> Heads:
        """Project normalised input to queries (at chosen positions only, if given), keys and values, before
        rotation.
        """
        shape, flat = x.shape[:2], x.flatten(0, 1)
        if at is None:
            q, k, v = affine(flat, self.qkv, self.b_qkv).tensor_split(self.ends[:2], 1)
            q = q.view(*shape, -1)
        else:
            cut = self.ends[0]
            q = torch.addmm(self.b_qkv[:cut], take_positions(x, at).flatten(0, 1), self.query).view(*at.shape, -1)
            k, v = torch.addmm(self.b_qkv[cut:], flat, self.qkv[:, cut:]).tensor_split((self.ends[1] - cut,), 1)
        parts = zip("qkv", (q, k.view(*shape, -1), v.view(*shape, -1)), strict=True)
        return Heads(*(tap(f"{self.prefix}hook_{port}", self._finish(port, x, tap)) for port, x in parts))

    def apart(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Heads:
        """Queries, keys and values of every query head apart, before rotation."""
        q, k, v = self.heads(x, None, tap)
        share = self.config.queries_per_kv
        return Heads(q, *(part if share == 1 else part.repeat_interleave(share, 2) for part in (k, v)))

    def own(
        self,
        port: HeadPort,
        x: Float[Tensor, "*batch head row d_model"],
        query_heads: Sequence[int],
        *,
        tap: Tap = _QUIET,
    ) -> Float[Tensor, "*batch head row d_head"]:
        """The queries, keys or values of query heads, each from an input of its own. Where a norm joins all heads, a
        head's vector is what it would be if all heads read its input.
        """
        weights, biases = {"q": (self.W_Q, self.b_Q), "k": (self.W_K, self.b_K), "v": (self.W_V, self.b_V)}[port]
        sources = list(query_heads) if port == "q" else [head // self.config.queries_per_kv for head in query_heads]
        raw = self._clipped(x @ weights[sources] + biases[sources, None])
        norm = {"q": self.q_norm, "k": self.k_norm}.get(port)
        if norm is None or norm.w is None:
            return raw
        if self.qk_norm == "head":
            return norm(raw, tap)
        whole = {"q": self.query, "k": self.key}[port]
        scales = [norm.scale(self._clipped(x[..., i, :, :] @ whole + biases.flatten())) for i in range(x.shape[-3])]
        scale = tap(f"{norm.prefix}.hook_scale", torch.stack(scales, -3))
        weight = norm.w.view(len(weights), 1, -1)[sources]
        return (widened(raw) / scale * weight).to(raw.dtype)

    def held(
        self,
        port: HeadPort,
        head: int,
        x: Float[Tensor, "place d_model"],
        parts: Float[Tensor, "part place d_model"],
        *,
        biased: bool,
    ) -> Float[Tensor, "part place d_head"]:
        """What parts of a normalised input add to a head's query, key or value, with norms and limits held at what they
        do to the whole input `x`. With `biased` the last part has the biases as well.
        """
        whole = {"q": self.query, "k": self.key, "v": self.value}[port].to(x)
        bias = {"q": self.b_Q, "k": self.b_K, "v": self.b_V}[port].to(x).flatten()
        width, head = self.config.d_head, head if port == "q" else head // self.config.queries_per_kv
        own = slice(head * width, (head + 1) * width)
        raw, added = x @ whole + bias, parts @ whole[:, own]
        if biased:
            added[-1] += bias[own]
        if (limit := self.config.clip_qkv) is not None:
            factor = torch.where(raw == 0, 1.0, raw.clamp(-limit, limit) / raw)
            raw, added = raw * factor, added * factor[:, own]
        norm = {"q": self.q_norm, "k": self.k_norm}.get(port)
        if norm is None or norm.w is None:
            return added
        joint = self.qk_norm == "all"
        weight = norm.w.to(x)[own] if joint else norm.w.to(x)
        return added / norm.scale(raw if joint else raw[:, own]) * weight

    def keys_at(
        self,
        k: Float[Tensor, "*unit head d_head"],
        layout: Layout,
        row: Int[Tensor, " unit"] | slice = slice(None),
        position: Int[Tensor, " unit"] | slice = slice(None),
    ) -> Float[Tensor, "*unit head d_head"]:
        """Keys rotated to their places: those of every row at every position, or single ones."""
        if self.rotary is None:
            return k
        cos, sin = layout.rotations[self.rotary]
        if len(cos) == 1 and isinstance(row, Tensor):
            row = torch.zeros_like(row)
        cos, sin = cos[row, position], sin[row, position]
        return rotate(k, cos, sin) if k.ndim == cos.ndim else rotate(k[:, 0], cos, sin)[:, None]

    def mix(
        self,
        heads: Heads,
        layout: Layout,
        at: Int[Tensor, "batch query"] | None,
        tap: Tap,
        *,
        which: Sequence[int] | None = None,
        rotated: bool = False,
    ) -> Float[Tensor, "batch query head d_head"]:
        """Attend: rotate, score, mask, normalise, average the values. Returns z, one vector per head; the heads given
        are all of the layer's query heads, or these (`which`). Keys may be `rotated` already.
        """
        q, k, v = heads
        attend = layout.seen(self.reach)
        if at is not None:
            attend = take_positions(attend[:, 0].expand(len(at), -1, -1), at).unsqueeze(1)
        if self.rotary is not None:
            cos, sin = layout.rotations[self.rotary]
            q = rotate(q, _at_queries(cos, at), _at_queries(sin, at))
            k = k if rotated else rotate(k, cos, sin)
        if self.scales_queries and layout.query_scale is not None:
            q = q * _at_queries(layout.query_scale, at)
        if self.rotary is not None:
            q = tap(self.prefix + "hook_rot_q", q)
            k = k if rotated else tap(self.prefix + "hook_rot_k", k)
        sinks, alibi = self.sinks, layout.alibi
        if which is not None:
            sinks, alibi = (x if x is None else x[..., list(which)] for x in (sinks, alibi))
        tiny = len(q) >= _MANY_ROWS and q.shape[3] <= SMALL_HEAD and k.shape[1] <= _SHORT
        if tap.idle and tiny and self.config.attn_softcap is None and sinks is None and alibi is None:
            return _mix_rows_last(q, k, v, attend, self.divisor)
        if may_fuse(self.config, k.shape[1]) and not any(tap.needs(self.prefix + name) for name in _TABLES):
            plain = at is None and layout.plain and self.reach not in layout.limited
            z = attend_fused(q, k, v, None if plain else attend, self.divisor, sinks=sinks, by_key=alibi)
            return tap(self.prefix + "hook_z", z)
        batch, n_query, n_heads, _ = q.shape
        kv = k.shape[2]
        # Query heads that share a key-value head are laid end to end along the query axis, so nothing is copied.
        grouped = q.permute(0, 2, 1, 3).reshape(batch, kv, -1, q.shape[-1])
        scores = (grouped @ k.permute(0, 2, 3, 1)).view(batch, n_heads, n_query, -1).div_(self.divisor)
        if alibi is not None:
            scores.add_(alibi.permute(0, 3, 2, 1) - _at_queries(alibi, at).permute(0, 3, 1, 2))
        scores = soft_cap(scores, self.config.attn_softcap).masked_fill_(~attend, torch.finfo(scores.dtype).min)
        scores = tap(self.prefix + "hook_attn_scores", scores)
        short = tap.idle and scores.is_cpu and scores.shape[-1] < _SHORT and not torch.is_grad_enabled()
        if short and sinks is None:
            normalised = _softmax_along_rows(widened(scores))
        else:
            normalised = attention_weights(widened(scores), sinks)
        pattern = tap(self.prefix + "hook_pattern", normalised.to(scores.dtype))
        z = pattern.view(batch, kv, -1, pattern.shape[-1]) @ v.permute(0, 2, 1, 3)
        return tap(self.prefix + "hook_z", z.view(batch, n_heads, n_query, -1).permute(0, 2, 1, 3))

    def moved(
        self, x: Float[Tensor, "batch pos d_model"], layout: Layout, head: int
    ) -> Float[Tensor, "batch pos d_head"]:
        """The values that a query head moves, from normalised input."""
        return self.own("v", x[:, None], [head])[:, 0]

    def values(
        self, v: Float[Tensor, "batch key kv_head d_head"], layout: Layout
    ) -> Float[Tensor, "batch key kv_head d_head"]:
        """What patterns weigh, of what stands in the place of values in `Heads`: here the values themselves."""
        return v

    def read_values(self, x: Float[Tensor, "n d_model"]) -> Float[Tensor, "n head d_head"]:
        """The values that every query head takes from normalised input, without their bias."""
        values = torch.einsum("nd,hdk->nhk", x, widened(self.W_V))
        return values.repeat_interleave(self.config.queries_per_kv, 1)

    def result(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head d_model"]:
        """Each head's own output, z W_O."""
        return torch.einsum("bphk,hkd->bphd", z, self.W_O)

    def out(self, z: Float[Tensor, "batch pos head d_head"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """Sum of the heads' results and the output bias."""
        if tap.needs(self.prefix + "hook_result"):
            return tap(self.prefix + "hook_result", self.result(z)).sum(2) + self.b_O
        return affine(z.flatten(2).flatten(0, 1), self.output, self.b_O).view(*z.shape[:2], -1)

    def _finish(
        self, port: str, x: Float[Tensor, "batch pos wide"], tap: Tap
    ) -> Float[Tensor, "batch pos head d_head"]:
        """Limit, norm and split a projection into heads."""
        x, norm = self._clipped(x), {"q": self.q_norm, "k": self.k_norm}.get(port)
        if norm is not None and self.qk_norm == "all":
            x = norm(x, tap)
        x = x.view(*x.shape[:2], -1, self.config.d_head)
        return norm(x, tap) if norm is not None and self.qk_norm == "head" else x

    def _clipped(self, x: Tensor) -> Tensor:
        limit = self.config.clip_qkv
        return x if limit is None else x.clamp(-limit, limit)


def attention_weights(
    scores: Float[Tensor, "batch head query key"], sinks: Float[Tensor, " head"] | None
) -> Float[Tensor, "batch head query key"]:
    """The softmax over keys. A head's sink is one more score in it, whose share goes to no key."""
    if sinks is None:
        return scores.softmax(-1)
    sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]


def _softmax_along_rows(scores: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query key"]:
    """The same over few keys, without sinks. Along the last axis torch takes sixteen numbers at a time and what is left
    one by one; along the rows it is three times as fast for ten keys.
    """
    return scores.flatten(0, 2).t().softmax(0).t().view(scores.shape)


def soft_cap(x: Tensor, cap: float | None) -> Tensor:
    """`cap` tanh(x / `cap`); without a cap, x."""
    return x if cap is None else torch.tanh(x / cap) * cap


def take_positions(
    x: Float[Tensor, "batch pos *rest"], at: Int[Tensor, "batch query"]
) -> Float[Tensor, "batch query *rest"]:
    """Rows of `x` at chosen positions, different ones in every batch row."""
    return x[torch.arange(len(x), device=x.device)[:, None], at]


def _mix_rows_last(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_head"],
    attend: Bool[Tensor, "rows 1 query key"],
    divisor: float,
) -> Float[Tensor, "batch query head d_head"]:
    """Attention with the batch as the innermost axis: for thousands of tiny rows, every step runs along long vectors.

    The same sums as the general path; about ten times less time at benchmark sizes (d_head 1 to 8, ten tokens).
    """
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.permute(1, 3, 2, 0) for x in (q, k, v))  # [pos, d_head, head, batch]
    q = (q * (1 / divisor)).contiguous()
    k, v = (x.repeat_interleave(share, 2) if share > 1 else x.contiguous() for x in (k, v))
    bias = q.new_zeros(attend.shape).masked_fill_(~attend, torch.finfo(q.dtype).min).permute(2, 3, 1, 0)
    scores = torch.addcmul(bias, q[:, None, 0], k[None, :, 0])
    for d in range(1, q.shape[1]):
        scores.addcmul_(q[:, None, d], k[None, :, d])
    pattern = widened(scores).softmax(1).to(v.dtype)
    z = pattern[:, 0, None] * v[None, 0]
    for key in range(1, len(v)):
        z.addcmul_(pattern[:, key, None], v[None, key])
    return z.permute(3, 0, 2, 1)


def per_head(weight: Float[Tensor, "d_model wide"], n: int) -> Float[Tensor, "head d_model d_head"]:
    return weight.view(weight.shape[0], n, -1).permute(1, 0, 2)


def _at_queries(x: Float[Tensor, "rows pos 1 wide"], at: Int[Tensor, "batch query"] | None) -> Tensor:
    """What belongs to positions, at those of the queries."""
    return x if at is None else take_positions(x.expand(len(at), -1, -1, -1), at)
