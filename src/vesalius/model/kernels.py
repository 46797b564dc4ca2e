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
_HEADS, _NUMBERS = 8, 4096


@triton.jit
def _rotate(
    x, cos, sin, out, heads, positions, x_row, x_pos, x_head, a_row, a_pos, half: tl.constexpr, many: tl.constexpr
):
    token, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * many
    row, position = token // positions, token % positions
    head, place = first + tl.arange(0, many)[:, None], tl.arange(0, half)[None]
    there = head < heads
    source = x + row * x_row + position * x_pos + head * x_head + place
    target = out + (token * heads + head) * (2 * half) + place
    angle = row * a_row + position * a_pos + place
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
def _gate(gate, inner, count, many: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * many + tl.arange(0, many)
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
    x, cos, sin = x if x.stride(-1) == 1 else x.contiguous(), cos.contiguous(), sin.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    angles = 0 if len(cos) == 1 else cos.stride(0), cos.stride(1)
    numbers = heads, positions, *x.stride()[:3], *angles
    grid = batch * positions, triton.cdiv(heads, _HEADS)
    with torch.cuda.device(x.device):
        # Fused, a product and a sum would be rounded once.
        _rotate[grid](x, cos, sin, out, *numbers, half=width // 2, many=_HEADS, enable_fp_fusion=False)
    return out


def gated(gate: Float[Tensor, "*batch wide"], inner: Float[Tensor, "*batch wide"]) -> Tensor:
    """silu(gate) * inner, where the gate was; both are contiguous."""
    with torch.cuda.device(gate.device):
        _gate[(triton.cdiv(gate.numel(), _NUMBERS),)](gate, inner, gate.numel(), many=_NUMBERS)
    return gate
