"""Circuits of neurons: the share kept against a loop of hooked runs, the smallest set, baselines, refusals."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model
from vesalius.behaviours.trial import trial
from vesalius.components import Component, mlp_units
from vesalius.discovery.neurons import Keeping, keep_neurons
from vesalius.documents.view import HeadMap
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Recordings
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.report.plots import draw_heatmap

SPECIMEN = "frac_prevs"


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load(SPECIMEN)


def test_the_share_kept_is_that_of_hooked_runs(specimen: Specimen) -> None:
    """Keep some neurons: by hooks that put the counterfactual's activations in the place of all others."""
    model, material = specimen.model, trial(specimen, 6, seed=3)
    keeping, width = Keeping(model, material, Cost()), model.config.d_mlp
    kept = torch.tensor([1, width - 1, width + 2])
    other = model.run_with_cache(material.counterfactual.tokens, mask=material.counterfactual.mask)[1]

    def replace(value: Tensor, hook: object) -> Tensor:
        layer = hook.layer()  # type: ignore[attr-defined]
        stays = torch.zeros(width, dtype=torch.bool)
        stays[kept[kept // width == layer] % width] = True
        where = stays | (~material.where[:, :, None] if material.where is not None else False)
        return torch.where(where, value, other[f"blocks.{layer}.mlp.hook_post"])

    logits = model.run_with_hooks(
        material.batch.tokens,
        mask=material.batch.mask,
        fwd_hooks=[(lambda name: name.endswith("mlp.hook_post"), replace)],
    )
    expected = material.readout.score(logits, torch.arange(6))
    assert torch.allclose(keeping.scores(kept), expected, atol=1e-6)
    whole = Recordings(model, material.batch, material.readout).scores()
    assert torch.equal(keeping.scores(torch.arange(len(keeping.places))), whole)
    none, full, mean = keeping.none.mean(), whole.mean(), expected.mean()
    assert keeping.shares(kept, [3])[0][0] == pytest.approx(float((mean - none) / (full - none)), abs=1e-5)


def test_the_smallest_set_keeps_what_was_asked(specimen: Specimen) -> None:
    result = keep_neurons(specimen, keep=0.9, n=24)
    total = len(mlp_units(specimen.model.config))
    assert 0 < len(result.neurons) < total == result.n_neurons
    assert result.share_chosen >= 0.9
    sizes = [point.size for point in result.curve]
    assert sizes == sorted(set(sizes))
    assert len(result.neurons) in sizes
    last = result.curve[-1]
    assert (last.size, last.share, last.magnitude, last.random) == pytest.approx((total, 1.0, 1.0, 1.0))
    at = next(point for point in result.curve if point.size == len(result.neurons))
    assert at.share > at.random


def test_one_prompt_gives_a_share_without_an_interval(specimen: Specimen) -> None:
    one, two = (Keeping(specimen.model, trial(specimen, n, seed=3), Cost()) for n in (1, 2))
    order = torch.arange(len(one.places))
    ((share, low, high),) = one.shares(order, [len(order)])
    assert (share, low, high) == (pytest.approx(1.0), None, None)
    assert two.shares(order, [len(order)])[0][1:] == pytest.approx((1.0, 1.0))


def test_experts_are_kept_where_mlps_are_made_of_them(specimen: Specimen) -> None:
    """All three experts of the second layer and some neurons of the first, by the same search; all units keep all."""
    experts = {"n_experts": 3, "n_active": 1, "d_expert": 6, "renormalise": False, "layers": (1,)}
    config = Config.model_validate({**specimen.model.config.model_dump(), "gated": True, "experts": experts})
    routed = dataclasses.replace(specimen, model=random_model(config, 3))
    result = keep_neurons(routed, keep=0.9, n=24)
    assert result.n_neurons == config.d_mlp + 3
    assert result.share_chosen >= 0.9
    assert {str(part) for part, _ in result.neurons} & {"L1E0", "L1E1", "L1E2"}
    assert result.curve[-1].share == pytest.approx(1.0)


def test_mlps_that_do_nothing_are_named() -> None:
    """The hand-set model of induction has no part for its MLPs."""
    attention_only = as_specimen(induction_model(word_tokenizer().size))
    with pytest.raises(BadInput, match="the neurons of all MLPs carry nothing of this behaviour"):
        ves.neurons(attention_only, n=8)


def test_refusals(specimen: Specimen, tmp_path: Path) -> None:
    for keep in (0.0, 1.5):
        with pytest.raises(BadInput, match="is not a share of the behaviour"):
            keep_neurons(specimen, keep=keep)
    with pytest.raises(BadInput, match="method 'acdc' does not score neurons; choose one of gradient, relp, relp-qk"):
        ves.neurons(specimen, method="acdc")
    swept = ves.sweep(specimen, components=["L0N0", Component(0, neuron=3), "L0H0"], n=4)
    assert [str(members[0]) for members in swept.sets] == ["L0N0", "L0N3", "L0H0"]
    with pytest.raises(BadInput, match="L0N0 is a part of an MLP: use a table"):
        draw_heatmap(HeadMap({"L0N0": 1.0}, 1, 1), tmp_path / "a.png", title="")
