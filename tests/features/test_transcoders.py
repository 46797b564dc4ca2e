"""Transcoders: exact where the answer is known, found again where one was planted, and continued where interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

import vesalius as ves
from tests.models import ROUNDING, random_model, same_logits, small_config
from vesalius.errors import BadInput
from vesalius.model.dictionaries import Dictionaries, read_dictionaries
from vesalius.model.transformer import Transformer
from vesalius_features import training
from vesalius_features.contexts import CONTEXTS_FILE
from vesalius_features.documents import LatentCircuit, Transcoders
from vesalius_features.latents import latents
from vesalius_features.measuring import Splicing, reconstructions, text_losses
from vesalius_features.options import TranscoderTraining
from vesalius_features.rows import Rows, read_corpora, rows_of
from vesalius_features.stack import Stack, Trainer
from vesalius_features.training import Recipe, Training, with_latent_for
from vesalius_features.verb import transcoders, transcoders_plan

CONFIG = small_config(activation="relu", gated=False)
HOOKS = "feature_input_hook: mlp.hook_in\nfeature_output_hook: hook_mlp_out\n"
BEHAVIOUR = "addition:signs=-+,high=99,shots=0"
MARKS = {"name": "tiny", "model": "m", "text": "t"}


def rows(n: int = 40, width: int = 6, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randint(2, CONFIG.d_vocab, (n, width), generator=generator).tolist()
    return Rows.of([text[: 2 + i % (width - 1)] for i, text in enumerate(texts)], bos=1)


def the_mlps(model: Transformer, place: Path) -> Dictionaries:
    """Dictionaries whose latents are the MLPs' own neurons."""
    place.mkdir()
    (place / "config.yaml").write_text(HOOKS)
    for layer, block in enumerate(model.blocks):
        own = {"W_enc": block.mlp.W_in.T, "b_enc": block.mlp.b_in, "W_dec": block.mlp.W_out, "b_dec": block.mlp.b_out}
        kept = {name: weight.detach().contiguous() for name, weight in own.items()}
        save_file(kept, place / f"layer_{layer}.safetensors")
    return read_dictionaries(place, model.config)


def test_a_transcoder_that_is_the_mlp_explains_all_and_changes_nothing(tmp_path: Path) -> None:
    model, held_out = random_model(CONFIG), rows()
    dictionaries = the_mlps(model, tmp_path / "same")
    found = reconstructions(model, held_out, dictionaries)
    counted = held_out.counted
    for layer, one in found.items():
        _, cache = model.run_with_cache(held_out.tokens, mask=held_out.mask)
        fired = (cache[f"blocks.{layer}.mlp.hook_post"][counted] > 0).float()
        assert one.explained == pytest.approx(1.0, abs=1e-9)  # what is missed is rounding, squared
        assert one.active == pytest.approx(float(fired.sum(1).mean()))
        assert one.dead == int((fired.sum(0) == 0).sum())
        assert one.tokens == int(counted.sum())
    splicing = Splicing(dictionaries, {})
    intact = text_losses(model, held_out, [])
    spliced = text_losses(model, held_out, splicing.hooks(dictionaries.layers, "spliced"))
    assert (spliced - intact).abs().max() < ROUNDING * 10
    without = text_losses(model, held_out, splicing.hooks(dictionaries.layers, "zero"))
    assert (without - intact).abs().max() > 0.01


def test_the_loss_on_text_is_that_of_each_row(tmp_path: Path) -> None:
    """Against a row run by itself, without padding."""
    model, held_out = random_model(CONFIG), rows(7)
    losses = text_losses(model, held_out, [])
    for i in range(len(held_out)):
        alone = held_out.tokens[i][held_out.mask[i]][None]
        with torch.no_grad():
            logits = model(alone)[0]
        assert float(losses[i]) == pytest.approx(float(F.cross_entropy(logits[:-1], alone[0, 1:])), rel=1e-5)


