"""The memory of a plan: a run without numbers holds what the real run holds."""

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.components import all_components
from vesalius.intervene import Batch, effects, logit_difference
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.estimate import Prompts, attribution_peak, sweep_peak
from vesalius.intervene.recordings import LiveMemory

CONFIG = small_config(n_layers=8, d_model=64, d_head=16, d_mlp=160, n_ctx=64, d_vocab=50, d_vocab_out=50)
N, WIDTH, MEMORY = 6, 20, 10**7


def test_what_is_alive_is_counted_once_and_forgotten_when_it_is_freed() -> None:
    known = torch.zeros(1000)
    with LiveMemory("cpu", [known]) as live:
        one = torch.zeros(100)
        view = one[10:]
        assert live.current == 400
        two = one + 1.0
        del one, view
        assert live.current == 400
        known.view(10, 100)
        del two
    assert (live.current, live.peak) == (0, 800)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zero", "resample"])
def test_a_sweep_needs_the_memory_of_its_plan(kind: str) -> None:
    model, tokens = random_model(CONFIG), torch.zeros(N, WIDTH, dtype=torch.long)
    ids = torch.zeros(N, dtype=torch.long)
    readout = logit_difference(ids + WIDTH - 1, ids, ids + 1)
    with LiveMemory("cpu", model.parameters()) as live:
        effects(model, Batch(tokens), readout, kind=kind, counterfactual=Batch(tokens + 1), memory=MEMORY)
    sets = [(component,) for component in all_components(CONFIG)]
    planned = sweep_peak(CONFIG, torch.float32, Prompts(N, WIDTH), sets, kind, memory=MEMORY)
    assert planned == pytest.approx(live.peak, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 3])
def test_edge_attribution_needs_the_memory_of_its_plan(steps: int) -> None:
    model, tokens = random_model(CONFIG), torch.zeros(N, WIDTH, dtype=torch.long)
    ids = torch.zeros(N, dtype=torch.long)
    readout = logit_difference(ids + WIDTH - 1, ids, ids + 1)
    with LiveMemory("cpu", model.parameters()) as live:
        edge_attribution(model, Batch(tokens), readout, counterfactual=Batch(tokens), steps=steps, memory=MEMORY)
    planned = attribution_peak(CONFIG, torch.float32, Prompts(N, WIDTH), steps=steps, memory=MEMORY)
    assert planned == pytest.approx(live.peak, rel=0.1)
