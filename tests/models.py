"""Small random models for the tests: any configuration, weights that matter everywhere."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from vesalius.model import Config, Transformer
from vesalius.model.config import Rotary

#: How far two runs of the same small model may be apart. In which order a matrix product adds up depends on the
#: library, the batch and the place of its operands in memory: half a unit of float32 (6e-8) per sum, about a hundred
#: sums between the embedding and a logit, activations of about one.
ROUNDING = 1e-5


def same_logits(one: Tensor, other: Tensor) -> bool:
    """Whether two runs computed the same thing, up to the order of sums."""
    return one.shape == other.shape and bool(((one - other).abs() <= ROUNDING).all())


def same_weights(one: Transformer, other: Transformer) -> bool:
    """Whether two models have the same parameters, bit by bit."""
    ours, theirs = dict(one.named_parameters()), dict(other.named_parameters())
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def random_model(config: Config, seed: int = 0, scale: float = 0.6) -> Transformer:
    """A transformer whose every weight, biases included, is drawn at random."""
    model = Transformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fan_in = parameter.shape[0] if parameter.ndim == 2 and "W_E" not in name and "unembed" not in name else 1
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale / fan_in**0.5)
            if name.endswith(".w"):
                parameter.add_(1.0)
    return model.eval().requires_grad_(False)


def small_config(**changes: object) -> Config:
    """Two layers, four heads in two groups, RMSNorm, rotary, gated: everything at once unless changed."""
    data = {
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "d_model": 12,
        "d_head": 4,
        "d_mlp": 20,
        "d_vocab": 17,
        "d_vocab_out": 17,
        "n_ctx": 16,
        "norm": "rms",
        "rotary": Rotary(),
        "activation": "silu",
        "gated": True,
    }
    return Config.model_validate({**data, **changes})


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any shape the decoder supports, small."""
    kv = draw(st.integers(1, 2))
    vocab = draw(st.integers(5, 13))
    return Config(
        n_layers=draw(st.integers(1, 3)),
        n_heads=kv * draw(st.integers(1, 3)),
        n_kv_heads=kv,
        d_model=draw(st.integers(2, 12)),
        d_head=2 * draw(st.integers(1, 3)),
        d_mlp=draw(st.integers(1, 16)),
        d_vocab=vocab,
        d_vocab_out=draw(st.sampled_from([vocab, 3])),
        n_ctx=12,
        norm=draw(st.sampled_from(["none", "layer", "rms"])),
        norm_eps=1e-3,
        rotary=draw(st.sampled_from([None, Rotary(base=100.0)])),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh", "relu", "silu"])),
        gated=draw(st.booleans()),
        causal=draw(st.booleans()),
    )


EXPERTS = {"n_experts": 4, "n_active": 2, "d_expert": 6, "renormalise": False, "layers": (0, 1)}
#: Structures of the families beside those of `configs`, each on top of `small_config`.
STRUCTURES: dict[str, dict[str, object]] = {
    "parallel": {"block": "parallel", "norm": "layer"},
    "parallel-one-norm": {"block": "parallel_one_norm", "norm": "layer", "gated": False},
    "norms-after": {"norm_at": "output"},
    "norms-before-and-after": {"norm_at": "both"},
    "layer-norms-after": {"norm_at": "both", "norm": "layer"},
    "parallel-norms-after": {"block": "parallel", "norm_at": "both"},
    "head-norms": {"qk_norm": "head"},
    "joint-head-norms": {"qk_norm": "all"},
    "clipped": {"clip_qkv": 0.4},
    "soft-caps": {"attn_softcap": 1.5, "final_softcap": 2.0, "attn_scale": 0.7},
    "windows": {"windows": (2, None)},
    "own-rotations": {"layer_rotary": (Rotary(base=50.0, d_rotary=2, attention_factor=1.2), None)},
    "scaled-embedding": {"embed_scale": 2.5, "rotary": None},
    "experts": {"experts": {**EXPERTS, "renormalise": True}},
    "one-layer-of-experts": {
        "experts": {"n_experts": 3, "n_active": 1, "d_expert": 6, "renormalise": False, "layers": (1,)}
    },
    "sinks": {"sinks": True},
    "sinks-and-biased-experts": {
        "sinks": True,
        "windows": (3, None),
        "activation": "quick_gelu",
        "experts": {**EXPERTS, "renormalise": True, "biased": True, "limit": 0.4, "offset": 1.0},
    },
    "shared-experts": {"experts": {**EXPERTS, "d_shared": 5, "shared_gated": True}},
    "groups-of-experts": {
        "experts": {
            **EXPERTS,
            "layers": (1,),
            "renormalise": True,
            "scores": "sigmoid",
            "factor": 1.6,
            "corrected": True,
            "n_groups": 2,
            "active_groups": 1,
            "d_shared": 7,
        }
    },
    "chunks-scaled-queries-and-experts": {
        "chunks": (2, None),
        "layer_rotary": (Rotary(), None),
        "layer_qk_norm": ("head", "none"),
        "query_scale": {"strength": 0.8, "every": 2, "first": 1, "layers": (1,)},
        "experts": {**EXPERTS, "scores": "sigmoid", "weighs": "input"},
    },
    "one-norm-before-squares": {
        "block": "parallel_one_norm",
        "norm": "layer",
        "activation": "relu2",
        "gated": False,
        "query_scale": {"strength": 0.5, "every": 1, "layers": (0, 1)},
    },
    "alibi": {"rotary": None, "alibi": {}, "n_heads": 6, "attn_softcap": 2.0},
    "rounded-alibi": {"rotary": None, "alibi": {"scaled": True, "rounded": True}, "windows": (3, None)},
    "latents": {"n_kv_heads": 4, "rotary": Rotary(d_rotary=2), "latent": {"d_latent": 5, "d_value": 3, "d_query": 6}},
    "wide-latents-with-experts": {
        "n_kv_heads": 4,
        "norm": "layer",
        "rotary": Rotary(base=50.0, d_rotary=2, attention_factor=1.2),
        "latent": {"d_latent": 3, "d_value": 7},
        "experts": {**EXPERTS, "n_groups": 2, "active_groups": 1, "group_by": 1},
    },
    "dynamic-rope": {"rotary": Rotary(scaling="dynamic", factor=3.0, original_n_ctx=3)},
    "everything": {
        "norm_at": "both",
        "qk_norm": "all",
        "attn_softcap": 2.0,
        "final_softcap": 3.0,
        "windows": (3, 2),
        "block": "parallel",
        "embed_scale": 1.7,
    },
}
