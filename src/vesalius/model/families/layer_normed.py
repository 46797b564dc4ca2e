"""Rotary models with LayerNorms: StableLM, StarCoder 2, Nemotron and Command R7B (Cohere 2)."""

import re

from vesalius.model.config import Config
from vesalius.model.families.layout import (
    Family,
    Raw,
    State,
    activation,
    expect,
    rotary,
    side_by_side_to_halves,
    sizes,
    with_biases,
)
from vesalius.model.families.llama import (
    BIASED,
    BIASES,
    INPUT_BIASES,
    LAYER,
    MLP,
    OUTER,
    PREFIXES,
    SWITCHES,
    everywhere,
    windows,
)

_OUTER = {**OUTER, **with_biases({"ln_final": "norm"})}
_NORMS = with_biases({"ln1": "input_layernorm", "ln2": "post_attention_layernorm"})
_ATTENTION = with_biases({f"attn.{letter.upper()}": f"self_attn.{letter}_proj" for letter in "qkvo"})
_MLP_BIASES = ("mlp.b_in", "mlp.b_out")


def _layer_normed(raw: Raw, eps: str, *, share: float | None = None, act: str = "silu", **other: object) -> Raw:
    """Sizes and settings of a model with LayerNorm and rotary positions; `share` of a head is rotated."""
    shared = sizes(raw)
    return {
        **shared,
        "norm": "layer",
        "norm_eps": raw.get(eps, 1e-5),
        "rotary": rotary(raw, d_head=shared["d_head"], share=share),
        "activation": activation(raw, "hidden_act", default=act),
        **other,
    }


def _stablelm_config(raw: Raw) -> Raw:
    expect(raw, qk_layernorm=False)
    block = "parallel_one_norm" if raw.get("use_parallel_residual") else "sequential"
    return _layer_normed({**raw, "head_dim": None}, "layer_norm_eps", share=0.25, gated=True, block=block)


STABLELM = Family(
    name="stablelm",
    model_types=("stablelm",),
    config=_stablelm_config,
    outer=_OUTER,
    inner={**{ours: theirs for ours, theirs in _ATTENTION.items() if ours != "attn.b_O"}, **MLP, **_NORMS},
    layer=LAYER,
    switches={"use_qkv_bias": (False, INPUT_BIASES)},
    prefixes=PREFIXES,
)
STARCODER2 = Family(
    name="starcoder2",
    model_types=("starcoder2",),
    config=lambda raw: _layer_normed(raw, "norm_epsilon", act="gelu_pytorch_tanh", windows=everywhere(raw)),
    outer=_OUTER,
    inner={**_ATTENTION, **_NORMS, **with_biases({"mlp.in": "mlp.c_fc", "mlp.out": "mlp.c_proj"})},
    layer=LAYER,
    tied=True,
    switches={"use_bias": (True, (*BIASES, *_MLP_BIASES))},
    prefixes=PREFIXES,
)
NEMOTRON = Family(
    name="nemotron",
    model_types=("nemotron",),
    config=lambda raw: _layer_normed(raw, "norm_eps", share=0.5, act="relu2"),
    outer=_OUTER,
    inner={**_ATTENTION, **_NORMS, **with_biases({"mlp.in": "mlp.up_proj", "mlp.out": "mlp.down_proj"})},
    layer=LAYER,
    norm_offset=1.0,
    switches={**SWITCHES, "mlp_bias": (False, _MLP_BIASES)},
    prefixes=PREFIXES,
)


def _cohere2_config(raw: Raw) -> Raw:
    n, pattern = raw["num_hidden_layers"], raw.get("sliding_window_pattern") or 4
    kinds = raw.get("layer_types") or ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(n)]
    sliding = windows({"sliding_window": 4096, **raw}, kinds)
    settings = _layer_normed(raw, "layer_norm_eps", gated=True, block="parallel_one_norm", windows=sliding)
    rotated = [window is not None for window in sliding] or [False] * n  # layers that see everything have no positions
    return {**settings, "layer_rotary": tuple(settings["rotary"] if yes else None for yes in rotated)}


def _cohere2_weights(weights: State, config: Config) -> State:
    """Queries and keys rotate numbers that stand side by side."""
    return {
        name: side_by_side_to_halves(value, config.d_head, config.d_head)
        if re.search(r"self_attn\.[qk]_proj\.(weight|bias)$", name)
        else value
        for name, value in weights.items()
    }


COHERE2 = Family(
    name="cohere2",
    model_types=("cohere2",),
    config=_cohere2_config,
    outer=OUTER,
    inner={ours: theirs for ours, theirs in BIASED.items() if not ours.startswith("ln2.")},
    layer=LAYER,
    tied=True,
    switches=SWITCHES,
    prepare=_cohere2_weights,
    prefixes=PREFIXES,
    factors=lambda raw: {"unembed.W_U": raw.get("logit_scale", 0.0625)},
)
FAMILIES = (STABLELM, STARCODER2, NEMOTRON, COHERE2)
