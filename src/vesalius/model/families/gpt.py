"""GPT-2, GPT-Neo, GPT-NeoX (Pythia), GPT-J and OPT."""

from vesalius.model.config import Config
from vesalius.model.families.layout import (
    Family,
    Raw,
    State,
    activation,
    bos,
    expect,
    rotary,
    side_by_side_to_halves,
    sizes,
    split_groups,
    with_biases,
)

_GPT_INNER = with_biases({"ln1": "ln_1", "ln2": "ln_2", "mlp.in": "mlp.c_fc", "mlp.out": "mlp.c_proj"})
_GPT_OUTER = {
    "embed.W_E": "wte.weight",
    "pos_embed.W_pos": "wpe.weight",
    **with_biases({"ln_final": "ln_f"}),
    "unembed.W_U": "lm_head.weight",
}


def _gpt2_config(raw: Raw) -> Raw:
    expect(raw, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    d_model, n_heads = raw["n_embd"], raw["n_head"]
    return {
        "n_layers": raw["n_layer"],
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_model // n_heads,
        "d_mlp": raw.get("n_inner") or 4 * d_model,
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw.get("n_positions", 1024),
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_epsilon", 1e-5),
        "activation": activation(raw, "activation_function", default="gelu_new"),
        "attn_scale": None if raw.get("scale_attn_weights", True) else 1.0,
        "bos_token": bos(raw),
    }


def _split_gpt2(weights: State, config: Config) -> State:
    """Columns of c_attn are q, k, v laid side by side."""
    state = dict(weights)
    for layer in range(config.n_layers):
        name = f"h.{layer}.attn."
        matrices, biases = state.pop(name + "c_attn.weight").chunk(3, 1), state.pop(name + "c_attn.bias").chunk(3)
        for letter, matrix, bias in zip("qkv", matrices, biases, strict=True):
            state[f"{name}{letter}.weight"], state[f"{name}{letter}.bias"] = matrix, bias
    return state


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    config=_gpt2_config,
    outer=_GPT_OUTER,
    inner={
        **_GPT_INNER,
        **with_biases({**{f"attn.{letter.upper()}": f"attn.{letter}" for letter in "qkv"}, "attn.O": "attn.c_proj"}),
    },
    layer="h.{}.",
    input_major=True,
    tied=True,
    prepare=_split_gpt2,
    prefixes=("transformer.",),
)


def _neo_config(raw: Raw) -> Raw:
    d_model, n_heads = raw["hidden_size"], raw["num_heads"]
    kinds = raw.get("attention_layers") or [k for kinds, n in raw["attention_types"] for _ in range(n) for k in kinds]
    return {
        "n_layers": raw["num_layers"],
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_model // n_heads,
        "d_mlp": raw.get("intermediate_size") or 4 * d_model,
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw["max_position_embeddings"],
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_epsilon", 1e-5),
        "activation": activation(raw, "activation_function", default="gelu_new"),
        "attn_scale": 1.0,
        "windows": tuple(raw.get("window_size", 256) if kind == "local" else None for kind in kinds),
        "bos_token": bos(raw),
    }


GPT_NEO = Family(
    name="gpt_neo",
    model_types=("gpt_neo",),
    config=_neo_config,
    outer=_GPT_OUTER,
    inner={
        **_GPT_INNER,
        **{f"attn.W_{letter.upper()}": f"attn.attention.{letter}_proj.weight" for letter in "qkv"},
        **with_biases({"attn.O": "attn.attention.out_proj"}),
    },
    layer="h.{}.",
    tied=True,
    prefixes=("transformer.",),
)


def _neox_config(raw: Raw) -> Raw:
    rope = {**raw, "rope_theta": raw.get("rope_theta") or raw.get("rotary_emb_base")}
    shared = sizes({**raw, "num_key_value_heads": None, "head_dim": None})
    return {
        **shared,
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_eps", 1e-5),
        "rotary": rotary(rope, d_head=shared["d_head"], share=raw.get("rotary_pct", 0.25)),
        "activation": activation(raw, "hidden_act", default="gelu"),
        "block": "parallel" if raw.get("use_parallel_residual", True) else "sequential",
    }


def _split_neox(weights: State, config: Config) -> State:
    """Rows of query_key_value are, head by head, its q, k and v; the unembedding has two names."""
    state = dict(weights)
    if "embed_out.weight" in state:
        state["lm_head.weight"] = state.pop("embed_out.weight")
    return split_groups(state, config, "layers.{}.attention.query_key_value")


