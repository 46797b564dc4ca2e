"""Models whose MLPs are made of experts: Mixtral, Qwen2-MoE, Qwen3-MoE, GLM-4 MoE, Llama 4 and GPT-OSS."""

import re

import torch
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.model.config import Config
from vesalius.model.families.layout import (
    Family,
    Raw,
    State,
    Unsupported,
    expect,
    rotary,
    side_by_side_to_halves,
)
from vesalius.model.families.llama import (
    BIASED,
    BIASES,
    INNER,
    INPUT_BIASES,
    INPUTS_BIASED,
    LAYER,
    OUTER,
    PREFIXES,
    QK_NORMS,
    SWITCHES,
    everywhere,
    gated_rms,
    windows,
)

ROUTER = {"mlp.W_router": "mlp.gate.weight"}
CORRECTION = {"mlp.b_choice": "mlp.gate.e_score_correction_bias"}


def shared_expert(theirs: str) -> dict[str, str]:
    """The weights of an expert that every token passes."""
    parts = {"W_gate": "gate_proj", "W_in": "up_proj", "W_out": "down_proj"}
    return {f"mlp.shared.{ours}": f"mlp.{theirs}.{part}.weight" for ours, part in parts.items()}


def gather_experts(weights: State, config: Config) -> State:
    """One matrix per expert and kind, or all experts fused, become `[expert, out, in]` under the dense names."""
    if config.experts is None:
        return weights
    state = {name.replace("block_sparse_moe.", "mlp."): value for name, value in weights.items()}
    for layer in config.experts.layers:
        mlp = f"layers.{layer}.mlp."
        if f"{mlp}experts.gate_up_proj" in state:
            gate, up = state.pop(f"{mlp}experts.gate_up_proj").chunk(2, 1)
            down = state.pop(f"{mlp}experts.down_proj")
        else:
            gate, up, down = (
                torch.stack([_pop_expert(state, mlp, i, names) for i in range(config.experts.n_experts)])
                for names in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"))
            )
        made = {f"{mlp}gate_proj.weight": gate, f"{mlp}up_proj.weight": up, f"{mlp}down_proj.weight": down}
        _add(state, made)
    return state


def _add(state: State, made: State) -> None:
    """Put weights that were made of stored ones beside these; one that is stored under such a name is refused."""
    if taken := sorted(set(state) & set(made)):
        raise BadInput(f"weight {taken[0]!r} has no place in this model")
    state |= made


def _pop_expert(state: State, mlp: str, expert: int, names: tuple[str, ...]) -> Tensor:
    for name in names:
        if (key := f"{mlp}experts.{expert}.{name}.weight") in state:
            return state.pop(key)
    raise KeyError(f"{mlp}experts.{expert}.{names[0]}.weight")


def local_experts(raw: Raw) -> Raw:
    """The experts of Mixtral and Granite: in every layer, their weights scaled to sum to 1 over the chosen."""
    return {
        "n_experts": raw["num_local_experts"],
        "n_active": raw.get("num_experts_per_tok", 2),
        "d_expert": raw["intermediate_size"],
        "renormalise": True,
        "layers": tuple(range(raw["num_hidden_layers"])),
    }


MIXTRAL = Family(
    name="mixtral",
    model_types=("mixtral",),
    config=lambda raw: gated_rms(raw, windows=everywhere(raw), experts=local_experts(raw)),
    outer=OUTER,
    inner={**INNER, **ROUTER},
    layer=LAYER,
    prepare=gather_experts,
    prefixes=PREFIXES,
)


def _qwen_experts(raw: Raw, **other: object) -> Raw | None:
    step, dense, n = raw.get("decoder_sparse_step", 1), raw.get("mlp_only_layers") or [], raw["num_hidden_layers"]
    layers = tuple(i for i in range(n) if i not in dense and (i + 1) % step == 0)
    n_experts = raw.get("num_experts") or raw.get("num_local_experts") or 0
    if not layers or not n_experts:
        return None
    return {
        "n_experts": n_experts,
        "n_active": raw["num_experts_per_tok"],
        "d_expert": raw["moe_intermediate_size"],
        "renormalise": bool(raw.get("norm_topk_prob", False)),
        "layers": layers,
        **other,
    }


def _qwen3_moe_config(raw: Raw) -> Raw:
    n = raw["num_hidden_layers"]
    sliding = (raw["sliding_window"],) * n if raw.get("use_sliding_window") and raw.get("sliding_window") else ()
    return gated_rms({"head_dim": 128, **raw}, windows=sliding, qk_norm="head", experts=_qwen_experts(raw))


QWEN3_MOE = Family(
    name="qwen3_moe",
    model_types=("qwen3_moe",),
    config=_qwen3_moe_config,
    outer=OUTER,
    inner={**BIASED, **QK_NORMS, **ROUTER},
    layer=LAYER,
    switches=SWITCHES,
    prepare=gather_experts,
    prefixes=PREFIXES,
)


