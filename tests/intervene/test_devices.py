"""Layers spread over several devices: the same numbers, and tensors that really move."""

import pytest
import torch

from tests.closeness import same_tensors
from tests.devices import LogicalDevices, device_of
from tests.models import STRUCTURES, random_model, small_config
from vesalius.intervene import Batch, Readout, effects, logit_difference
from vesalius.intervene.ablations import ablation_named
from vesalius.intervene.attribution import attribute, edge_attribution
from vesalius.intervene.edges import SenderRecordings, run_edge_masks
from vesalius.intervene.engine import run
from vesalius.intervene.plan import Plan, Row
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.values import activations
from vesalius.model.devices import spread

FIRST, SECOND = torch.device("meta:0"), torch.device("meta:1")
EDGES = ("a0.h1->m1", "m0->logits", "input->a1.h2<q>", "a0.h0->a1.h3<v>")


def _everything(model, batch, counterfactual, readout) -> dict[str, torch.Tensor]:
    """Scores of every kind of run: sweep, first-order effects, edges by EAP-IG, exactly, and as masks."""
    resampled = effects(model, batch, readout, kind="resample", counterfactual=counterfactual)
    means = effects(model, batch, readout, kind="mean")
    replacement = ablation_named("mean").table(model, batch)
    recordings = Recordings(model, batch, readout)
    rows = [Row(prompt, edges={edge: prompt}, positions=[1, 2, 4]) for edge in EDGES for prompt in range(len(batch))]
    plan = Plan.of(model.config, rows, width=batch.tokens.shape[1])
    senders = SenderRecordings(model, batch, readout, counterfactual=counterfactual)
    cut = torch.zeros(2, *senders.graph.real.shape, dtype=torch.bool)
    cut[0, :4], cut[1, 3, -1] = senders.graph.real[:4], True
    return {
        "resample": resampled.matrix,
        "mean": means.matrix,
        "attribution": attribute(model, batch, readout, replacement),
        "eap-ig": edge_attribution(model, batch, readout, counterfactual=counterfactual, steps=2),
        "edges": run(recordings, plan, activations(model, counterfactual.to(model.device))).cpu(),
        "masks": run_edge_masks(senders, cut).cpu(),
    }


def _material(config, n: int = 3, width: int = 5):
    generator = torch.Generator().manual_seed(5)
    tokens, others = (torch.randint(0, config.d_vocab, (n, width), generator=generator) for _ in range(2))
    mask = torch.ones(n, width, dtype=torch.bool)
    mask[1, -1] = False
    position = mask.sum(1) - 1
    right, wrong = torch.randint(0, config.d_vocab_out, (2, n), generator=generator)
    return Batch(tokens, mask), Batch(others, mask), logit_difference(position, right, wrong)


@pytest.mark.parametrize("name", ["plain", "norms-after", "parallel", "windows", "head-norms", "experts"])
def test_two_devices_give_the_scores_of_one_and_tensors_move_between_them(name: str) -> None:
    config = small_config(**STRUCTURES.get(name, {}))
    material = _material(config)
    alone = _everything(random_model(config), *material)
    with LogicalDevices() as logical:
        model = random_model(config)
        assert spread(model, [FIRST, SECOND], [1, 1]) == (FIRST, SECOND)
        assert {device_of(weight) for weight in model.blocks[1].parameters()} == {SECOND}
        assert device_of(model.W_E) == FIRST
        assert device_of(model.unembed_weight) == SECOND
        logical.transfers.clear()
        apart = _everything(model, *material)
    assert logical.transfers[str(FIRST), str(SECOND)] > 0
    assert alone.keys() == apart.keys()
    for kind, scores in alone.items():
        assert same_tensors(scores, apart[kind]), kind


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    """A sum of 600 equal terms stops growing at 256 in bfloat16 (8 bits), and is wrong by 1 in 2,048 in float16."""
    config = small_config(n_layers=1, n_heads=1, n_kv_heads=1, norm="none", rotary=None, n_ctx=600, gated=False)
    model = random_model(config, scale=0.0)
    with torch.no_grad():
        model.W_E[1, 0], model.unembed_weight[0, 0] = 1.0, 1.0
    model = model.to(dtype)
    tokens, nothing = torch.ones(1, 600, dtype=torch.long), torch.zeros(1, 600, dtype=torch.long)
    summed = Readout(lambda logits, _: logits[:, :, 0].sum(1))
    scores = edge_attribution(model, Batch(tokens), summed, counterfactual=Batch(nothing))
    assert scores.dtype == torch.float32
    assert scores[0, 0, -1] == pytest.approx(600, abs=1e-3), "the embedding's edge to the logits, at 600 positions"
    swept = effects(model, Batch(tokens), summed)
    assert (swept.baseline.dtype, swept.matrix.dtype) == (torch.float32, torch.float32)
    assert swept.baseline.item() == pytest.approx(600, abs=1e-3)
    attributed = attribute(model, Batch(tokens), summed, ablation_named("zero").table(model, Batch(tokens)))
    assert attributed.dtype == torch.float32
