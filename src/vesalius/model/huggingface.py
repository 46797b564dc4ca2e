"""Hugging Face model directories and hub ids: GPT-2 and the Llama family (Llama, SmolLM2, Mistral without windows,
Qwen2).

`config.json` becomes a `Config`, the weights get TransformerLens' names. No code from the directory is run and
`transformers` is not needed.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json
from vesalius.model.config import Config
from vesalius.model.files import read_tensors
from vesalius.model.states import State, build
from vesalius.model.transformer import Transformer

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}
HUB_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "vocab.json", "merges.txt")


def load_huggingface(directory: Path) -> Transformer:
    """Load a Hugging Face model directory (`config.json` and safetensors, one file or sharded)."""
    raw = read_json(directory / "config.json")
    kind = raw.get("model_type")
    if kind not in _READERS:
        raise BadInput(
            f"{directory / 'config.json'}: model_type {kind!r} is not supported; use one of {', '.join(_READERS)}"
        )
    to_config, to_state = _READERS[kind]
    try:
        config = Config.read(to_config(raw), where=str(directory / "config.json"))
    except KeyError as error:
        raise BadInput(f"{directory / 'config.json'}: field {error} is missing") from None
    except (TypeError, ZeroDivisionError) as error:
        raise BadInput(f"{directory / 'config.json'}: a size is not a positive number ({error})") from None
    weights = _read_weights(directory)
    layers = {int(match[1]) for name in weights if (match := re.search(r"(?:^|\.)(?:h|layers)\.(\d+)\.", name))}
    if layers != set(range(config.n_layers)):
        raise BadInput(f"{directory}: config.json says {config.n_layers} layers, the weights hold {len(layers)}")
    return build(config, to_state(weights, config), where=str(directory))


def download(hub_id: str, *, revision: str | None = None, allow: Sequence[str] = HUB_FILES) -> Path:
    """Fetch a hub model's files that match `allow` (config, weights and tokenizer) into the Hugging Face cache
    (honours HF_HUB_OFFLINE, HF_TOKEN).
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(allow)))
    except HFValidationError:
        raise BadInput(f"model {hub_id!r} is neither a directory nor a hub id such as openai-community/gpt2") from None
    except RepositoryNotFoundError:
        raise BadInput(f"model {hub_id!r} is not on the hub; check its spelling, or set HF_TOKEN if private") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Failed(
            f"model {hub_id!r} could not be fetched from the hub ({reason}); give a local directory instead"
        ) from None


def _read_weights(directory: Path) -> State:
    index = directory / "model.safetensors.index.json"
    if index.exists():
        shards = sorted(set(read_json(index).get("weight_map", {}).values()))
        return {name: tensor for shard in shards for name, tensor in read_tensors(directory / shard).items()}
    return read_tensors(directory / "model.safetensors")