def _qwen2_moe_config(raw: Raw) -> Raw:
    sliding, n, first = bool(raw.get("use_sliding_window")), raw["num_hidden_layers"], raw.get("max_window_layers", 28)
    kinds = raw.get("layer_types") or [
        "sliding_attention" if (i + 1) % 2 and i < first else "full_attention" for i in range(n)
    ]
    experts = _qwen_experts(raw, d_shared=raw["shared_expert_intermediate_size"], shared_gated=True)
    return gated_rms(raw, windows=windows(raw, kinds) if sliding else (), experts=experts)


QWEN2_MOE = Family(
    name="qwen2_moe",
    model_types=("qwen2_moe",),
    config=_qwen2_moe_config,
    outer=OUTER,
    inner={
        **INPUTS_BIASED,
        **ROUTER,
        **shared_expert("shared_expert"),
        "mlp.W_shared_gate": "mlp.shared_expert_gate.weight",
    },
    layer=LAYER,
    switches={"qkv_bias": (True, INPUT_BIASES)},
    prepare=gather_experts,
    prefixes=PREFIXES,
)


def routed_experts(raw: Raw, **other: object) -> Raw | None:
    """The experts of GLM-4 MoE and DeepSeek V3: behind a few layers without, chosen by corrected scores from the best
    groups, beside those that every token passes.
    """
    layers = tuple(range(raw.get("first_k_dense_replace", 1), raw["num_hidden_layers"]))
    if not layers:
        return None
    return {
        "n_experts": raw["n_routed_experts"],
        "n_active": raw["num_experts_per_tok"],
        "d_expert": raw["moe_intermediate_size"],
        "renormalise": raw.get("norm_topk_prob", True),
        "layers": layers,
        "scores": "sigmoid",
        "factor": raw.get("routed_scaling_factor", 1.0),
        "n_groups": raw.get("n_group", 1),
        "active_groups": raw.get("topk_group", 1),
        "corrected": True,
        "d_shared": raw["moe_intermediate_size"] * raw.get("n_shared_experts", 1),
        **other,
    }


def _glm4_moe_config(raw: Raw) -> Raw:
    settings = gated_rms({"rms_norm_eps": 1e-5, **raw}, qk_norm="head" if raw.get("use_qk_norm") else "none")
    rotation = rotary(raw, d_head=settings["d_head"], share=0.5)
    return {**settings, "rotary": rotation, "experts": routed_experts(raw)}


GLM4_MOE = Family(
    name="glm4_moe",
    model_types=("glm4_moe",),
    config=_glm4_moe_config,
    outer=OUTER,
    inner={
        **INPUTS_BIASED,
        **QK_NORMS,
        **ROUTER,
        **CORRECTION,
        **shared_expert("shared_experts"),
    },
    layer=LAYER,
    switches={"attention_bias": (False, INPUT_BIASES)},
    prepare=gather_experts,
    prefixes=PREFIXES,
)


# Llama 4: most layers attend within chunks, with rotated and normed queries and keys; the others have no positions, and
# their queries grow with where they stand. The norm behind the rotation is computed before it, which is the same: a
# rotation keeps lengths.


