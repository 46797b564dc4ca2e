"""Rotary settings of Hugging Face configs: `rope_parameters` of version 5, `rope_theta` and `rope_scaling` before."""

import math
from typing import Any

from vesalius.errors import BadInput
from vesalius.model.families.layout import Raw

KINDS = ("default", "linear", "llama3", "yarn", "longrope", "dynamic")


def rotary(raw: Raw, *, d_head: int, base: float = 10_000.0, share: float | None = None) -> Raw:
    """The rotation of all layers; `share` is the default of `partial_rotary_factor` where the family has one."""
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    return rotary_of(rope, raw, d_head=d_head, base=base, share=share)


def rotary_of(rope: Raw, raw: Raw, *, d_head: int, base: float = 10_000.0, share: float | None = None) -> Raw:
    """A rotation from one dictionary of rope settings, with what the rest of the config says where it is silent."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in KINDS:
        raise BadInput(f"config.json: rope scaling {kind!r} is not supported; use one of {', '.join(KINDS)}")
    settings: Raw = {"base": rope.get("rope_theta") or raw.get("rope_theta") or base}
    if share is not None:
        part = rope.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or share
        settings |= {} if part == 1 else {"d_rotary": int(d_head * part)}
    if kind != "default":
        if missing := [name for name in _NEEDED[kind] if name not in rope]:
            raise BadInput(f"config.json: rope scaling {kind!r} needs the field {missing[0]!r}; it is missing")
        settings |= {"scaling": kind, **_SCALINGS[kind](rope, raw)}
    return settings


def by_layer_type(raw: Raw, layer_types: list[str], *, d_head: int, bases: dict[str, float]) -> Raw:
    """Rotations of a family in which sliding layers have their own. Older configs give the scaling of full layers in
    `rope_scaling`, their base in `rope_theta` and that of sliding layers in `rope_local_base_freq`.
    """
    nested = raw.get("rope_parameters") or {}
    rotations = {}
    for kind in ("full_attention", "sliding_attention"):
        rope = dict(nested.get(kind) or {})
        if kind == "full_attention":
            rope = {**(raw.get("rope_scaling") or {}), "rope_theta": raw.get("rope_theta") or bases[kind], **rope}
        else:
            local = raw.get("rope_local_base_freq") or (raw.get("rope_theta") if "local" not in bases else None)
            rope = {"rope_theta": local or bases[kind], **rope}
        rope["truncate"] = nested.get("truncate", True)  # transformers looks for it here, not in the layer type's own
        rotations[kind] = rotary_of(rope, raw, d_head=d_head)
    return {
        "rotary": rotations["full_attention"],
        "layer_rotary": tuple(rotations[kind] for kind in layer_types),
    }


def _linear(rope: Raw, raw: Raw) -> Raw:
    return {"factor": rope["factor"]}


def _dynamic(rope: Raw, raw: Raw) -> Raw:
    return {"factor": rope["factor"], "original_n_ctx": raw["max_position_embeddings"]}


def _llama3(rope: Raw, raw: Raw) -> Raw:
    return {
        "factor": rope["factor"],
        "low_freq_factor": rope["low_freq_factor"],
        "high_freq_factor": rope["high_freq_factor"],
        "original_n_ctx": _original(rope, raw),
    }


def _yarn(rope: Raw, raw: Raw) -> Raw:
    original = _original(rope, raw)
    factor = rope.get("factor") or raw["max_position_embeddings"] / original
    attention = rope.get("attention_factor")
    if attention is None:
        mscale, of_all = rope.get("mscale"), rope.get("mscale_all_dim")
        attention = _mscale(factor, mscale) / _mscale(factor, of_all) if mscale and of_all else _mscale(factor)
    return {
        "factor": factor,
        "attention_factor": attention,
        "beta_fast": rope.get("beta_fast") or 32.0,
        "beta_slow": rope.get("beta_slow") or 1.0,
        "truncate": rope.get("truncate", True),
        "original_n_ctx": original,
    }


def _longrope(rope: Raw, raw: Raw) -> Raw:
    original = _original(rope, raw)
    factor = rope.get("factor") or raw["max_position_embeddings"] / original
    attention = rope.get("attention_factor")
    if attention is None:
        attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    return {
        "attention_factor": attention,
        "short_factors": tuple(rope["short_factor"]),
        "long_factors": tuple(rope["long_factor"]),
        "original_n_ctx": original,
    }


def _mscale(factor: float, mscale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _original(rope: Raw, raw: Raw) -> Any:
    """The context before scaling; Phi-3 gives it outside of the rope settings."""
    return (
        raw.get("original_max_position_embeddings")
        or rope.get("original_max_position_embeddings")
        or raw["max_position_embeddings"]
    )


#: Fields without which transformers does not compute a scaling; `factor` of yarn may be null, but must be there.
_NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}
_SCALINGS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope, "dynamic": _dynamic}
