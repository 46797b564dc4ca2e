"""Learned masks: a mask of zeros and ones is an ablation, and planted circuits stay open."""

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import trial
from vesalius.discovery.faithfulness import scores_without
from vesalius.discovery.masks import Masks
from vesalius.discovery.method import MethodInput
from vesalius.errors import BadInput
from vesalius.intervene.masking import masked_scores
from vesalius.intervene.values import activations


@pytest.mark.parametrize("name", ["arithmetic", "frac_prevs"])
def test_masks_of_zeros_and_ones_replace_components_as_the_engine_does(name: str) -> None:
    specimen = ves.load(name)
    material, parts = trial(specimen, 6), list(specimen.model.components)
    kept = set(parts[::3])
    scores, _ = scores_without(specimen.model, material, [frozenset(parts) - kept, frozenset(parts)])
    mask = torch.tensor([float(part in kept) for part in parts])
    other = activations(specimen.model, material.counterfactual)
    prompts = (specimen.model, material.batch, other, material.readout)
    assert torch.allclose(masked_scores(*prompts, mask, where=material.where), scores[:, 0], atol=1e-3)
    closed = masked_scores(*prompts, torch.zeros(len(parts)), where=material.where)
    assert torch.allclose(closed, scores[:, 1], atol=1e-3)


@pytest.mark.slow
def test_a_planted_circuit_stays_open_and_all_else_closes() -> None:
    specimen = ves.load("frac_prevs")
    scores = Masks(steps=80).score(MethodInput(specimen, trial(specimen, 16))).components
    assert {part for part, score in scores.items() if score > 0.5} == set(specimen.components)


def test_options_without_sense_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 1 step"):
        Masks(steps=0)
    with pytest.raises(BadInput, match="positive rate"):
        Masks(rate=0.0)
