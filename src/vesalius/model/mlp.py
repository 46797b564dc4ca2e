"""Multilayer perceptrons: plain, gated, or made of experts."""

from functools import cache
from types import ModuleType

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.model.config import Config, Experts, Norm
from vesalius.model.hooks import Tap

# Linear maps with a bias, without the work that a bias of zeros would cost.

#: From this size on, a weight is worth the look at its bias.
_LARGE = 2**16


def affine(
    x: Float[Tensor, "row inner"], weight: Float[Tensor, "inner outer"], bias: Float[Tensor, " outer"]
) -> Float[Tensor, "row outer"]:
    """x W + b. On a CPU without gradients the bias is added to the product in place, or not at all where it is zero: as
    `addmm` gives it, in a tenth to a third less time.
    """
    if not bias.is_cpu or torch.is_grad_enabled():
        return torch.addmm(bias, x, weight)
    product = x @ weight
    return product if weight.numel() >= _LARGE and not bool(bias.any()) else product.add_(bias)


# Half precision: float32 where sums are taken, and on a GPU kernels of our own.

HALF = (torch.bfloat16, torch.float16)


def gpu_kernels(x: Tensor) -> ModuleType | None:
    """The kernels for half precision (`model.kernels`), where a GPU can build them and nothing needs a gradient."""
    return _built(x.device, x.dtype) if x.is_cuda and x.dtype in HALF and not torch.is_grad_enabled() else None


@cache
def _built(device: torch.device, dtype: torch.dtype) -> ModuleType | None:
    try:
        from vesalius.model import kernels

        kernels.rotated(*(torch.zeros(1, 1, 1, 16, dtype=dtype, device=device) for _ in "xcs"))
        kernels.gated(*(torch.zeros(16, dtype=dtype, device=device) for _ in "gi"))
    except Exception:  # whatever Triton lacks here, such as a compiler, the formulas do not need it
        return None
    return kernels


def widened(x: Tensor) -> Tensor:
    """Half precision as float32, anything else as it is."""
    return x.float() if x.dtype in HALF else x


# LayerNorm and RMSNorm, and a part's share of what they put out.


