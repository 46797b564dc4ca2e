"""Dictionaries and what lies beside them are held against the model before the work; plans; latents in a discovery."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import vesalius as ves
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius import api
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.neurons import HELD_OUT_SEED, HELD_OUT_SPLIT
from vesalius.documents.discovery import Discovery
from vesalius.errors import BadInput, Note
from vesalius.intervene.probes import hooked_scores
from vesalius.model.dictionaries import Dictionaries, read_dictionaries
from vesalius.model.specimen import Specimen
from vesalius.model.states import fingerprint
from vesalius.sites import Feature, Site
from vesalius_features.contexts import CONTEXTS_FILE

BEHAVIOUR = "addition:signs=-+,high=99,shots=0"
LATENTS, N = 20, 6


def transcoders(place: Path, *lines: str, d: int, layers: tuple[int, ...] = (0, 2)) -> Path:
    """Small dictionaries of what MLPs write, in the layout of circuit-tracer."""
    place.mkdir()
    hooks = ("feature_input_hook: mlp.hook_in", "feature_output_hook: hook_mlp_out")
    (place / "config.yaml").write_text("\n".join((*hooks, *lines)) + "\n")
    for layer in layers:
        generator = torch.Generator().manual_seed(layer)
        shapes = {"W_enc": (LATENTS, d), "b_enc": (LATENTS,), "W_dec": (LATENTS, d), "b_dec": (d,)}
        drawn = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
        save_file(drawn, place / f"layer_{layer}.safetensors")
    return place


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("arithmetic", behaviour=BEHAVIOUR, device="cpu")


@pytest.fixture(scope="module")
def width(specimen: Specimen) -> int:
    return specimen.model.config.d_model


def said_of(specimen: Specimen, features: Path) -> tuple[str | None, str, list[str]]:
    """What the result and the notes of one question say of dictionaries."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        result = ves.what_if(specimen, "L0F3@end", features=features, kind="zero", n=2, progress=False)
    kept = [str(one.message) for one in notes if issubclass(one.category, Note) and "made for" in str(one.message)]
    return result.request.made_for, str(result.view().sections), kept


def test_dictionaries_of_another_model_are_taken_and_named(specimen: Specimen, width: int, tmp_path: Path) -> None:
    own = str(specimen.model.W_E.dtype).removeprefix("torch.")
    for number, (lines, stated) in enumerate(
        {
            (): None,
            ("model_name: org/Arithmetic",): None,
            ("model_name: google/gemma-2-2b",): "google/gemma-2-2b",
            (f"model_name: x\nmodel_dtype: {own}\nmodel_fingerprint: {fingerprint(specimen.model)}",): None,
            (f"model_name: arithmetic\nmodel_dtype: {own}\nmodel_fingerprint: 0123",): "arithmetic",
            ("model_name: arithmetic\nmodel_dtype: float16\nmodel_fingerprint: 0123",): None,
        }.items()
    ):
        made_for, shown, notes = said_of(specimen, transcoders(tmp_path / str(number), *lines, d=width))
        assert made_for == stated
        assert len(notes) == (stated is not None)
        assert ("by what their files say, and not for this model" in shown) == (stated is not None)


