"""Attention of a head under several changes at once, against one change at a time."""

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.intervene import Batch
from vesalius.intervene.probes import HeadInputs


@pytest.mark.parametrize("pad", [0, 2])
def test_patterns_under_several_changes_are_those_under_each(pad: int) -> None:
    model = random_model(small_config())
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 16, (3, 5), generator=generator)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, :pad] = False
    batch = Batch(tokens, mask)
    _, cache = model.run_with_cache(tokens, mask=mask)
    inputs = HeadInputs(model, batch, cache["blocks.1.hook_resid_pre"], Component(1, 2))
    changes = torch.randn(4, 3, 5, model.config.d_model, generator=generator)
    together = inputs.patterns_with_each(changes, ("q", "k"))
    for i, change in enumerate(changes):
        alone = inputs.patterns_with(change, ("q", "k"))
        for port in ("q", "k"):
            assert torch.allclose(together[port][i], alone[port], atol=1e-6)
    assert not torch.allclose(together["q"][0], together["q"][1], atol=1e-2)
