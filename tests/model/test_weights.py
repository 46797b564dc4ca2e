"""Every weight that a config implies must be there, and every weight that is there must be read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.model.gguf_writer import write_gguf
from tests.model.references import MODELS, VOCAB, random_reference
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model import Config, Transformer
from vesalius.model.devices import place
from vesalius.model.families import family
from vesalius.model.families.layout import Raw, State
from vesalius.model.gguf import GgufFile
from vesalius.model.sources import from_transformers, load_huggingface
from vesalius.model.states import load_model, read_tensors, save_model, write_tensors
from vesalius.model.wrapped import WrappedTransformer

pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=MODELS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Raw, State]:
    """What transformers writes for a case: its config and its weights."""
    directory = tmp_path_factory.mktemp(request.param)
    random_reference(*MODELS[request.param]).save_pretrained(directory)
    return read_json(directory / "config.json"), read_tensors(directory / "model.safetensors")


def read(raw: Raw, weights: State) -> State:
    kind = family(raw, where="here")
    return kind.read_weights(weights, kind.read_config(raw, where="here"), raw, where="here")


def test_a_file_without_one_of_its_weights_is_refused(files: tuple[Raw, State]) -> None:
    raw, weights = files
    assert len(read(raw, weights)) >= 10
    for name in [name for name in weights if ".1." not in name]:  # one layer stands for both
        with pytest.raises(BadInput, match=r"here: weight '.*' is missing"):
            read(raw, {other: value for other, value in weights.items() if other != name})


@pytest.mark.parametrize("ending", ["self_attn.q_proj.bias", "mlp.up_proj.bias", "extra.weight"])
def test_a_file_with_a_weight_that_nothing_reads_is_refused(files: tuple[Raw, State], ending: str) -> None:
    """transformers leaves such a weight out; adding it to the computation would give other numbers."""
    raw, weights = files
    first = next(name for name in weights if "0." in name).split("0.")[0] + "0."
    if first + ending in weights:
        pytest.skip("this model has the weight")
    with pytest.raises(BadInput, match=f"{ending}' has no place in this"):
        read(raw, {**weights, first + ending: torch.zeros(48)})  # heads of 8 and of 12 divide it


def edited(directory: Path, name: str, *, drop: str | None = None, **changes: Any) -> Path:
    random_reference(*MODELS[name]).save_pretrained(directory)
    raw = read_json(directory / "config.json")
    (directory / "config.json").write_text(json.dumps({**raw, **changes}))
    if drop:
        weights = read_tensors(directory / "model.safetensors")
        (directory / "model.safetensors").unlink()
        write_tensors(directory / "model.safetensors", {key: value for key, value in weights.items() if key != drop})
    return directory


def test_an_untied_model_without_a_head_is_refused_and_a_tied_one_is_tied(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'lm_head.weight' is missing and tie_word_embeddings is false"):
        load_huggingface(edited(tmp_path / "a", "llama", drop="lm_head.weight"))
    tied = load_huggingface(edited(tmp_path / "b", "llama", drop="lm_head.weight", tie_word_embeddings=True))
    assert tied.unembed_weight is tied.W_E
    raw = read_json(tmp_path / "b" / "config.json")
    del raw["tie_word_embeddings"]  # what Llama's configs mean when they do not say it
    (tmp_path / "b" / "config.json").write_text(json.dumps(raw))
    with pytest.raises(BadInput, match="tie_word_embeddings is false"):
        load_huggingface(tmp_path / "b")


def test_a_head_that_differs_from_a_tied_embedding_is_used_as_transformers_does(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    directory = edited(tmp_path, "llama", tie_word_embeddings=True)
    tokens = torch.randint(3, VOCAB, (1, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(directory)(tokens).logits
        assert (load_huggingface(directory)(tokens) - expected).abs().max() <= 1e-4


def test_biases_that_the_config_switches_off_are_not_used(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"k_proj.bias' has no place in this llama model: attention_bias is false"):
        load_huggingface(edited(tmp_path / "a", "llama-tied-biased", attention_bias=False))
    with pytest.raises(BadInput, match="mlp_bias=True is not supported"):
        load_huggingface(edited(tmp_path / "b", "llama", mlp_bias=True))


def test_a_setting_that_no_family_computes_is_left_to_transformers(tmp_path: Path) -> None:
    for cap, computed_by in ((None, Transformer), (30.0, WrappedTransformer)):
        model = load_huggingface(edited(tmp_path / f"gemma{cap}", "gemma3", attn_logit_softcapping=cap))
        assert type(model) is computed_by


@pytest.mark.parametrize(
    ("kind", "fields", "missing"),
    [
        ("yarn", {}, "factor"),
        ("linear", {}, "factor"),
        ("dynamic", {}, "factor"),
        ("llama3", {"factor": 2.0, "low_freq_factor": 1.0}, "high_freq_factor"),
        ("longrope", {"short_factor": [1.0]}, "long_factor"),
    ],
)
def test_rope_settings_that_lack_a_field(kind: str, fields: dict[str, Any], missing: str, tmp_path: Path) -> None:
    directory = edited(tmp_path, "llama", rope_parameters={"rope_type": kind, "rope_theta": 500.0, **fields})
    with pytest.raises(BadInput, match=f"config.json: rope scaling '{kind}' needs the field '{missing}'"):
        load_huggingface(directory)


def test_models_in_memory_without_a_head_or_without_numbers() -> None:
    from transformers import AutoModelForCausalLM

    for name in ("llama", "gpt2"):
        reference = random_reference(*MODELS[name])
        with pytest.raises(BadInput, match=r"Model has no head that computes logits; give the causal language model"):
            from_transformers(reference.base_model)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(reference.config)
    with pytest.raises(BadInput, match="GPT2LMHeadModel is on the meta device and has no numbers"):
        from_transformers(empty)


def test_our_own_files_are_complete(tmp_path: Path) -> None:
    shape = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "d_mlp": 6, "n_ctx": 5}
    model = Transformer(Config(**shape, d_vocab=7, d_vocab_out=7))
    save_model(model, tmp_path)
    weights = read_tensors(tmp_path / "model.safetensors")
    for name in weights:
        write_tensors(tmp_path / "model.safetensors", {key: value for key, value in weights.items() if key != name})
        with pytest.raises(BadInput, match=r"is missing|holds the weights of"):
            load_model(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "name", "tensor"), [("qwen2", "qwen2", "attn_q.bias"), ("gptneox", "gpt_neox", "output.weight")]
)
def test_a_gguf_file_without_a_weight_of_its_architecture(
    architecture: str, name: str, tensor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "m.gguf", architecture, random_reference(*MODELS[name]))
    file = GgufFile(tmp_path / "m.gguf")
    file.load()
    kept = [one for one in file._reader.tensors if not one.name.endswith(tensor)]
    assert len(kept) < len(file._reader.tensors)
    monkeypatch.setattr(file._reader, "tensors", kept)
    with pytest.raises(BadInput, match=f"is missing, which every {architecture} model has"):
        file.load()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma3"])
def test_weights_go_straight_to_the_devices_of_their_layers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is spread while it has no numbers, then filled weight by weight; tied models too."""
    random_reference(*MODELS[name]).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    placed = []

    def watched(model: Transformer, *arguments: Any, **options: Any) -> Any:
        placed.append(all(weight.is_meta for weight in model.parameters()))
        return place(model, *arguments, **options)

    monkeypatch.setattr("vesalius.model.states.place", watched)
    tokens = torch.randint(3, VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))
    one, two = (load_huggingface(tmp_path, device=device) for device in ("cpu", ["cpu", "cpu"]))
    assert placed == [True, True]
    assert (one.unembed_weight is one.W_E) == (two.unembed_weight is two.W_E) == (name != "llama")
    assert (one(tokens) - two(tokens)).abs().max() <= 1e-5
    assert not any(weight.requires_grad for weight in two.parameters())
