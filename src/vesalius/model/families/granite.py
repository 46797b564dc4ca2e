"""Granite: Llama with factors on the embedding, the scores, what layers write and the logits.

The factors on what layers write and on the logits are put on the weights: the residual stream is the same.
"""

from dataclasses import replace

from vesalius.model.families.layout import Family, Raw
from vesalius.model.families.llama import LLAMA, gated_rms


def _config(raw: Raw) -> Raw:
    return gated_rms(
        raw,
        embed_scale=raw.get("embedding_multiplier", 1.0),
        attn_scale=raw.get("attention_multiplier", 1.0),
    )


def _factors(raw: Raw) -> dict[str, float]:
    written = raw.get("residual_multiplier", 1.0)
    return {
        **dict.fromkeys(("attn.W_O", "attn.b_O", "mlp.W_out"), written),
        "unembed.W_U": 1.0 / raw.get("logits_scaling", 1.0),
    }


GRANITE: Family = replace(LLAMA, name="granite", model_types=("granite",), config=_config, factors=_factors)
FAMILIES = (GRANITE,)
