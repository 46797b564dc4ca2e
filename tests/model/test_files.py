"""Checkpoints on disk: round trips; damaged, unsupported or hostile files are refused in one line."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.model.tiny_gpt2 import write_tiny_gpt2
from tests.models import configs, random_model, same_logits, same_weights, small_config
from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, sha256, write_json
from vesalius.model import Config, Transformer
from vesalius.model.lens_files import Inert, load_lens, read_pickle_inert
from vesalius.model.sources import download, load_huggingface
from vesalius.model.states import build, load_model, save_model, to_state

TOKENS = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])


def refusal(work: Callable[[], object], kind: type[Exception] = BadInput) -> str:
    with pytest.raises(kind) as error:
        work()
    message = str(error.value)
    assert "\n" not in message.strip()
    return message


# --- native


@settings(max_examples=20, deadline=None)
@given(configs(), st.integers(0, 1000), st.booleans())
def test_native_round_trip(tmp_path_factory: pytest.TempPathFactory, config: Config, seed: int, tied: bool) -> None:
    directory = tmp_path_factory.mktemp("model")
    model = random_model(config, seed)
    if tied and config.d_vocab == config.d_vocab_out:
        model.unembed_weight = model.W_E
    save_model(model, directory)
    again = load_model(directory)
    assert again.config == config
    assert (again.unembed_weight is again.W_E) == (model.unembed_weight is model.W_E)
    assert same_weights(again, model)
    assert same_logits(again(TOKENS), model(TOKENS))
    assert sorted(path.name for path in directory.iterdir()) == ["model.json", "model.safetensors"]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(random_model(small_config()), tmp_path)
    return tmp_path


def rewrite(directory: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    state = load_file(directory / "model.safetensors")
    change(state)
    save_file(state, directory / "model.safetensors")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_file(saved: Path, share: float) -> None:
    weights = saved / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[: int(len(data) * share)])
    assert "model.safetensors: not a complete safetensors file" in refusal(lambda: load_model(saved))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s["blocks.1.mlp.W_in"].fill_(torch.nan), "weight blocks.1.mlp.W_in holds NaN or infinity"),
        (lambda s: s["embed.W_E"][3].fill_(torch.inf), "weight embed.W_E holds NaN or infinity"),
        (lambda s: s.pop("blocks.0.attn.W_O"), "weight blocks.0.attn.W_O is missing"),
        (lambda s: s.pop("ln_final.w"), "weight ln_final.w is missing"),
        (lambda s: s.update({"lm_head": torch.zeros(2)}), "weight 'lm_head' has no place in this model"),
        (lambda s: s.update({"embed.W_E": torch.zeros(17, 11)}), r"has shape (17, 11); this model needs (17, 12)"),
    ],
)
def test_weights_that_do_not_fit(saved: Path, change: Callable[[dict], Any], reason: str) -> None:
    rewrite(saved, change)
    message = refusal(lambda: load_model(saved))
    assert reason in message
    assert "model.safetensors" in message


def test_missing_biases_are_zero_and_a_missing_unembedding_is_the_embedding(saved: Path) -> None:
    """Where a loader says so; a file of our own holds every bias."""
    state = load_file(saved / "model.safetensors")
    config = load_model(saved).config
    for name in ("blocks.0.attn.b_Q", "unembed.W_U", "unembed.b_U"):
        del state[name]
    model = build(config, state, where="here")
    assert model.unembed_weight is model.W_E
    assert not model.b_U.any()
    assert not model.blocks[0].attn.b_Q.any()
    assert model.blocks[0].attn.b_K.all()


def test_weights_that_are_released_are_dropped_as_they_are_copied(saved: Path) -> None:
    state, config = load_file(saved / "model.safetensors"), load_model(saved).config
    kept = build(config, state, where="here")
    assert state
    assert same_weights(build(config, state, where="here", release=True), kept)
    assert not state


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not readable as JSON"),
        ("[]", "expected a JSON object, found list"),
        ('{"schema": 2, "config": {}}', "schema 2; this version reads schema 1"),
        ("{}", "schema None; this version reads schema 1"),
        ('{"schema": 1}', "n_layers: Field required"),
        ('{"schema": 1, "config": {"n_layers": 0}}', "n_layers: Input should be greater than 0"),
        ('{"schema": 1, "config": [1]}', "config"),
        ("\ud800", "not readable as JSON"),
    ],
)
def test_a_config_that_cannot_be_read(saved: Path, text: str, reason: str) -> None:
    (saved / "model.json").write_bytes(text.encode(errors="surrogatepass"))
    message = refusal(lambda: load_model(saved))
    assert message.startswith(str(saved / "model.json"))
    assert reason in message


def test_a_missing_file_is_named(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    assert "model.safetensors: no such file" in refusal(lambda: load_model(saved))
    assert "model.json: no such file" in refusal(lambda: load_model(saved / "nowhere"))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}
    assert "could not be written" in refusal(lambda: write_json(tmp_path / "no" / "a.json", {}), Failed)
    assert list(tmp_path.iterdir()) == [path]


def test_checksum(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # FIPS 180-2, appendix B.1
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# --- TransformerLens


@dataclass
class HookedTransformerConfig:
    """Replaces the class of that name: its pickles hold simple fields and a few objects of torch."""

    n_layers: int = 2
    n_heads: int = 4
    d_model: int = 12
    d_head: int = 3
    d_mlp: int = 20
    d_vocab: int = 17
    d_vocab_out: int = 5
    n_ctx: int = 16
    act_fn: str = "gelu"
    normalization_type: str | None = "LN"
    attention_dir: str = "bidirectional"
    eps: float = 1e-5
    device: Any = None
    dtype: Any = torch.float32


LENS = small_config(
    n_kv_heads=4,
    d_head=3,
    d_vocab_out=5,
    norm="layer",
    rotary=None,
    activation="gelu",
    gated=False,
    causal=False,
)


def lens_state(model: Transformer) -> dict[str, torch.Tensor]:
    """The state dict TransformerLens saves for the same model, buffers included."""
    state = {name: value.clone() for name, value in to_state(model).items()}
    for layer in range(model.config.n_layers):
        state[f"blocks.{layer}.attn.mask"] = torch.ones(16, 16, dtype=torch.bool)
        state[f"blocks.{layer}.attn.IGNORE"] = torch.tensor(-torch.inf)
    return state


@pytest.fixture
def lens(tmp_path: Path) -> tuple[Transformer, Path]:
    model = random_model(LENS)
    torch.save(lens_state(model), tmp_path / "ll_model.pth")
    return model, tmp_path


def test_lens_with_a_json_config(lens: tuple[Transformer, Path]) -> None:
    model, directory = lens
    fields = {k: v for k, v in vars(HookedTransformerConfig()).items() if k not in ("device", "dtype")}
    (directory / "cfg.json").write_text(json.dumps(fields))
    again = load_lens(directory / "ll_model.pth", directory / "cfg.json")
    assert again.config == model.config
    assert same_logits(again(TOKENS), model(TOKENS))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("as_dictionary", [False, True])
def test_lens_with_a_pickled_config(lens: tuple[Transformer, Path], protocol: int, as_dictionary: bool) -> None:
    model, directory = lens
    config = HookedTransformerConfig(device=torch.device("cpu"))
    (directory / "cfg.pkl").write_bytes(pickle.dumps(vars(config) if as_dictionary else config, protocol))
    again = load_lens(directory / "ll_model.pth", directory / "cfg.pkl")
    assert again.config == model.config
    assert same_logits(again(TOKENS), model(TOKENS))


def test_lens_with_folded_norms(tmp_path: Path) -> None:
    """`LNPre` has no scale: it was folded into the weights after it."""
    model = random_model(LENS)
    norms = [block.ln1 for block in model.blocks] + [block.ln2 for block in model.blocks] + [model.ln_final]
    for norm in norms:
        norm.w.fill_(1.0)
        norm.b.zero_()
    state = {name: value for name, value in lens_state(model).items() if ".ln" not in name and "ln_" not in name}
    torch.save(state, tmp_path / "m.pth")
    (tmp_path / "cfg.pkl").write_bytes(pickle.dumps(HookedTransformerConfig(normalization_type="LNPre")))
    assert same_logits(load_lens(tmp_path / "m.pth", tmp_path / "cfg.pkl")(TOKENS), model(TOKENS))


class Malicious:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_pickled_config_cannot_run_anything(lens: tuple[Transformer, Path]) -> None:
    model, directory = lens
    trace = directory / "was-here"
    config = HookedTransformerConfig(device=Malicious(f"touch {trace}"))
    (directory / "cfg.pkl").write_bytes(pickle.dumps(config))
    pickle.loads((directory / "cfg.pkl").read_bytes())
    assert trace.exists(), "the trap itself must work"
    trace.unlink()
    parsed = read_pickle_inert(directory / "cfg.pkl")
    assert not trace.exists()
    assert isinstance(parsed, Inert)
    assert parsed.fields["device"].arguments == (f"touch {trace}",)
    assert same_logits(load_lens(directory / "ll_model.pth", directory / "cfg.pkl")(TOKENS), model(TOKENS))
    assert not trace.exists()


def test_a_hostile_state_dict_is_refused(lens: tuple[Transformer, Path]) -> None:
    _, directory = lens
    trace, weights = directory / "was-here", directory / "ll_model.pth"
    (directory / "cfg.pkl").write_bytes(pickle.dumps(HookedTransformerConfig()))
    torch.save({"embed.W_E": Malicious(f"touch {trace}")}, weights)
    assert "not a plain PyTorch state dict" in refusal(lambda: load_lens(weights, directory / "cfg.pkl"))
    weights.write_bytes(pickle.dumps(Malicious(f"touch {trace}"), protocol=2))
    assert "not a plain PyTorch state dict" in refusal(lambda: load_lens(weights, directory / "cfg.pkl"))
    assert not trace.exists()


def test_lens_files_that_cannot_be_used(lens: tuple[Transformer, Path]) -> None:
    _, directory = lens
    weights, config = directory / "ll_model.pth", directory / "cfg.pkl"

    def with_config(value: object) -> str:
        config.write_bytes(pickle.dumps(value))
        return refusal(lambda: load_lens(weights, config))

    assert "expected a configuration object, found list" in with_config([1])
    assert "field 'n_layers' is missing" in with_config({"act_fn": "gelu"})
    assert "act_fn 'solu'" in with_config(HookedTransformerConfig(act_fn="solu"))
    assert "attn_only is not supported" in with_config({"attn_only": True, "act_fn": "gelu"})
    assert "d_head: Input should be greater than 0" in with_config(HookedTransformerConfig(d_head=0))
    assert "shape" in with_config(HookedTransformerConfig(d_vocab=18))
    config.write_bytes(pickle.dumps(HookedTransformerConfig())[:-20])
    assert "not a complete pickle file" in refusal(lambda: load_lens(weights, config))
    config.write_bytes(pickle.dumps(HookedTransformerConfig()))
    torch.save([1, 2], weights)
    assert "expected a dictionary of tensors" in refusal(lambda: load_lens(weights, config))
    weights.write_bytes(b"PK\x03\x04 nothing")
    assert "not a plain PyTorch state dict" in refusal(lambda: load_lens(weights, config))
    assert "no such file" in refusal(lambda: load_lens(directory / "none.pth", config))
    assert "no such file" in refusal(lambda: load_lens(weights, directory / "none.pkl"))


# --- Hugging Face directories and the hub


def test_a_hand_written_hugging_face_directory(tmp_path: Path) -> None:
    model = write_tiny_gpt2(tmp_path)
    assert same_logits(load_huggingface(tmp_path)(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "bert"}, "model_type 'bert' is not supported (an encoder); use one of gpt2, gpt_neo"),
        ({"n_embd": None}, "config.json"),
        ({"n_head": 0}, "config.json"),
        ({"n_embd": "wide"}, "config.json"),
        ({"n_head": ...}, "field 'n_head' is missing"),
        ({"n_layer": 3}, "config.json says 3 layers, the weights hold 2"),
        ({"n_head": 5}, "shape"),
        ({"vocab_size": 18}, "shape"),
        ({"model_type": "llama"}, "field 'num_attention_heads' is missing"),
    ],
)
def test_a_config_json_that_does_not_fit(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    write_tiny_gpt2(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not ...}))
    assert reason in refusal(lambda: load_huggingface(tmp_path))


def test_damaged_weights_in_a_hugging_face_directory(tmp_path: Path) -> None:
    write_tiny_gpt2(tmp_path)
    weights = tmp_path / "model.safetensors"
    rewrite(tmp_path, lambda s: s["h.1.mlp.c_fc.weight"].fill_(torch.nan))
    said = refusal(lambda: load_huggingface(tmp_path))
    assert said.startswith(f"{weights}: weight 'h.1.mlp.c_fc.weight' holds NaN or infinity")
    rewrite(tmp_path, lambda s: s.pop("h.1.mlp.c_fc.weight"))
    said = refusal(lambda: load_huggingface(tmp_path))
    assert said.startswith(f"{weights}: weight 'h.1.mlp.c_fc.weight' is missing")
    weights.write_bytes(weights.read_bytes()[:900])
    assert "not a complete safetensors file" in refusal(lambda: load_huggingface(tmp_path))


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    write_tiny_gpt2(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    tensors["h.1.attn.c_proj.bias"][2] = torch.inf
    held = {name: "b.safetensors" if name.startswith("h.1.") else "a.safetensors" for name in tensors}
    for shard in ("a.safetensors", "b.safetensors"):
        save_file({name: value for name, value in tensors.items() if held[name] == shard}, tmp_path / shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": held}))
    said = refusal(lambda: load_huggingface(tmp_path))
    assert said.startswith(f"{tmp_path / 'b.safetensors'}: weight 'h.1.attn.c_proj.bias' holds NaN or infinity")
    del tensors["ln_f.weight"]
    save_file(
        {name: value for name, value in tensors.items() if held[name] == "a.safetensors"}, tmp_path / "a.safetensors"
    )
    assert refusal(lambda: load_huggingface(tmp_path)).startswith(f"{index}: weight 'ln_f.weight' is missing")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary hub cache, and no network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    return cache


def test_a_hub_id_in_the_cache(hub: Path) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    model = write_tiny_gpt2(hub / "models--org--tiny" / "snapshots" / revision)
    (hub / "models--org--tiny" / "refs").mkdir()
    (hub / "models--org--tiny" / "refs" / "main").write_text(revision)
    directory = download("org/tiny")
    assert directory.name == revision
    assert same_logits(load_huggingface(directory)(TOKENS), model(TOKENS))
    shutil.rmtree(hub / "models--org--tiny")


def test_a_hub_id_that_is_not_there(hub: Path) -> None:
    assert "model 'org/nothing' could not be fetched from the hub" in refusal(lambda: download("org/nothing"), Failed)
    assert "neither a directory nor a hub id" in refusal(lambda: download("a/b/c"))
    assert "neither a directory nor a hub id" in refusal(lambda: download("/nowhere/at/all"))
