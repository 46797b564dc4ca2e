"""The rules of relevance patching (RelP): a backward pass through the model as it would be if it were linear.

Attribution multiplies a change by the gradient of the score. RelP (https://arxiv.org/abs/2508.21258) multiplies it by
the coefficient of layer-wise relevance propagation instead. That is the gradient of a model with the same outputs, in
which these are constants:

| where                  | rule       | constant                                                                |
|------------------------|------------|-------------------------------------------------------------------------|
| LayerNorm, RMSNorm     | LN-rule    | what the norm divides by                                                |
| attention              | AH-rule    | the pattern; so are the weights that a router gives its experts         |
| activation function    | identity   | the ratio f(x) / x                                                      |
| product in a gated MLP | half       | each factor for the other, and each gets half of the relevance          |
| linear maps            | 0-rule     | nothing: the gradient                                                   |

`relp` applies all of them, so nothing reaches a head's queries and keys. `relp-qk` leaves the pattern its gradient and
applies the others. A soft cap of the logits belongs to the readout and keeps its gradient, and so do limits on queries,
keys and values.
"""

from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer

Rule = Literal["gradient", "relp", "relp-qk"]
RULES: tuple[Rule, ...] = get_args(Rule)
_CONSTANTS = (".hook_scale", ".hook_expert_weights")
_FACTORS = (".hook_pre", ".hook_pre_linear")


def rule_hooks(model: Transformer, rule: Rule) -> list[Hook]:
    """Hooks under which a backward pass gives a rule's coefficients; the values of the forward pass stay as they are.
    They hold what a pass leaves with them: take new ones for every pass.
    """
    if rule == "gradient":
        return []
    constants = (*_CONSTANTS, ".hook_pattern") if rule == "relp" else _CONSTANTS
    factors: dict[str, Tensor] = {}

    def freeze(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach()

    def keep(value: Tensor, hook: HookPoint) -> None:
        factors[hook.name] = value

    def propagate(value: Tensor, hook: HookPoint) -> Tensor:
        prefix, act = hook.name.removesuffix(".hook_post"), model.blocks[hook.layer()].mlp.act
        pre, linear = factors.pop(f"{prefix}.hook_pre"), factors.pop(f"{prefix}.hook_pre_linear", None)
        with torch.no_grad():
            activated = act(pre)
            ratio = activated / torch.where(pre == 0, -torch.finfo(pre.dtype).tiny, pre)
        if linear is None:
            return _Sloped.apply(value.detach(), pre, ratio)
        return _Sloped.apply(value.detach(), pre, ratio * linear.detach() / 2, linear, activated / 2)

    return [
        (lambda name: name.endswith(constants), freeze),
        (lambda name: name.endswith(_FACTORS), keep),
        (lambda name: name.endswith(".hook_post"), propagate),
    ]


class _Sloped(torch.autograd.Function):
    """A value that moves with its inputs, each given with the slope by which it does."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_and_slopes: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs_and_slopes[1::2])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, "*shape"]) -> tuple[Tensor | None, ...]:
        back: list[Tensor | None] = [None]
        for slope in ctx.saved_tensors:
            back += [gradients[0] * slope, None]
        return tuple(back)
