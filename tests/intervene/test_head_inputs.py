"""One head's arithmetic against the attention of plain and hooked runs."""

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.intervene import Batch
from vesalius.intervene.probes import HeadInputs
from vesalius.model import Component


@pytest.fixture(params=["rms", "layer", "none"])
def setting(request: pytest.FixtureRequest):
    """A model with grouped heads, padded prompts and their cached run."""
    model = random_model(small_config(norm=request.param))
    tokens = torch.randint(0, 17, (4, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([[6], [4], [5], [6]])
    _, cache = model.run_with_cache(tokens, mask=mask)
    return model, Batch(tokens, mask), cache


@pytest.mark.parametrize("name", ["L0H0", "L1H3"])
def test_attention_and_values_are_those_of_a_run(setting, name: str) -> None:
    model, batch, cache = setting
    head = Component.parse(name)
    inputs = HeadInputs(model, batch, cache[f"blocks.{head.layer}.hook_resid_pre"], head)
    assert torch.allclose(inputs.pattern(), cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.head], atol=1e-6)
    assert torch.allclose(inputs.values, cache[f"blocks.{head.layer}.attn.hook_v"][:, :, head.head // 2], atol=1e-5)


@pytest.mark.parametrize("port", ["q", "k", "v"])
def test_a_change_at_one_input_is_a_hook_at_that_input(setting, port: str) -> None:
    model, batch, cache = setting
    change = torch.randn(4, 6, 12, generator=torch.Generator().manual_seed(1))
    seen = {}

    def add(inputs: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.cat([inputs[:, :, :2], (inputs[:, :, 2] + change)[:, :, None], inputs[:, :, 3:]], 2)

    def look(pattern: torch.Tensor, hook: object) -> None:
        seen["pattern"] = pattern[:, 2]

    hooks = [(f"blocks.1.hook_{port}_input", add), ("blocks.1.attn.hook_pattern", look)]
    model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=hooks)
    inputs = HeadInputs(model, batch, cache["blocks.1.hook_resid_pre"], Component(1, 2))
    changed = inputs.patterns_with(change, (port,))[port]  # type: ignore[arg-type, index]
    assert torch.allclose(changed, seen["pattern"], atol=1e-5)
    assert torch.allclose(changed, inputs.pattern(), atol=1e-5) == (port == "v")