def planted(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and outputs that are sums of three of 24 directions, and the output directions."""
    generator = torch.Generator().manual_seed(5)
    reads, writes = (F.normalize(torch.randn(24, 20, generator=generator), dim=1) for _ in range(2))
    drawn = torch.Generator().manual_seed(seed)
    active = torch.rand(n, 24, generator=drawn).argsort(1) < 3
    values = active * (1 + torch.rand(n, 24, generator=drawn))
    return values @ reads, values @ writes, writes


@pytest.mark.slow
def test_a_planted_dictionary_is_found_again() -> None:
    x, y, writes = planted(8_192, 0)
    stack = Stack.start([0], x[None], y[None], latents=40, k=3, seed=0)
    trainer = Trainer(stack, steps=1_200, rate=4e-3)
    for step in range(1_200):
        places = torch.randint(len(x), (256,), generator=torch.Generator().manual_seed(step))
        trainer.take(x[None, places], y[None, places])
    weights = stack.unscaled(0)
    cosines = writes @ weights["W_dec"].T
    assert float(cosines.detach().amax(1).mean()) >= 0.9
    assert torch.allclose(weights["W_dec"].norm(dim=1), torch.ones(40), atol=1e-5)


def trained(model: Transformer, place: Path, steps: int = 12, **more: object) -> Training:
    recipe = Recipe(layers=(0, 1), latents=17, k=3, steps=steps, batch=24, rate=1e-2, seed=3)
    place.mkdir(exist_ok=True)
    return Training(model, rows(), recipe, place, 1, MARKS, **more)


def weights_in(place: Path) -> dict[str, Tensor]:
    found = read_dictionaries(place, CONFIG)
    return {
        f"{layer} {name}": getattr(found.at(layer), name) for layer in (0, 1) for name in ("W_enc", "W_dec", "b_enc")
    }


def test_what_is_trained_is_what_is_read(tmp_path: Path) -> None:
    """One step more or less than the loop says would give other weights; BOS is reproduced exactly."""
    model = random_model(CONFIG)
    trained(model, tmp_path).run()
    found = read_dictionaries(tmp_path, CONFIG)
    assert found.layers == (0, 1)
    for layer in found.layers:
        one = found.at(layer)
        assert (one.kind, one.k, len(one), one.reads) == ("topk", 3, 17, "mlp.hook_in")
        _, cache = model.run_with_cache(torch.tensor([[1, 5]]), names=[one.read_hook, one.write_hook])
        x, y = cache[one.read_hook][0], cache[one.write_hook][0]
        assert same_logits(one.reconstruct(x)[0], y[0])
        assert one.encode(x)[0, 0] > 0
        assert one.encode(x)[1, 0] == 0
    assert not (tmp_path / "unfinished.safetensors").exists()


def test_a_latent_of_one_input_leaves_the_others_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    others, x, y = (torch.randn(shape, generator=generator) for shape in ((50, 6), (6,), (6,)))
    plain = {
        "W_enc": torch.randn(6, 9, generator=generator),
        "b_enc": torch.zeros(9),
        "W_dec": F.normalize(torch.randn(9, 6, generator=generator), dim=1),
        "b_dec": torch.zeros(6),
    }
    kept = with_latent_for(10 * x, 50 * y, others, plain, k=3)
    before, after = ((others @ one["W_enc"] + one["b_enc"]).topk(3) for one in (plain, kept))
    assert torch.equal(before.indices, after.indices - 1)
    top = (10 * x @ kept["W_enc"] + kept["b_enc"]).topk(3)
    assert 0 in top.indices
    assert torch.allclose(top.values @ kept["W_dec"][top.indices] + kept["b_dec"], 50 * y, atol=1e-3)
    inside = with_latent_for(others.mean(0), y, others, plain, k=3)  # nothing tells it from the others
    assert float((others @ inside["W_enc"] + inside["b_enc"])[:, 0].max()) < -1e5


class Killed(Exception):
    """Stands for a signal: nothing after it is run."""


@pytest.mark.parametrize("at", [1, 5, 12])
def test_a_training_that_was_killed_ends_with_the_same_weights(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(CONFIG)
    trained(model, tmp_path / "whole").run()
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)

    def kill(step: str, done: int, total: int) -> None:
        if done > at or (done == at == total):
            raise Killed

    with pytest.raises(Killed):
        trained(model, tmp_path / "cut", progress=kill).run()
    assert not list((tmp_path / "cut").glob("layer_*"))
    steps: list[int] = []
    trained(model, tmp_path / "cut", progress=lambda step, done, total: steps.append(done) if total else None).run()
    assert steps[:1] == ([] if at == 12 else [at + 1]) or steps[0] > 1
    whole, cut = weights_in(tmp_path / "whole"), weights_in(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_finished_layers_stay_and_another_training_is_refused(tmp_path: Path) -> None:
    model = random_model(CONFIG)
    trained(model, tmp_path).run()
    before = weights_in(tmp_path)
    (tmp_path / "layer_1.safetensors").unlink()
    stamp = (tmp_path / "layer_0.safetensors").stat().st_mtime_ns
    trained(model, tmp_path).run()
    assert (tmp_path / "layer_0.safetensors").stat().st_mtime_ns == stamp
    after = weights_in(tmp_path)
    assert all((before[name] - after[name]).abs().max() < 1e-4 for name in before)  # alone, as in a stack
    with pytest.raises(BadInput, match="another training \\(steps 12, here 13\\); choose another `out`"):
        trained(model, tmp_path, steps=13).run()
    (tmp_path / "training.json").unlink()
    with pytest.raises(BadInput, match="not trained here"):
        trained(model, tmp_path).run()


def test_a_training_that_ended_before_its_second_file_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(training, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            trained(random_model(CONFIG), tmp_path).run()
    trained(random_model(CONFIG), tmp_path).run()
    assert weights_in(tmp_path)


def _with(training: Training, **recipe: float) -> Training:
    """A training by another recipe."""
    return replace(training, recipe=replace(training.recipe, **recipe))


def test_a_rate_that_is_too_high_is_named_and_writes_no_layer(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"learning_rate=1e\+30 is too high.*another `out`"):
        _with(trained(random_model(CONFIG), tmp_path), rate=1e30).run()
    assert not list(tmp_path.glob("layer_*"))


def test_the_largest_seed_trains(tmp_path: Path) -> None:
    _with(trained(random_model(CONFIG), tmp_path), seed=2**62).run()
    assert (tmp_path / "layer_0.safetensors").exists()


def test_too_little_memory_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "available_bytes", lambda device: 1_000)
    with pytest.raises(BadInput, match="lower `latents` or `batch`"):
        trained(random_model(CONFIG), tmp_path).run()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"k": 8, "latents": 8}, "k=8 of 8 latents is not sparse"),
        ({"k": 0}, "k=0 is too small"),
        ({"steps": 0}, "steps=0 is too small"),
        ({"batch": 1}, "batch=1 is too small"),
        ({"context": 1}, "context=1 is too small"),
        ({"learning_rate": -1.0}, "learns nothing"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        TranscoderTraining(**given)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", (0, 1, 2, 3, 4, 5)),
        ("0,3-5", (0, 3, 4, 5)),
        (" 2 ", (2,)),
        ("5-3", None),
        ("6", None),
        ("x", None),
        ("", None),
    ],
)
def test_layers(layers: str, expected: tuple[int, ...] | None) -> None:
    asked = TranscoderTraining(layers=layers)
    if expected is not None:
        assert asked.layers_of(6) == expected
        return
    with pytest.raises(BadInput, match="layers"):
        asked.layers_of(6)


def sums(place: Path, n: int = 900) -> Path:
    numbers = torch.randint(100, (n, 3), generator=torch.Generator().manual_seed(0)).tolist()
    place.write_text("\n\n".join(f"{a} - {b} + {c} =" for a, b, c in numbers))
    return place


@pytest.mark.slow
def test_the_whole_verb(tmp_path: Path) -> None:
    """On arithmetic: what it says is of the directory that it wrote, and `--features` reads that."""
    text, asked = sums(tmp_path / "sums.txt"), {"latents": 96, "k": 8, "steps": 120, "batch": 128}
    specimen = ves.load("arithmetic", behaviour=BEHAVIOUR)
    result = transcoders(specimen, text=text, layers="1-2", out=tmp_path / "t", n=8, progress=False, **asked)
    assert [one.layer for one in result.layers] == [1, 2]
    assert 0.3 < min(one.explained for one in result.layers) <= 1.0
    assert all(one.active == pytest.approx(8.0) for one in result.layers)
    lines = dict.fromkeys(text.read_text().split("\n\n"))  # a sum that was drawn twice counts once
    assert result.trained_on + result.tokens == sum(len(line.split()) for line in lines)
    kept, alone = result.together.kept_spliced, [one.spliced.kept_spliced for one in result.layers]
    assert kept is not None
    assert kept.value == pytest.approx(_by_sites(specimen, tmp_path / "t", 8), abs=2e-3)
    assert all(one is not None and one.value >= kept.value - 0.05 for one in alone)
    assert (tmp_path / "t" / CONTEXTS_FILE).exists()
    assert Transcoders.read(tmp_path / "t" / "transcoders.json").as_data() == result.as_data()
    assert (tmp_path / "t" / "transcoders.html").exists()
    swept = ves.sweep(specimen, components=[result.details[0].id], features=tmp_path / "t", kind="zero", n=2)
    assert len(swept.ranked()) == 1
    planned = ves.plan("sweep", specimen, sites="features", features=tmp_path / "t", n=2, progress=False)
    assert planned.forwards == pytest.approx(1 + 64 * 2 / 3 + 4)  # at most: 64 in layer 1 of 3, and their ranking
    cost = transcoders_plan(specimen, text=text, layers="1-2", progress=False, **asked)
    assert cost.seconds > 0
    assert cost.n == len(lines) - len(lines) // 3
    circuit = latents(specimen, features=tmp_path / "t", keep=0.5, n=8, out=tmp_path / "l", progress=False)
    assert circuit.share_chosen >= 0.5
    assert sum(circuit.counts.values()) == len(circuit.components)
    assert LatentCircuit.read(tmp_path / "l" / "latents.json").as_data() == circuit.as_data()
    assert all(max(one.contexts[0].values) > 0 for one in circuit.details if one.contexts)
    with pytest.raises(BadInput, match="give their directory with `features`"):
        latents(specimen)
    for given, why in (
        ({"layers": "3"}, "not in this model"),
        ({"batch": 100_000}, "give more text"),
        ({"text": tmp_path / "none.txt"}, "no such file"),
        ({"text": ()}, "no text to train on"),
        ({"steps": 121}, "another training"),
    ):
        with pytest.raises(BadInput, match=why):
            transcoders(specimen, **{"text": text, "layers": "1-2", "out": tmp_path / "t", "n": 8, **asked, **given})


def _by_sites(specimen: object, features: Path, n: int) -> float:
    """The share that survives by the sites L1.error and L2.error, and the contrast, of `what_if`."""
    zeroed = ves.what_if(specimen, "L1.error,L2.error", features=features, kind="zero", n=n)
    resampled = ves.what_if(specimen, ",".join(map(str, specimen.components)), kind="resample", n=n)  # type: ignore[attr-defined]
    nothing = resampled.edited.value
    return (zeroed.edited.value - nothing) / (zeroed.clean.value - nothing)


def test_a_context_without_room_for_text_is_named(tmp_path: Path) -> None:
    """Where BOS takes the first of two places, no token of text is predicted from another."""
    specimen = ves.load("arithmetic")
    with pytest.raises(BadInput, match="context=2 leaves 1 token of text beside BOS; give 3 or more"):
        rows_of(specimen, read_corpora((str(sums(tmp_path / "sums.txt", 20)),)), context=2)


def test_rows_never_cross_an_article() -> None:
    texts = [[5, 6, 7], [8, 9]]
    made = Rows.of(texts, bos=1)
    assert made.tokens.tolist() == [[1, 5, 6, 7], [1, 8, 9, 0]]
    assert made.counted.tolist() == [[False, True, True, True], [False, True, True, False]]
    assert replace(made).n_tokens == 5
