"""Llama and what is built like it: Mistral, Ministral 3, Qwen2, Qwen3, SmolLM3, Phi-3."""

import re
from dataclasses import replace

from vesalius.model.config import Config
from vesalius.model.families.layout import Family, Raw, State, Unsupported, activation, expect, rotary, sizes

OUTER = {"embed.W_E": "embed_tokens.weight", "ln_final.w": "norm.weight", "unembed.W_U": "lm_head.weight"}
ATTENTION = {f"attn.W_{letter.upper()}": f"self_attn.{letter}_proj.weight" for letter in "qkvo"}
BIASES = {f"attn.b_{letter.upper()}": f"self_attn.{letter}_proj.bias" for letter in "qkvo"}
#: Families whose configs say whether attention has biases.
SWITCHES = {"attention_bias": (False, tuple(BIASES))}
QK_NORMS = {"attn.q_norm.w": "self_attn.q_norm.weight", "attn.k_norm.w": "self_attn.k_norm.weight"}
MLP = {
    "mlp.W_gate": "mlp.gate_proj.weight",
    "mlp.W_in": "mlp.up_proj.weight",
    "mlp.W_out": "mlp.down_proj.weight",
}
PRE_NORMS = {"ln1.w": "input_layernorm.weight", "ln2.w": "post_attention_layernorm.weight"}
INNER = {**PRE_NORMS, **ATTENTION, **MLP}
BIASED = {**INNER, **BIASES}
#: Many families have biases of queries, keys and values, and none of the output.
INPUT_BIASES = tuple(name for name in BIASES if name != "attn.b_O")
INPUTS_BIASED = {**INNER, **{name: BIASES[name] for name in INPUT_BIASES}}
LAYER, PREFIXES = "layers.{}.", ("model.",)


def gated_rms(raw: Raw, **other: object) -> Raw:
    """Sizes and settings of a model with RMSNorm, rotary positions and gated MLPs."""
    expect({**raw, "mlp_bias": bool(raw.get("mlp_bias"))}, mlp_bias=False)
    shared = sizes(raw)
    rotation = rotary(raw, d_head=shared["d_head"])
    if rotation.get("scaling") == "dynamic":
        shared["n_ctx"] = int(shared["n_ctx"] * rotation["factor"])
    return {
        **shared,
        "norm": "rms",
        "norm_eps": raw.get("rms_norm_eps", 1e-6),
        "rotary": rotation,
        "activation": activation(raw, "hidden_act", default="silu"),
        "gated": True,
        **other,
    }


def windows(raw: Raw, layer_types: list[str] | None) -> tuple[int | None, ...]:
    """The window of each layer of a config with layer types; full layers have none."""
    size = raw.get("sliding_window")
    if not layer_types or not size:
        return ()
    unknown = set(layer_types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise Unsupported(f"config.json: layer type {min(unknown)!r} is not supported; use full or sliding attention")
    return tuple(size if kind == "sliding_attention" else None for kind in layer_types)


def everywhere(raw: Raw) -> tuple[int | None, ...]:
    """The same window in every layer (Mistral, Mixtral, Phi-3, StarCoder 2)."""
    return (raw["sliding_window"],) * raw["num_hidden_layers"] if raw.get("sliding_window") else ()


def _switchable(raw: Raw) -> tuple[int | None, ...]:
    """Windows of a config that must switch them on; older ones have them from layer `max_window_layers` on."""
    if not raw.get("use_sliding_window"):
        return ()
    first, n = raw.get("max_window_layers", 28), raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or ["sliding_attention" if i >= first else "full_attention" for i in range(n)]
    return windows(raw, kinds)


LLAMA = Family(
    name="llama",
    model_types=("llama",),
    config=gated_rms,
    outer=OUTER,
    inner=BIASED,
    layer=LAYER,
    switches=SWITCHES,
    prefixes=PREFIXES,
)
MISTRAL = replace(
    LLAMA,
    name="mistral",
    model_types=("mistral",),
    config=lambda raw: gated_rms(raw, windows=everywhere(raw)),
    inner=INNER,
    switches={},
)


def _ministral3_config(raw: Raw) -> Raw:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    scale = None
    if strength := rope.get("llama_4_scaling_beta"):
        layers = tuple(range(raw["num_hidden_layers"]))
        scale = {"strength": strength, "every": rope["original_max_position_embeddings"], "layers": layers}
    settings = {"head_dim": 128, "rms_norm_eps": 1e-5, **raw}
    return gated_rms(settings, windows=everywhere(raw), query_scale=scale)


MINISTRAL3 = replace(MISTRAL, name="ministral3", model_types=("ministral3",), config=_ministral3_config)
QWEN2 = replace(
    MISTRAL,
    name="qwen2",
    model_types=("qwen2",),
    config=lambda raw: gated_rms(raw, windows=_switchable(raw)),
    inner=INPUTS_BIASED,
)
QWEN3 = replace(
    LLAMA,
    name="qwen3",
    model_types=("qwen3",),
    config=lambda raw: gated_rms({"head_dim": 128, **raw}, windows=_switchable(raw), qk_norm="head"),
    inner={**BIASED, **QK_NORMS},
)


def _smollm3_config(raw: Raw) -> Raw:
    settings, n = gated_rms(raw, windows=_switchable(raw)), raw["num_hidden_layers"]
    interval = raw.get("no_rope_layer_interval", 4)
    rotated = raw.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(n)]
    return {**settings, "layer_rotary": tuple(settings["rotary"] if yes else None for yes in rotated)}


SMOLLM3 = replace(LLAMA, name="smollm3", model_types=("smollm3",), config=_smollm3_config, tied=True)


def _phi3_config(raw: Raw) -> Raw:
    settings = gated_rms(raw, windows=everywhere(raw))
    return {**settings, "rotary": rotary(raw, d_head=settings["d_head"], share=1.0)}


def _split_phi3(weights: State, config: Config) -> State:
    """Rows of qkv_proj are all queries, all keys, all values; those of gate_up_proj the gate, then the rest."""
    state, d = dict(weights), config.d_head
    cuts = (config.n_heads * d, config.n_kv_heads * d, config.n_kv_heads * d)
    for name in [name for name in weights if re.search(r"(qkv|gate_up)_proj\.weight$", name)]:
        fused, start = state.pop(name), name.rsplit(".", 2)[0]
        if "qkv" in name:
            parts = dict(zip(("q", "k", "v"), fused.split(cuts), strict=True))
        else:
            parts = dict(zip(("gate", "up"), fused.chunk(2), strict=True))
        state |= {f"{start}.{part}_proj.weight": value for part, value in parts.items()}
    return state


PHI3 = Family(
    name="phi3",
    model_types=("phi3",),
    config=_phi3_config,
    outer=OUTER,
    inner=INNER,
    layer=LAYER,
    prepare=_split_phi3,
    prefixes=PREFIXES,
)
FAMILIES = (LLAMA, MISTRAL, MINISTRAL3, QWEN2, QWEN3, SMOLLM3, PHI3)
