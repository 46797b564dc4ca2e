"""GLM and GLM-4: half of each head rotated, neighbours together; fused gates. GLM-4 has norms on both sides."""

import re
from dataclasses import replace

from vesalius.model.config import Config
from vesalius.model.families.layout import Family, Raw, State, rotary, side_by_side_to_halves
from vesalius.model.families.llama import INPUT_BIASES, INPUTS_BIASED, LAYER, OUTER, PREFIXES, gated_rms

_SIDES = {
    "ln1_post.w": "post_self_attn_layernorm.weight",
    "ln2_post.w": "post_mlp_layernorm.weight",
}


def _config(raw: Raw) -> Raw:
    settings = gated_rms({"head_dim": 128, "rms_norm_eps": 1.5625e-07, **raw})
    return {**settings, "rotary": rotary(raw, d_head=settings["d_head"], share=0.5)}


def _prepared(weights: State, config: Config) -> State:
    """The halves of gate_up_proj are the gate and the rest; queries and keys rotate numbers that stand side by side."""
    assert config.rotary is not None
    state, d_rotary = dict(weights), config.rotary.d_rotary or config.d_head
    for name in weights:
        if name.endswith("mlp.gate_up_proj.weight"):
            gate, up = state.pop(name).chunk(2)
            start = name.removesuffix("gate_up_proj.weight")
            state |= {f"{start}gate_proj.weight": gate, f"{start}up_proj.weight": up}
        elif re.search(r"self_attn\.[qk]_proj\.(weight|bias)$", name):
            state[name] = side_by_side_to_halves(state[name], config.d_head, d_rotary)
    return state


GLM = Family(
    name="glm",
    model_types=("glm",),
    config=_config,
    outer=OUTER,
    inner=INPUTS_BIASED,
    layer=LAYER,
    switches={"attention_bias": (True, INPUT_BIASES)},
    prepare=_prepared,
    prefixes=PREFIXES,
)
GLM4 = replace(
    GLM,
    name="glm4",
    model_types=("glm4",),
    config=lambda raw: {**_config({"rms_norm_eps": 1e-5, **raw}), "norm_at": "both"},
    inner={**GLM.inner, **_SIDES},
)
FAMILIES = (GLM, GLM4)
