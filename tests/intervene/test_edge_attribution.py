"""Edge attribution against the engine's exact path effects, finite differences, and the completeness of gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.intervene.pairs import prompt_pairs
from tests.models import configs, random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Plan, Readout, Recordings, Row, Values, activations, run
from vesalius.intervene.attribution import Rule, edge_attribution, sender_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.model import Config, Transformer


def exact(model: Transformer, batch: Batch, readout: Readout, values: Values) -> torch.Tensor:
    """The engine's effect of cutting each edge alone, `[prompt, edge]`."""
    edges = EdgeGraph.of(model.config).edges
    rows = [Row(prompt, edges={edge: prompt}) for edge in edges for prompt in range(len(batch))]
    plan = Plan.of(model.config, rows, width=batch.tokens.shape[1])
    recordings = Recordings(model, batch, readout)
    return (recordings.scores() - run(recordings, plan, values).view(len(edges), len(batch))).T


def listed(model: Transformer, scores: torch.Tensor) -> torch.Tensor:
    return scores[:, *EdgeGraph.of(model.config).places.T]


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(configs(), st.integers(0, 1000))
def test_edges_into_the_logits_are_exact_without_a_final_norm(config: Config, seed: int) -> None:
    model = random_model(config.model_copy(update={"norm": "none"}), seed)
    batch, other, readout = prompt_pairs(config, seed)
    found = listed(model, edge_attribution(model, batch, readout, counterfactual=other, memory=1))
    truth = exact(model, batch, readout, activations(model, other))
    into_logits = [i for i, edge in enumerate(EdgeGraph.of(config).edges) if edge.port == "logits"]
    assert torch.allclose(found[:, into_logits], truth[:, into_logits], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("norm", ["rms", "layer", "none"])
def test_every_edge_is_the_derivative_of_the_exact_path_effect(norm: str) -> None:
    """Patch each edge a small way towards the counterfactual; grouped-query attention, with norms and without."""
    model = random_model(small_config(norm=norm), 3).double()
    batch, other, readout = prompt_pairs(model.config, 3)
    clean, corrupt = activations(model, batch), activations(model, other)
    share = 1e-6

    def towards(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + share * (b - a)

    near = Values(
        tuple(map(towards, clean.z, corrupt.z)),
        tuple(map(towards, clean.mlp, corrupt.mlp)),
        towards(clean.embed, corrupt.embed),
    )
    slopes = exact(model, batch, readout, near) / share
    found = listed(model, edge_attribution(model, batch, readout, counterfactual=other))
    assert slopes.abs().max() > 0.1
    assert torch.allclose(found, slopes, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("rule", ["gradient", "relp", "relp-qk"])
@pytest.mark.parametrize("block", ["sequential", "parallel", "parallel_one_norm"])
@pytest.mark.parametrize("qk_norm", ["none", "head"])
def test_sums_of_senders_are_the_sums_of_their_edges(rule: Rule, block: str, qk_norm: str) -> None:
    model = random_model(small_config(block=block, qk_norm=qk_norm, n_layers=3), 4).double()
    batch, other, readout = prompt_pairs(model.config, 4)
    asked = {"counterfactual": other, "where": torch.arange(5).expand(3, 5) > 0, "steps": 2, "rule": rule}
    edges = edge_attribution(model, batch, readout, **asked)
    summed = edges.where(EdgeGraph.of(model.config).real, 0.0).sum(-1)
    assert summed.abs().min(0).values.max() > 0.01
    assert torch.allclose(sender_attribution(model, batch, readout, **asked), summed, atol=1e-10)


def test_positions_that_cannot_be_patched_do_not_count() -> None:
    model = random_model(small_config(), 1)
    batch, other, readout = prompt_pairs(model.config, 1)
    nowhere = torch.zeros(3, 5, dtype=torch.bool)
    assert not edge_attribution(model, batch, readout, counterfactual=other, where=nowhere).any()
    halves = [torch.arange(5) < 2, torch.arange(5) >= 2]
    parts = [edge_attribution(model, batch, readout, counterfactual=other, where=h.expand(3, 5)) for h in halves]
    whole = edge_attribution(model, batch, readout, counterfactual=other)
    assert torch.allclose(parts[0] + parts[1], whole, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 3])
def test_kept_apart_each_position_is_what_it_alone_contributes(steps: int) -> None:
    """Without steps in between, a position's scores are those of an experiment that patches nowhere else."""
    model = random_model(small_config(), 1)
    batch, other, readout = prompt_pairs(model.config, 1)
    apart = edge_attribution(model, batch, readout, counterfactual=other, steps=steps, per_position=True)
    assert torch.allclose(
        apart.sum(1), edge_attribution(model, batch, readout, counterfactual=other, steps=steps), atol=1e-5
    )
    if steps == 1:
        for position in range(5):
            where = (torch.arange(5) == position).expand(3, 5)
            alone = edge_attribution(model, batch, readout, counterfactual=other, where=where)
            assert torch.allclose(apart[:, position], alone, atol=1e-5)


@pytest.mark.slow
def test_integrated_gradients_from_the_embedding_add_up_to_the_whole_effect() -> None:
    """Completeness: over all edges out of the embedding, the sum approaches clean minus counterfactual score."""
    model = random_model(small_config(norm="layer"), 2).double()
    tokens, other, readout = prompt_pairs(model.config, 2)
    batch, other = Batch(tokens.tokens), Batch(other.tokens)
    total = Recordings(model, batch, readout).scores() - Recordings(model, other, readout).scores()
    errors = []
    for steps in (1, 200):
        scores = edge_attribution(model, batch, readout, counterfactual=other, steps=steps)
        errors.append(float((scores[:, 0].sum(1) - total).abs().max()))
    assert errors[1] < 0.02 * max(1.0, float(total.abs().max())) < errors[0]


def test_no_steps() -> None:
    model = random_model(small_config())
    batch, other, readout = prompt_pairs(model.config)
    with pytest.raises(BadInput, match="steps=0"):
        edge_attribution(model, batch, readout, counterfactual=other, steps=0)
