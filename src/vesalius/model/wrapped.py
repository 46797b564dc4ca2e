"""A model of transformers behind our hook names, for families that our transformer does not have.

`WrappedTransformer` is a `Transformer` whose layers are transformers' own modules. Embedding, masks and rotations come
from running the model with its layers left out; the final norm and the unembedding are ours. A layer's z is what enters
its mixer's output projection, cut into as many groups as the model has heads: in attention those are the heads, in
linear attention and state-space layers groups of channels without a pattern.
"""

import inspect
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.errors import BadInput
from vesalius.model.attention import soft_cap
from vesalius.model.config import Config
from vesalius.model.hooks import Cache, Hook, NameFilter, Tap
from vesalius.model.mlp import NormLayer
from vesalius.model.positions import Layout
from vesalius.model.transformer import Transformer
from vesalius.model.wrapped_layers import WrappedBlock, WrappedLayout
from vesalius.model.wrapped_parts import Call, CannotWrap, LayerParts, acting, batch_axes, close, dissect, like

_QUIET = Tap()
#: Hook points of our transformer that a wrapped model does not have, by the ends of their names.
ABSENT = (
    *(f"attn.hook_{port}" for port in ("q", "k", "q_heads", "k_heads", "v_heads", "attn_scores")),
    *(f"mlp.hook_{place}" for place in ("pre", "pre_linear", "post", "router", "expert_out")),
    *(f"mlp.hook_expert_{what}" for what in ("indices", "weights")),
    *(f"{norm}.hook_{what}" for norm in ("ln1", "ln2", "q_norm", "k_norm") for what in ("scale", "normalized")),
    "hook_pos_embed",
)
#: Prompts and tokens that a model is taken apart on.
_ROWS, _TOKENS = 3, 7


