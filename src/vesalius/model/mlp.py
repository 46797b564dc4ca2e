"""Multilayer perceptrons: plain, gated, or made of experts."""

import torch
from jaxtyping import Float
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


# LayerNorm and RMSNorm, and a part's share of what they put out.

HALF = (torch.bfloat16, torch.float16)


def widened(x: Tensor) -> Tensor:
    """Half precision as float32, anything else as it is."""
    return x.float() if x.dtype in HALF else x


class NormLayer(nn.Module):
    """LayerNorm, RMSNorm or nothing, with its hook points. Half precision is normalised in float32."""

    def __init__(self, kind: Norm, width: int, eps: float, prefix: str) -> None:
        super().__init__()
        self.kind, self.eps, self.prefix = kind, eps, prefix
        self.w = nn.Parameter(torch.ones(width)) if kind != "none" else None
        self.b = nn.Parameter(torch.zeros(width)) if kind == "layer" else None

    def forward(self, x: Float[Tensor, "*batch width"], tap: Tap) -> Float[Tensor, "*batch width"]:
        if self.w is None:
            return x
        if self.kind == "rms" and tap.idle and x.dtype in HALF:
            return F.rms_norm(x.float(), self.w.shape, self.w, self.eps).to(x.dtype)
        centred = self._centred(x)
        scale = tap(f"{self.prefix}.hook_scale", self._size(centred))
        out = centred / scale
        out = out * self.w if torch.is_grad_enabled() else out.mul_(self.w)
        return tap(f"{self.prefix}.hook_normalized", (out if self.b is None else out + self.b).to(x.dtype))

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
    "silu": F.silu,
}


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
                post = F.silu(gate, inplace=True).mul_(inner)
            else:
                post = self.act(gate).mul_(inner)
        post = tap(self.prefix + "hook_post", post)
        return affine(post.flatten(0, 1), self.W_out, self.b_out).view(*x.shape[:2], -1)


class ExpertMlp(nn.Module):
    """Gated MLPs of which a router chooses a few for every token. The whole of it is one component.

    Hooks: `hook_router` (a score for every expert), `hook_expert_indices` (the chosen), `hook_expert_weights` (how
    much each of them counts); on demand `hook_expert_out` (`[batch, pos, expert, d_model]`: what each expert adds, its
    weight included; zero where it is not chosen), and `experts.E.hook_pre`, `hook_pre_linear` and `hook_post` of the
    tokens that expert E serves, in order.
    """

    def __init__(self, config: Config, experts: Experts, layer: int) -> None:
        super().__init__()
        self.prefix, self.act, self.experts = f"blocks.{layer}.mlp.", _ACTIVATIONS[config.activation], experts
        n, d, wide = experts.n_experts, config.d_model, experts.d_expert
        self.W_router = nn.Parameter(torch.zeros(d, n))
        self.W_gate, self.W_in = nn.Parameter(torch.zeros(n, d, wide)), nn.Parameter(torch.zeros(n, d, wide))
        self.W_out = nn.Parameter(torch.zeros(n, wide, d))

    def forward(self, x: Float[Tensor, "batch pos d_model"], tap: Tap) -> Float[Tensor, "batch pos d_model"]:
        scores = tap(self.prefix + "hook_router", x @ self.W_router)
        probabilities = widened(scores).softmax(-1)
        chosen = tap(self.prefix + "hook_expert_indices", probabilities.topk(self.experts.n_active, -1).indices)
        weights = probabilities.gather(-1, chosen)
        if self.experts.renormalise:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = tap(self.prefix + "hook_expert_weights", weights)
        flat, chosen, weights = x.flatten(0, 1), chosen.flatten(0, 1), weights.flatten(0, 1).to(x.dtype)
        apart = tap.needs(self.prefix + "hook_expert_out")
        out = flat.new_zeros(len(flat), self.experts.n_experts, flat.shape[1]) if apart else torch.zeros_like(flat)
        for expert in chosen.unique().tolist():
            token, place = (chosen == expert).nonzero(as_tuple=True)
            inputs, prefix = flat[token], f"{self.prefix}experts.{expert}."
            gate = tap(prefix + "hook_pre", inputs @ self.W_gate[expert])
            post = self.act(gate) * tap(prefix + "hook_pre_linear", inputs @ self.W_in[expert])
            written = tap(prefix + "hook_post", post) @ self.W_out[expert]
            written = written * weights[token, place, None]
            if apart:
                out[token, expert] = written
            else:
                out = out.index_add(0, token, written)
        if apart:
            return tap(self.prefix + "hook_expert_out", out.view(*x.shape[:2], *out.shape[1:])).sum(2)
        return out.view_as(x)
