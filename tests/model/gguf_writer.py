"""A model of transformers written as llama.cpp's converter writes it: names from the gguf package, its reorderings."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

#: Architectures whose queries and keys are reordered for a rotation of neighbours.
REORDERED = ("llama", "olmo", "smollm3")


def write_gguf(path: Path, architecture: str, model: Any, *, metadata: dict[str, Any] | None = None) -> None:
    """Write the weights and the sizes; no tokenizer."""
    config, weights = model.config, dict(model.state_dict())
    config = {**config.to_dict(), **{k: getattr(config, k, None) for k in ("hidden_size", "num_hidden_layers")}}
    writer = gguf.GGUFWriter(path, architecture)
    n_heads = config.get("num_attention_heads") or config["n_head"]
    _sizes(writer, config, n_heads, metadata or {})
    for name, value in _tensors(architecture, config, weights, n_heads).items():
        writer.add_tensor(name, np.ascontiguousarray(value.float().numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _sizes(writer: Any, config: dict[str, Any], n_heads: int, metadata: dict[str, Any]) -> None:
    d_model = config["hidden_size"] or config["n_embd"]
    writer.add_block_count(config["num_hidden_layers"] or config["n_layer"])
    writer.add_context_length(config.get("max_position_embeddings") or config["n_positions"])
    writer.add_embedding_length(d_model)
    writer.add_feed_forward_length(config.get("intermediate_size") or 4 * d_model)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(n_heads if writer.arch == "gptneox" else config.get("num_key_value_heads") or n_heads)
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        eps = [config[name] for name in ("layer_norm_eps", "layer_norm_epsilon") if name in config]
        writer.add_layer_norm_eps(eps[0] if eps else 1e-5)
    rope = config.get("rope_parameters") or {}
    if base := rope.get("rope_theta") or (rope.get("full_attention") or {}).get("rope_theta"):
        writer.add_rope_freq_base(base)
    for name, value in metadata.items():
        getattr(writer, f"add_{name}")(value)


def _tensors(
    architecture: str, config: dict[str, Any], weights: dict[str, torch.Tensor], n_heads: int
) -> dict[str, torch.Tensor]:
    code = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names, tensors = gguf.get_tensor_name_map(code, config["num_hidden_layers"] or config["n_layer"]), {}
    tied = config.get("tie_word_embeddings", True)
    for name, value in weights.items():
        if (name == "lm_head.weight" and tied) or name.endswith((".attn.bias", ".masked_bias")):
            continue
        if name == "rope_freqs":
            tensors["rope_freqs.weight"] = value
            continue
        for plain, tensor in _plain(architecture, name, value, n_heads).items():
            target = names.get_name(plain, try_suffixes=(".weight", ".bias"))
            assert target is not None, plain
            heads = n_heads if "q_proj" in plain else config.get("num_key_value_heads") or n_heads
            if architecture in REORDERED and ("q_proj" in plain or "k_proj" in plain):
                shape = tensor.shape
                tensor = tensor.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
            tensors[target] = tensor
    return tensors


def _plain(architecture: str, name: str, value: torch.Tensor, n_heads: int) -> dict[str, torch.Tensor]:
    """What the converter does to a tensor before naming it."""
    if architecture == "gpt2" and name.endswith(
        ("c_attn.weight", "attn.c_proj.weight", "c_fc.weight", "mlp.c_proj.weight")
    ):
        return {name: value.T}
    if architecture == "gptneox" and "query_key_value" in name:
        by_head = value.view(n_heads, 3, -1, *value.shape[1:])
        return {name: by_head.transpose(0, 1).reshape(value.shape)}
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return {name: value + 1}
    if name.endswith("experts.gate_up_proj"):
        gate, up = value.chunk(2, 1)
        start = name.removesuffix("gate_up_proj")
        return {f"{start}gate_proj.weight": gate, f"{start}up_proj.weight": up}
    if name.endswith("experts.down_proj"):
        return {f"{name}.weight": value}
    return {name: value}