class NormLayer(nn.Module):
    """LayerNorm, RMSNorm or nothing, with its hook points. Half precision is normalised in float32."""

    def __init__(self, kind: Norm, width: int, eps: float, prefix: str) -> None:
        super().__init__()
        self.kind, self.eps, self.prefix = kind, eps, prefix
        self.w = nn.Parameter(torch.ones(width)) if kind != "none" else None
        self.b = nn.Parameter(torch.zeros(width)) if kind == "layer" else None
        self._narrowed: tuple[tuple[int, int, torch.dtype], Tensor | None] | None = None

    def forward(self, x: Float[Tensor, "*batch width"], tap: Tap) -> Float[Tensor, "*batch width"]:
        if self.w is None:
            return x
        on_gpu = x.is_cuda and not torch.is_grad_enabled()
        if self.kind == "rms" and tap.idle and (on_gpu or x.dtype in HALF):
            if on_gpu and (narrow := self._narrow(x.dtype)) is not None:
                return F.rms_norm(x, narrow.shape, narrow, self.eps)  # in float32 inside of the kernel
            return F.rms_norm(widened(x), self.w.shape, self.w, self.eps).to(x.dtype)
        centred = self._centred(x)
        scale = tap(f"{self.prefix}.hook_scale", self._size(centred))
        out = centred / scale
        out = out * self.w if torch.is_grad_enabled() else out.mul_(self.w)
        return tap(f"{self.prefix}.hook_normalized", (out if self.b is None else out + self.b).to(x.dtype))

    def _narrow(self, dtype: torch.dtype) -> Float[Tensor, " width"] | None:
        """The weight in half precision; None where it would be rounded. It is looked at once for as long as it stays,
        since a look waits for the device.
        """
        assert self.w is not None
        state = self.w.data_ptr(), self.w._version, dtype
        if self._narrowed is None or self._narrowed[0] != state:
            narrow = self.w.to(dtype)
            self._narrowed = state, narrow if bool((narrow.to(self.w.dtype) == self.w).all()) else None
        return self._narrowed[1]

    def scale(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch 1"]:
        """What the norm divides by."""
        return self._size(self._centred(x))

    def share(self, part: Float[Tensor, "*batch width"], scale: Float[Tensor, "*batch 1"]) -> Tensor:
        """What a part of the norm's input adds to its output when the norm divides by `scale`: shares of parts that
        sum to the input sum to the output, up to the norm's bias.
        """
        return part if self.w is None else (self._centred(part) / scale * self.w).to(part.dtype)

    def _size(self, centred: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch 1"]:
        if torch.is_grad_enabled():
            return (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
        # The same without a tensor of squares; its gradient at 0 is another.
        return (torch.linalg.vector_norm(centred, dim=-1, keepdim=True).square() / centred.shape[-1] + self.eps).sqrt()

    def _centred(self, x: Tensor) -> Tensor:
        x = widened(x)
        return x if self.b is None else x - x.mean(-1, keepdim=True)


_ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}


class Mlp(nn.Module):
    """The plain or gated multilayer perceptron, or one of another width inside of a layer's."""

    def __init__(self, config: Config, layer: int, *, width: int | None = None, inside: str = "") -> None:
        super().__init__()
        self.prefix, self.act = f"blocks.{layer}.mlp.{inside}", _ACTIVATIONS[config.activation]
        d, wide = config.d_model, config.d_mlp if width is None else width
        self.W_in, self.b_in = nn.Parameter(torch.zeros(d, wide)), nn.Parameter(torch.zeros(wide))
        self.W_out, self.b_out = nn.Parameter(torch.zeros(wide, d)), nn.Parameter(torch.zeros(d))
        self.W_gate = nn.Parameter(torch.zeros(d, wide)) if config.gated else None

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        flat = x.flatten(0, 1)
        inner = affine(flat, self.W_in, self.b_in).view(*x.shape[:2], -1)
        if self.W_gate is None:
            inner = tap(self.prefix + "hook_pre", inner)
            in_place = tap.idle and self.act is F.relu and not torch.is_grad_enabled()
            post = inner.relu_() if in_place else self.act(inner)
        else:
            gate = tap(self.prefix + "hook_pre", (flat @ self.W_gate).view_as(inner))
            inner = tap(self.prefix + "hook_pre_linear", inner)
            # Without gradients in place: memory that is new for every layer costs more than the product.
            if torch.is_grad_enabled():
                post = self.act(gate) * inner
            elif tap.idle and self.act is F.silu:
                kernels = gpu_kernels(gate)
                post = F.silu(gate, inplace=True).mul_(inner) if kernels is None else kernels.gated(gate, inner)
            else:
                post = self.act(gate).mul_(inner)
        post = tap(self.prefix + "hook_post", post)
        return affine(post.flatten(0, 1), self.W_out, self.b_out).view(*x.shape[:2], -1)


class ExpertMlp(nn.Module):
    """Gated MLPs of which a router chooses a few for every token, and one that every token passes where there is a
    shared expert. The whole of it is one component.

    Hooks: `hook_router` (a score for every expert), `hook_expert_indices` (the chosen), `hook_expert_weights` (how
    much each of them counts); on demand `hook_expert_out` (`[batch, pos, expert, d_model]`: what each expert adds, its
    weight included; zero where it is not chosen; the shared expert is the last), and `experts.E.hook_pre`,
    `hook_pre_linear` and `hook_post` of the tokens that expert E serves, in order. The shared expert has hooks as an
    MLP has (`shared.hook_post`), and `hook_shared_weight` where a gate weighs it.
    """

    def __init__(self, config: Config, experts: Experts, layer: int) -> None:
        super().__init__()
        self.prefix, self.act, self.experts = f"blocks.{layer}.mlp.", _ACTIVATIONS[config.activation], experts
        n, d, wide = experts.n_experts, config.d_model, experts.d_expert

        def weight(*shape: int, there: bool = True) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(shape)) if there else None

        self.W_router, self.b_router = nn.Parameter(torch.zeros(d, n)), weight(n, there=experts.biased)
        self.b_choice = weight(n, there=experts.corrected)
        self.W_gate, self.b_gate = nn.Parameter(torch.zeros(n, d, wide)), weight(n, wide, there=experts.biased)
        self.W_in, self.b_in = nn.Parameter(torch.zeros(n, d, wide)), weight(n, wide, there=experts.biased)
        self.W_out, self.b_out = nn.Parameter(torch.zeros(n, wide, d)), weight(n, d, there=experts.biased)
        self.shared = Mlp(config, layer, width=experts.d_shared, inside="shared.") if experts.d_shared else None
        self.W_shared_gate = weight(d, 1, there=experts.shared_gated)

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        chosen, weights = (part.flatten(0, 1) for part in self._choice(x, tap))
        flat, weights = x.flatten(0, 1), weights.to(x.dtype)
        shared = self._shared(x, tap)
        apart = tap.needs(self.prefix + "hook_expert_out")
        out = flat.new_zeros(len(flat), self.experts.n_experts, flat.shape[1]) if apart else torch.zeros_like(flat)
        for expert in chosen.unique().tolist():
            token, place = (chosen == expert).nonzero(as_tuple=True)
            inputs, weight = flat[token], weights[token, place, None]
            if self.experts.weighs == "input":
                written = self._expert(expert, inputs * weight, tap)
            else:
                written = self._expert(expert, inputs, tap) * weight
            if apart:
                out[token, expert] = written
            else:
                out = out.index_add(0, token, written)
        out = out.view(*x.shape[:2], *out.shape[1:])
        if apart:
            out = out if shared is None else torch.cat([out, shared[:, :, None]], 2)
            return tap(self.prefix + "hook_expert_out", out).sum(2)
        return out if shared is None else out + shared

    def _choice(
        self, x: Float[Tensor, "batch pos d_model"], tap: Tap
    ) -> tuple[Int[Tensor, "batch pos active"], Float[Tensor, "batch pos active"]]:
        """The experts of every token, and how much each of them counts."""
        experts, scores = self.experts, x @ self.W_router
        scores = widened(tap(self.prefix + "hook_router", scores if self.b_router is None else scores + self.b_router))
        scores = scores.softmax(-1) if experts.scores == "softmax" else scores.sigmoid()
        best = self._eligible(scores).topk(experts.n_active, -1).indices
        chosen = tap(self.prefix + "hook_expert_indices", best)
        weights = scores.gather(-1, chosen)
        if experts.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        if experts.factor != 1.0:
            weights = weights * experts.factor
        return chosen, tap(self.prefix + "hook_expert_weights", weights)

    def _eligible(self, scores: Float[Tensor, "batch pos expert"]) -> Float[Tensor, "batch pos expert"]:
        """What experts are chosen by: their scores, corrected, and nothing but those of the best groups."""
        if self.b_choice is not None:
            scores = scores + self.b_choice
        if self.experts.n_groups == 1:
            return scores
        groups = scores.unflatten(-1, (self.experts.n_groups, -1))
        best = groups.topk(self.experts.group_by, -1).values.sum(-1).topk(self.experts.active_groups, -1).indices
        out = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
        return groups.masked_fill(out[..., None], -torch.inf).flatten(-2)

    def _expert(self, expert: int, x: Float[Tensor, "token d_model"], tap: Tap) -> Float[Tensor, "token d_model"]:
        """What one expert writes."""
        prefix, limit = f"{self.prefix}experts.{expert}.", self.experts.limit
        gate, linear = (
            _plus(x @ self.W_gate[expert], self.b_gate, expert),
            _plus(x @ self.W_in[expert], self.b_in, expert),
        )
        if limit is not None:
            gate, linear = gate.clamp(max=limit), linear.clamp(-limit, limit)
        if self.experts.offset:
            linear = linear + self.experts.offset
        post = self.act(tap(prefix + "hook_pre", gate)) * tap(prefix + "hook_pre_linear", linear)
        return _plus(tap(prefix + "hook_post", post) @ self.W_out[expert], self.b_out, expert)

    def _shared(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"] | None:
        """What the expert that every token passes adds."""
        if self.shared is None:
            return None
        written = self.shared(x, tap)
        if self.W_shared_gate is None:
            return written
        return written * tap(self.prefix + "hook_shared_weight", (x @ self.W_shared_gate).sigmoid())


def _plus(x: Float[Tensor, "token wide"], biases: Float[Tensor, "expert wide"] | None, expert: int) -> Tensor:
    return x if biases is None else x + biases[expert]
