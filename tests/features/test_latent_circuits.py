"""Circuits of latents against the engine's circuits of neurons: with MLPs' own neurons as latents the two are one."""

from pathlib import Path

import pytest
import torch

from tests.features.test_transcoders import CONFIG, the_mlps
from tests.intervene.test_features import saelens, weights
from tests.models import random_model
from vesalius.behaviours.trial import Trial
from vesalius.components import Component, mlp_units
from vesalius.discovery import neurons
from vesalius.discovery.shares import Shares
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout
from vesalius.intervene.engine import Cost
from vesalius.model.dictionaries import Dictionaries, read_dictionaries
from vesalius.model.transformer import Transformer
from vesalius.progress import silent
from vesalius.sites import Feature
from vesalius_features.circuits import Keeping, Parts, attributions, require_of_mlps, smallest_set

N, WIDTH = 10, 6


def material(seed: int) -> Trial:
    tokens, other = torch.randint(2, CONFIG.d_vocab, (2, N, WIDTH), generator=torch.Generator().manual_seed(seed))
    return Trial(
        Batch(tokens),
        Batch(other),
        Readout(lambda logits, _: logits[:, 0, 3] - logits[:, 0, 4], at=torch.full((N, 1), WIDTH - 1)),
    )


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(CONFIG)


@pytest.fixture(scope="module")
def dictionaries(model: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Dictionaries:
    return the_mlps(model, tmp_path_factory.mktemp("d") / "same")


def places(parts: Parts, *, heads: bool, latents: torch.Tensor, errors: bool) -> torch.Tensor:
    """Which parts are kept: all heads or none, some latents in order, all errors or none."""
    kept, after = torch.zeros(len(parts), dtype=torch.bool), 0
    for layer, own in parts.heads.items():
        kept[own] = heads
        rest = parts.rest[layer]
        many = rest.stop - rest.start - 1
        kept[rest.start : rest.stop - 1] = latents[after : after + many]
        kept[rest.stop - 1] = errors
        after += many
    return kept


def test_parts_and_their_names(model: Transformer, dictionaries: Dictionaries) -> None:
    parts = Parts(model, dictionaries)
    assert len(parts) == CONFIG.n_layers * (CONFIG.n_heads + CONFIG.d_mlp + 1)
    names = [str(parts.part(place)) for place in range(len(parts))]
    assert len(set(names)) == len(parts)
    assert names[:5] == ["L0H0", "L0H1", "L0H2", "L0H3", "L0F0"]
    assert [names[place] for place in parts.errors()] == ["L0.error", "L1.error"]


def test_kept_latents_are_the_neurons_that_the_engine_keeps(model: Transformer, dictionaries: Dictionaries) -> None:
    parts, prompts = Parts(model, dictionaries), material(0)
    keeping, engine = Keeping(parts, prompts), neurons.Keeping(model, prompts, Cost())
    some = torch.rand(len(mlp_units(CONFIG)), generator=torch.Generator().manual_seed(1)) < 0.4
    ours = keeping.scores(places(parts, heads=True, latents=some, errors=True))
    assert (ours - engine.scores(some.nonzero()[:, 0])).abs().max() < 1e-4
    assert (ours - keeping.full).abs().max() > 1e-2
    nothing = Shares(model, prompts).nothing
    assert (keeping.none - nothing).abs().max() < 1e-4


def test_attributions_are_slopes_times_changes(model: Transformer, dictionaries: Dictionaries) -> None:
    """A head's, by a small step of its z toward the counterfactual's."""
    parts, prompts = Parts(model, dictionaries), material(2)
    scores = attributions(parts, prompts)
    _, other = model.run_with_cache(prompts.counterfactual.tokens)
    step = 1e-2
    name = "blocks.0.attn.hook_z"

    def moved(sign: float) -> torch.Tensor:
        def hook(value: torch.Tensor, _: object) -> torch.Tensor:
            value = value.clone()
            value[:, :, 1] += sign * step * (other[name] - value)[:, :, 1]
            return value

        logits = model.run_with_hooks(prompts.batch.tokens, fwd_hooks=[(name, hook)])[:, -1:]
        return prompts.readout.score(logits, torch.arange(N)).mean()

    slope = float(moved(-1.0) - moved(1.0)) / (2 * step)
    assert float(scores[1]) == pytest.approx(slope, rel=0.02, abs=1e-4)
    assert float(scores[parts.errors()].abs().max()) < 1e-4  # dictionaries that miss nothing


def test_the_smallest_set_keeps_its_share(model: Transformer, dictionaries: Dictionaries) -> None:
    parts = Parts(model, dictionaries)
    found = smallest_set(parts, material(0), material(1), keep=0.9, seed=0, progress=silent)
    assert found.share_chosen >= 0.9
    assert 0 < len(found.parts) < len(parts)
    assert all(isinstance(part, Component | Feature) for part, _ in found.parts)
    scores = [abs(score) for _, score in found.parts]
    assert scores == sorted(scores, reverse=True)
    assert found.without_errors.value == pytest.approx(found.share.value, abs=1e-3)


def test_dictionaries_of_the_stream_are_refused(tmp_path: Path) -> None:
    saelens(tmp_path / "d", weights(), apply_b_dec_to_input=False)
    with pytest.raises(BadInput, match="circuits are of dictionaries that write hook_mlp_out"):
        require_of_mlps(read_dictionaries(tmp_path / "d", CONFIG))


def test_weights_that_cannot_be_added_up_are_refused(tmp_path: Path, model: Transformer) -> None:
    huge = weights()
    huge |= {"W_dec": huge["W_dec"] * 1e37, "W_enc": huge["W_enc"] * 1e10}
    settings = {"hook_name": "blocks.0.mlp.hook_in", "hook_name_out": "blocks.0.hook_mlp_out"}
    place = saelens(tmp_path / "huge", huge, architecture="transcoder", **settings)
    with pytest.raises(BadInput, match="not a finite number"):
        attributions(Parts(model, read_dictionaries(place, CONFIG)), material(0))
