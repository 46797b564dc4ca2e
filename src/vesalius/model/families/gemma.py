"""Gemma, Gemma 2 and the text part of Gemma 3. Norm weights are stored less 1; embeddings are scaled."""

from dataclasses import replace

from vesalius.model.families.layout import Family, Raw, activation, by_layer_type, expect
from vesalius.model.families.llama import BIASED, LAYER, OUTER, PREFIXES, QK_NORMS, SWITCHES, gated_rms, windows


def _gemma_settings(raw: Raw, **other: object) -> Raw:
    expect(
        {**raw, "use_bidirectional_attention": bool(raw.get("use_bidirectional_attention"))},
        use_bidirectional_attention=False,
    )
    kind = activation(raw, "hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    # Gemma's first configs said "gelu"; the model was always the tanh approximation.
    return gated_rms(
        {"head_dim": 256, **raw, "hidden_act": "gelu_pytorch_tanh"},
        activation="gelu_tanh" if kind == "gelu" else kind,
        embed_scale=raw["hidden_size"] ** 0.5,
        **other,
    )


def _capped(raw: Raw) -> Raw:
    return {
        "norm_at": "both",
        "attn_scale": raw.get("query_pre_attn_scalar", 256) ** -0.5,
        "attn_softcap": raw.get("attn_logit_softcapping"),
        "final_softcap": raw.get("final_logit_softcapping"),
    }


def _gemma2_config(raw: Raw) -> Raw:
    n = raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or ["full_attention" if i % 2 else "sliding_attention" for i in range(n)]
    caps = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return _gemma_settings(raw, **_capped({**caps, **raw}), windows=windows({"sliding_window": 4096, **raw}, kinds))


def _gemma3_config(raw: Raw) -> Raw:
    # transformers reads this field and never applies it: which of the two a config means cannot be known.
    expect(raw, attn_logit_softcapping=None)
    n, pattern = raw["num_hidden_layers"], raw.get("sliding_window_pattern") or raw.get("_sliding_window_pattern") or 6
    kinds = raw.get("layer_types") or ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(n)]
    settings = _gemma_settings(
        {**raw, "rope_parameters": None, "rope_scaling": None},
        **_capped(raw),
        qk_norm="head",
        windows=windows({"sliding_window": 4096, **raw}, kinds),
    )
    bases = {"full_attention": 1_000_000.0, "sliding_attention": 10_000.0, "local": 10_000.0}
    return {**settings, **by_layer_type(raw, kinds, d_head=settings["d_head"], bases=bases)}


_NORMS = {
    "ln1.w": "input_layernorm.weight",
    "ln1_post.w": "post_attention_layernorm.weight",
    "ln2.w": "pre_feedforward_layernorm.weight",
    "ln2_post.w": "post_feedforward_layernorm.weight",
}
GEMMA = Family(
    name="gemma",
    model_types=("gemma",),
    config=_gemma_settings,
    outer=OUTER,
    inner=BIASED,
    layer=LAYER,
    norm_offset=1.0,
    tied=True,
    switches=SWITCHES,
    prefixes=PREFIXES,
)
GEMMA2 = replace(GEMMA, name="gemma2", model_types=("gemma2",), config=_gemma2_config, inner={**BIASED, **_NORMS})
GEMMA3 = replace(
    GEMMA, name="gemma3", model_types=("gemma3_text",), config=_gemma3_config, inner={**GEMMA2.inner, **QK_NORMS}
)
FAMILIES = (GEMMA, GEMMA2, GEMMA3)