def _activation(raw: dict[str, Any], key: str, default: str) -> str:
    name = raw.get(key, default)
    if name not in _ACTIVATIONS:
        raise BadInput(f"config.json: {key} {name!r} is not supported; use one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _gpt2_config(raw: dict[str, Any]) -> dict[str, Any]:
    for flag, expected in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if raw.get(flag, expected) != expected:
            raise BadInput(f"config.json: {flag}={raw[flag]} is not supported; expected {expected}")
    d_model, n_heads = raw["n_embd"], raw["n_head"]
    return {
        "n_layers": raw["n_layer"],
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_model // n_heads,
        "d_mlp": raw.get("n_inner") or 4 * d_model,
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw.get("n_positions", 1024),
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_epsilon", 1e-5),
        "activation": _activation(raw, "activation_function", "gelu_new"),
        "bos_token": _bos(raw),
    }


def _gpt2_state(weights: State, config: Config) -> State:
    weights = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    state = {"embed.W_E": weights["wte.weight"], "pos_embed.W_pos": weights["wpe.weight"]}
    state |= {"ln_final.w": weights["ln_f.weight"], "ln_final.b": weights["ln_f.bias"]}
    if "lm_head.weight" in weights:
        state |= _unembed(weights["lm_head.weight"], weights["wte.weight"])
    for i in range(config.n_layers):
        block, out = f"h.{i}.", f"blocks.{i}."
        for name, ln in (("ln1", "ln_1"), ("ln2", "ln_2")):
            state |= {f"{out}{name}.w": weights[f"{block}{ln}.weight"], f"{out}{name}.b": weights[f"{block}{ln}.bias"]}
        # GPT-2 stores input-major matrices: columns of c_attn are q, k, v laid side by side.
        w, b = weights[f"{block}attn.c_attn.weight"].chunk(3, 1), weights[f"{block}attn.c_attn.bias"].chunk(3)
        for letter, weight, bias in zip("QKV", w, b, strict=True):
            state[f"{out}attn.W_{letter}"] = _columns_to_heads(weight, config.n_heads)
            state[f"{out}attn.b_{letter}"] = bias.view(config.n_heads, -1)
        state[f"{out}attn.W_O"] = weights[f"{block}attn.c_proj.weight"].view(config.n_heads, config.d_head, -1)
        state[f"{out}attn.b_O"] = weights[f"{block}attn.c_proj.bias"]
        for ours, theirs in (("in", "c_fc"), ("out", "c_proj")):
            state[f"{out}mlp.W_{ours}"] = weights[f"{block}mlp.{theirs}.weight"]
            state[f"{out}mlp.b_{ours}"] = weights[f"{block}mlp.{theirs}.bias"]
    return state


def _llama_config(raw: dict[str, Any]) -> dict[str, Any]:
    if raw.get("use_sliding_window") or (raw["model_type"] == "mistral" and raw.get("sliding_window")):
        raise BadInput("config.json: sliding-window attention is not supported; use a model with full attention")
    return {
        "n_layers": raw["num_hidden_layers"],
        "n_heads": raw["num_attention_heads"],
        "n_kv_heads": raw.get("num_key_value_heads") or raw["num_attention_heads"],
        "d_model": raw["hidden_size"],
        "d_head": raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"],
        "d_mlp": raw["intermediate_size"],
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw["max_position_embeddings"],
        "norm": "rms",
        "norm_eps": raw["rms_norm_eps"],
        "rotary": _rotary(raw),
        "activation": _activation(raw, "hidden_act", "silu"),
        "gated": True,
        "bos_token": _bos(raw),
    }


def _rotary(raw: dict[str, Any]) -> dict[str, Any]:
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    base = rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0
    if kind == "default":
        return {"base": base}
    if kind == "linear":
        return {"base": base, "scaling": "linear", "factor": rope["factor"]}
    if kind == "llama3":
        return {
            "base": base,
            "scaling": "llama3",
            "factor": rope["factor"],
            "low_freq_factor": rope["low_freq_factor"],
            "high_freq_factor": rope["high_freq_factor"],
            "original_n_ctx": rope["original_max_position_embeddings"],
        }
    raise BadInput(f"config.json: rope scaling {kind!r} is not supported; use default, linear or llama3")


def _llama_state(weights: State, config: Config) -> State:
    embed = weights["model.embed_tokens.weight"]
    state = {"embed.W_E": embed, "ln_final.w": weights["model.norm.weight"]}
    if "lm_head.weight" in weights:
        state |= _unembed(weights["lm_head.weight"], embed)
    for i in range(config.n_layers):
        block, out = f"model.layers.{i}.", f"blocks.{i}."
        state[f"{out}ln1.w"] = weights[f"{block}input_layernorm.weight"]
        state[f"{out}ln2.w"] = weights[f"{block}post_attention_layernorm.weight"]
        for letter, heads in (("Q", config.n_heads), ("K", config.n_kv_heads), ("V", config.n_kv_heads)):
            name = f"{block}self_attn.{letter.lower()}_proj"
            state[f"{out}attn.W_{letter}"] = _columns_to_heads(weights[f"{name}.weight"].T, heads)
            if f"{name}.bias" in weights:
                state[f"{out}attn.b_{letter}"] = weights[f"{name}.bias"].view(heads, -1)
        state[f"{out}attn.W_O"] = weights[f"{block}self_attn.o_proj.weight"].T.reshape(
            config.n_heads, config.d_head, -1
        )
        if f"{block}self_attn.o_proj.bias" in weights:
            state[f"{out}attn.b_O"] = weights[f"{block}self_attn.o_proj.bias"]
        for ours, theirs in (("in", "up"), ("gate", "gate"), ("out", "down")):
            state[f"{out}mlp.W_{ours}"] = weights[f"{block}mlp.{theirs}_proj.weight"].T
            if f"{block}mlp.{theirs}_proj.bias" in weights:
                if ours == "gate":
                    raise BadInput("gate_proj.bias is not supported; use a model without MLP biases")
                state[f"{out}mlp.b_{ours}"] = weights[f"{block}mlp.{theirs}_proj.bias"]
    return state


def _unembed(head: Tensor, embed: Tensor) -> State:
    """An unembedding that repeats the embedding is left out, so that `build` ties the two."""
    return {} if head.shape == embed.shape and torch.equal(head, embed) else {"unembed.W_U": head.T}


def _columns_to_heads(weight: Tensor, heads: int) -> Tensor:
    return weight.reshape(weight.shape[0], heads, -1).permute(1, 0, 2)


def _bos(raw: dict[str, Any]) -> int | None:
    """The first beginning-of-sequence id; None if it is outside the vocabulary, as in shrunken test models."""
    value = raw.get("bos_token_id")
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) and 0 <= first < raw["vocab_size"] else None


def _strict(convert: Callable[[State, Config], State]) -> Callable[[State, Config], State]:
    """Wrap a converter: buffers are dropped, weights become float32, missing or misshapen ones are refused."""

    def to_state(weights: State, config: Config) -> State:
        parameters = {
            name: tensor
            for name, tensor in weights.items()
            if not re.search(r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$", name)
        }
        try:
            return {name: tensor.float() for name, tensor in convert(parameters, config).items()}
        except KeyError as error:
            raise BadInput(f"weight {error} is missing from the model directory; download it again") from None
        except (RuntimeError, IndexError) as error:
            raise BadInput(f"a weight does not have the shape that config.json says ({error})") from None

    return to_state


_READERS = {
    "gpt2": (_gpt2_config, _strict(_gpt2_state)),
    "llama": (_llama_config, _strict(_llama_state)),
    "mistral": (_llama_config, _strict(_llama_state)),
    "qwen2": (_llama_config, _strict(_llama_state)),
}
