"""Latents of sparse dictionaries against plain hooks: what they are, what replacing them does, and their files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import vesalius as ves
from tests.models import ROUNDING, random_model, same_logits, small_config
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, Recordings
from vesalius.intervene.ablations import Mean, Resample, Zero
from vesalius.intervene.features import bound, strongest
from vesalius.intervene.sites import SiteValues, placed_sets, site_scores
from vesalius.model.dictionaries import Dictionaries, Dictionary, read_dictionaries
from vesalius.sites import Site, parse_sites

D, LATENTS, N, WIDTH = 12, 7, 3, 6
CONFIG = small_config()


def weights(seed: int = 0, **more: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"W_enc": (D, LATENTS), "b_enc": (LATENTS,), "W_dec": (LATENTS, D), "b_dec": (D,)}
    drawn = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
    return drawn | more


def saelens(place: Path, tensors: dict[str, Tensor], **settings: object) -> Path:
    place.mkdir(parents=True)
    save_file({name: value.contiguous() for name, value in tensors.items()}, place / "sae_weights.safetensors")
    (place / "cfg.json").write_text(
        json.dumps({"architecture": "standard", "hook_name": "blocks.0.hook_resid_post"} | settings)
    )
    return place


def circuit_tracer(place: Path, layers: dict[int, dict[str, Tensor]]) -> Path:
    place.mkdir(parents=True)
    for layer, tensors in layers.items():
        save_file(
            {name: (value.T if name == "W_enc" else value).contiguous() for name, value in tensors.items()},
            place / f"layer_{layer}.safetensors",
        )
    hooks = "feature_input_hook: hook_mlp_in\nfeature_output_hook: 'hook_mlp_out'  # the MLP\n"
    (place / "config.yaml").write_text(f"model_name: tiny\n{hooks}scan: x\n")
    return place


def by_hand(one: dict[str, Tensor], x: Tensor, kind: str) -> Tensor:
    """The latents of activations [.., D], written out from the definitions."""
    inside = x - one["b_dec"]
    pre = inside @ one["W_enc"] + one.get("b_enc", torch.zeros(LATENTS))
    if kind == "standard":
        return pre.clamp(min=0)
    if kind == "jumprelu":
        return torch.where(pre > one["threshold"], pre, torch.zeros(()))
    if kind == "topk":
        least = pre.sort(-1, descending=True).values[..., 2:3]
        return torch.where(pre >= least, pre.clamp(min=0), torch.zeros(()))
    size = (inside @ one["W_enc"]) * one["r_mag"].exp() + one["b_mag"]
    return torch.where(inside @ one["W_enc"] + one["b_gate"] > 0, size.clamp(min=0), torch.zeros(()))


@pytest.mark.parametrize("kind", ["standard", "jumprelu", "topk", "gated"])
def test_latents_are_those_of_the_definitions(kind: str, tmp_path: Path) -> None:
    more = {
        "jumprelu": {"threshold": torch.full((LATENTS,), 0.3)},
        "gated": {
            "r_mag": torch.linspace(-1, 1, LATENTS),
            "b_mag": torch.ones(LATENTS) / 4,
            "b_gate": torch.ones(LATENTS) / 8,
        },
    }.get(kind, {})
    tensors = weights(**more)
    saelens(tmp_path / "d", tensors, architecture=kind, k=3, apply_b_dec_to_input=True)
    one = read_dictionaries(tmp_path / "d", CONFIG).at(0)
    x = torch.randn(4, 5, D, generator=torch.Generator().manual_seed(5))
    expected = by_hand(tensors, x, kind)
    assert 0 < int((expected != 0).sum()) < expected.numel()
    assert torch.allclose(one.encode(x), expected, atol=1e-6)
    some = torch.tensor([4, 1])
    assert torch.allclose(one.encode(x, some), expected[..., [4, 1]], atol=1e-6)
    assert torch.allclose(one.reconstruct(x), expected @ tensors["W_dec"] + tensors["b_dec"], atol=1e-5)


def test_both_layouts_hold_the_same_transcoder(tmp_path: Path) -> None:
    tensors = weights(3, W_skip=torch.eye(D) / 3)
    hooks = {"hook_name": "blocks.1.hook_mlp_in", "hook_name_out": "blocks.1.hook_mlp_out"}
    saelens(tmp_path / "one" / "layer", tensors, architecture="skip_transcoder", metadata=hooks)
    circuit_tracer(tmp_path / "other", {1: tensors})
    one, other = (read_dictionaries(tmp_path / name, CONFIG).at(1) for name in ("one", "other"))
    x = torch.randn(5, D, generator=torch.Generator().manual_seed(5))
    assert (one.read_hook, one.write_hook) == (other.read_hook, other.write_hook) == tuple(hooks.values())
    # One of them is read transposed, so that its sums may end in another digit.
    torch.testing.assert_close(one.encode(x), other.encode(x))
    torch.testing.assert_close(one.reconstruct(x), other.reconstruct(x))


class Setting:
    """A small model with padded prompts and two dictionaries: an autoencoder of layer 0, a transcoder of layer 1."""

    def __init__(self, place: Path) -> None:
        self.model = random_model(CONFIG)
        saelens(place / "sae", weights(1))
        transcoder = {"hook_name": "blocks.1.hook_mlp_in", "hook_name_out": "blocks.1.hook_mlp_out"}
        saelens(place / "transcoder", weights(2), architecture="transcoder", **transcoder)
        self.dictionaries: Dictionaries = read_dictionaries(place, CONFIG)
        generator = torch.Generator().manual_seed(1)
        tokens, other = (torch.randint(1, 17, (N, WIDTH), generator=generator) for _ in range(2))
        self.ends = torch.tensor([5, 3, 4])
        mask = torch.arange(WIDTH)[None] <= self.ends[:, None]
        self.batch, self.other = Batch(tokens, mask), Batch(other, mask)
        choose = torch.tensor([[1, 2, 3]]).repeat(N, 1)
        self.readout = Readout(lambda logits, _: logits[:, 0, 0] - 2 * logits[:, 0, 1], self.ends[:, None], choose)
        self.recordings = Recordings(self.model, self.batch, self.readout)

    def sites(self, names: str) -> list[Site]:
        return bound(parse_sites(names, CONFIG), self.dictionaries)

    def edited(self, names: str, kind: object, other: Batch | None = None) -> Tensor:
        (placed,) = placed_sets([self.sites(names)], self.marked)
        values = SiteValues.make(self.model, kind, self.batch, [placed], counterfactual=other or self.other)  # type: ignore[arg-type]
        return site_scores(self.recordings, values, placed)

    def marked(self, at: object) -> Tensor:
        mask = torch.zeros(N, WIDTH, dtype=torch.bool)
        for one in at:  # type: ignore[attr-defined]
            mask[torch.arange(N), self.ends + 1 + one if one < 0 else torch.full((N,), one)] = True
        return mask

    def hooked(self, layer: int, change: Callable[[Dictionary, Tensor], Tensor]) -> Tensor:
        """The scores where `change`, a function of what the dictionary reads, is added to what it writes."""
        one, read = self.dictionaries.at(layer), {}

        def look(value: Tensor, hook: object) -> None:
            read["x"] = value

        def add(value: Tensor, hook: object) -> Tensor:
            return value + change(one, read["x"])

        hooks = [(one.read_hook, look), (one.write_hook, add)]
        logits = self.model.run_with_hooks(self.batch.tokens, mask=self.batch.mask, fwd_hooks=hooks)
        last = logits[torch.arange(N), self.ends]
        return last[:, 1] - 2 * last[:, 2]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("features"))


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("kind", [Zero(), Mean(), Resample()], ids=str)
def test_replaced_latents_are_those_of_plain_hooks(setting: Setting, layer: int, kind: object) -> None:
    one, which = setting.dictionaries.at(layer), [2, 5]
    prompts = setting.other if kind == Resample() else setting.batch
    _, cache = setting.model.run_with_cache(prompts.tokens, mask=prompts.mask)
    source = one.encode(cache[one.read_hook])[..., which]
    if kind == Zero():
        source = torch.zeros_like(source)
    elif kind == Mean():
        source = source[setting.batch.mask].mean(0)[None, None]

    def change(one: Dictionary, x: Tensor) -> Tensor:
        return (source - one.encode(x)[..., which]) @ one.W_dec[which]

    expected = setting.hooked(layer, change)
    found = setting.edited(",".join(f"L{layer}F{index}" for index in which), kind)
    assert torch.allclose(found, expected, atol=ROUNDING)
    assert float((found - setting.recordings.scores()).abs().max()) > 1e-3


def test_a_latent_is_replaced_at_its_position_alone(setting: Setting) -> None:
    where = setting.marked([1, -1])

    def change(one: Dictionary, x: Tensor) -> Tensor:
        return -one.encode(x)[..., [3]] @ one.W_dec[[3]] * where[..., None]

    assert torch.allclose(setting.edited("L0F3@1@-1", Zero()), setting.hooked(0, change), atol=ROUNDING)


@pytest.mark.parametrize("layer", [0, 1])
def test_without_its_error_a_dictionary_speaks_alone(setting: Setting, layer: int) -> None:
    one, where = setting.dictionaries.at(layer), setting.marked([1, -1])
    written: dict[str, Tensor] = {}

    def look(value: Tensor, hook: object) -> None:
        written["x"] = value

    def spoken(value: Tensor, hook: object) -> Tensor:
        x = written["x"]
        alone = one.reconstruct(x) - one.encode(x)[..., [2]] @ one.W_dec[[2]]
        return torch.where(where[..., None], alone, value)

    hooks = [(one.read_hook, look), (one.write_hook, spoken)]
    logits = setting.model.run_with_hooks(setting.batch.tokens, mask=setting.batch.mask, fwd_hooks=hooks)
    last = logits[torch.arange(N), setting.ends]
    found = setting.edited(f"L{layer}.error@1@-1,L{layer}F2@1@-1", Zero())
    assert torch.allclose(found, last[:, 1] - 2 * last[:, 2], atol=ROUNDING)
    assert float((found - setting.edited(f"L{layer}F2@1@-1", Zero())).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["L0F3", "L1F3", "L0.error", "L1.error,L1F0"])
def test_a_latent_replaced_by_its_own_value_changes_nothing(setting: Setting, name: str) -> None:
    assert same_logits(setting.edited(name, Resample(), other=setting.batch), setting.recordings.scores())


@pytest.mark.parametrize("resampled", [False, True])
def test_attribution_is_the_slope_of_the_score(setting: Setting, resampled: bool) -> None:
    other = setting.other if resampled else None
    found, ranked = strongest(setting.model, setting.batch, setting.readout, setting.dictionaries, other=other, most=3)
    clean, share, slopes = setting.recordings.scores(), 1e-3, {}
    _, cache = setting.model.run_with_cache(setting.other.tokens, mask=setting.other.mask)
    for layer in (0, 1):
        for index in range(LATENTS):

            def change(one: Dictionary, x: Tensor, index: int = index) -> Tensor:
                gone = one.encode(x)[..., [index]]
                gone = gone - one.encode(cache[one.read_hook])[..., [index]] if resampled else gone
                return -share * gone @ one.W_dec[[index]] * setting.batch.mask[..., None]

            slopes[f"L{layer}F{index}"] = float((clean - setting.hooked(layer, change)).sum()) / share
    order = sorted(slopes, key=lambda name: -abs(slopes[name]))
    assert [str(site) for site in found] == order[:3]
    assert sum(abs(slope) > 0.01 for slope in slopes.values()) <= ranked <= 2 * LATENTS  # rounding is 1e-3 here


def test_what_cannot_be_read_gets_one_line(tmp_path: Path) -> None:
    bad: list[tuple[dict[str, object], dict[str, Tensor], str]] = [
        ({"architecture": "crosscoder"}, {}, "architecture 'crosscoder' is not computed here"),
        ({"hook_name": "blocks.0.ln2.hook_normalized"}, {}, "hook_name.*is not read here"),
        ({"hook_name": "blocks.9.hook_resid_post"}, {}, "reads layer 9, and this model has 2 layers"),
        ({"normalize_activations": "layer_norm"}, {}, "normalize_activations 'layer_norm' is not computed"),
        ({"architecture": "topk"}, {}, "needs k"),
        *(({"architecture": "topk", "k": k}, {}, "topk keeps a whole number") for k in (0, 8, -3, 2.5, True, "3")),
        ({"architecture": "gated", "activation_fn_str": "topk"}, {}, "of architecture 'gated' is not computed"),
        ({"apply_b_dec_to_input": "false"}, {}, "apply_b_dec_to_input 'false' must be true or false"),
        ({"architecture": "skip_transcoder"}, {}, "weight W_skip is missing"),
        ({}, {"threshold": torch.zeros(LATENTS)}, "holds threshold, which architecture 'standard' does not use"),
        ({}, {"W_enc": torch.zeros(D, 0), "b_enc": torch.zeros(0), "W_dec": torch.zeros(0, D)}, "holds no latents"),
        ({"architecture": "jumprelu"}, {}, "weight threshold is missing"),
        ({"architecture": "jumprelu"}, {"threshold": torch.full((LATENTS,), -1.0)}, "a threshold is below 0"),
        ({}, {"W_dec": torch.zeros(LATENTS, D + 1)}, r"W_dec is \[7, 13\]; for this model \[7, 12\]"),
        ({}, {"b_dec": torch.full((D,), torch.nan)}, "b_dec holds NaN"),
        ({}, {"W_dec": torch.zeros(())}, r"W_dec is \[\]; 2 axes are expected"),
        ({"architecture": ["standard"]}, {}, "architecture .* is not computed here"),
        ({"hook_name": "blocks.0.hook_resid_post", "hook_name_out": "blocks.0.hook_mlp_out"}, {}, "comes after"),
    ]
    for number, (settings, tensors, message) in enumerate(bad):
        place = saelens(tmp_path / str(number), weights() | tensors, **settings)
        with pytest.raises(BadInput, match=message):
            read_dictionaries(place, CONFIG).at(0)
    for number, k in enumerate((torch.tensor([2, 3]), torch.tensor(0), torch.tensor(8), torch.tensor(torch.nan))):
        circuit_tracer(place := tmp_path / f"k{number}", {0: weights() | {"k": k.float()}})
        with pytest.raises(BadInput, match="topk keeps a whole number"):
            read_dictionaries(place, CONFIG).at(0)
    saelens(tmp_path / "two" / "a", weights())
    saelens(tmp_path / "two" / "b", weights())
    (tmp_path / "empty").mkdir()
    for place, message in (("two", "both of layer 0"), ("empty", "holds no dictionary"), ("none", "no such directory")):
        with pytest.raises(BadInput, match=message):
            read_dictionaries(tmp_path / place, CONFIG)
    one = read_dictionaries(saelens(tmp_path / "one", weights()), CONFIG)
    for name, dictionaries, message in (
        ("L0F7", one, "latents 0 to 6"),
        ("L1F0", one, "has dictionaries of layers 0"),
        ("L0F0", None, "give its directory with `features`"),
        ("L2F0", one, "layers 0 to 1"),
    ):
        with pytest.raises(BadInput, match=message):
            bound(parse_sites(name, CONFIG), dictionaries)


@pytest.mark.slow
def test_verbs_take_latents_and_repeat_what_they_were_asked(tmp_path: Path) -> None:
    specimen = ves.load("arithmetic", behaviour="addition:signs=-+,high=99,shots=0", device="cpu")
    d, generator = specimen.model.config.d_model, torch.Generator().manual_seed(0)
    shapes = {"W_enc": (d, 20), "b_enc": (20,), "W_dec": (20, d), "b_dec": (d,)}
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    place = saelens(tmp_path / "sae", tensors, hook_name="blocks.1.hook_resid_post")
    report = ves.api.sweep_report(specimen, features=place, sites="features", kind="zero", n=4, progress=False)
    assert report.of == "site"
    assert f"{len(report.components)} of {report.ranked:,} latents" in str(report.view())
    assert 0 < len(report.components) <= min(64, report.ranked or 0)
    assert f"--features {place}" in report.request.command_line()
    strongest_one = max(report.components, key=lambda row: abs(row.effect))
    answer = ves.what_if(specimen, strongest_one.id, features=place, kind="zero", n=4, progress=False)
    assert answer.effect.value == pytest.approx(strongest_one.effect, abs=1e-4)
    again = ves.rerun(answer, progress=False) if hasattr(ves, "rerun") else answer
    assert again.effect.value == pytest.approx(answer.effect.value, abs=1e-5)
    with pytest.raises(BadInput, match="give its directory with `features`"):
        ves.what_if(specimen, "L1F3", kind="zero", n=4, progress=False)
    with pytest.raises(BadInput, match="give the directory of the sparse dictionaries"):
        ves.sweep(specimen, sites="features", n=4, progress=False)
    for useless in (lambda **kept: ves.sweep(specimen, **kept), lambda **kept: ves.what_if(specimen, "L0H0", **kept)):
        with pytest.raises(BadInput, match="nothing of these dictionaries is replaced"):
            useless(features=place, kind="zero", n=4, progress=False)
