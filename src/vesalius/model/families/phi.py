"""Phi 1, 1.5 and 2: parallel blocks with one norm, part of each head rotated, biases everywhere."""

from vesalius.model.families.layout import Family, Raw, activation, expect, rotary, sizes, with_biases


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
        **with_biases({"ln_final": "final_layernorm", "unembed.U": "lm_head"}),
    },
    inner=with_biases(
        {
            "ln1": "input_layernorm",
            **{f"attn.{letter.upper()}": f"self_attn.{letter}_proj" for letter in "qkv"},
            "attn.O": "self_attn.dense",
            "mlp.in": "mlp.fc1",
            "mlp.out": "mlp.fc2",
        }
    ),
    layer="layers.{}.",
    prefixes=("model.",),
)
FAMILIES = (PHI,)