def _llama4_config(raw: Raw) -> Raw:
    n, step = raw["num_hidden_layers"], raw.get("interleave_moe_layer_step") or 1
    interval = raw.get("no_rope_layer_interval") or 4
    rotated = (raw.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(n)])[:n]
    kinds = raw.get("layer_types") or ["chunked_attention" if yes else "full_attention" for yes in rotated]
    moe, scale = raw.get("moe_layers"), None
    without = tuple(i for i, yes in enumerate(rotated) if not yes)
    if raw.get("attn_temperature_tuning", True) and without:
        scale = {
            "strength": raw.get("attn_scale", 0.1),
            "every": raw.get("floor_scale", 8192),
            "first": 1,
            "layers": without,
        }
    layers = tuple(range(step - 1, n, step)) if moe is None else tuple(moe)
    experts = {
        "n_experts": raw["num_local_experts"],
        "n_active": raw.get("num_experts_per_tok", 1),
        "d_expert": raw["intermediate_size"],
        "renormalise": False,
        "layers": layers,
        "scores": "sigmoid",
        "weighs": "input",
        "d_shared": raw["intermediate_size"],
    }
    sizes = {"head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, **raw}
    size = raw.get("attention_chunk_size", 8192)
    settings = gated_rms({**sizes, "intermediate_size": raw["intermediate_size_mlp"]})
    norm = "head" if raw.get("use_qk_norm", True) else "none"
    if norm == "head" and settings["rotary"].get("attention_factor", 1.0) != 1.0:
        raise Unsupported("config.json: norms behind a rotation that changes lengths are not supported")
    return {
        **settings,
        "experts": experts if layers else None,
        "chunks": tuple(size if kind == "chunked_attention" else None for kind in kinds),
        "layer_rotary": tuple(settings["rotary"] if yes else None for yes in rotated),
        "layer_qk_norm": tuple(norm if yes else "none" for yes in rotated),
        "query_scale": scale,
    }


def _llama4_weights(weights: State, config: Config) -> State:
    """Experts are stored input rows first; queries and keys rotate numbers that stand side by side."""
    state = {name.replace("feed_forward.", "mlp."): value for name, value in weights.items()}
    for name, value in list(state.items()):
        if re.search(r"mlp\.experts\.(gate_up|down)_proj$", name):
            state[name] = value.transpose(1, 2)
        elif (match := re.match(r"layers\.(\d+)\.self_attn\.[qk]_proj\.(weight|bias)$", name)) and config.rotary_of(
            int(match[1])
        ):
            state[name] = side_by_side_to_halves(value, config.d_head, config.d_head)
    for layer in range(config.n_layers):
        if config.qk_norm_of(layer) == "head":  # without weights
            ones = torch.ones(config.d_head)
            _add(state, {f"layers.{layer}.self_attn.{letter}_norm.weight": ones for letter in "qk"})
    return gather_experts(state, config)


LLAMA4 = Family(
    name="llama4",
    model_types=("llama4_text",),
    config=_llama4_config,
    outer=OUTER,
    inner={**BIASED, **QK_NORMS, "mlp.W_router": "mlp.router.weight", **shared_expert("shared_expert")},
    layer=LAYER,
    switches=SWITCHES,
    prepare=_llama4_weights,
    prefixes=PREFIXES,
)


# GPT-OSS: attention sinks, and experts with biases, limits and one added to a factor. Published weights of experts have
# four bits each and a power of two for every 32; bfloat16 holds their values exactly.

_DEFAULT_ROPE = {
    "rope_type": "yarn",
    "factor": 32.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _gpt_oss_config(raw: Raw) -> Raw:
    expect(raw, swiglu_alpha=1.702)
    n = raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or ["full_attention" if i % 2 else "sliding_attention" for i in range(n)]
    given = {"head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 150_000.0, **raw}
    if not (raw.get("rope_parameters") or raw.get("rope_scaling")):
        given["rope_parameters"] = _DEFAULT_ROPE
    experts = {
        **local_experts({"num_local_experts": raw.get("num_experts"), **given}),
        "biased": True,
        "limit": raw.get("swiglu_limit", 7.0),
        "offset": 1.0,
    }
    sliding = windows({"sliding_window": 128, **raw}, kinds)
    return gated_rms(given, activation="quick_gelu", windows=sliding, experts=experts, sinks=True)


def _gpt_oss_weights(weights: State, config: Config) -> State:
    """Rows of gates and of the other factor take turns; matrices are stored input rows first, or in four bits."""
    state = dict(weights)
    for layer in range(config.n_layers):
        mlp = f"layers.{layer}.mlp."
        experts = f"{mlp}experts."
        gate_up, down = (_four_bits(state, f"{experts}{part}_proj") for part in ("gate_up", "down"))
        bias = state.pop(f"{experts}gate_up_proj_bias")
        made = {
            f"{mlp}gate_proj.weight": gate_up[:, ::2],
            f"{mlp}up_proj.weight": gate_up[:, 1::2],
            f"{mlp}down_proj.weight": down,
            f"{mlp}gate_proj.bias": bias[:, ::2],
            f"{mlp}up_proj.bias": bias[:, 1::2],
            f"{mlp}down_proj.bias": state.pop(f"{experts}down_proj_bias"),
        }
        _add(state, made)
    return state


#: The values of four bits: a sign, two bits of exponent and one of mantissa.
_FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _four_bits(state: State, name: str) -> Tensor:
    """A matrix of every expert, `[expert, out, in]`, from its plain form or from blocks of 32 numbers in four bits."""
    if name in state:
        return state.pop(name).transpose(1, 2)
    blocks, scales = state.pop(f"{name}_blocks"), state.pop(f"{name}_scales")
    values = torch.tensor(_FOUR_BITS, dtype=torch.bfloat16)
    pairs = torch.stack([values[(blocks & 15).long()], values[(blocks >> 4).long()]], -1).flatten(-2)
    return torch.ldexp(pairs, scales.int()[..., None] - 127).to(torch.bfloat16).flatten(-2)


GPT_OSS = Family(
    name="gpt_oss",
    model_types=("gpt_oss",),
    config=_gpt_oss_config,
    outer=OUTER,
    inner={
        **BIASED,
        "attn.sinks": "self_attn.sinks",
        "mlp.W_router": "mlp.router.weight",
        "mlp.b_router": "mlp.router.bias",
        "mlp.b_gate": "mlp.gate_proj.bias",
        "mlp.b_in": "mlp.up_proj.bias",
        "mlp.b_out": "mlp.down_proj.bias",
    },
    layer=LAYER,
    switches={"attention_bias": (True, tuple(BIASES))},
    prepare=_gpt_oss_weights,
    prefixes=PREFIXES,
    quantised=("mxfp4",),
)
FAMILIES = (MIXTRAL, QWEN3_MOE, QWEN2_MOE, GLM4_MOE, LLAMA4, GPT_OSS)
