"""One small decoder whose activations can be read and replaced at every point.

It covers the benchmark circuits, GPT-2 and the Llama family: no norm, LayerNorm or RMSNorm; learned or rotary
positions; grouped-query attention; plain or gated MLP; causal or bidirectional; separate sizes of input and output
vocabulary. Hook points carry TransformerLens names.

A pass is: `layout` (positions, and which tokens may attend to which) -> `embed` -> blocks -> `unembed`. The same four
steps are public, because the intervention engine restarts in the middle and reads only a few logits at the end.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.components import Component, all_components
from vesalius.errors import BadInput
from vesalius.model.config import Config, Rotary
from vesalius.model.hooks import Cache, Hook, NameFilter, Tap, name_filter

_ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}

#: Where attention is computed rows-last: many rows, small heads, short prompts.
_MANY_ROWS, _SMALL_HEAD, _SHORT = 64, 8, 16


@dataclass(frozen=True)
class Layout:
    """Positions of the tokens of a batch and which pairs may attend. `rows` of 1 serve every row of the batch."""

    attend: Bool[Tensor, "rows 1 query key"]
    positions: Int[Tensor, "rows pos"]
    cos: Float[Tensor, "rows pos 1 d_head"] | None
    sin: Float[Tensor, "rows pos 1 d_head"] | None

    def take(self, rows: Int[Tensor, " n"] | slice) -> "Layout":
        """The layout of chosen rows (a shared layout is its own selection)."""
        if self.attend.shape[0] == 1:
            return self
        cos = None if self.cos is None else self.cos[rows]
        sin = None if self.sin is None else self.sin[rows]
        return Layout(self.attend[rows], self.positions[rows], cos, sin)


class Heads(NamedTuple):
    """Queries, keys and values before mixing; keys and values may have fewer heads (grouped-query attention)."""

    q: Float[Tensor, "batch query head d_head"]
    k: Float[Tensor, "batch key kv_head d_head"]
    v: Float[Tensor, "batch key kv_head d_head"]


class NormLayer(nn.Module):
    """LayerNorm, RMSNorm or nothing, with its hook points."""

    def __init__(self, config: Config, prefix: str) -> None:
        super().__init__()
        self.kind, self.eps, self.prefix = config.norm, config.norm_eps, prefix
        self.w = nn.Parameter(torch.ones(config.d_model)) if config.norm != "none" else None
        self.b = nn.Parameter(torch.zeros(config.d_model)) if config.norm == "layer" else None

    def forward(self, x: Float[Tensor, "*batch d_model"], tap: Tap) -> Float[Tensor, "*batch d_model"]:
        if self.w is None:
            return x
        if self.b is not None:
            x = x - x.mean(-1, keepdim=True)
        scale = tap(f"{self.prefix}.hook_scale", (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = x / scale * self.w
        return tap(f"{self.prefix}.hook_normalized", x if self.b is None else x + self.b)


class Attention(nn.Module):
    """Attention with its weights as matrices over all heads; `W_Q`, `W_K`, `W_V`, `W_O` are views per head in
    TransformerLens shape.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.config, self.prefix = config, f"blocks.{layer}.attn."
        d, dh, h, kv = config.d_model, config.d_head, config.n_heads, config.n_kv_heads
        self.ends = (h * dh, (h + kv) * dh, (h + 2 * kv) * dh)
        self.qkv, self.b_qkv = nn.Parameter(torch.zeros(d, self.ends[2])), nn.Parameter(torch.zeros(self.ends[2]))
        self.output, self.b_O = nn.Parameter(torch.zeros(h * dh, d)), nn.Parameter(torch.zeros(d))

    query = property(lambda self: self.qkv[:, : self.ends[0]], doc="[d_model, n_heads * d_head]")
    key = property(lambda self: self.qkv[:, self.ends[0] : self.ends[1]], doc="[d_model, n_kv_heads * d_head]")
    value = property(lambda self: self.qkv[:, self.ends[1] :], doc="[d_model, n_kv_heads * d_head]")
    W_Q = property(lambda self: _per_head(self.query, self.config.n_heads), doc="[n_heads, d_model, d_head]")
    W_K = property(lambda self: _per_head(self.key, self.config.n_kv_heads), doc="[n_kv_heads, d_model, d_head]")
    W_V = property(lambda self: _per_head(self.value, self.config.n_kv_heads), doc="[n_kv_heads, d_model, d_head]")
    W_O = property(
        lambda self: self.output.view(self.config.n_heads, self.config.d_head, -1), doc="[n_heads, d_head, d_model]"
    )
    b_Q = property(lambda self: self.b_qkv[: self.ends[0]].view(self.config.n_heads, -1), doc="[n_heads, d_head]")
    b_K = property(
        lambda self: self.b_qkv[self.ends[0] : self.ends[1]].view(self.config.n_kv_heads, -1),
        doc="[n_kv_heads, d_head]",
    )
    b_V = property(lambda self: self.b_qkv[self.ends[1] :].view(self.config.n_kv_heads, -1), doc="[n_kv_heads, d_head]")

    def heads(self, x: Float[Tensor, "batch pos d_model"], at: Int[Tensor, "batch query"] | None, tap: Tap) -> Heads:
        """Project normalised input to queries (at chosen positions only, if given), keys and values, before
        rotation.
        """
        shape, flat, d_head = x.shape[:2], x.flatten(0, 1), self.config.d_head
        if at is None:
            q, k, v = torch.addmm(self.b_qkv, flat, self.qkv).tensor_split(self.ends[:2], 1)
            q = q.view(*shape, -1, d_head)
        else:
            cut = self.ends[0]
            q = torch.addmm(self.b_qkv[:cut], take_positions(x, at).flatten(0, 1), self.query).view(
                *at.shape, -1, d_head
            )
            k, v = torch.addmm(self.b_qkv[cut:], flat, self.qkv[:, cut:]).tensor_split((self.ends[1] - cut,), 1)
        k, v = k.view(*shape, -1, d_head), v.view(*shape, -1, d_head)
        return Heads(tap(self.prefix + "hook_q", q), tap(self.prefix + "hook_k", k), tap(self.prefix + "hook_v", v))

    def mix(
        self, heads: Heads, layout: Layout, at: Int[Tensor, "batch query"] | None, tap: Tap
    ) -> Float[Tensor, "batch query head d_head"]:
        """Attend: rotate, score, mask, normalise, average the values. Returns z, one vector per head."""
        q, k, v = heads
        attend = layout.attend if at is None else _attend_at(layout.attend, at)
        if layout.cos is not None and layout.sin is not None:
            cos_q, sin_q = (layout.cos, layout.sin) if at is None else _rotation_at(layout, at)
            q = tap(self.prefix + "hook_rot_q", rotate(q, cos_q, sin_q))
            k = tap(self.prefix + "hook_rot_k", rotate(k, layout.cos, layout.sin))
        if tap.idle and len(q) >= _MANY_ROWS and q.shape[3] <= _SMALL_HEAD and k.shape[1] <= _SHORT:
            return _mix_rows_last(q, k, v, attend)
        batch, n_query, n_heads, d_head = q.shape
        kv = k.shape[2]
        # Query heads that share a key-value head are laid end to end along the query axis, so nothing is copied.
        grouped = q.permute(0, 2, 1, 3).reshape(batch, kv, -1, d_head)
        scores = (grouped @ k.permute(0, 2, 3, 1)).view(batch, n_heads, n_query, -1) / math.sqrt(d_head)
        scores = scores.masked_fill(~attend, torch.finfo(scores.dtype).min)
        scores = tap(self.prefix + "hook_attn_scores", scores)
        pattern = tap(self.prefix + "hook_pattern", scores.softmax(-1))
        z = pattern.view(batch, kv, -1, pattern.shape[-1]) @ v.permute(0, 2, 1, 3)
        return tap(self.prefix + "hook_z", z.view(batch, n_heads, n_query, d_head).permute(0, 2, 1, 3))

    def result(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head d_model"]:
        """Each head's own addition to the residual stream."""
        return torch.einsum("bphk,hkd->bphd", z, self.W_O)

    def out(self, z: Float[Tensor, "batch pos head d_head"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """Sum of the heads' results and the output bias."""
        if tap.needs(self.prefix + "hook_result"):
            return tap(self.prefix + "hook_result", self.result(z)).sum(2) + self.b_O
        return torch.addmm(self.b_O, z.flatten(2).flatten(0, 1), self.output).view(*z.shape[:2], -1)


class Mlp(nn.Module):
    """The plain or gated multilayer perceptron."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.prefix, self.act = f"blocks.{layer}.mlp.", _ACTIVATIONS[config.activation]
        self.W_in, self.b_in = (
            nn.Parameter(torch.zeros(config.d_model, config.d_mlp)),
            nn.Parameter(torch.zeros(config.d_mlp)),
        )
        self.W_out, self.b_out = (
            nn.Parameter(torch.zeros(config.d_mlp, config.d_model)),
            nn.Parameter(torch.zeros(config.d_model)),
        )
        self.W_gate = nn.Parameter(torch.zeros(config.d_model, config.d_mlp)) if config.gated else None

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        flat = x.flatten(0, 1)
        inner = torch.addmm(self.b_in, flat, self.W_in).view(*x.shape[:2], -1)
        if self.W_gate is None:
            post = self.act(tap(self.prefix + "hook_pre", inner))
        else:
            gate = tap(self.prefix + "hook_pre", (flat @ self.W_gate).view_as(inner))
            post = self.act(gate) * tap(self.prefix + "hook_pre_linear", inner)
        post = tap(self.prefix + "hook_post", post)
        return torch.addmm(self.b_out, post.flatten(0, 1), self.W_out).view(*x.shape[:2], -1)


class Block(nn.Module):
    """One layer: attention, then MLP, each reading the normalised residual stream and adding to it."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.prefix = f"blocks.{layer}."
        self.ln1, self.attn = NormLayer(config, f"blocks.{layer}.ln1"), Attention(config, layer)
        self.ln2, self.mlp = NormLayer(config, f"blocks.{layer}.ln2"), Mlp(config, layer)

    def attention(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layout: Layout,
        tap: Tap,
        at: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after attention; with `at`, only at these positions."""
        heads = self._split_heads(resid, at, tap)
        z = self.attn.mix(heads, layout, at, tap)
        out = tap(self.prefix + "hook_attn_out", self.attn.out(z, tap))
        return (resid if at is None else take_positions(resid, at)) + out

    def feed_forward(self, resid: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream after the MLP."""
        resid = tap(self.prefix + "hook_resid_mid", resid)
        x = self.ln2(tap(self.prefix + "hook_mlp_in", resid), tap)
        return tap(self.prefix + "hook_resid_post", resid + tap(self.prefix + "hook_mlp_out", self.mlp(x, tap)))

    def forward(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layout: Layout,
        tap: Tap,
        at: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        resid = tap(self.prefix + "hook_resid_pre", resid)
        return self.feed_forward(self.attention(resid, layout, tap, at), tap)

    def _split_heads(self, resid: Tensor, at: Tensor | None, tap: Tap) -> Heads:
        """Queries, keys and values; from separate per-head inputs where a hook asks to edit those."""
        heads = self.attn.heads(self.ln1(resid, tap), at, tap)
        edited = []
        for port, weight, bias, value in zip("qkv", ("W_Q", "W_K", "W_V"), ("b_Q", "b_K", "b_V"), heads, strict=True):
            name = f"{self.prefix}hook_{port}_input"
            if not tap.needs(name):
                edited.append(value)
                continue
            if at is not None:
                raise BadInput(f"{name} needs every position: run without chosen positions")
            n_heads = self.attn.config.n_heads
            inputs = tap(name, resid.unsqueeze(2).expand(-1, -1, n_heads, -1))
            w, b = getattr(self.attn, weight), getattr(self.attn, bias)
            w, b = (x.repeat_interleave(n_heads // x.shape[0], 0) for x in (w, b))
            edited.append(torch.einsum("bphd,hdk->bphk", self.ln1(inputs, Tap()), w) + b)
        if edited[1].shape[2] != edited[2].shape[2]:  # only one of k, v was split per query head
            edited[1:] = [x.repeat_interleave(self.attn.config.n_heads // x.shape[2], 2) for x in edited[1:]]
        return Heads(*edited)


class Transformer(nn.Module):
    """A decoder with TransformerLens hook points. Build it from a `Config`; weights start at zero, loaders fill
    them.
    """

    blocks: Sequence[Block]

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W_E = nn.Parameter(torch.zeros(config.d_vocab, config.d_model))
        self.W_pos = None if config.rotary else nn.Parameter(torch.zeros(config.n_ctx, config.d_model))
        self.blocks = cast("Sequence[Block]", nn.ModuleList(Block(config, i) for i in range(config.n_layers)))
        self.ln_final = NormLayer(config, "ln_final")
        self.unembed_weight = nn.Parameter(torch.zeros(config.d_vocab_out, config.d_model))
        self.b_U = nn.Parameter(torch.zeros(config.d_vocab_out))

    W_U = property(lambda self: self.unembed_weight.T, doc="[d_model, d_vocab_out]")

    @property
    def components(self) -> list[Component]:
        """Every head and MLP in order of computation."""
        return all_components(self.config)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.W_E.device

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        start_layer: int = 0,
        resid: Float[Tensor, "batch pos d_model"] | None = None,
        at: Int[Tensor, "batch query"] | None = None,
        choose: Int[Tensor, "batch choice"] | None = None,
        tap: Tap | None = None,
    ) -> Float[Tensor, "batch query out"]:
        """Logits of a batch of token ids.

        `mask` is True at real tokens (default: everything but the config's pad token). `resid` with `start_layer`
        continues from a cached `blocks.START.hook_resid_pre` instead of the embedding. `at` computes logits at these
        positions only, `choose` at these tokens only.
        """
        tap = tap or Tap()
        layout = self.layout(tokens, mask)
        if not 0 <= start_layer < self.config.n_layers:
            raise BadInput(f"start_layer {start_layer} is outside this model's layers 0 to {self.config.n_layers - 1}")
        if resid is None:
            if start_layer:
                raise BadInput(f"start_layer {start_layer} needs resid, the cached blocks.{start_layer}.hook_resid_pre")
            resid = self.embed(tokens, layout, tap)
        elif resid.shape != (*tokens.shape, self.config.d_model):
            expected = (*tokens.shape, self.config.d_model)
            raise BadInput(f"resid has shape {tuple(resid.shape)}; these tokens need {expected}")
        last, stream = self.config.n_layers - 1, resid
        for layer in range(start_layer, self.config.n_layers):
            stream = self.blocks[layer](stream, layout, tap, at if layer == last else None)
        return self.unembed(stream, choose, tap)

    def layout(self, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None) -> Layout:
        """Check the tokens; compute positions, rotation and which tokens may attend to which."""
        _check_tokens(tokens, self.config)
        if mask is None and self.config.pad_token is not None:
            mask = tokens != self.config.pad_token
        if mask is not None and bool(mask.all()):
            mask = None
        if mask is not None and mask.shape != tokens.shape:
            raise BadInput(f"mask has shape {tuple(mask.shape)}; the tokens have {tuple(tokens.shape)}")
        n = tokens.shape[1]
        attend = torch.ones(1, 1, n, n, dtype=torch.bool, device=tokens.device)
        if self.config.causal:
            attend = attend.tril()
        positions = torch.arange(n, device=tokens.device)[None]
        if mask is not None:
            attend = attend & mask[:, None, None, :]
            positions = (mask.long().cumsum(1) - 1).clamp(min=0)
        cos, sin = (None, None) if self.config.rotary is None else self._rotation(positions, self.config.rotary)
        return Layout(attend, positions, cos, sin)

    def embed(self, tokens: Int[Tensor, "batch pos"], layout: Layout, tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """Token embedding plus learned positions."""
        resid = tap("hook_embed", F.embedding(tokens, self.W_E))
        if self.W_pos is None:
            return resid
        positions = F.embedding(layout.positions, self.W_pos).expand_as(resid)
        return resid + tap("hook_pos_embed", positions)

    def unembed(
        self, resid: Float[Tensor, "batch query d_model"], choose: Int[Tensor, "batch choice"] | None, tap: Tap
    ) -> Float[Tensor, "batch query out"]:
        """Final norm and logits; with `choose`, the logits of these tokens only."""
        x = self.ln_final(resid, tap)
        if choose is None:
            return torch.addmm(self.b_U, x.flatten(0, 1), self.unembed_weight.T).view(*x.shape[:2], -1)
        return torch.einsum("bqd,bcd->bqc", x, self.unembed_weight[choose]) + self.b_U[choose].unsqueeze(1)

    def run_with_cache(
        self, tokens: Int[Tensor, "batch pos"], *, names: NameFilter = None, **options: object
    ) -> tuple[Float[Tensor, "batch query out"], Cache]:
        """Logits and a `Cache` of activations: all of them, or those that `names` (name, names, predicate) picks."""
        tap = Tap(keep=name_filter(names))
        return self(tokens, tap=tap, **options), Cache(tap.stored, self.config, self._output_weights)

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], *, fwd_hooks: Iterable[Hook] = (), **options: object
    ) -> Float[Tensor, "batch query out"]:
        """Logits of a run in which each `(name or predicate, function)` may read and replace activations."""
        return self(tokens, tap=Tap(hooks=fwd_hooks), **options)

    def _output_weights(self, layer: int) -> tuple[Tensor, Tensor]:
        return self.blocks[layer].attn.W_O, self.blocks[layer].mlp.W_out

    def _rotation(self, positions: Int[Tensor, "rows pos"], rotary: Rotary) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * _inverse_frequencies(rotary, self.config.d_head, positions.device)
        angles = torch.cat([angles, angles], -1)[:, :, None]
        return angles.cos().to(self.W_E.dtype), angles.sin().to(self.W_E.dtype)


def take_positions(
    x: Float[Tensor, "batch pos *rest"], at: Int[Tensor, "batch query"]
) -> Float[Tensor, "batch query *rest"]:
    """Rows of `x` at chosen positions, different ones in every batch row."""
    return x[torch.arange(len(x), device=x.device)[:, None], at]


def rotate(
    x: Float[Tensor, "batch pos head d_head"], cos: Tensor, sin: Tensor
) -> Float[Tensor, "batch pos head d_head"]:
    """Rotate each pair (i, i + d_head/2) by its angle."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _mix_rows_last(
    q: Float[Tensor, "batch query head d_head"],
    k: Float[Tensor, "batch key kv_head d_head"],
    v: Float[Tensor, "batch key kv_head d_head"],
    attend: Bool[Tensor, "rows 1 query key"],
) -> Float[Tensor, "batch query head d_head"]:
    """Attention with the batch as the innermost axis: for thousands of tiny rows, every step runs along long vectors.

    The same sums as the general path; about ten times less time at benchmark sizes (d_head 1 to 8, ten tokens).
    """
    share = q.shape[2] // k.shape[2]
    q, k, v = (x.permute(1, 3, 2, 0) for x in (q, k, v))  # [pos, d_head, head, batch]
    q = (q * (1 / math.sqrt(q.shape[1]))).contiguous()
    k, v = (x.repeat_interleave(share, 2) if share > 1 else x.contiguous() for x in (k, v))
    bias = q.new_zeros(attend.shape).masked_fill_(~attend, torch.finfo(q.dtype).min).permute(2, 3, 1, 0)
    scores = torch.addcmul(bias, q[:, None, 0], k[None, :, 0])
    for d in range(1, q.shape[1]):
        scores.addcmul_(q[:, None, d], k[None, :, d])
    pattern = scores.softmax(1)
    return torch.stack([(pattern * v[None, :, d]).sum(1) for d in range(v.shape[1])], -1).permute(2, 0, 1, 3)


def _per_head(weight: Float[Tensor, "d_model wide"], n: int) -> Float[Tensor, "head d_model d_head"]:
    return weight.view(weight.shape[0], n, -1).permute(1, 0, 2)


def _attend_at(attend: Bool[Tensor, "rows 1 query key"], at: Int[Tensor, "batch query"]) -> Tensor:
    return take_positions(attend[:, 0].expand(len(at), -1, -1), at).unsqueeze(1)


def _rotation_at(layout: Layout, at: Int[Tensor, "batch query"]) -> tuple[Tensor, Tensor]:
    assert layout.cos is not None
    assert layout.sin is not None
    cos, sin = (take_positions(x.expand(len(at), -1, -1, -1), at) for x in (layout.cos, layout.sin))
    return cos, sin


def _inverse_frequencies(rotary: Rotary, d_head: int, device: torch.device) -> Float[Tensor, " half"]:
    steps = torch.arange(0, d_head, 2, device=device, dtype=torch.float32) / d_head
    frequencies = 1.0 / rotary.base**steps
    if rotary.scaling == "linear":
        return frequencies / rotary.factor
    if rotary.scaling == "llama3":
        # Long wavelengths are stretched by `factor`, short ones kept, those between blended.
        wavelength = 2 * math.pi / frequencies
        low, high = rotary.low_freq_factor, rotary.high_freq_factor
        blend = ((rotary.original_n_ctx / wavelength - low) / (high - low)).clamp(0, 1)
        return (1 - blend) * frequencies / rotary.factor + blend * frequencies
    return frequencies


def _check_tokens(tokens: Int[Tensor, "batch pos"], config: Config) -> None:
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise BadInput(
            f"tokens have shape {tuple(tokens.shape)}; expected [batch, pos] with at least one prompt and one token"
        )
    if tokens.shape[1] > config.n_ctx:
        raise BadInput(
            f"a prompt of {tokens.shape[1]} tokens is longer than this model's context of {config.n_ctx}; shorten it"
        )
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= config.d_vocab:
        raise BadInput(f"token id {low if low < 0 else high} is outside this model's vocabulary of {config.d_vocab}")
