"""Kernels for half precision on a GPU, and what stands for them elsewhere: the same bits."""

import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vesalius.model.hooks import Tap
from vesalius.model.mlp import NormLayer, _built, gpu_kernels
from vesalius.model.positions import rotate

HALF = [torch.bfloat16, torch.float16]
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def drawn(*shape: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """Numbers of both signs, most of them of the size of activations."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))) * 3).to(device, dtype)


def rotated_by_hand(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Every product rounded to half precision, then the sum."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def angles(rows: int, positions: int, width: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Cosines and sines as a layout holds them."""
    turns = drawn(rows, positions, 1, width // 2, dtype=torch.float32, device=device)
    turns = torch.cat([turns, turns], -1)
    return turns.cos().to(dtype), turns.sin().to(dtype)


@pytest.mark.parametrize("dtype", HALF)
def test_rotation_in_half_precision_rounds_every_product(dtype):
    x = drawn(3, 7, 10, 64, dtype=dtype)[:, :, 2:8]
    cos, sin = angles(1, 7, 64, dtype)
    assert torch.equal(rotate(x, cos, sin), rotated_by_hand(x, cos, sin))


def test_rotation_has_a_gradient_in_half_precision():
    x = drawn(1, 3, 2, 8, dtype=torch.bfloat16).requires_grad_()
    cos, sin = angles(1, 3, 8, torch.bfloat16)
    rotate(x, cos, sin).float().sum().backward()
    ones = torch.ones_like(x)
    # The transpose of a rotation turns back.
    assert torch.allclose(x.grad.float(), rotated_by_hand(ones, cos, -sin).float(), atol=2e-2)


def test_a_processor_has_no_kernels():
    with torch.no_grad():
        assert gpu_kernels(drawn(2, 2, dtype=torch.bfloat16)) is None


def test_without_triton_the_formulas_are_left(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "vesalius.model.kernels", raising=False)
    assert _built.__wrapped__(torch.device("cpu"), torch.bfloat16) is None


@ON_GPU
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("rows", [1, 4])
def test_rotated_on_a_gpu(dtype, rows):
    x = drawn(4, 33, 48, 128, dtype=dtype, device="cuda")[:, :, :10]
    cos, sin = angles(rows, 33, 128, dtype, "cuda")
    with torch.no_grad():
        assert gpu_kernels(x) is not None
        assert torch.equal(rotate(x, cos, sin), rotated_by_hand(x, cos, sin))
        part = rotate(x, cos[..., :64], sin[..., :64])
    assert torch.equal(part[..., 64:], x[..., 64:])
    assert torch.equal(part[..., :64], rotated_by_hand(x[..., :64], cos[..., :64], sin[..., :64]))


@ON_GPU
@pytest.mark.parametrize("dtype", HALF)
def test_gated_on_a_gpu(dtype):
    gate, inner = (drawn(*shape, dtype=dtype, device="cuda") for shape in ((300, 1000), (1, 300, 1000)))
    expected = F.silu(gate) * inner[0]
    with torch.no_grad():
        kernels = gpu_kernels(gate)
        assert kernels is not None
        assert torch.equal(kernels.gated(gate, inner[0]), expected)


@ON_GPU
@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_rms_norm_on_a_gpu_looks_at_a_weight_again_that_changed(dtype):
    norm = NormLayer("rms", 256, 1e-5, "ln").cuda().requires_grad_(False)
    x = drawn(5, 256, dtype=dtype, device="cuda")
    for weight in (1.5, 1 + 2**-20):  # the second would be rounded in half precision
        norm.w.fill_(weight)
        with torch.no_grad():
            given = norm(x, Tap())
        wide = x.double()
        expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.w.double()
        assert torch.allclose(given.double(), expected, rtol=1e-2 if dtype in HALF else 1e-5)
