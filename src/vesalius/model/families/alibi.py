"""BLOOM, MPT and Falcon: models with ALiBi positions, and Falcons with rotary ones."""

from vesalius.model.config import Config
from vesalius.model.families.layout import (
    Family,
    Raw,
    State,
    activation,
    bos,
    expect,
    rotary,
    split_groups,
    with_biases,
)

_LAYER, _PREFIXES = "h.{}.", ("transformer.",)
_FUSED = "h.{}.self_attention.query_key_value"
_OUTER = {
    "embed.W_E": "word_embeddings.weight",
    **with_biases({"ln_final": "ln_f"}),
    "unembed.W_U": "lm_head.weight",
}
_INNER = with_biases(
    {
        "ln1": "input_layernorm",
        "ln2": "post_attention_layernorm",
        **{f"attn.{letter.upper()}": f"self_attention.{letter}" for letter in "qkv"},
        "attn.O": "self_attention.dense",
        "mlp.in": "mlp.dense_h_to_4h",
        "mlp.out": "mlp.dense_4h_to_h",
    }
)


def _common(raw: Raw, *, n_layers: int, n_heads: int, d_model: int, d_mlp: int, n_ctx: int, **other: object) -> Raw:
    """Sizes and settings of a model with LayerNorms and plain MLPs."""
    return {
        "n_layers": n_layers,
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_model // n_heads,
        "d_mlp": d_mlp,
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": n_ctx,
        "bos_token": bos(raw),
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_epsilon", 1e-5),
        **other,
    }


def _bloom_config(raw: Raw) -> Raw:
    expect(raw, apply_residual_connection_post_layernorm=False)
    return _common(
        raw,
        n_layers=raw["n_layer"] if "n_layer" in raw else raw["num_hidden_layers"],
        n_heads=raw["n_head"] if "n_head" in raw else raw["num_attention_heads"],
        d_model=(d_model := raw.get("n_embed") or raw["hidden_size"]),
        d_mlp=4 * d_model,
        n_ctx=raw.get("seq_length") or 2048,
        activation="gelu_tanh",
        alibi={},
    )


BLOOM = Family(
    name="bloom",
    model_types=("bloom",),
    config=_bloom_config,
    outer={**_OUTER, **with_biases({"embed_norm": "word_embeddings_layernorm"})},
    inner=_INNER,
    layer=_LAYER,
    tied=True,
    prepare=lambda weights, config: split_groups(weights, config, _FUSED),
    prefixes=_PREFIXES,
)


def _mpt_config(raw: Raw) -> Raw:
    expect(raw, no_bias=True, expansion_ratio=4, logit_scale=None)
    attention, d_model = raw.get("attn_config") or {}, raw["d_model"]
    # transformers takes these for given, whatever a config says.
    expect(attention, attn_type="multihead_attention", alibi=True, alibi_bias_max=8, prefix_lm=False, qk_ln=False)
    return _common(
        raw,
        n_layers=raw["n_layers"],
        n_heads=raw["n_heads"],
        d_model=d_model,
        d_mlp=4 * d_model,
        n_ctx=raw.get("max_seq_len", 2048),
        activation="gelu",
        attn_scale=attention.get("softmax_scale"),
        clip_qkv=attention.get("clip_qkv") or None,
        alibi={},
    )


def _mpt_weights(weights: State, config: Config) -> State:
    """Rows of Wqkv are all queries, all keys, all values."""
    state = dict(weights)
    for layer in range(config.n_layers):
        start = f"blocks.{layer}.attn."
        rows = state.pop(f"{start}Wqkv.weight").chunk(3)
        state |= {f"{start}{part}.weight": x for part, x in zip("qkv", rows, strict=True)}
    return state


MPT = Family(
    name="mpt",
    model_types=("mpt",),
    config=_mpt_config,
    outer={"embed.W_E": "wte.weight", "ln_final.w": "norm_f.weight", "unembed.W_U": "lm_head.weight"},
    inner={
        "ln1.w": "norm_1.weight",
        "ln2.w": "norm_2.weight",
        **{f"attn.W_{letter.upper()}": f"attn.{letter}.weight" for letter in "qkv"},
        "attn.W_O": "attn.out_proj.weight",
        "mlp.W_in": "ffn.up_proj.weight",
        "mlp.W_out": "ffn.down_proj.weight",
    },
    layer="blocks.{}.",
    tied=True,
    prepare=_mpt_weights,
    prefixes=_PREFIXES,
)


def _falcon_config(raw: Raw) -> Raw:
    """Falcon 40B and 180B have groups of queries and two norms (11B: one); 7B has one key and value for all heads; the
    RefinedWeb models have ALiBi positions and no groups.
    """
    new, n_heads, d_model = bool(raw.get("new_decoder_architecture")), raw["num_attention_heads"], raw["hidden_size"]
    if new:
        groups = raw.get("num_kv_heads") or n_heads
        block = "parallel" if (raw.get("num_ln_in_parallel_attn") or 2) == 2 else "parallel_one_norm"
    else:
        groups = 1 if raw.get("multi_query", True) else n_heads
        block = "parallel_one_norm" if raw.get("parallel_attn", True) else "sequential"
    positions: Raw = {"rotary": rotary(raw, d_head=d_model // n_heads)}
    if raw.get("alibi"):
        positions = {"alibi": {"scaled": True, "rounded": True}}
    return _common(
        raw,
        n_layers=raw["num_hidden_layers"],
        n_heads=n_heads,
        n_kv_heads=groups,
        d_model=d_model,
        d_mlp=raw.get("ffn_hidden_size") or 4 * d_model,
        n_ctx=raw.get("max_position_embeddings", 2048),
        activation=activation(raw, "activation", default="gelu"),
        block=block,
        **positions,
    )


def _falcon_weights(weights: State, config: Config) -> State:
    names = {".ln_attn.": ".input_layernorm.", ".ln_mlp.": ".post_attention_layernorm."}
    state = {}
    for name, value in weights.items():
        for theirs, common in names.items():
            name = name.replace(theirs, common)
        state[name] = value
    return split_groups(state, config, _FUSED)


FALCON = Family(
    name="falcon",
    model_types=("falcon",),
    config=_falcon_config,
    outer=_OUTER,
    inner=_INNER,
    layer=_LAYER,
    tied=True,
    switches={"bias": (False, tuple(ours for ours in _INNER if ".b_" in ours))},
    prepare=_falcon_weights,
    prefixes=_PREFIXES,
)
FAMILIES = (BLOOM, MPT, FALCON)