class WrappedTransformer(Transformer):
    """A causal language model of transformers with our hook points. `reason` says why it is wrapped."""

    def __init__(self, module: nn.Module, reason: str) -> None:
        nn.Module.__init__(self)
        self.module, self.reason = module.eval().requires_grad_(False), reason
        self.W_pos: nn.Parameter | None = None
        text = cast("Any", module).config.get_text_config()
        layers = _layers(self.base, text.num_hidden_layers)
        self.layers, self._forms = layers, [None] * len(layers)
        self.W_E = cast("Any", module).get_input_embeddings().weight
        n_heads = _attribute(text, "num_attention_heads", "n_head", "num_heads") or 1
        n_heads = n_heads if isinstance(n_heads, int) else 1
        with torch.no_grad():
            parts, embedded = self._dissected(n_heads)
            self.config = self._config(text, parts, n_heads, embedded)
            self.blocks = cast("Any", nn.ModuleList(WrappedBlock(self.config, i, p) for i, p in enumerate(parts)))
            self._finish(text)
            self._verify()

    @property
    def base(self) -> Any:
        """The module without its head."""
        return cast("Any", self.module).base_model

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.W_E.device

    def layout(self, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None) -> WrappedLayout:
        """Check the tokens; take what transformers gives each layer."""
        plain = super().layout(tokens, mask)
        if mask is None and self.config.pad_token is not None:
            mask = self.config.not_padding(tokens)
        calls, embedded = self._calls(tokens, mask)
        return WrappedLayout(plain.attend, plain.positions, calls=calls, embedded=embedded)

    def embed(self, tokens: Int[Tensor, "batch pos"], layout: Layout, tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """What enters the first layer, positions included."""
        assert isinstance(layout, WrappedLayout)
        assert layout.embedded is not None
        return tap("hook_embed", layout.embedded)

    def run_with_cache(
        self, tokens: Tensor, *, names: NameFilter = None, fwd_hooks: Any = (), **options: object
    ) -> tuple[Tensor, Cache]:
        """As of every model; a hook point that a wrapped model does not have is refused."""
        listed = [names] if isinstance(names, str) else [] if names is None or callable(names) else list(names)
        hooks = list(fwd_hooks)
        self._check_names([*listed, *(point for point, _ in hooks)])
        return super().run_with_cache(
            tokens, names=listed if listed else cast("NameFilter", names), fwd_hooks=hooks, **options
        )

    def run_with_hooks(self, tokens: Tensor, *, fwd_hooks: Any = (), **options: object) -> Tensor:
        """As of every model; a hook point that a wrapped model does not have is refused."""
        hooks: list[Hook] = list(fwd_hooks)
        self._check_names([point for point, _ in hooks])
        return super().run_with_hooks(tokens, fwd_hooks=hooks, **options)

    def _check_names(self, names: list[object]) -> None:
        for name in names:
            if isinstance(name, str) and name.endswith(ABSENT):
                raise BadInput(
                    f"hook point {name} is not seen in a wrapped {self.config.wrapped} model; there are "
                    "hook_resid_pre, hook_resid_mid, hook_resid_post, hook_attn_out, hook_mlp_out, attn.hook_rot_q, "
                    "attn.hook_rot_k, attn.hook_v, attn.hook_pattern, attn.hook_z, attn.hook_result"
                )

    @property
    def kinds(self) -> list[str]:
        """Of each layer, whether its heads are attention heads or groups of channels of another mixer."""
        return [
            "attention" if block.attn.parts.attends else "none" if block.attn.parts.mixer is None else "mixer"
            for block in cast("Any", self.blocks)
        ]

    @property
    def wrapping(self) -> str:
        """Why the model is wrapped, and which layers have no attention of separate heads."""
        others = [str(i) for i, kind in enumerate(self.kinds) if kind != "attention"]
        layers = f"layers {', '.join(others)} have groups of channels in the place of heads, without patterns"
        return f"{self.config.wrapped} runs in transformers' own layers ({self.reason})" + (
            f"; {layers}" if others else ""
        )

    def _calls(self, tokens: Tensor, mask: Tensor | None) -> tuple[tuple[Call, ...], Tensor]:
        """The arguments of every layer and what enters the first, from a run in which layers do nothing."""
        got: list[tuple[Call, Tensor]] = []

        def recorder(place: int) -> Any:
            def record(x: Tensor, *args: object, **kwargs: object) -> Any:
                got.append((Call(args, kwargs), x))
                return like(self._forms[place], x)

            return record

        settings: dict[str, object] = {"input_ids": tokens, "use_cache": False}
        if mask is not None and "position_ids" in inspect.signature(self.base.forward).parameters:
            settings["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
        mask = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        settings["attention_mask"] = mask.long()
        with acting({layer: recorder(i) for i, layer in enumerate(self.layers)}):
            self.base(**settings)
        if len(got) != len(self.layers):
            raise CannotWrap(f"{len(got)} of {len(self.layers)} layers run, or some run twice")
        axes = getattr(self, "_axes", None)
        calls = tuple(Call(call.args, call.kwargs, axes[i] if axes else {}) for i, (call, _) in enumerate(got))
        return calls, got[0][1]

    def _tokens(self, rows: int, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(3, len(self.W_E) - 1, (rows, _TOKENS), generator=generator).to(self.W_E.device)

    def _dissected(self, n_heads: int) -> tuple[list[LayerParts], Tensor]:
        """Every layer taken apart, at what enters it."""
        tokens = self._tokens(_ROWS)
        if tokens.shape[1] < _TOKENS or len(self.W_E) < 8:
            raise CannotWrap("its vocabulary is too small to try it")
        kept: list[Any] = []
        hooks = [layer.register_forward_hook(lambda _, args, out: kept.append((args, out))) for layer in self.layers]
        try:
            self.base(input_ids=tokens, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        if len(kept) != len(self.layers) or not all(args and args[0].ndim == 3 for args, _ in kept):
            raise CannotWrap("its layers do not pass one residual stream on from each to the next")
        self._forms = [None if isinstance(out, Tensor) else out for _, out in kept]
        padded = torch.ones_like(tokens, dtype=torch.bool)
        padded[0, -2:] = False
        more = torch.cat([tokens, tokens])[: _ROWS + 2]
        more_padded = torch.cat([padded, padded])[: _ROWS + 2]
        plain, embedded = self._calls(tokens, None)
        pairs = [
            (plain, self._calls(more, None)[0]),
            (self._calls(tokens, padded)[0], self._calls(more, more_padded)[0]),
        ]
        self._axes = [
            {name: axis for one, other in pairs for name, axis in batch_axes(one[i], other[i]).items()}
            for i in range(len(self.layers))
        ]
        generator = torch.Generator().manual_seed(0)
        parts = []
        for layer, call, (args, _) in zip(self.layers, plain, kept, strict=True):
            noise = torch.randn(args[0].shape, generator=generator).to(args[0]) * args[0].std()
            parts.append(dissect(layer, call, args[0] + noise, n_heads))
        return parts, embedded

    def _config(self, text: Any, parts: list[LayerParts], n_heads: int, embedded: Tensor) -> Config:
        arrangements = {part.parallel for part in parts} - {None}
        if len(arrangements) > 1:
            raise CannotWrap("some layers are parallel and others sequential")
        raw = F.embedding(self._tokens(_ROWS), self.W_E)
        scale = float((embedded.float() * raw.float()).sum() / raw.float().square().sum().clamp(min=1e-12))
        scale = scale if scale > 0 and close(embedded, raw * scale) else 1.0
        kv = {part.n_kv_heads for part in parts if part.attends}
        for part in parts:
            part.attends = part.attends and len(kv) == 1
        bos = text.bos_token_id[0] if isinstance(text.bos_token_id, list) else text.bos_token_id
        context = _attribute(text, "max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
        wide = _attribute(text, "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
        widest = max(part.width for part in parts)
        return Config.read(
            {
                "n_layers": len(parts),
                "n_heads": n_heads,
                "n_kv_heads": kv.pop() if len(kv) == 1 else n_heads,
                "d_model": self.W_E.shape[1] if embedded.shape[-1] == self.W_E.shape[1] else embedded.shape[-1],
                "d_head": max(1, -(-widest // n_heads)),
                "d_mlp": wide if isinstance(wide, int) and wide > 0 else 4 * embedded.shape[-1],
                "d_vocab": len(self.W_E),
                "d_vocab_out": len(cast("Any", self.module).get_output_embeddings().weight),
                "n_ctx": context if isinstance(context, int) and context > 0 else 2048,
                "block": "parallel" if arrangements == {True} else "sequential",
                "bos_token": bos if isinstance(bos, int) and 0 <= bos < len(self.W_E) else None,
                "embed_scale": scale,
                "wrapped": str(text.model_type),
                "mixers": tuple(place for place, part in enumerate(parts) if not part.attends),
            },
            where=type(self.module).__name__,
        )

    def _logits_from(self, resid: Tensor) -> tuple[Tensor, Tensor]:
        """What transformers makes of a last residual stream: the normed stream, and logits."""
        last = len(self.layers) - 1

        def stand_in(place: int) -> Any:
            return lambda x, *_, **__: like(self._forms[place], resid if place == last else x)

        kept: list[Tensor] = []
        head = cast("Any", self.module).get_output_embeddings()
        hook = head.register_forward_hook(lambda _, args, out: kept.append(args[0]))
        try:
            with acting({layer: stand_in(i) for i, layer in enumerate(self.layers)}):
                logits = self.module(input_ids=self._tokens(len(resid)), use_cache=False).logits
        finally:
            hook.remove()
        return kept[0], logits

    def _finish(self, text: object) -> None:
        """The final norm and the unembedding as ours, held to what transformers computes."""
        head = cast("Any", self.module).get_output_embeddings()
        d, like_weights = self.config.d_model, self.W_E
        resid = torch.randn(_ROWS, _TOKENS, d, generator=torch.Generator().manual_seed(1)).to(like_weights) * 2
        normed, logits = self._logits_from(resid)
        self.ln_final = _final_norm(self.base, resid, normed)
        raw = F.linear(normed, head.weight, head.bias).float()
        cap = _attribute(text, "final_logit_softcapping")
        factor = float((logits.float() * raw).sum() / raw.square().sum())
        if isinstance(cap, int | float) and cap and close(logits.float(), soft_cap(raw, float(cap))):
            factor = 1.0
        elif close(logits.float(), raw):
            factor, cap = 1.0, None
        elif close(logits.float(), raw * factor):
            cap = None
        else:
            raise CannotWrap("its logits are not a matrix times the normed residual stream")
        self.config = self.config.model_copy(
            update={"final_softcap": cap, "norm": self.ln_final.kind, "norm_eps": self.ln_final.eps}
        )
        scaled = head.weight if factor == 1.0 else nn.Parameter(head.weight * factor, requires_grad=False)
        self.unembed_weight = self.W_E if scaled is self.W_E else scaled
        bias = head.weight.new_zeros(len(head.weight)) if head.bias is None else head.bias * factor
        self.b_U = nn.Parameter(bias, requires_grad=False)

    def _verify(self) -> None:
        """Our pass over the pieces gives transformers' logits, for padded rows and chosen rows as well."""
        tokens = self._tokens(_ROWS, seed=2)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[0, -2:] = False
        theirs = self.module(input_ids=tokens, use_cache=False).logits.float()
        ours = self(tokens).float()
        if not close(ours, theirs):
            far = float((ours - theirs).abs().max())
            raise CannotWrap(f"its parts put together give other logits (by {far:.1g})")
        padded = self(tokens, mask=mask).float()
        if not close(padded[0, :-2], theirs[0, :-2]) or not close(padded[1:], theirs[1:]):
            raise CannotWrap("padding changes its logits")


def _layers(base: nn.Module, n: int) -> list[nn.Module]:
    """The list of layers: of the lists of this length the one with most weights."""
    lists = [part for part in base.modules() if isinstance(part, nn.ModuleList) and len(part) == n]
    if not lists:
        raise CannotWrap(f"it has no list of {n} layers")
    return list(max(lists, key=lambda part: sum(weight.numel() for weight in part.parameters())))


def _final_norm(base: nn.Module, resid: Tensor, normed: Tensor) -> NormLayer:
    """Our norm that computes what transformers' last norm does."""
    d = resid.shape[-1]
    if close(normed, resid):
        return NormLayer("none", d, 1e-5, "ln_final")
    weights = [
        part
        for part in base.modules()
        if getattr(part, "weight", None) is not None and part.weight.shape == (d,)  # type: ignore[union-attr]
    ]
    for part in [*reversed(weights), None]:
        weight = torch.ones(d, device=resid.device) if part is None else cast("Tensor", part.weight).float()
        bias = None if part is None else getattr(part, "bias", None)
        eps = next((e for e in (getattr(part, n, None) for n in ("variance_epsilon", "eps", "epsilon")) if e), 1e-6)
        for kind, offset in (("rms", 0.0), ("rms", 1.0), ("layer", 0.0), ("layer", 1.0)):
            norm = NormLayer(cast("Any", kind), d, float(eps), "ln_final").to(resid.device)
            norm.w = nn.Parameter(weight + offset, requires_grad=False)
            if norm.b is not None:
                norm.b = nn.Parameter(
                    torch.zeros_like(weight) if bias is None else cast("Tensor", bias).float(), requires_grad=False
                )
            if close(norm(resid, _QUIET), normed):
                return norm
    raise CannotWrap("its last norm is neither an RMSNorm nor a LayerNorm")


def _attribute(config: object, *names: str) -> Any:
    return next((value for value in (getattr(config, name, None) for name in names) if value is not None), None)
