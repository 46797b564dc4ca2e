"""OLMo, OLMo 2, OLMo 3 and OLMoE. The first has norms without weights, the next two norms after what a layer writes."""

from dataclasses import replace

import torch

from vesalius.errors import BadInput
from vesalius.model.config import Config
from vesalius.model.families.experts import MIXTRAL
from vesalius.model.families.layout import Family, Raw, State, by_layer_type, expect
from vesalius.model.families.llama import (
    ATTENTION,
    BIASED,
    BIASES,
    LAYER,
    MLP,
    OUTER,
    PREFIXES,
    QK_NORMS,
    SWITCHES,
    gated_rms,
    windows,
)


def _plain_norms(weights: State, config: Config) -> State:
    names = [f"layers.{layer}.{norm}.weight" for layer in range(config.n_layers) for norm in _NORMS] + ["norm.weight"]
    if stored := sorted(set(names) & set(weights)):
        raise BadInput(f"weight {stored[0]!r} has no place in an olmo model: its norms have no weights")
    return {**weights, **dict.fromkeys(names, torch.ones(config.d_model))}


_NORMS = ("input_layernorm", "post_attention_layernorm")
OLMO = Family(
    name="olmo",
    model_types=("olmo",),
    config=lambda raw: gated_rms(raw, norm="layer", norm_eps=1e-5, clip_qkv=raw.get("clip_qkv")),
    outer=OUTER,
    inner=BIASED,
    layer=LAYER,
    switches=SWITCHES,
    prepare=_plain_norms,
    prefixes=PREFIXES,
)
_POST_NORMED = {
    **ATTENTION,
    **BIASES,
    **MLP,
    **QK_NORMS,
    "ln1_post.w": "post_attention_layernorm.weight",
    "ln2_post.w": "post_feedforward_layernorm.weight",
}
OLMO2 = Family(
    name="olmo2",
    model_types=("olmo2",),
    config=lambda raw: gated_rms({"rms_norm_eps": 1e-5, **raw}, norm_at="output", qk_norm="all"),
    outer=OUTER,
    inner=_POST_NORMED,
    layer=LAYER,
    switches=SWITCHES,
    prefixes=PREFIXES,
)


def _olmo3_config(raw: Raw) -> Raw:
    n = raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or ["sliding_attention" if (i + 1) % 4 else "full_attention" for i in range(n)]
    settings = gated_rms(
        {"rms_norm_eps": 1e-5, **raw, "rope_parameters": None, "rope_scaling": None},
        norm_at="output",
        qk_norm="all",
        windows=windows({"sliding_window": 4096, **raw}, kinds),
    )
    bases = {"full_attention": 500_000.0, "sliding_attention": 500_000.0}
    return {**settings, **by_layer_type(raw, kinds, d_head=settings["d_head"], bases=bases)}


OLMO3 = Family(
    name="olmo3",
    model_types=("olmo3",),
    config=_olmo3_config,
    outer=OUTER,
    inner=_POST_NORMED,
    layer=LAYER,
    switches=SWITCHES,
    prefixes=PREFIXES,
)


def _olmoe_config(raw: Raw) -> Raw:
    expect(raw, clip_qkv=None)
    experts = {
        "n_experts": raw.get("num_experts", 64),
        "n_active": raw.get("num_experts_per_tok", 8),
        "d_expert": raw["intermediate_size"],
        "renormalise": bool(raw.get("norm_topk_prob", False)),
        "layers": tuple(range(raw["num_hidden_layers"])),
    }
    return gated_rms({"rms_norm_eps": 1e-5, **raw}, qk_norm="all", experts=experts)


OLMOE = replace(
    MIXTRAL,
    name="olmoe",
    model_types=("olmoe",),
    config=_olmoe_config,
    inner={**MIXTRAL.inner, **BIASES, **QK_NORMS},
    switches=SWITCHES,
)
FAMILIES = (OLMO, OLMO2, OLMO3, OLMOE)
