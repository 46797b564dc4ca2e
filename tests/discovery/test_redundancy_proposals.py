"""Pairs proposed by gradients: the estimate against plain hooks, and a pair planted behind a norm."""

import pytest
import torch

from tests.explanations.induction_model import as_specimen, induction_model, word_tokenizer
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.rivals import growing_pairs, growth, strongest
from vesalius.intervene import Cost
from vesalius.intervene.ablations import Resample
from vesalius.intervene.attribution import attribute, attribute_once_replaced
from vesalius.model.specimen import Specimen
from vesalius_mechrl.sets.discover import search_sets

A, B, IDLE = Component(1, 0), Component(1, 1), Component(1, 3)


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    """Two induction heads behind a norm: one is enough, so that either grows once the other is gone."""
    return as_specimen(induction_model(word_tokenizer().size, strengths={0: 80.0, 1: 50.0}, norm="rms"))


def test_the_estimate_is_the_slope_of_a_run_with_the_head_replaced(specimen: Specimen) -> None:
    """Plain hooks: the head's z from the counterfactual run, and the gradient of the score at every other head's z."""
    model, given = specimen.model, trial(specimen, 4)
    values = Resample().table(model, given.batch, counterfactual=given.counterfactual)
    (estimate,) = attribute_once_replaced(model, given.batch, given.readout, values, [A])
    _, source = model.run_with_cache(given.counterfactual.tokens)
    kept: dict[str, torch.Tensor] = {}

    def put(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, A.head] = source["blocks.1.attn.hook_z"][:, :, A.head]
        kept["z"] = z.detach().requires_grad_()
        return kept["z"]

    with torch.enable_grad():
        logits = model.run_with_hooks(given.batch.tokens, fwd_hooks=[("blocks.1.attn.hook_z", put)])
        rows = torch.arange(4)
        assert given.readout.at is not None
        read = logits[rows[:, None], given.readout.at]
        chosen = read if given.readout.choose is None else read.gather(2, given.readout.choose[:, None])
        (slope,) = torch.autograd.grad(given.readout.score(chosen, rows).sum(), [kept["z"]])
    change = kept["z"].detach() - source["blocks.1.attn.hook_z"]
    expected = (slope * change).sum((1, 3))
    places = [place for place, part in enumerate(model.components) if part.is_head and part.layer == 1]
    torch.testing.assert_close(estimate[:, places], expected, rtol=1e-4, atol=1e-4)
    assert estimate[:, model.components.index(A)].abs().max() == 0
    assert not torch.allclose(estimate, attribute(model, given.batch, given.readout, values))


def test_the_planted_pair_grows_most(specimen: Specimen) -> None:
    model, given, cost = specimen.model, trial(specimen, 8), Cost()
    values = Resample().table(model, given.batch, counterfactual=given.counterfactual)
    heads = [part for part in model.components if part.is_head]
    grown = growth(model, given.batch, given.readout, values, heads, [A, IDLE], cost)
    assert cost.rows == 3 * 8 * 3  # a forward and a backward pass, for the model as it is and for each of two heads
    assert growing_pairs(grown, heads, [A, IDLE], most=1) == [(A, B)]
    assert float(grown[1].abs().max()) < 0.01 < float(grown[0].max())  # once an idle head is gone nothing grows


def test_proposals_are_distinct_pairs_that_grow() -> None:
    heads = [Component(0, head) for head in range(3)]
    grown = torch.tensor([[0.0, 0.5, -0.1], [0.7, 0.0, 0.2]])
    pairs = growing_pairs(grown, heads, heads[:2], most=5)
    assert pairs == [(heads[0], heads[1]), (heads[1], heads[2])]
    assert strongest({heads[0]: -0.9, heads[1]: 0.2, heads[2]: 0.5, Component(0): 3.0}, most=2) == [heads[0], heads[2]]


@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_other_replacements_are_searched_as_well(specimen: Specimen, kind: str) -> None:
    found = search_sets(specimen, "growth", kind=kind, n=16)
    assert ("L1H0", "L1H1") in [group.heads for group in found.confirmation.groups]


def test_a_natural_model_is_searched_by_growth_and_its_own_replacement(specimen: Specimen) -> None:
    found = search_sets(specimen, n=16)
    assert (found.search, [group.heads for group in found.confirmation.groups]) == ("growth", [("L1H0", "L1H1")])
    assert found.queries.paid < 8 + 28  # fewer than all heads and pairs
