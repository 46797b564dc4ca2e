"""Linear maps with a bias, without the work that a bias of zeros would cost."""

import torch
from jaxtyping import Float
from torch import Tensor

#: From this size on, a weight is worth the look at its bias.
_LARGE = 2**16


def affine(
    x: Float[Tensor, "row inner"], weight: Float[Tensor, "inner outer"], bias: Float[Tensor, " outer"]
) -> Float[Tensor, "row outer"]:
    """x W + b. Many families have no biases; adding zeros to a product takes a tenth of its time on a CPU."""
    if weight.numel() >= _LARGE and bias.is_cpu and not torch.is_grad_enabled() and not bool(bias.any()):
        return x @ weight
    return torch.addmm(bias, x, weight)
