"""Families of models: how the checkpoint of each becomes our transformer.

`family` finds the reader of a config. Every family here is held to the logits of transformers' own module in
`tests/model/test_families.py`; what would not be exact is `Unsupported`: transformers' module may be wrapped instead.
"""

from vesalius.errors import BadInput, quoted
from vesalius.model.families import alibi, deepseek, experts, gemma, glm, gpt, granite, layer_normed, llama, olmo, phi
from vesalius.model.families.layout import Family, Raw, Unsupported

FAMILIES: tuple[Family, ...] = (
    *gpt.FAMILIES,
    *llama.FAMILIES,
    *experts.FAMILIES,
    *layer_normed.FAMILIES,
    *gemma.FAMILIES,
    *phi.FAMILIES,
    *olmo.FAMILIES,
    *granite.FAMILIES,
    *glm.FAMILIES,
    *alibi.FAMILIES,
    *deepseek.FAMILIES,
)
_BY_TYPE = {model_type: family for family in FAMILIES for model_type in family.model_types}

#: Well-known model types that our transformer does not compute, and what stands in the way.
REFUSED = {
    "gemma3": "image inputs; use the text model (model_type gemma3_text)",
    "gemma3n": "per-layer embeddings and alternating updates",
    "gemma4": "per-layer head sizes and shared keys",
    "qwen2_vl": "multimodal rotary positions (mrope)",
    "qwen2_5_vl": "multimodal rotary positions (mrope)",
    "qwen3_vl": "multimodal rotary positions (mrope)",
    "qwen3_next": "linear attention",
    "qwen3_5": "linear attention",
    "qwen3_5_text": "linear attention",
    "gemma3n_text": "per-layer embeddings and alternating updates",
    "gemma4_text": "per-layer head sizes and shared keys",
    "rwkv": "no attention",
    "mamba": "no attention",
    "mamba2": "no attention",
    "jamba": "state-space layers",
}
ENCODERS = ("bert", "t5")


def family(raw: Raw, *, where: str) -> Family:
    """The family of a parsed config.json."""
    kind = raw.get("model_type")
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind]
    refused = f"{where}: model_type {quoted(kind, 60)} is not supported"
    instead = f"use one of {', '.join(_BY_TYPE)}"
    if kind in ENCODERS:  # which no wrapping makes a decoder
        raise BadInput(f"{refused} (an encoder); {instead}")
    known = REFUSED.get(kind) if isinstance(kind, str) else None
    shown = f" ({known})" if known else ""
    raise Unsupported(f"{refused}{shown}; {instead}", known or "no family of this model_type")


__all__ = ["FAMILIES", "REFUSED", "Family", "Unsupported", "family"]
