"""Where models come from: memory, directories with and without a tokenizer; number formats; the comparison itself."""

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.model.gguf_writer import write_gguf
from tests.model.references import LLAMA3, MODELS, SIZES, VOCAB, random_reference
from tests.model.tiny_gpt2 import write_tiny_gpt2
from vesalius.api import bos_text
from vesalius.discovery.head_tests import detect
from vesalius.errors import BadInput
from vesalius.intervene import Batch, effects, logit_difference
from vesalius.intervene.attribution import edge_attribution
from vesalius.model.families import REFUSED
from vesalius.model.reference import limits, tolerance
from vesalius.model.sources import from_transformers, load_huggingface
from vesalius.model.specimen import IdVocabulary
from vesalius.model.tokenizer import Tokenizer

tokenizers = pytest.importorskip("tokenizers")
WORDS = ["<s>", "[UNK]", "the", "cat", "sat", "on", "mat"]


def word_backend() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


@pytest.fixture(scope="module")
def llama() -> Any:
    return random_reference(*MODELS["llama"])


@pytest.fixture(scope="module")
def directory(llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory without a tokenizer."""
    path = tmp_path_factory.mktemp("models") / "toy"
    llama.save_pretrained(path)
    return path


def test_a_model_in_memory_with_its_tokenizer(llama: Any) -> None:
    specimen = ves.load(llama, tokenizer=word_backend(), device="cpu")
    assert specimen.tokenize(["the cat sat"]).tolist() == [[1, 2, 3, 4]]
    with torch.no_grad():
        expected = llama(specimen.tokenize(["the cat sat"])).logits
        assert (specimen.model(specimen.tokenize(["the cat sat"])) - expected).abs().max() <= 1e-4
    weight = llama.model.embed_tokens.weight
    assert specimen.model.W_E.data_ptr() != weight.data_ptr(), "ablations must not reach the caller's model"


def test_a_fast_tokenizer_of_transformers_is_taken(llama: Any) -> None:
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_object=word_backend(), bos_token="<s>", unk_token="[UNK]")
    assert ves.load(llama, tokenizer=theirs, device="cpu").tokenize(["cat"]).tolist() == [[0, 3]]


def test_special_tokens_in_a_text_are_read_as_such_and_a_second_bos_is_noted(llama: Any) -> None:
    backend = word_backend()
    backend.add_special_tokens(["<s>"])
    specimen = ves.load(llama, tokenizer=Tokenizer(backend, bos=0), device="cpu")
    assert bos_text(specimen) == "<s>"
    assert specimen.tokenize(["the <s> cat"]).tolist() == [[0, 2, 0, 3]]
    with pytest.warns(
        ves.Note, match="a text begins with <s>, which is put before every text: the model reads it twice"
    ):
        assert specimen.tokenize(["<s>the cat"]).tolist() == [[0, 0, 2, 3]]


def test_files_in_utf_16_are_named_as_such(directory: Path, tmp_path: Path) -> None:
    for name in ("rows.jsonl", "rows.csv", "rows.json", "rows.toml"):
        (tmp_path / name).write_text('[{"prompt": "a", "answer": " b"}]', encoding="utf-16")
        with pytest.raises(BadInput, match=f"{name}: not readable as .* .it is in UTF-16; save it as UTF-8"):
            ves.Behaviour.from_file(tmp_path / name)
    (tmp_path / "config.json").write_text("{}", encoding="utf-16")
    with pytest.raises(BadInput, match=r"config.json: .*it is in UTF-16; save it as UTF-8"):
        ves.load(tmp_path)


def test_what_a_small_vocabulary_would_not_know_is_refused(llama: Any) -> None:
    specimen = ves.load(llama, tokenizer=word_backend(), device="cpu")
    with pytest.raises(BadInput, match="'dog' is not in this tokenizer's vocabulary of 7; it would be read as"):
        specimen.tokenize(["the dog sat"])
    tokenizer = Tokenizer(word_backend(), bos=0)
    assert not tokenizer.is_single("dog")
    assert tokenizer.is_single("cat")


@pytest.mark.slow
def test_a_directory_without_a_tokenizer_takes_token_ids(directory: Path, llama: Any) -> None:
    specimen = ves.load(directory, device="cpu")
    assert isinstance(specimen.vocabulary, IdVocabulary)
    rows = [[5, 6, 7], [9, 8]]
    with torch.no_grad():
        expected = [llama(torch.tensor([row])).logits[0].argmax(-1).tolist() for row in rows]
    assert specimen.predict(rows) == expected
    sweep = ves.sweep(specimen, n=3, progress=False)
    assert sweep.matrix.shape == (3, 10)
    assert len(ves.discover(specimen, "eap", n=3, checks=False, progress=False).circuit.edges) > 0
    for wrong, reason in (("text", "list of token ids"), ([VOCAB], "outside"), ([], "0 tokens")):
        with pytest.raises(BadInput, match=reason):
            specimen.predict([wrong])
    with pytest.raises(BadInput, match=r"there is no tokenizer\.json"):
        ves.load(directory, behaviour="induction")
    for refused in (ves.explain, lambda specimen, **options: ves.plan("explain", specimen, **options)):
        with pytest.raises(BadInput, match="'toy' has no tokenizer: token ids alone cannot be explained"):
            refused(specimen, progress=False)


def test_reading_is_reported_before_the_first_measurement(directory: Path) -> None:
    steps: list[str] = []
    ves.sweep(directory, n=3, progress=lambda step, done, total: steps.append(step))
    assert steps[:2] == ["reading toy", "reading toy"]
    assert "reading toy" not in steps[2:]


@pytest.mark.slow
def test_attention_is_probed_with_token_ids_where_there_is_no_tokenizer(directory: Path) -> None:
    specimen = ves.load(directory, device="cpu")
    detections = detect(specimen, rows=2)
    assert set(detections.masses) == {"induction", "duplicate", "previous", "self", "first token"}
    assert all(mass.shape == (2, 4) for mass in detections.masses.values())
    # Random ids, repeated: every query of the second half has one earlier copy, so no mass is undefined.
    assert all(float(mass.min()) > 0 for mass in detections.masses.values())
    assert ves.discover(specimen, "eap", n=3, progress=False).checks is not None


def test_things_that_are_no_model_or_no_tokenizer(llama: Any, directory: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r": holds no model .*; give a directory of transformers or of"):
        ves.load(tmp_path)
    with pytest.raises(BadInput, match="object is not a model; give a path, a hub id or a causal language model"):
        ves.load(object())
    with pytest.raises(BadInput, match="is not a tokenizer that can be used"):
        ves.load(llama, tokenizer=42)
    with pytest.raises(BadInput, match="dtype 'int4' does not exist; choose auto, float32"):
        ves.load(directory, dtype="int4")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_kept_and_scored_in_float32(directory: Path, dtype: str, tmp_path: Path) -> None:
    half = ves.load(directory, dtype=dtype, device="cpu").model
    whole = ves.load(directory, device="cpu").model
    assert half.W_E.dtype == half.blocks[0].attn.qkv.dtype == getattr(torch, dtype)
    assert half.blocks[0].ln1.w.dtype == torch.float32
    tokens = torch.randint(3, VOCAB, (4, 12), generator=torch.Generator().manual_seed(0))
    assert half(tokens).dtype == torch.float32
    # Eight (or eleven) bits of mantissa over two layers; logits are of size 1 to 5.
    assert (half(tokens) - whole(tokens)).abs().max() < 0.25
    at, right, wrong = torch.full((4,), 11), torch.arange(4), torch.arange(4) + 9
    readout = logit_difference(at, right, wrong)
    batch, other = Batch(tokens), Batch(tokens.flip(0))
    for kind in ("zero", "mean", "resample"):
        measured = effects(half, batch, readout, kind=kind, counterfactual=other)
        exact = effects(whole, batch, readout, kind=kind, counterfactual=other)
        assert measured.matrix.dtype == torch.float32
        assert (measured.matrix - exact.matrix).abs().max() < 0.25
    edges = edge_attribution(half, batch, readout, counterfactual=other)
    assert edges.dtype == torch.float32
    assert (edges - edge_attribution(whole, batch, readout, counterfactual=other)).abs().max() < 0.25


def test_auto_keeps_the_format_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius.model.precision.slowness", lambda dtype: 1.0)
    random_reference(*MODELS["gemma2"]).to(torch.bfloat16).save_pretrained(tmp_path)
    assert ves.load(tmp_path, device="cpu").model.W_E.dtype == torch.bfloat16
    model = ves.load(tmp_path, dtype="float32", device="cpu").model
    assert model.W_E.dtype == torch.float32
    norm = ves.load(tmp_path, device="cpu").model.blocks[0].ln1.w
    assert torch.equal(norm, model.blocks[0].ln1.w), "1 + w is not rounded to eight bits"


def test_check(llama: Any, directory: Path) -> None:
    agreement = ves.check(directory, device="cpu", progress=False)
    assert (agreement.family, agreement.dtype, agreement.device, agreement.n) == ("llama", "float32", "cpu", 8)
    assert str(agreement.compared_with).startswith("transformers ")
    assert 0 <= agreement.max_difference <= agreement.tolerance <= 1e-3
    assert agreement.agrees
    assert (agreement.reference_difference, agreement.not_reached) == (None, ())
    assert re.fullmatch(r"agrees to \de[-+]\d\d \(float32, 8 prompts\)", agreement.describe())
    in_memory = ves.check(llama.train(), n=3, device="cpu", progress=False)
    assert in_memory.n == 3
    assert in_memory.agrees
    assert llama.training, "the caller's module is left as it was"
    llama.eval()


def changed_by(change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files, with weights changed on our side alone."""
    import vesalius.model.sources as sources

    def changed(path: Path, **options: Any) -> Any:
        model = load_huggingface(path, **options)
        change(model)
        return model

    monkeypatch.setattr(sources, "load_huggingface", changed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_check_sees_a_model_that_differs(directory: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 1.01 if dtype == "float32" else 1.5
    changed_by(lambda model: model.blocks[1].ln2.w.mul_(factor), monkeypatch)
    agreement = ves.check(directory, dtype=dtype, device="cpu", n=2, progress=False)
    assert agreement.agrees is False
    assert agreement.max_difference > agreement.tolerance
    assert agreement.describe().startswith("DIFFERS by ")


def test_check_sees_logits_that_are_no_numbers(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A maximum over NaN may be any number."""
    changed_by(lambda model: model.b_U[3].fill_(float("nan")), monkeypatch)
    agreement = ves.check(directory, device="cpu", n=2, progress=False)
    assert (agreement.agrees, agreement.max_difference, agreement.not_finite) == (False, None, 2 * 32)
    assert agreement.describe().startswith("DIFFERS: 64 logits are no numbers")


def overflowing() -> Any:
    """A small model whose finite weights give logits that are no numbers."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=20, bos_token_id=1, **sizes)).eval()
    with torch.no_grad():
        model.model.norm.weight.fill_(1e30)
        model.lm_head.weight.copy_(torch.randn(20, 16).sign() * 1e30)
    return model


def test_no_verb_speaks_of_logits_that_are_no_numbers() -> None:
    """Both sides compute NaN alike; that is no agreement, and nothing is said of what an edit changes."""
    model = overflowing()
    agreement = ves.check(model, n=2, progress=False)
    assert (agreement.agrees, agreement.max_difference) == (False, None)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(20)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    rows = [{"prompt": f"w{i} w3", "counterfactual": f"w{i} w4", "answer": " w5", "wrong": " w6"} for i in (7, 8, 9)]
    specimen = ves.load(model, tokenizer=words, behaviour=rows, device="cpu")
    with pytest.raises(BadInput, match="logits are not finite on these prompts"):
        ves.what_if(specimen, "L0.resid", kind="zero", n=2)
    with pytest.raises(BadInput, match="logits are not finite on these prompts"):
        ves.what_if(specimen, "L0H0", prompt="w5 w6")
    with pytest.raises(BadInput, match="the logits are not numbers on this prompt; check the model's weights"):
        ves.complete(specimen, prompt="w5 w6", edits="L0H0", tokens=1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_compared_with_float32(directory: Path, dtype: str) -> None:
    agreement = ves.check(directory, dtype=dtype, device="cpu", n=3, progress=False)
    assert agreement.agrees
    assert 0 < agreement.reference_difference < 0.5
    assert 0 < agreement.max_difference <= agreement.tolerance
    assert f"from which its own {dtype} differs by" in agreement.describe()


def test_experts_in_half_precision_are_judged_by_the_median_position() -> None:
    """A router that chooses otherwise at a near tie changes all logits of its position."""
    agreement = ves.check(random_reference(*MODELS["mixtral"]), dtype="float16", device="cpu", n=2, progress=False)
    assert agreement.agrees
    assert agreement.median_difference <= agreement.tolerance
    assert "at the median position" in agreement.describe()


def test_a_half_precision_model_in_memory_keeps_its_weights(llama: Any) -> None:
    half = random_reference(*MODELS["llama"]).to(torch.bfloat16)
    agreement = ves.check(half, device="cpu", n=2, progress=False)
    assert agreement.dtype == "bfloat16"
    assert agreement.agrees


def test_prompts_reach_windows_and_limits_where_that_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {**SIZES, "sliding_window": 50}
    random_reference("Mistral", sizes).save_pretrained(tmp_path)
    agreement = ves.check(tmp_path, device="cpu", n=2, progress=False)
    assert (agreement.n, agreement.longest, agreement.not_reached) == (3, 66, ())
    assert agreement.agrees
    monkeypatch.setattr("vesalius.model.reference.MOST_WORK", 10.0)
    agreement = ves.check(tmp_path, device="cpu", n=2, progress=False)
    assert (agreement.n, agreement.longest) == (2, 32)
    assert agreement.describe().endswith("not reached by prompts of up to 32 tokens: the window of 50 tokens")


def test_limits_of_rotations() -> None:
    config = from_transformers(random_reference(*MODELS["rope-longrope"])).config
    assert limits(config) == {"the limit of longrope rotation, 64 tokens": 64}
    assert limits(from_transformers(random_reference(*MODELS["rope-yarn"])).config) == {}


def test_the_tolerance_of_a_small_model() -> None:
    """By hand: 2 * 2 + 1 steps of sums over 2 * 48 terms; float32 has u = 2 ** -24, bfloat16 2 ** -8 / 2."""
    config = from_transformers(random_reference(*MODELS["llama"])).config
    assert tolerance(config, torch.float32, size=10.0) == pytest.approx(8 * 2**-24 * 480**0.5 * 10)
    assert tolerance(config, torch.bfloat16, size=10.0, own=0.0) == pytest.approx(4 * 2**-8 * 5**0.5 * 10)
    assert tolerance(config, torch.bfloat16, size=10.0, own=3.0) == pytest.approx(12.0)


def test_what_transformers_cannot_load_is_one_line(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def broken(place: Path, **options: Any) -> Any:
        raise KeyError("factor")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", broken)
    with pytest.raises(ves.Failed, match=r"transformers could not load this model \(KeyError: 'factor'\)"):
        ves.check(directory, device="cpu", progress=False)
    for name in ("", "  "):
        with pytest.raises(BadInput, match="is not a name; give a directory"):
            ves.check(name, progress=False)


def test_without_transformers_there_is_nothing_to_compare_with(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    agreement = ves.check(directory, device="cpu", progress=False)
    assert (agreement.compared_with, agreement.max_difference) == (None, None)
    assert str(agreement.answered()) == "llama: nothing was compared, since transformers is not installed"
    assert agreement.lacks == agreement.answered().then == "pip install 'vesalius[transformers]'"


REFUSALS = [
    ({"model_type": "jamba"}, "state-space layers"),
    ({"model_type": "deepseek_v3"}, "field 'qk_rope_head_dim' is missing"),
    ({"model_type": "llama4_text", "no_rope_layers": [1]}, "field 'num_local_experts' is missing"),
    ({"model_type": "qwen2_vl"}, "mrope"),
    (
        {"model_type": "mpt", "d_model": 32, "attn_config": {"alibi_bias_max": 16}},
        "alibi_bias_max=16 is not supported; expected 8",
    ),
    ({"model_type": "nobody_knows"}, "model_type 'nobody_knows' is not supported; use one of gpt2"),
    ({"quantization_config": {"quant_method": "bitsandbytes"}}, r"quantised weights \(bitsandbytes\)"),
    ({"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}, "mrope"),
    ({"rope_parameters": {**LLAMA3, "factor": -1}}, "factor"),
    ({"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}}, "longrope has 1"),
    ({"is_encoder_decoder": True}, "encoder-decoder"),
    ({"num_hidden_layers": 3}, "config.json says 3 layers, the weights hold 2"),
    ({"model_type": "qwen3"}, "self_attn.q_norm.weight' is missing"),
    ({"model_type": "gemma2"}, "is missing"),
    (
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4, "layer_types": ["linear", "full"]},
        "layer",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSALS)
def test_what_is_not_exact_is_refused_by_name(
    changes: dict[str, Any], reason: str, directory: Path, tmp_path: Path
) -> None:
    raw = json.loads((directory / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").symlink_to(directory / "model.safetensors")
    with pytest.raises(BadInput, match=reason) as refusal:
        ves.load(tmp_path)
    assert str(tmp_path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_refused_types_are_not_families() -> None:
    assert not set(REFUSED) & {kind for one in ves.models() for kind in one["model_types"]}


def test_opt_with_other_norms_and_phi_with_other_norms_are_refused(tmp_path: Path) -> None:
    write_tiny_gpt2(tmp_path)
    for changes, reason in (
        ({**SIZES, "model_type": "opt", "ffn_dim": 48, "do_layer_norm_before": False}, "do_layer_norm_before=False"),
        ({**SIZES, "model_type": "opt", "ffn_dim": 48, "word_embed_proj_dim": 16}, "word_embed_proj_dim=16"),
        ({**SIZES, "model_type": "phi", "qk_layernorm": True}, "qk_layernorm=True"),
        ({**SIZES, "model_type": "gemma", "use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(changes))
        with pytest.raises(BadInput, match=reason):
            ves.load(tmp_path)


def test_a_gguf_file_is_compared_only_with_accelerate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers said so with an ImportError and, later, with a ValueError; it is not asked."""
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", "llama", random_reference(*MODELS["llama"]))
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "accelerate" else known(name))
    with pytest.raises(ves.BadInput, match=r"m.gguf: .* needs accelerate, .* run: pip install .vesalius.transformers"):
        ves.check(tmp_path / "m.gguf", tokenizer=word_backend(), device="cpu", progress=False)