def test_wrong_shapes_are_refused_before_weights_are_read(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    d = write_tiny_gpt2(model).config.d_model
    (model / "model.safetensors").write_bytes(b"no weights")  # reading them would be refused with other words
    wide, deep = transcoders(tmp_path / "wide", d=d + 1, layers=(0,)), transcoders(tmp_path / "deep", d=d, layers=(7,))
    asked: dict[str, Any] = {"behaviour": "induction", "progress": False}
    for features, why in (
        (wide, rf"layer_0.safetensors: W_enc is \[{d + 1}, {LATENTS}\]; for this model \[{d}, {LATENTS}\]"),
        (deep, "reads layer 7, and this model has 2 layers"),
        (tmp_path / "none", "no such directory"),
    ):
        for work in (
            lambda features: ves.sweep(model, sites="features", features=features, **asked),
            lambda features: ves.what_if(model, "L0F1", features=features, **asked),
            lambda features: ves.complete(model, prompt="a", edits="L0F1", features=features, progress=False),
            lambda features: ves.discover(model, "eap", features=features, **asked),
            lambda features: ves.plan("sweep", model, sites="features", features=features, **asked),
            lambda features: api.latents(model, features=features, **asked),
            lambda features: api.latents_plan(model, features=features, **asked),
        ):
            with pytest.raises(BadInput, match=why):
                work(features)


def test_passages_that_are_not_of_these_dictionaries_are_refused(width: int, tmp_path: Path) -> None:
    place = transcoders(tmp_path / "d", d=width)
    tokens = torch.ones(2, 5, dtype=torch.int32)
    right = {"tokens": tokens, "counted": tokens.bool(), "place.0": torch.full((LATENTS, 3, 2), -1, dtype=torch.int32)}
    far = right["place.0"].clone()
    far[3, 0] = torch.tensor([2, 0])
    for wrong, why in (
        ({"tokens": tokens[0].contiguous()}, "not rows of text"),
        ({"counted": tokens.clone()}, "not rows of text"),
        ({"tokens": tokens * 10_000}, "a token is not one of the"),
        ({"place.0": right["place.0"][1:].contiguous()}, f"place.0 is not of the {LATENTS} latents of layer 0"),
        ({"place.0": far}, "place.0 names places where no text is"),
    ):
        save_file(right | wrong, place / CONTEXTS_FILE)
        with pytest.raises(BadInput, match=f"{CONTEXTS_FILE}: .*{why}"):
            api.latents("arithmetic", behaviour=BEHAVIOUR, features=place, n=4, progress=False)
    (place / CONTEXTS_FILE).write_bytes(b"no tensors")
    with pytest.raises(BadInput, match="not a complete safetensors file"):
        api.latents("arithmetic", behaviour=BEHAVIOUR, features=place, n=4, progress=False)


def by_plain_hooks(specimen: Specimen, dictionaries: Dictionaries, kept: set[str], material: Trial) -> Tensor:
    """The score of each prompt with the named parts kept: every sum is written out part by part."""
    model, other = specimen.model, material.counterfactual
    ends = ("attn.hook_z", "mlp.hook_in", "hook_mlp_out")
    names = [f"blocks.{layer}.{end}" for layer in range(model.config.n_layers) for end in ends]
    _, source = model.run_with_cache(other.tokens, mask=other.mask, names=names)
    where = torch.ones_like(material.batch.tokens, dtype=torch.bool) if material.where is None else material.where
    read: dict[int, Tensor] = {}

    def heads(layer: int) -> Any:
        def hook(z: Tensor, point: object) -> Tensor:
            for head in range(z.shape[2]):
                if str(Component(layer, head)) not in kept:
                    there = source[f"blocks.{layer}.attn.hook_z"][:, :, head]
                    z[:, :, head] = torch.where(where[..., None], there, z[:, :, head])
            return z

        return hook

    def look(layer: int) -> Any:
        return lambda x, point: read.update({layer: x})

    def mlp(layer: int) -> Any:
        def hook(written: Tensor, point: object) -> Tensor:
            there = source[f"blocks.{layer}.hook_mlp_out"]
            if layer not in dictionaries.layers:
                return written if f"L{layer}_MLP" in kept else torch.where(where[..., None], there, written)
            one, x = dictionaries.at(layer), source[f"blocks.{layer}.mlp.hook_in"]
            own, its = (written - one.reconstruct(read[layer]), there - one.reconstruct(x))
            total = one.b_dec + (own if f"L{layer}.error" in kept else its)
            for index in range(LATENTS):
                value = one.encode(read[layer] if f"L{layer}F{index}" in kept else x)[..., index]
                total = total + value[..., None] * one.W_dec[index]
            return torch.where(where[..., None], total, written)

        return hook

    hooks = []
    for layer in range(model.config.n_layers):
        hooks += [(f"blocks.{layer}.attn.hook_z", heads(layer)), (f"blocks.{layer}.mlp.hook_in", look(layer))]
        hooks += [(f"blocks.{layer}.hook_mlp_out", mlp(layer))]
    with torch.no_grad():
        return hooked_scores(model, material.batch, material.readout, hooks)


@pytest.mark.slow
def test_a_discovery_with_dictionaries_has_the_latents_that_keep_the_behaviour(
    specimen: Specimen, width: int, tmp_path: Path
) -> None:
    place = transcoders(tmp_path / "d", "model_name: other", d=width)
    asked: dict[str, Any] = {"features": place, "n": N, "keep": 0.6, "progress": False}
    found = ves.discover(specimen, "eap", checks=False, out=tmp_path / "found", **asked)
    alone = api.latents(specimen, **asked)
    assert found.latents is not None
    assert found.latents.model_copy(update={"seconds": 0.0}) == alone.part().model_copy(update={"seconds": 0.0})
    assert found.request.made_for == alone.request.made_for == "other"
    assert Discovery.read(tmp_path / "found" / "discovery.json").as_data() == found.as_data()
    command = found.request.command_line()
    assert f"--features {place}" in command
    assert "Which latents" in (tmp_path / "found" / "discovery.html").read_text()
    again = ves.rerun(found, progress=False)
    assert again.latents.share == found.latents.share

    dictionaries = read_dictionaries(place, specimen.model.config)
    chosen = trial(specimen, N)
    unseen = trial(specimen, N, seed=HELD_OUT_SEED, split=HELD_OUT_SPLIT, apart_from=chosen)
    names = {one.id for one in found.latents.components}
    every = [Component(layer, head) for layer in range(3) for head in range(specimen.model.config.n_heads)]
    whole = {*map(str, every), "L1_MLP", *(f"L{layer}.error" for layer in (0, 2))}
    whole |= {str(Site(Feature(layer, index))) for layer in (0, 2) for index in range(LATENTS)}
    assert names < whole
    scores = [by_plain_hooks(specimen, dictionaries, kept, unseen).mean() for kept in (set(), names, whole)]
    assert float(scores[2]) == pytest.approx(float(specimen_score(specimen, unseen)), abs=1e-3)
    share = float((scores[1] - scores[0]) / (scores[2] - scores[0]))
    assert found.latents.share.value == pytest.approx(share, abs=1e-4)

    plan = api.latents_plan(specimen, **asked)
    assert alone.forwards <= plan.forwards <= alone.forwards + 40
    assert plan.peak_bytes > plan.weight_bytes + dictionaries.bytes()
    both = ves.plan("discover", specimen, method="eap", checks=False, **asked)
    assert both.latents_forwards == plan.forwards
    assert "for the latents" in str(both.view().answer)
    with pytest.raises(BadInput, match="leave out `material`"):
        ves.discover(specimen, "eap", material=chosen, **asked)


def specimen_score(specimen: Specimen, material: Trial) -> Tensor:
    with torch.no_grad():
        return hooked_scores(specimen.model, material.batch, material.readout, []).mean()


@pytest.mark.slow
def test_a_training_says_which_weights_it_is_of(specimen: Specimen, tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text("\n\n".join(f"{a} - 2 + {a + 1} =" for a in range(60)))
    asked: dict[str, Any] = {"latents": 8, "k": 2, "steps": 2, "batch": 16, "n": 4, "layers": "2", "progress": False}
    ves.train_transcoders(specimen, text=tmp_path / "sums.txt", out=tmp_path / "t", **asked)
    (stated,) = read_dictionaries(tmp_path / "t", specimen.model.config).stated
    assert (stated.name, stated.fingerprint) == (specimen.name, fingerprint(specimen.model))
    assert not stated.differs(["renamed"], specimen.model)
    kept = load_file(tmp_path / "t" / CONTEXTS_FILE)
    assert json.loads(api.latents(specimen, features=tmp_path / "t", n=4, progress=False).model_dump_json())
    save_file(kept | {"place.2": kept["place.2"][:3].contiguous()}, tmp_path / "t" / CONTEXTS_FILE)
    with pytest.raises(BadInput, match=r"place\.2 is not of the 8 latents of layer 2"):
        api.latents(specimen, features=tmp_path / "t", n=4, progress=False)