GPT_NEOX = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    config=_neox_config,
    outer={
        "embed.W_E": "embed_in.weight",
        **with_biases({"ln_final": "final_layer_norm"}),
        "unembed.W_U": "lm_head.weight",
    },
    inner=with_biases(
        {
            "ln1": "input_layernorm",
            "ln2": "post_attention_layernorm",
            **{f"attn.{letter.upper()}": f"attention.{letter}" for letter in "qkv"},
            "attn.O": "attention.dense",
            "mlp.in": "mlp.dense_h_to_4h",
            "mlp.out": "mlp.dense_4h_to_h",
        }
    ),
    layer="layers.{}.",
    switches={"attention_bias": (True, ("attn.b_Q", "attn.b_K", "attn.b_V", "attn.b_O"))},
    prepare=_split_neox,
    prefixes=("gpt_neox.",),
)


def _gptj_config(raw: Raw) -> Raw:
    d_model, n_heads = raw["n_embd"], raw["n_head"]
    d_head = d_model // n_heads
    return {
        "n_layers": raw["n_layer"],
        "n_heads": n_heads,
        "d_model": d_model,
        "d_head": d_head,
        "d_mlp": raw.get("n_inner") or 4 * d_model,
        "d_vocab": raw["vocab_size"],
        "d_vocab_out": raw["vocab_size"],
        "n_ctx": raw["n_positions"],
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_epsilon", 1e-5),
        "rotary": {"base": 10_000.0, "d_rotary": raw.get("rotary_dim") or d_head},
        "activation": activation(raw, "activation_function", default="gelu_new"),
        "block": "parallel_one_norm",
        "bos_token": bos(raw),
    }


def _untangle_gptj(weights: State, config: Config) -> State:
    assert config.rotary is not None
    state, d_rotary = dict(weights), config.rotary.d_rotary or config.d_head
    for layer in range(config.n_layers):
        for letter in "qk":
            name = f"h.{layer}.attn.{letter}_proj.weight"
            state[name] = side_by_side_to_halves(state[name], config.d_head, d_rotary)
    return state


GPTJ = Family(
    name="gptj",
    model_types=("gptj",),
    config=_gptj_config,
    outer={
        **{ours: theirs for ours, theirs in _GPT_OUTER.items() if ours != "pos_embed.W_pos"},
        "unembed.b_U": "lm_head.bias",
    },
    inner={
        **with_biases({"ln1": "ln_1", "mlp.in": "mlp.fc_in", "mlp.out": "mlp.fc_out"}),
        **{f"attn.W_{letter.upper()}": f"attn.{letter}_proj.weight" for letter in "qkv"},
        "attn.W_O": "attn.out_proj.weight",
    },
    layer="h.{}.",
    prepare=_untangle_gptj,
    prefixes=("transformer.",),
)


def _opt_config(raw: Raw) -> Raw:
    expect(
        raw,
        do_layer_norm_before=True,
        _remove_final_layer_norm=False,
        layer_norm_elementwise_affine=True,
        word_embed_proj_dim=raw["hidden_size"],
    )
    return sizes(
        {**raw, "intermediate_size": raw["ffn_dim"], "num_key_value_heads": None, "head_dim": None},
        norm="layer",
        activation=activation(raw, "activation_function", default="relu"),
    )


_OPT_BIASES = (("attn", ("Q", "K", "V", "O")), ("mlp", ("in", "out")))
OPT = Family(
    name="opt",
    model_types=("opt",),
    config=_opt_config,
    outer={
        "embed.W_E": "embed_tokens.weight",
        "pos_embed.W_pos": "embed_positions.weight",
        **with_biases({"ln_final": "final_layer_norm"}),
        "unembed.W_U": "lm_head.weight",
    },
    inner=with_biases(
        {
            "ln1": "self_attn_layer_norm",
            "ln2": "final_layer_norm",
            **{f"attn.{letter.upper()}": f"self_attn.{letter}_proj" for letter in "qkv"},
            "attn.O": "self_attn.out_proj",
            "mlp.in": "fc1",
            "mlp.out": "fc2",
        }
    ),
    layer="layers.{}.",
    first_position=2,
    tied=True,
    switches={"enable_bias": (True, tuple(f"{part}.b_{x}" for part, xs in _OPT_BIASES for x in xs))},
    prefixes=("model.", "decoder."),
)
FAMILIES = (GPT2, GPT_NEO, GPT_NEOX, GPTJ, OPT)
