"""Architectures of GGUF files: what their metadata say about a model's shape, and which tensor is which weight.

Names and conventions are llama.cpp's. What it fixes in its code rather than in the file (Gemma's local rope base, the
layers of SmolLM3 without positions) is fixed here too.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vesalius.errors import BadInput

Field = Callable[..., Any]

_ATTENTION = {
    **{f"attn_{x}.weight": f"attn.W_{x.upper()}" for x in "qkv"},
    **{f"attn_{x}.bias": f"attn.b_{x.upper()}" for x in "qkv"},
    "attn_output.weight": "attn.W_O",
    "attn_output.bias": "attn.b_O",
    "attn_q_norm.weight": "attn.q_norm.w",
    "attn_k_norm.weight": "attn.k_norm.w",
}
_MLP = {
    "ffn_up.weight": "mlp.W_in",
    "ffn_up.bias": "mlp.b_in",
    "ffn_gate.weight": "mlp.W_gate",
    "ffn_down.weight": "mlp.W_out",
    "ffn_down.bias": "mlp.b_out",
    "ffn_gate_inp.weight": "mlp.W_router",
    "ffn_gate_exps.weight": "mlp.W_gate",
    "ffn_up_exps.weight": "mlp.W_in",
    "ffn_down_exps.weight": "mlp.W_out",
}
_NORMS = {
    "attn_norm.weight": "ln1.w",
    "attn_norm.bias": "ln1.b",
    "ffn_norm.weight": "ln2.w",
    "ffn_norm.bias": "ln2.b",
    "post_attention_norm.weight": "ln1_post.w",
    "post_ffw_norm.weight": "ln2_post.w",
}
#: Tensors of a layer; matrices that join several weights are split before.
BLOCK_NAMES = {**_ATTENTION, **_MLP, **_NORMS}
OUTER_NAMES = {
    "token_embd.weight": "embed.W_E",
    "position_embd.weight": "pos_embed.W_pos",
    "output_norm.weight": "ln_final.w",
    "output_norm.bias": "ln_final.b",
    "output.weight": "unembed.W_U",
    "output.bias": "unembed.b_U",
}


@dataclass(frozen=True)
class Architecture:
    """What is particular about a GGUF architecture. `interleaved`: queries and keys are stored for a rotation of
    neighbours; `settings` adds to the shape that all share. `biases` are those of a layer that must be stored (others
    may be), `outer` what must be stored outside of layers: elsewhere, a missing unembedding is the embedding.
    """

    settings: Callable[[Field, dict[str, Any]], dict[str, Any]]
    interleaved: bool = False
    rotary: bool = True
    biases: tuple[str, ...] = ()
    outer: tuple[str, ...] = ()


def shape(field: Field, architecture: Architecture, *, d_vocab: int) -> dict[str, Any]:
    """The fields of a `Config`. `field(name)` reads metadata of this architecture, with a default if given."""
    n_heads, d_model = int(field("attention.head_count")), int(field("embedding_length"))
    data: dict[str, Any] = {
        "n_layers": int(field("block_count")),
        "n_heads": n_heads,
        "n_kv_heads": int(field("attention.head_count_kv", default=n_heads)),
        "d_model": d_model,
        "d_head": int(field("attention.key_length", default=d_model // n_heads)),
        "d_mlp": int(field("feed_forward_length")),
        "d_vocab": d_vocab,
        "d_vocab_out": d_vocab,
        "n_ctx": int(field("context_length")),
    }
    if architecture.rotary:
        data["rotary"] = _rotary(field, data["d_head"])
    return {**data, **architecture.settings(field, data)}


def _rotary(field: Field, d_head: int) -> dict[str, Any]:
    rotation: dict[str, Any] = {"base": float(field("rope.freq_base", default=10_000.0))}
    rotated = int(field("rope.dimension_count", default=d_head))
    if rotated != d_head:
        rotation["d_rotary"] = rotated
    kind = field("rope.scaling.type", default="none")
    if kind in ("linear", "yarn"):
        factor = float(field("rope.scaling.factor"))
        rotation |= {"scaling": kind, "factor": factor}
        if kind == "yarn":
            rotation["original_n_ctx"] = int(field("rope.scaling.original_context_length"))
            rotation["attention_factor"] = 0.1 * math.log(max(factor, 1.0)) + 1.0
    elif kind not in ("none", "longrope"):
        raise BadInput(f"rope scaling {kind!r} is not supported; use the safetensors version of this model")
    return rotation


def _gated_rms(field: Field, data: dict[str, Any], **other: Any) -> dict[str, Any]:
    eps = float(field("attention.layer_norm_rms_epsilon"))
    return {"norm": "rms", "norm_eps": eps, "activation": "silu", "gated": True, **other}


def _layer_norm(field: Field, **other: Any) -> dict[str, Any]:
    eps = float(field("attention.layer_norm_epsilon"))
    return {"norm": "layer", "norm_eps": eps, "activation": "gelu_tanh", **other}


def _llama(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    n_experts, window = int(field("expert_count", default=0)), int(field("attention.sliding_window", default=0))
    experts = _experts(field, data, data["d_mlp"]) if n_experts else None
    return _gated_rms(field, data, experts=experts, windows=(window,) * data["n_layers"] if window else ())


def _experts(field: Field, data: dict[str, Any], d_expert: int) -> dict[str, Any]:
    return {
        "n_experts": int(field("expert_count")),
        "n_active": int(field("expert_used_count")),
        "d_expert": d_expert,
        "renormalise": True,
        "layers": tuple(range(data["n_layers"])),
    }


def _qwen3_moe(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    experts = _experts(field, data, int(field("expert_feed_forward_length")))
    return _gated_rms(field, data, qk_norm="head", experts=experts)


def _gemma(field: Field, data: dict[str, Any], **other: Any) -> dict[str, Any]:
    return _gated_rms(field, data, activation="gelu_tanh", embed_scale=data["d_model"] ** 0.5, **other)


def _gemma_scale(data: dict[str, Any], largest: int) -> float:
    """Scores of the largest Gemma are scaled by the width per head, of the others by the size of a head."""
    return (data["d_model"] / data["n_heads"] if data["n_layers"] == largest else data["d_head"]) ** -0.5


def _gemma2(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    window = int(field("attention.sliding_window"))
    return _gemma(
        field,
        data,
        norm_at="both",
        attn_scale=_gemma_scale(data, 46),
        attn_softcap=float(field("attn_logit_softcapping")),
        final_softcap=float(field("final_logit_softcapping")),
        windows=tuple(None if layer % 2 else window for layer in range(data["n_layers"])),
    )


def _gemma3(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    window, local = int(field("attention.sliding_window")), {"base": 10_000.0}
    sliding = [(layer + 1) % 6 != 0 for layer in range(data["n_layers"])]
    return _gemma(
        field,
        data,
        norm_at="both",
        qk_norm="head",
        attn_scale=_gemma_scale(data, 62),
        windows=tuple(window if yes else None for yes in sliding),
        layer_rotary=tuple(local if yes else data["rotary"] for yes in sliding),
    )


def _smollm3(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    layers = range(data["n_layers"])
    return _gated_rms(field, data, layer_rotary=tuple(data["rotary"] if (i + 1) % 4 else None for i in layers))


def _olmo(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    clip = float(field("attention.clamp_kqv", default=0.0))
    return _layer_norm(field, activation="silu", gated=True, clip_qkv=clip or None)


def _neox(field: Field, data: dict[str, Any]) -> dict[str, Any]:
    parallel = bool(field("use_parallel_residual", default=True))
    return _layer_norm(field, activation="gelu", block="parallel" if parallel else "sequential")


_QKV = ("attn.b_Q", "attn.b_K", "attn.b_V")
_ALL_BIASES = (*_QKV, "attn.b_O", "mlp.b_in", "mlp.b_out", "ln1.b")
ARCHITECTURES = {
    "llama": Architecture(_llama, interleaved=True),
    "qwen2": Architecture(_gated_rms, biases=_QKV),
    "qwen3": Architecture(lambda field, data: _gated_rms(field, data, qk_norm="head")),
    "qwen3moe": Architecture(_qwen3_moe),
    "gemma": Architecture(_gemma),
    "gemma2": Architecture(_gemma2),
    "gemma3": Architecture(_gemma3),
    "phi2": Architecture(
        lambda field, data: _layer_norm(field, block="parallel_one_norm"),
        biases=_ALL_BIASES,
        outer=("ln_final.b", "unembed.W_U", "unembed.b_U"),
    ),
    "phi3": Architecture(_gated_rms),
    "olmo": Architecture(_olmo, interleaved=True),
    "olmo2": Architecture(lambda field, data: _gated_rms(field, data, norm_at="output", qk_norm="all")),
    "smollm3": Architecture(_smollm3, interleaved=True),
    "gpt2": Architecture(
        lambda field, data: _layer_norm(field), rotary=False, biases=(*_ALL_BIASES, "ln2.b"), outer=("ln_final.b",)
    ),
    "gptneox": Architecture(_neox, biases=(*_ALL_BIASES, "ln2.b"), outer=("ln_final.b", "unembed.W_U")),
}
