"""DeepSeek V2 and V3: latent attention, and experts behind the first layers.

Published heads have the numbers that rotate last and rotate neighbours; here they come first, in halves, which changes
no score.
"""

import torch
from torch import Tensor

from vesalius.model.config import Config
from vesalius.model.families.experts import CORRECTION, ROUTER, gather_experts, routed_experts, shared_expert
from vesalius.model.families.layout import (
    Family,
    Raw,
    State,
    Unsupported,
    expect,
    mscale,
    rotary,
    side_by_side_to_halves,
)
from vesalius.model.families.llama import LAYER, MLP, OUTER, PRE_NORMS, PREFIXES, gated_rms


def _latent_config(raw: Raw, experts: Raw | None) -> Raw:
    n_heads, d_rotary = raw["num_attention_heads"], raw["qk_rope_head_dim"]
    d_head = d_rotary + raw["qk_nope_head_dim"]
    expect({**raw, "num_key_value_heads": raw.get("num_key_value_heads") or n_heads}, num_key_value_heads=n_heads)
    rotation, scale = rotary(raw, d_head=d_rotary), None
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    if "factor" in rotation and (strength := rope.get("mscale_all_dim")):
        scale = d_head**-0.5 * mscale(rotation["factor"], strength) ** 2
    latent = {
        "d_latent": raw["kv_lora_rank"],
        "d_query": raw.get("q_lora_rank") or 0,
        "d_value": raw["v_head_dim"],
    }
    return {
        **gated_rms({**raw, "head_dim": d_rotary}),
        "n_kv_heads": n_heads,
        "d_head": d_head,
        "rotary": {**rotation, "d_rotary": d_rotary},
        "attn_scale": scale,
        "latent": latent,
        "experts": experts,
    }


def _v3_config(raw: Raw) -> Raw:
    expect(raw, rope_interleave=True)
    published = {"first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4}
    return _latent_config(raw, routed_experts({**published, **raw}))


def _v2_config(raw: Raw) -> Raw:
    method = raw.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise Unsupported(f"config.json: topk_method {method!r} is not supported; use greedy or group_limited_greedy")
    of_all = {"n_group": 1, "topk_group": 1} if method == "greedy" else {}
    given = {"first_k_dense_replace": 0, "n_shared_experts": 2, **raw, **of_all}
    # A group is as good as its best expert. transformers does not scale weights to sum to 1, whatever a config says.
    experts = routed_experts(given, scores="softmax", renormalise=False, corrected=False, group_by=1)
    return _latent_config(raw, experts)


def _latent_weights(weights: State, config: Config) -> State:
    """Stored rows of a head are its unrotated key (or query), then what rotates; and its key, then its value."""
    assert config.latent is not None
    assert config.rotary is not None
    assert config.rotary.d_rotary is not None
    state, d_rotary = gather_experts(dict(weights), config), config.rotary.d_rotary
    plain = config.d_head - d_rotary

    def in_halves(rows: Tensor) -> Tensor:
        by_head = rows.view(config.n_heads, config.d_head, -1)
        turned = torch.cat([by_head[:, plain:], by_head[:, :plain]], 1)
        return side_by_side_to_halves(turned.reshape(rows.shape), config.d_head, d_rotary)

    for layer in range(config.n_layers):
        start = f"layers.{layer}.self_attn."
        queries = f"{start}{'q_b_proj' if config.latent.d_query else 'q_proj'}.weight"
        state[queries] = in_halves(state[queries])
        for kind in ("weight", "bias"):
            if (down := f"{start}kv_a_proj_with_mqa.{kind}") in state or kind == "weight":
                latent, shared = state.pop(down).split((config.latent.d_latent, d_rotary))
                state[f"{start}kv_down.{kind}"] = latent
                state[f"{start}k_rotated.{kind}"] = side_by_side_to_halves(shared, d_rotary, d_rotary)
        up = state.pop(f"{start}kv_b_proj.weight").view(config.n_heads, plain + config.d_value, -1)
        state[f"{start}k_up.weight"] = up[:, :plain].flatten(0, 1)
        state[f"{start}v_up.weight"] = up[:, plain:].flatten(0, 1)
    return state


_INNER = {
    **PRE_NORMS,
    **MLP,
    **ROUTER,
    **shared_expert("shared_experts"),
    "attn.W_Q": "self_attn.q_proj.weight",
    "attn.W_DQ": "self_attn.q_a_proj.weight",
    "attn.b_DQ": "self_attn.q_a_proj.bias",
    "attn.q_latent_norm.w": "self_attn.q_a_layernorm.weight",
    "attn.W_UQ": "self_attn.q_b_proj.weight",
    "attn.W_DKV": "self_attn.kv_down.weight",
    "attn.b_DKV": "self_attn.kv_down.bias",
    "attn.latent_norm.w": "self_attn.kv_a_layernorm.weight",
    "attn.W_KR": "self_attn.k_rotated.weight",
    "attn.b_KR": "self_attn.k_rotated.bias",
    "attn.W_UK": "self_attn.k_up.weight",
    "attn.W_UV": "self_attn.v_up.weight",
    "attn.W_O": "self_attn.o_proj.weight",
    "attn.b_O": "self_attn.o_proj.bias",
}
_SWITCHES = {"attention_bias": (False, ("attn.b_DQ", "attn.b_DKV", "attn.b_KR", "attn.b_O"))}
DEEPSEEK2 = Family(
    name="deepseek_v2",
    model_types=("deepseek_v2",),
    config=_v2_config,
    outer=OUTER,
    inner=_INNER,
    layer=LAYER,
    switches=_SWITCHES,
    prepare=_latent_weights,
    prefixes=PREFIXES,
)
DEEPSEEK3 = Family(
    name="deepseek_v3",
    model_types=("deepseek_v3",),
    config=_v3_config,
    outer=OUTER,
    inner={**_INNER, **CORRECTION},
    layer=LAYER,
    switches=_SWITCHES,
    prepare=_latent_weights,
    prefixes=PREFIXES,
)
FAMILIES = (DEEPSEEK2, DEEPSEEK3)
