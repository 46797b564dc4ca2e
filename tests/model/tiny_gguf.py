"""A Llama small enough to write into a GGUF file by hand, with the numbers that must be read back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from tests.models import random_model, small_config
from vesalius.model import Transformer
from vesalius.model.config import Rotary

#: One token per byte, one merge ("h" + "i"), one control token.
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = ["<|bos|>", *ALPHABET, "hi"]
CONFIG = small_config(
    n_layers=2,
    d_model=32,
    d_head=8,
    d_mlp=64,
    d_vocab=len(WORDS),
    d_vocab_out=len(WORDS),
    n_ctx=32,
    norm_eps=1e-5,
    rotary=Rotary(base=500.0),
    bos_token=0,
)


def side_by_side(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of a query or key matrix: rows i and i + half of a head become neighbours."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape)


def write_tiny_gguf(path: Path, *, kind: str = "F32", architecture: str = "llama", skip: str = "") -> Transformer:
    """Write a random model and return it as it should be read back: with its matrices already quantised."""
    gguf = pytest.importorskip("gguf")
    code = gguf.GGMLQuantizationType[kind]
    model = random_model(CONFIG, scale=0.4)
    model.unembed_weight = model.W_E
    for parameter in (model.b_U, *(b for block in model.blocks for b in (block.attn.b_qkv, block.attn.b_O))):
        parameter.zero_()
    matrices = {"token_embd.weight": model.W_E}
    vectors = {"output_norm.weight": model.ln_final.w}
    for i, block in enumerate(model.blocks):
        block.mlp.b_in.zero_()
        block.mlp.b_out.zero_()
        name = f"blk.{i}."
        vectors |= {name + "attn_norm.weight": block.ln1.w, name + "ffn_norm.weight": block.ln2.w}
        matrices |= {
            name + "attn_q.weight": block.attn.query.T,
            name + "attn_k.weight": block.attn.key.T,
            name + "attn_v.weight": block.attn.value.T,
            name + "attn_output.weight": block.attn.output.T,
            name + "ffn_up.weight": block.mlp.W_in.T,
            name + "ffn_gate.weight": block.mlp.W_gate.T,
            name + "ffn_down.weight": block.mlp.W_out.T,
        }
    writer = _metadata(gguf.GGUFWriter(path, architecture))
    for name, value in matrices.items():
        value.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(value.contiguous().numpy(), code), code)))
        stored = value.contiguous().numpy()
        if "attn_q" in name or "attn_k" in name:
            stored = side_by_side(stored, CONFIG.n_heads if "attn_q" in name else CONFIG.n_kv_heads)
        if name != skip:
            writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(stored), code), raw_dtype=code)
    for name, value in vectors.items():
        writer.add_tensor(name, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _metadata(writer: Any) -> Any:
    writer.add_block_count(CONFIG.n_layers)
    writer.add_context_length(CONFIG.n_ctx)
    writer.add_embedding_length(CONFIG.d_model)
    writer.add_feed_forward_length(CONFIG.d_mlp)
    writer.add_head_count(CONFIG.n_heads)
    writer.add_head_count_kv(CONFIG.n_kv_heads)
    writer.add_layer_norm_rms_eps(CONFIG.norm_eps)
    writer.add_rope_freq_base(500.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3] + [1] * (len(WORDS) - 1))
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(0)
    return writer
