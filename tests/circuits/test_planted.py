"""Hard models: they compute their task, their true edges alone suffice, and what misleads does as it says."""

from pathlib import Path

import pytest
import torch

from vesalius.behaviours.trial import trial
from vesalius.circuits.specimens import load_specimen
from vesalius.components import Component
from vesalius.discovery.faithfulness import scores_without
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.specimen import Specimen
from vesalius_truth.planted import FEATURES, PlantedCircuit, plant_hard

#: Without noise: together they have every feature.
SEEDS = (1, 4, 9)


@pytest.fixture(scope="module", params=SEEDS)
def planted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PlantedCircuit, Specimen]:
    model = plant_hard(request.param)
    return model, load_specimen(model.write(tmp_path_factory.mktemp("hard") / "model"))


def test_the_seeds_have_every_feature_and_no_noise() -> None:
    models = [plant_hard(seed) for seed in SEEDS]
    assert {name for model in models for name in model.features} == set(FEATURES)
    assert all(model.noise == 0 for model in models)


def test_the_model_computes_its_task(planted: tuple[PlantedCircuit, Specimen]) -> None:
    model, specimen = planted
    inputs = specimen.sample(64, 3)
    assert specimen.predict(inputs) == [model.expected(letters) for letters in inputs]


def test_the_true_edges_alone_keep_every_output_and_each_component_of_the_chain_is_needed(
    planted: tuple[PlantedCircuit, Specimen],
) -> None:
    """All other edges resampled: nothing changes. Without an MLP of the chain, most outputs do."""
    model, specimen = planted
    material = trial(specimen, 24, seed=5)
    edges = frozenset(EdgeGraph.of(specimen.model.config).edges)
    without_mlp = {edge for edge in model.edges if edge.sender == Component(0)}
    kept = [model.edges | model.constant, (model.edges | model.constant) - without_mlp]
    scores, _ = scores_without(specimen.model, material, [edges - one for one in kept])
    assert torch.all(scores[:, 0] == 1)
    assert float(scores[:, 1].mean()) < 0.7


def test_the_cancelling_pair_matters_alone_and_not_together(tmp_path: Path) -> None:
    model = plant_hard(4)
    assert "cancelling" in model.features
    specimen = load_specimen(model.write(tmp_path / "model"))
    heads = [part for part in specimen.model.components if part.is_head and part not in model.components]
    material = trial(specimen, 24, seed=5)
    alone, _ = scores_without(specimen.model, material, [frozenset({head}) for head in heads])
    loud = [head for head, score in zip(heads, alone.mean(0).tolist(), strict=True) if score < 0.9]
    assert len(loud) == 2
    both, _ = scores_without(specimen.model, material, [frozenset(loud)])
    assert torch.all(both == 1)


def test_by_letter_a_head_serves_half_of_the_letters(tmp_path: Path) -> None:
    """Zeroing the head of c and d leaves every output on inputs of a and b, and changes others."""
    model = next(one for one in (plant_hard(seed, by_letter=True) for seed in range(20)) if one.noise == 0)
    specimen = load_specimen(model.write(tmp_path / "letters"))
    inputs = {half: [list(half * 2), list(half[::-1] * 3), list(half[0] * 3 + half[1] * 2)] for half in ("ab", "cd")}
    for some in inputs.values():
        assert specimen.predict(some) == [model.expected(letters) for letters in some]
    copying = [head for head in model.components if head.is_head and head.layer == 0]
    changed = {}
    for half, some in inputs.items():
        clean, edited = [], {head: [] for head in copying}
        for letters in some:
            tokens = specimen.tokenize([letters])
            clean.append(specimen.model(tokens).argmax(-1))
            for head in copying:

                def zeroed(value: torch.Tensor, hook: object, head: Component = head) -> torch.Tensor:
                    value[:, :, head.head] = 0
                    return value

                logits = specimen.model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", zeroed)])
                edited[head].append(logits.argmax(-1))
        for head, outputs in edited.items():
            changed[head, half] = not all(map(torch.equal, clean, outputs))
    needed = {head: {half for half in inputs if changed[head, half]} for head in copying}
    assert sorted(map(sorted, needed.values())) == [["ab", "cd"], ["cd"]]  # BOS counts as an a, also before c and d


def test_a_seed_gives_the_same_model() -> None:
    one, other = plant_hard(2), plant_hard(2)
    assert (one.features, one.components, one.edges) == (other.features, other.components, other.edges)
    states = zip(one.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in states)
