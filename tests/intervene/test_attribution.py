"""Attribution: exact where the score is linear in a component, and a derivative everywhere."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.closeness import EXACT
from tests.models import configs, random_model, small_config
from vesalius.intervene import Batch, Readout, Replacement, ablation_named, attribute, effects, logit_difference
from vesalius.intervene.ablations import KINDS
from vesalius.model import Component, Config, Transformer
from vesalius.model.hooks import HookPoint


def material(config: Config, seed: int) -> tuple[Batch, Batch, Readout]:
    generator = torch.Generator().manual_seed(seed)
    tokens, other = torch.randint(0, config.d_vocab, (2, 3, 5), generator=generator)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 3:] = False
    position, correct, wrong = torch.tensor([[4, 2, 1], [0, 1, 2], [1, 2, 0]])
    return Batch(tokens, mask), Batch(other, mask), logit_difference(position, correct, wrong)


@settings(max_examples=15, deadline=None)
@given(configs(), st.integers(0, 1000), st.sampled_from(KINDS))
def test_exact_where_the_score_is_linear(config: Config, seed: int, kind: str) -> None:
    """No final norm and a last MLP that writes nothing but its bias: the last layer is linear in its components."""
    config = config.model_copy(update={"norm": "none"})
    model = random_model(config, seed).double()
    model.blocks[-1].mlp.W_out.zero_()
    batch, other, readout = material(config, seed)
    replacement = ablation_named(kind).table(model, batch, counterfactual=other)
    estimated = attribute(model, batch, readout, replacement)
    found = effects(model, batch, readout, kind=kind, counterfactual=other)
    assert estimated.shape == found.matrix.shape == (3, len(model.components))
    last = [i for i, c in enumerate(model.components) if c.layer == config.n_layers - 1]
    difference = (estimated - found.matrix)[:, last].abs().max()
    assert difference <= EXACT * max(1.0, float(found.matrix.abs().max()))


def slope(model: Transformer, batch: Batch, readout: Readout, replacement: Replacement, component: Component) -> Tensor:
    """How fast each prompt's score falls as a component moves from its own output towards its replacement."""
    layer, choice, step = component.layer, replacement.choices, 1e-4

    def score(share: float) -> Tensor:
        def move(value: Tensor, hook: HookPoint) -> Tensor:
            value = value.clone()
            if component.head is not None:
                own, new = value[:, :, component.head], replacement.values.z[layer][choice][:, :, component.head]
                value[:, :, component.head] = own + share * (new - own)
                return value
            new = replacement.values.mlp[layer][choice] + model.blocks[layer].mlp.b_out
            return value + share * (new - value)

        name = f"blocks.{layer}.attn.hook_z" if component.is_head else f"blocks.{layer}.hook_mlp_out"
        logits = model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=[(name, move)])
        rows = torch.arange(3)
        at = logits[rows[:, None], readout.at].gather(2, readout.choose[:, None])
        return readout.score(at, rows)

    return (score(-step) - score(step)) / (2 * step)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(configs(), st.integers(0, 1000), st.sampled_from(KINDS))
def test_a_derivative_everywhere(config: Config, seed: int, kind: str) -> None:
    if config.activation == "relu":  # a kink has no derivative to compare with
        config = config.model_copy(update={"activation": "gelu"})
    model = random_model(config, seed).double()
    batch, other, readout = material(config, seed)
    replacement = ablation_named(kind).table(model, batch, counterfactual=other)
    estimated = attribute(model, batch, readout, replacement)
    for column, component in enumerate(model.components):
        expected = slope(model, batch, readout, replacement, component)
        assert torch.allclose(estimated[:, column], expected, rtol=1e-3, atol=1e-5), component


@pytest.mark.parametrize("rows", [1, 2])
def test_portions_change_nothing(rows: int) -> None:
    model = random_model(small_config())
    batch, other, readout = material(model.config, 0)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    whole = attribute(model, batch, readout, replacement)
    assert torch.allclose(attribute(model, batch, readout, replacement, rows=rows), whole, atol=1e-5)


def test_weights_gather_no_gradient() -> None:
    model = random_model(small_config())
    batch, _, readout = material(model.config, 0)
    found = attribute(model, batch, readout, ablation_named("zero").table(model, batch))
    assert not found.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
