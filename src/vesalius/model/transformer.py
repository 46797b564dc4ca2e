"""One small decoder whose activations can be read and replaced at every point.

It covers the benchmark circuits and the families in `model/families`: no norm, LayerNorm or RMSNorm, before or after
what a layer does; learned, rotary or ALiBi positions; grouped-query or latent attention; sequential or parallel blocks;
plain, gated or expert MLPs; causal or bidirectional; separate sizes of input and output vocabulary. Hook points carry
TransformerLens names.

A pass is: `layout` (positions, and which tokens may attend to which) -> `embed` -> blocks -> `unembed`. The same four
steps are public, because the intervention engine restarts in the middle and reads only a few logits at the end.

Where a layer's writes pass a norm, `hook_attn_out` and `hook_mlp_out` are what is added to the residual stream, after
that norm. A head's contribution is then its share at the run's scale (`Block.shares`): the shares of all heads sum to
what attention wrote. Replacing a head at z or at `hook_result` runs the norm again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.components import Component, all_components
from vesalius.errors import BadInput
from vesalius.model.attention import Attention, HeadPort, Heads, soft_cap, take_positions
from vesalius.model.config import Config
from vesalius.model.hooks import Cache, Hook, NameFilter, Tap, name_filter
from vesalius.model.latent import LatentAttention
from vesalius.model.mlp import ExpertMlp, Mlp, NormLayer, widened
from vesalius.model.positions import Layout
from vesalius.progress import checkpoint

_PORTS: tuple[HeadPort, ...] = ("q", "k", "v")
#: Rows whose logits a CPU computes weight first, and the vocabulary from which on it does.
FEW_ROWS, LARGE_VOCABULARY = 32, 2**12


class Block(nn.Module):
    """One layer: attention and MLP, each reading the residual stream and adding to it.

    In a parallel block the MLP reads what attention read; with one norm, `ln2` is `ln1`.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.prefix, self.parallel = f"blocks.{layer}.", config.parallel

        def norm(name: str, used: bool) -> NormLayer:
            kind = config.norm if used else "none"
            return NormLayer(kind, config.d_model, config.norm_eps, f"{self.prefix}{name}")

        before, after = config.norm_at != "output", config.norm_at != "input"
        attention = Attention if config.latent is None else LatentAttention
        experts = config.experts if config.experts and layer in config.experts.layers else None
        self.ln1, self.attn, self.ln1_post = norm("ln1", before), attention(config, layer), norm("ln1_post", after)
        self.ln2 = self.ln1 if config.block == "parallel_one_norm" else norm("ln2", before)
        # Callers that name its weights know that their model is not made of experts.
        self.mlp = cast("Mlp", Mlp(config, layer) if experts is None else ExpertMlp(config, experts, layer))
        self.ln2_post = norm("ln2_post", after)

    @property
    def device(self) -> torch.device:
        """Where this layer's weights are."""
        return self.attn.b_O.device

    @property
    def mlp_bias(self) -> Float[Tensor, " d_model"]:
        """The part of what the MLP writes that does not depend on its input: its output bias, unless a norm follows."""
        bias = None if isinstance(self.mlp, ExpertMlp) or self.ln2_post.w is not None else self.mlp.b_out
        return self.attn.b_O.new_zeros(self.attn.b_O.shape) if bias is None else bias

    def mlp_input(
        self, pre: Float[Tensor, "batch pos d_model"], mid: Float[Tensor, "batch pos d_model"]
    ) -> Float[Tensor, "batch pos d_model"]:
        """Which of the residual streams before and after attention the MLP reads."""
        return pre if self.parallel else mid

    def write_heads(self, z: Float[Tensor, "batch pos head d_head"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """What attention adds to the residual stream."""
        return tap(self.prefix + "hook_attn_out", self.ln1_post(self.attn.out(z, tap), tap))

    def write_mlp(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """What the MLP adds to the residual stream, from its input before the norm."""
        inputs = tap(self.prefix + "mlp.hook_in", self.ln2(x, tap))
        return tap(self.prefix + "hook_mlp_out", self.ln2_post(self.mlp(inputs, tap), tap))

    def shares(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos head d_model"]:
        """Each head's part of what attention adds, at the scale that all heads together give a norm that follows."""
        results = self.attn.result(z)
        if self.ln1_post.w is None:
            return results
        return self.ln1_post.share(results, self.ln1_post.scale(results.sum(2) + self.attn.b_O)[:, :, None])

    def share(self, z: Float[Tensor, "batch pos head d_head"], head: int) -> Float[Tensor, "batch pos d_model"]:
        """One head's part of what attention adds."""
        result = z[:, :, head] @ self.attn.W_O[head]
        if self.ln1_post.w is None:
            return result
        return self.ln1_post.share(result, self.ln1_post.scale(self.attn.out(z, Tap())))

    def attention(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layout: Layout,
        tap: Tap,
        at: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after attention; with `at`, only at these positions."""
        heads = self._split_heads(resid, at, tap)
        out = self.write_heads(self.attn.mix(heads, layout, at, tap), tap)
        return (resid if at is None else take_positions(resid, at)) + out

    def forward(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layout: Layout,
        tap: Tap,
        at: Int[Tensor, "batch query"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        device = self.device
        layout, at = layout.on(device), None if at is None else at.to(device)
        pre = tap(self.prefix + "hook_resid_pre", resid.to(device))
        mid = self.attention(pre, layout, tap, at)
        if not self.parallel:
            mid = tap(self.prefix + "hook_resid_mid", mid)
        elif at is not None:
            pre = take_positions(pre, at)
        inputs = tap(self.prefix + "hook_mlp_in", self.mlp_input(pre, mid))
        return tap(self.prefix + "hook_resid_post", mid + self.write_mlp(inputs, tap))

    def _split_heads(self, resid: Tensor, at: Tensor | None, tap: Tap) -> Heads:
        """Queries, keys and values; from separate per-head inputs where a hook asks to edit those, and one for each
        query head where a hook asks for `attn.hook_q_heads` (or k, v), also where several share a key-value head.
        """
        heads, n_heads = self.attn.heads(self.ln1(resid, tap), at, tap), self.attn.config.n_heads
        edited = []
        for port, value in zip(_PORTS, heads, strict=True):
            name, own = f"{self.prefix}hook_{port}_input", f"{self.prefix}attn.hook_{port}_heads"
            if tap.needs(name):
                if at is not None:
                    raise BadInput(f"{name} needs every position: run without chosen positions")
                inputs = tap(name, resid.unsqueeze(2).expand(-1, -1, n_heads, -1))
                normed = self.ln1(inputs, Tap()).transpose(1, 2)
                value = self.attn.own(port, normed, range(n_heads)).transpose(1, 2)
            if tap.needs(own):
                value = tap(own, value.repeat_interleave(n_heads // value.shape[2], 2))
            edited.append(value)
        if edited[1].shape[2] != edited[2].shape[2]:  # only one of k, v was split per query head
            edited[1:] = [x.repeat_interleave(n_heads // x.shape[2], 2) for x in edited[1:]]
        return Heads(*edited)


class Transformer(nn.Module):
    """A decoder with TransformerLens hook points. Build it from a `Config`; weights start at zero, loaders fill
    them.
    """

    blocks: Sequence[Block]
    #: What `mean_unembedding` holds; of the class, since a wrapped model is made otherwise.
    _mean_unembedding: tuple[Any, Any, tuple[Tensor, Tensor]] | None = None

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W_E = nn.Parameter(torch.zeros(config.d_vocab, config.d_model))
        self.W_pos = nn.Parameter(torch.zeros(config.n_ctx, config.d_model)) if config.learned_positions else None
        self.blocks = cast("Sequence[Block]", nn.ModuleList(Block(config, i) for i in range(config.n_layers)))
        self.ln_final = NormLayer(config.norm, config.d_model, config.norm_eps, "ln_final")
        self.unembed_weight = nn.Parameter(torch.zeros(config.d_vocab_out, config.d_model))
        self.b_U = nn.Parameter(torch.zeros(config.d_vocab_out))

    W_U = property(lambda self: self.unembed_weight.T, doc="[d_model, d_vocab_out]")

    @property
    def components(self) -> list[Component]:
        """Every head and MLP in order of computation."""
        return all_components(self.config)

    @property
    def device(self) -> torch.device:
        """Where the embedding is: tokens go there."""
        return self.W_E.device

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices that hold layers, in order."""
        return tuple(dict.fromkeys(block.device for block in self.blocks))

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
        tokens, mask = tokens.to(self.device), None if mask is None else mask.to(self.device)
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
            checkpoint()
            stream = self.blocks[layer](stream, layout, tap, at if layer == last else None)
        return self.unembed(stream, choose, tap)

    def layout(self, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"] | None = None) -> Layout:
        """Check the tokens; compute positions, rotation and which tokens may attend to which."""
        _check_tokens(tokens, self.config)
        if mask is None and self.config.pad_token is not None:
            mask = self.config.not_padding(tokens)
        if mask is not None and not mask.is_meta and bool(mask.all()):
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
        return Layout.make(self.config, positions, attend, self.W_E, plain=self.config.causal and mask is None)

    def embed(self, tokens: Int[Tensor, "batch pos"], layout: Layout, tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        """Token embedding, scaled, plus learned positions."""
        resid = F.embedding(tokens, self.W_E)
        if self.config.embed_scale != 1.0:
            resid = resid * resid.new_tensor(self.config.embed_scale)
        resid = tap("hook_embed", resid)
        if self.W_pos is None:
            return resid
        positions = F.embedding(layout.positions, self.W_pos).expand_as(resid)
        return resid + tap("hook_pos_embed", positions)

    def unembed(
        self,
        resid: Float[Tensor, "batch query d_model"],
        choose: Int[Tensor, "batch choice"] | None,
        tap: Tap,
        *,
        mean: bool = False,
    ) -> Float[Tensor, "batch query out"]:
        """Final norm and logits; with `choose`, the logits of these tokens only, and with `mean` the mean logit of the
        vocabulary after them. Half precision gives float32.
        """
        device, cap = self.b_U.device, self.config.final_softcap
        x = self.ln_final(resid.to(device), tap)
        choose = None if choose is None else choose.to(device)
        if choose is None or (mean and cap is not None):  # the mean of capped logits needs all of them
            logits = _logits(x.flatten(0, 1), self.unembed_weight, self.b_U).view(*x.shape[:2], -1)
            logits = soft_cap(widened(logits), cap)
            if choose is None:
                return logits
            chosen = logits.gather(2, choose[:, None].expand(-1, logits.shape[1], -1))
            return torch.cat([chosen, logits.mean(-1, keepdim=True)], 2)
        rows, biases = widened(self.unembed_weight[choose]), widened(self.b_U[choose])
        logits = torch.einsum("bqd,bcd->bqc", widened(x), rows) + biases.unsqueeze(1)
        if mean:
            row, bias = self.mean_unembedding()
            logits = torch.cat([logits, (widened(x) @ row + bias).unsqueeze(-1)], 2)
        return soft_cap(logits, cap)

    def mean_unembedding(self) -> tuple[Float[Tensor, " d_model"], Float[Tensor, ""]]:
        """The mean row and bias of the unembedding, in float32 at least: a product with them is the mean logit. They
        are summed up once for as long as the weights stay, since every run that reads a mean logit asks for them.
        """
        weights = self.unembed_weight, self.b_U
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in weights):
            return _mean_unembedding(*weights)
        state = tuple((weight.data_ptr(), weight._version, weight.dtype) for weight in weights)
        if self._mean_unembedding is None or self._mean_unembedding[0] != state:
            # What is summed is kept beside the sum, so that no other weights come to lie at its address.
            held = tuple(weight.detach() for weight in weights)
            self._mean_unembedding = state, held, _mean_unembedding(*held)
        return self._mean_unembedding[2]

    def run_with_cache(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        names: NameFilter = None,
        fwd_hooks: Iterable[Hook] = (),
        **options: object,
    ) -> tuple[Float[Tensor, "batch query out"], Cache]:
        """Logits and a `Cache` of activations: all of them, or those that `names` (name, names, predicate) picks;
        `fwd_hooks` as in `run_with_hooks`.
        """
        tap = Tap(hooks=fwd_hooks, keep=name_filter(names))
        return self(tokens, tap=tap, **options), Cache(tap.stored, self.config, self._results, self._written)

    def run_with_hooks(
        self, tokens: Int[Tensor, "batch pos"], *, fwd_hooks: Iterable[Hook] = (), **options: object
    ) -> Float[Tensor, "batch query out"]:
        """Logits of a run in which each `(name or predicate, function)` may read and replace activations."""
        return self(tokens, tap=Tap(hooks=fwd_hooks), **options)

    def _written(self, component: Component, cache: Cache) -> Float[Tensor, "batch pos d_model"]:
        """What a component added to the residual stream of a cached run, without its layer's output bias."""
        block, prefix = self.blocks[component.layer], f"blocks.{component.layer}."
        if component.head is not None:
            return block.share(cache[prefix + "attn.hook_z"], component.head)
        if prefix + "hook_mlp_out" in cache or isinstance(block.mlp, ExpertMlp) or block.ln2_post.w is not None:
            return cache[prefix + "hook_mlp_out"] - block.mlp_bias
        return cache[prefix + "mlp.hook_post"] @ block.mlp.W_out

    def _results(self, layer: int, z: Tensor) -> Tensor:
        return self.blocks[layer].attn.result(z)


def _logits(
    x: Float[Tensor, "row d_model"], weight: Float[Tensor, "out d_model"], bias: Float[Tensor, " out"]
) -> Float[Tensor, "row out"]:
    """x W^T + b. Of few rows and a large vocabulary a CPU takes W x^T, which is half the time."""
    few = len(x) <= FEW_ROWS and len(weight) >= LARGE_VOCABULARY
    if few and x.is_cpu and not torch.is_grad_enabled():
        return (weight @ x.T).T.contiguous().add_(bias)
    return torch.addmm(bias, x, weight.T)


def _mean_unembedding(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    wide = torch.promote_types(weight.dtype, torch.float32)
    return weight.mean(0, dtype=wide), bias.mean(dtype=wide)


def _check_tokens(tokens: Int[Tensor, "batch pos"], config: Config) -> None:
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise BadInput(
            f"tokens have shape {tuple(tokens.shape)}; expected [batch, pos] with at least one prompt and one token"
        )
    if tokens.shape[1] > config.n_ctx:
        raise BadInput(
            f"a prompt of {tokens.shape[1]} tokens is longer than this model's context of {config.n_ctx}; shorten it"
        )
    if tokens.is_meta:  # shapes without numbers, for an estimate of memory
        return
    low, high = torch.stack(tokens.aminmax()).tolist()  # a device is waited for once
    if low < 0 or high >= config.d_vocab:
        raise BadInput(f"token id {low if low < 0 else high} is outside this model's vocabulary of {config.d_vocab}")


# Count the forward passes of a model while others run it, and stop them from outside.
#
# Every way of running a layer calls its MLP as a module, so a hook there sees all work: whole passes, passes that start
# half way, and rows of which only some tokens are computed.


@contextmanager
def metered(model: Transformer, spend: Callable[[float], None]) -> Iterator[None]:
    """Call `spend` before each layer with the passes of one prompt that it costs; what it raises stops the work."""
    layers, width = model.config.n_layers, 1

    def count(layer: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def before(module: nn.Module, given: tuple[Any, ...]) -> None:
            nonlocal width
            shape = given[0].shape
            if layer == 0 and len(shape) > 2 and shape[1] > 1:
                width = shape[1]
            tokens = shape[:-1].numel()
            spend(tokens / width / layers)

        return before

    with ExitStack() as stack:
        for layer, block in enumerate(model.blocks):
            stack.callback(block.mlp.register_forward_pre_hook(count(layer)).remove)
        yield
