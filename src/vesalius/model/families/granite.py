"""Granite and Granite MoE: Llama or Mixtral with factors on the embedding, the scores, what layers write and logits.

The factors on what layers write and on the logits are put on the weights: the residual stream is the same.
"""

from dataclasses import replace

from vesalius.model.config import Config
from vesalius.model.families.experts import gather_experts, local_experts
from vesalius.model.families.layout import Family, Raw, State
from vesalius.model.families.llama import BIASED, LLAMA, gated_rms


def _config(raw: Raw, **other: object) -> Raw:
    return gated_rms(
        raw,
        embed_scale=raw.get("embedding_multiplier", 1.0),
        attn_scale=raw.get("attention_multiplier", 1.0),
        **other,
    )


#: What files call the experts of all layers; in memory they are named as Mixtral's.
_STORED = {"input_linear.weight": "experts.gate_up_proj", "output_linear.weight": "experts.down_proj"}


def _gathered(weights: State, config: Config) -> State:
    state = {}
    for name, value in weights.items():
        start, _, part = name.partition("block_sparse_moe.")
        part = _STORED.get(part, part.replace("router.layer.", "router."))
        state[f"{start}mlp.{part}" if part else name] = value
    return gather_experts(state, config)


def _factors(raw: Raw) -> dict[str, float]:
    written = raw.get("residual_multiplier", 1.0)
    return {
        **dict.fromkeys(("attn.W_O", "attn.b_O", "mlp.W_out"), written),
        "unembed.W_U": 1.0 / raw.get("logits_scaling", 1.0),
    }


GRANITE: Family = replace(LLAMA, name="granite", model_types=("granite",), config=_config, factors=_factors)
GRANITE_MOE: Family = replace(
    GRANITE,
    name="granitemoe",
    model_types=("granitemoe",),
    config=lambda raw: _config(raw, experts=local_experts(raw)),
    inner={**BIASED, "mlp.W_router": "mlp.router.weight"},
    prepare=_gathered,
)
FAMILIES = (GRANITE, GRANITE_MOE)
