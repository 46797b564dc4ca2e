"""GGUF files: weights and tokenizer round trips; damaged and unsupported files are refused in one line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.tiny_gguf import CONFIG, write_tiny_gguf
from vesalius.errors import BadInput
from vesalius.model.gguf import GgufFile, rebuild
from vesalius.model.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf")

TOKENS = torch.tensor([[0, 5, 17, 200, 3, 99, 42, 8]])


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_weights_round_trip(tmp_path: Path, kind: str) -> None:
    expected = write_tiny_gguf(tmp_path / "tiny.gguf", kind=kind)
    reports: list[tuple[str, int, int]] = []
    model = GgufFile(tmp_path / "tiny.gguf").load(progress=lambda *report: reports.append(report))
    assert model.config.model_dump(exclude={"norm_eps"}) == CONFIG.model_dump(exclude={"norm_eps"})
    assert model.config.norm_eps == pytest.approx(1e-5)
    assert model.unembed_weight is model.W_E
    # Quantising what was rounded already moves Q4_1's scales by an ulp or so.
    assert (model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-3 * expected(TOKENS).abs().max()
    if kind == "F32":
        assert (model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5
    assert reports == [("reading", i, 20) for i in range(1, 21)]


def test_the_tokenizer_inside(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    tokenizer = Tokenizer(GgufFile(tmp_path / "tiny.gguf").tokenizer(), bos=0)
    ids = tokenizer.encode("hi 12é\n<|bos|>")
    assert tokenizer.decode(ids) == "<|bos|>hi 12é\n<|bos|>"
    assert (ids[0], ids[-1], len(ids)) == (0, 0, 1 + 1 + 1 + 2 + 2 + 1 + 1)
    assert tokenizer.is_single("hi")
    assert not tokenizer.is_single("ih")
    with pytest.raises(BadInput, match="'ih' is 2 tokens here"):
        tokenizer.token("ih")


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_one_line_wherever_it_is_cut(tmp_path: Path, share: float) -> None:
    whole = tmp_path / "whole.gguf"
    if not whole.exists():
        write_tiny_gguf(whole)
    data, cut = whole.read_bytes(), tmp_path / "cut.gguf"
    cut.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadInput) as refusal:
        GgufFile(cut).load()
    assert str(refusal.value).startswith(str(cut))
    assert "\n" not in str(refusal.value)


def test_unsupported_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path, architecture="mamba")
    with pytest.raises(BadInput, match="architecture 'mamba' is not supported; use llama, qwen2"):
        GgufFile(path)
    path.write_bytes(b"not a model at all, but long enough to be looked at")
    with pytest.raises(BadInput, match="not a complete GGUF file"):
        GgufFile(path)
    with pytest.raises(BadInput, match="no such file"):
        GgufFile(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("token_embd.weight", "token_embd.weight is missing"), ("blk.1.attn_v.weight", "blocks.1.attn.W_V is missing")],
)
def test_a_missing_tensor(tmp_path: Path, missing: str, reason: str) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", skip=missing)
    with pytest.raises(BadInput, match=reason):
        GgufFile(tmp_path / "m.gguf").load()


def test_missing_metadata(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"metadata 'llama.attention.head_count' is missing"):
        GgufFile(tmp_path / "m.gguf").load()


# --- the families


#: Architecture of the file: case of `references`, changes to it, what the file says besides the sizes.
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", {}, {}),
    "llama-window": ("mistral", {}, {"sliding_window": 9}),
    "llama-experts": ("mixtral", {}, {"expert_count": 4, "expert_used_count": 2}),
    "llama-yarn": (
        "rope-yarn",
        {},
        {
            "rope_scaling_type": gguf.RopeScalingType.YARN,
            "rope_scaling_factor": 4.0,
            "rope_scaling_orig_ctx_len": 32,
        },
    ),
    "qwen2": ("qwen2", {}, {}),
    "qwen3": ("qwen3", {}, {}),
    "qwen3moe": (
        "qwen3_moe",
        {"norm_topk_prob": True},
        {"expert_count": 5, "expert_used_count": 3, "expert_feed_forward_length": 20},
    ),
    "gemma": ("gemma", {}, {}),
    "gemma2": (
        "gemma2",
        {"query_pre_attn_scalar": 12},
        {"sliding_window": 9, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 30.0},
    ),
    "gemma3": (
        "gemma3",
        {"query_pre_attn_scalar": 12, "layer_types": ["sliding_attention"] * 2},
        {"sliding_window": 9},
    ),
    "phi2": ("phi", {}, {"rope_dimension_count": 4}),
    "phi3": ("phi3", {"sliding_window": None}, {}),
    "olmo": ("olmo", {}, {}),
    "olmo2": ("olmo2", {}, {}),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 1]}, {}),
    "gpt2": ("gpt2", {}, {}),
    "gptneox": ("gpt_neox", {}, {"rope_dimension_count": 2, "parallel_residual": True}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_family_from_gguf_computes_what_transformers_does(name: str, tmp_path: Path) -> None:
    """The file is written with the names and reorderings of llama.cpp's converter, none of our tables."""
    from tests.model.gguf_writer import write_gguf
    from tests.model.references import MODELS, VOCAB, random_reference

    case, changes, metadata = FILES[name]
    kind, settings_ = MODELS[case]
    reference = random_reference(kind, {**settings_, **changes})
    write_gguf(tmp_path / "m.gguf", name.split("-")[0], reference, metadata=metadata)
    model = GgufFile(tmp_path / "m.gguf").load()
    tokens = torch.randint(3, VOCAB, (2, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = reference(tokens).logits
    assert expected.std() > 0.1
    assert (model(tokens) - expected).abs().max() <= 1e-4


def test_scaled_frequencies_that_are_stored_as_a_tensor(tmp_path: Path) -> None:
    """Llama 3's rope: the converter stores what each frequency is divided by."""
    from tests.model.gguf_writer import write_gguf
    from tests.model.references import MODELS, VOCAB, random_reference

    reference = random_reference(*MODELS["rope-llama3"])
    plain = 1.0 / 500.0 ** (torch.arange(0, 8, 2) / 8)
    factors = plain / reference.model.rotary_emb.inv_freq
    assert factors.max() > 2
    reference.register_buffer("rope_freqs", factors)
    write_gguf(tmp_path / "m.gguf", "llama", reference)
    tokens = torch.randint(3, VOCAB, (2, 40), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        difference = GgufFile(tmp_path / "m.gguf").load()(tokens) - reference(tokens).logits
    assert difference.abs().max() <= 1e-4


SPM_WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "\u2581", "a", "b", "c"]
SPM_WORDS += ["ab", "bc", "abc", "\u2581a", "\u2581ab"]


@pytest.mark.parametrize("prefix", [True, False])
def test_a_sentencepiece_vocabulary(prefix: bool) -> None:
    """Higher scores are merged first: "bc" before "ab", so "abc" is a + bc, then the whole."""
    scores = [0.0] * (len(SPM_WORDS) - 5) + [-2.0, -1.0, -3.0, -4.0, -5.0]
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": SPM_WORDS,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 9],
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.add_space_prefix": prefix,
    }
    backend = rebuild(lambda name, default=None: fields.get(name, default), where="test")
    tokenizer = Tokenizer(backend, bos=1)

    def pieces(text: str) -> list[str]:
        return [SPM_WORDS[i] for i in tokenizer.encode(text, bos=False)]

    start = ["\u2581"] if prefix else []
    assert pieces("abc") == [*start, "abc"]
    assert pieces("abab") == (["\u2581ab", "ab"] if prefix else ["ab", "ab"])
    assert pieces("é") == [*start, "<0xC3>", "<0xA9>"], "bytes, where there is no piece"
    assert "</s>" in pieces("b</s>c")
    for text in ("abc ab", "é c", "a  b"):
        assert tokenizer.decode(tokenizer.encode(text, bos=False)) == text


def test_a_rule_of_splitting_that_is_not_known(tmp_path: Path) -> None:
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.token_type": [1],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.pre": "martian",
    }
    with pytest.raises(BadInput, match="'martian' for splitting text is not known; give a tokenizer of your own"):
        rebuild(lambda name, default=None: fields.get(name, default), where="m.gguf")
