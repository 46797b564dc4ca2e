"""LayerNorm and RMSNorm, and a part's share of what they put out."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vesalius.model.config import Norm
from vesalius.model.hooks import Tap

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
