"""Products with and without a bias, and the sums that are made in place."""

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.model.attention import _softmax_along_rows
from vesalius.model.hooks import Tap
from vesalius.model.mlp import NormLayer, affine
from vesalius.model.positions import rotate
from vesalius.model.transformer import FEW_ROWS, LARGE_VOCABULARY, _logits


@pytest.mark.parametrize("bias", [0.0, 0.25])
def test_a_bias_of_zeros_is_left_out_and_any_other_is_added(bias: float) -> None:
    x, weight = torch.ones(3, 256), torch.full((256, 256), 0.5)
    with torch.no_grad():
        assert torch.equal(affine(x, weight, torch.full((256,), bias)), torch.full((3, 256), 128 + bias))


@pytest.mark.parametrize("rows", [1, FEW_ROWS, FEW_ROWS + 1])
def test_logits_of_few_rows_are_those_of_many(rows: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((rows, 5), (LARGE_VOCABULARY, 5), (1, 1)))
    bias = bias.expand(1, LARGE_VOCABULARY)[0] * torch.arange(LARGE_VOCABULARY)
    with torch.no_grad():
        found = _logits(x.double(), weight.double(), bias.double())
    assert torch.allclose(found, x.double() @ weight.double().T + bias.double(), atol=1e-9)
    assert found.is_contiguous()


def test_the_mean_logit_follows_the_weights() -> None:
    """It is kept from run to run, and no longer once the unembedding is another one."""
    model, tokens = random_model(small_config(), 2), torch.tensor([[1, 2, 3]])

    def means() -> torch.Tensor:
        with torch.no_grad():
            resid = model.embed(tokens, model.layout(tokens), Tap())
            every = model.unembed(resid, None, Tap()).mean(-1)
            some = model.unembed(resid, torch.tensor([[4]]), Tap(), mean=True)[..., -1]
        assert torch.allclose(some, every, atol=1e-6)
        return some

    first = means()
    assert torch.equal(means(), first)
    with torch.no_grad():
        model.unembed_weight[3] += 1.0
    second = means()
    model.unembed_weight.data = model.unembed_weight.data.clone().mul_(2)
    third = means()
    assert not torch.allclose(first, second)
    assert not torch.allclose(second, third)


def test_few_keys_are_normalised_as_many_are() -> None:
    """Keys that are masked get nothing; the two orders of adding ten exponentials differ in the last places of 1."""
    scores = torch.randn(5, 2, 3, 10, generator=torch.Generator().manual_seed(0)).mul(4)
    scores[..., 7:] = torch.finfo(scores.dtype).min
    pattern = _softmax_along_rows(scores)
    assert (pattern - scores.softmax(-1)).abs().max() <= 10 * 2**-23
    assert bool((pattern[..., 7:] == 0).all())


def test_rotation_on_paper() -> None:
    """A quarter turn takes the pair (1, 2) to (-2, 1); half precision takes another path to the same numbers."""
    x, cos, sin = torch.tensor([[[[1.0, 2.0]]]]), torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2)
    for dtype in (torch.float32, torch.bfloat16):
        assert rotate(x.to(dtype), cos.to(dtype), sin.to(dtype)).flatten().tolist() == [-2.0, 1.0]


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms_are_the_same_with_and_without_gradients(kind: str) -> None:
    norm, x = NormLayer(kind, 48, 1e-5, "ln"), torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    norm.w.data.uniform_(0.5, 2.0)
    with torch.no_grad():
        without = norm(x, Tap())
    # Both round each of 48 squares and a root once: a few units in the last place of numbers below 8.
    assert (norm(x, Tap()) - without).abs().max() <= 8 * 2**-22
