"""What half precision spends outside of matrix products, in one pass over memory each, on a GPU: rotary positions and
the gate of an MLP. Every rounding is that of the formulas, which take seven passes and five: a tenth of a sweep of a
large model.

Triton comes with torch's builds for CUDA. `mlp.gpu_kernels` gives these where they can be built.
"""

import torch
import triton  # pyrefly: ignore [missing-import]
import triton.language as tl  # pyrefly: ignore [missing-import]
from jaxtyping import Float
from torch import Tensor
from triton.language.extra import libdevice  # pyrefly: ignore [missing-import]

#: Heads that one program rotates, and numbers that one program gates.
_HEADS, _NUMBERS = tl.constexpr(8), tl.constexpr(4096)


@triton.jit
def _rotate(x, cos, sin, out, heads, positions, x_token, x_head, angle_row, half: tl.constexpr):
    token, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * _HEADS
    head, place = first + tl.arange(0, _HEADS)[:, None], tl.arange(0, half)[None]
    there = head < heads
    source = x + token * x_token + head * x_head + place
    target = out + (token * heads + head) * (2 * half) + place
    angle = token // positions * angle_row + token % positions * (2 * half) + place
    one = tl.load(source, mask=there, other=0.0).to(tl.float32)
    two = tl.load(source + half, mask=there, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    one_cos = (one * tl.load(cos + angle).to(tl.float32)).to(kind).to(tl.float32)
    two_sin = (two * tl.load(sin + angle).to(tl.float32)).to(kind).to(tl.float32)
    two_cos = (two * tl.load(cos + angle + half).to(tl.float32)).to(kind).to(tl.float32)
    one_sin = (one * tl.load(sin + angle + half).to(tl.float32)).to(kind).to(tl.float32)
    tl.store(target, (one_cos - two_sin).to(kind), mask=there)
    tl.store(target + half, (two_cos + one_sin).to(kind), mask=there)


@triton.jit
def _gate(gate, inner, count):
    place = tl.program_id(0).to(tl.int64) * _NUMBERS + tl.arange(0, _NUMBERS)
    there = place < count
    kind = gate.dtype.element_ty
    x = tl.load(gate + place, mask=there, other=0.0).to(tl.float32)
    silu = tl.math.div_rn(x, 1.0 + libdevice.exp(-x)).to(kind).to(tl.float32)
    product = silu * tl.load(inner + place, mask=there, other=0.0).to(tl.float32)
    tl.store(gate + place, product.to(kind), mask=there)


def rotated(
    x: Float[Tensor, "batch pos head d_head"],
    cos: Float[Tensor, "rows pos 1 d_head"],
    sin: Float[Tensor, "rows pos 1 d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """Each pair (i, i + d_head/2) rotated by its angle, every product rounded."""
    batch, positions, heads, width = x.shape
    if x.stride(3) != 1 or x.stride(0) != positions * x.stride(1):
        x = x.contiguous()
    out, cos, sin = torch.empty(x.shape, dtype=x.dtype, device=x.device), cos.contiguous(), sin.contiguous()
    numbers = heads, positions, x.stride(1), x.stride(2), 0 if len(cos) == 1 else cos.stride(0)
    with torch.cuda.device(x.device):
        # Fused, a product and a sum would be rounded once.
        grid = batch * positions, triton.cdiv(heads, _HEADS.value)
        _rotate[grid](x, cos, sin, out, *numbers, half=width // 2, enable_fp_fusion=False)
    return out


def gated(gate: Float[Tensor, "*batch wide"], inner: Float[Tensor, "*batch wide"]) -> Tensor:
    """silu(gate) * inner, where the gate was; both are contiguous."""
    with torch.cuda.device(gate.device):
        _gate[(triton.cdiv(gate.numel(), _NUMBERS.value),)](gate, inner, gate.numel())
    return gate
