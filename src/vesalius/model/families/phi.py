"""Phi 1, 1.5 and 2: parallel blocks with one norm, part of each head rotated, biases everywhere."""

from vesalius.model.families.layout import Family, Raw, activation, expect, rotary, sizes


def _phi_config(raw: Raw) -> Raw:
    expect(raw, qk_layernorm=False)
    shared = sizes(raw)
    return {
        **shared,
        "norm": "layer",
        "norm_eps": raw.get("layer_norm_eps", 1e-5),
        "rotary": rotary(raw, d_head=shared["d_head"], share=0.5),
        "activation": activation(raw, "hidden_act", default="gelu_new"),
        "block": "parallel_one_norm",
    }


PHI = Family(
    name="phi",
    model_types=("phi",),
    config=_phi_config,
    outer={
        "embed.W_E": "embed_tokens.weight",
        "ln_final.w": "final_layernorm.weight",
        "ln_final.b": "final_layernorm.bias",
        "unembed.W_U": "lm_head.weight",
        "unembed.b_U": "lm_head.bias",
    },
    inner={
        "ln1.w": "input_layernorm.weight",
        "ln1.b": "input_layernorm.bias",
        **{f"attn.W_{letter.upper()}": f"self_attn.{letter}_proj.weight" for letter in "qkv"},
        **{f"attn.b_{letter.upper()}": f"self_attn.{letter}_proj.bias" for letter in "qkv"},
        "attn.W_O": "self_attn.dense.weight",
        "attn.b_O": "self_attn.dense.bias",
        "mlp.W_in": "mlp.fc1.weight",
        "mlp.b_in": "mlp.fc1.bias",
        "mlp.W_out": "mlp.fc2.weight",
        "mlp.b_out": "mlp.fc2.bias",
    },
    layer="layers.{}.",
    prefixes=("model.",),
)
FAMILIES = (PHI,)
