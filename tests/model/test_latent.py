"""Latent attention against sums worked by hand, head by head, and what is refused beside it."""

import math

import pytest
import torch
from torch import Tensor

from tests.models import random_model, same_weights, small_config
from vesalius.errors import BadInput
from vesalius.intervene.values import value_bias
from vesalius.model import Config, Transformer
from vesalius.model.config import Rotary
from vesalius.model.families import family
from vesalius.model.hooks import HookPoint
from vesalius.model.latent import LatentAttention
from vesalius.model.states import load_model, save_model

TOKENS = torch.tensor([[1, 5, 3, 9, 2]])
PORTS = ("q", "k", "v")


def config(**changes: object) -> Config:
    """Queries and keys of 4 plain and 2 rotated numbers, values of 3."""
    latent = {"d_latent": 5, "d_value": 3, "d_query": 7, **changes}
    return small_config(n_kv_heads=4, d_head=6, rotary=Rotary(d_rotary=2), latent=latent)


def model_of(**changes: object) -> Transformer:
    return random_model(config(**changes)).double()


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean() + 1e-6).sqrt() * weight


def by_hand(attn: LatentAttention, port: str, head: int, x: Tensor) -> Tensor:
    """One head's query, key or value of one token, from what it reads."""
    if port == "q":
        down = x if attn.W_DQ is None else normed(x @ attn.W_DQ + attn.b_DQ, attn.q_latent_norm.w)
        return down @ (attn.W_Q if attn.W_DQ is None else attn.W_UQ)[head]
    latent = normed(x @ attn.W_DKV + attn.b_DKV, attn.latent_norm.w)
    if port == "v":
        return latent @ attn.W_UV[head]
    return torch.cat([x @ attn.W_KR + attn.b_KR, latent @ attn.W_UK[head]])


def turned(x: Tensor, position: int) -> Tensor:
    """The first two numbers turned by the position, in radians; the others as they are."""
    cos, sin = math.cos(position), math.sin(position)
    return torch.cat([torch.stack([x[0] * cos - x[1] * sin, x[1] * cos + x[0] * sin]), x[2:]])


@pytest.mark.parametrize("d_query", [0, 7])
def test_a_layer_by_hand(d_query: int) -> None:
    model = model_of(d_query=d_query)
    _, cache = model.run_with_cache(TOKENS)
    block, read = model.blocks[1], cache["blocks.1.ln1.hook_normalized"][0]
    attn, n = block.attn, TOKENS.shape[1]
    assert isinstance(attn, LatentAttention)
    written = torch.zeros(n, 12, dtype=torch.float64)
    for head in range(4):
        q, k, v = ([by_hand(attn, port, head, x) for x in read] for port in PORTS)
        for port, expected in zip(PORTS, (q, k, v), strict=True):
            assert torch.allclose(cache[f"blocks.1.attn.hook_{port}"][0, :, head], torch.stack(expected))
        for query in range(n):
            scores = [turned(q[query], query) @ turned(k[key], key) / math.sqrt(6) for key in range(query + 1)]
            weights = torch.stack(scores).softmax(0)
            z = sum(weight * value for weight, value in zip(weights, v, strict=False))
            assert torch.allclose(cache["blocks.1.attn.hook_z"][0, query, head], z)
            written[query] += z @ attn.W_O[head]
    assert torch.allclose(cache["blocks.1.hook_attn_out"][0], written + attn.b_O)


@pytest.mark.parametrize("port", PORTS)
def test_a_head_reads_the_normed_stream_through_latents_of_its_own(port: str) -> None:
    """Another stream at the input of head 2 alone: its query, key or value is what that stream makes, also in the part
    of the key that all heads share, and nothing else of the layer changes.
    """
    model = model_of()
    _, clean = model.run_with_cache(TOKENS)
    other = torch.randn(5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(4))

    def swap(inputs: Tensor, hook: HookPoint) -> Tensor:
        inputs = inputs.clone()
        inputs[0, :, 2] = other
        return inputs

    names = [f"blocks.1.attn.hook_{one}_heads" for one in PORTS] + ["blocks.1.attn.hook_pattern"]
    _, edited = model.run_with_cache(TOKENS, names=names, fwd_hooks=[(f"blocks.1.hook_{port}_input", swap)])
    attn, norm = model.blocks[1].attn, model.blocks[1].ln1
    read = other / (other.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.w
    for one in PORTS:
        expected = clean[f"blocks.1.attn.hook_{one}"][0].clone()
        if one == port:
            expected[:, 2] = torch.stack([by_hand(attn, port, 2, x) for x in read])
        assert torch.allclose(edited[f"blocks.1.attn.hook_{one}_heads"][0], expected)
    moved = (edited["blocks.1.attn.hook_pattern"] - clean["blocks.1.attn.hook_pattern"])[0].abs().amax((1, 2)) > 1e-6
    assert moved.tolist() == [False, False, port != "v", False]


def test_values_of_words_are_what_heads_read_of_them() -> None:
    model, x = model_of(), torch.randn(3, 12, dtype=torch.float64)
    expected = [[by_hand(model.blocks[0].attn, "v", head, row) for head in range(4)] for row in x]
    assert torch.allclose(model.blocks[0].attn.read_values(x), torch.stack([torch.stack(row) for row in expected]))


@pytest.mark.parametrize("d_query", [0, 7])
def test_our_files_hold_latents(d_query: int, tmp_path) -> None:
    model = random_model(config(d_query=d_query))
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert same_weights(again, model)


def test_what_needs_one_matrix_of_a_head_is_refused() -> None:
    model = model_of()
    for name in ("W_Q", "W_K", "W_V", "b_V", "key"):
        with pytest.raises(BadInput, match="latent attention"):
            getattr(model.blocks[0].attn, name)
    assert model_of(d_query=0).blocks[0].attn.W_Q.shape == (4, 12, 6)
    with pytest.raises(
        BadInput, match="value-bias: latent attention has no constant bias of a head's values; take zero or mean"
    ):
        value_bias(model)


# DeepSeek's configs.

RAW = {
    "model_type": "deepseek_v3",
    "vocab_size": 9,
    "hidden_size": 8,
    "intermediate_size": 5,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "kv_lora_rank": 4,
    "q_lora_rank": None,
    "qk_rope_head_dim": 2,
    "qk_nope_head_dim": 7,
    "v_head_dim": 3,
    "n_routed_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
}


def read(**changes: object) -> Config:
    raw = {**RAW, **changes}
    return family(raw, where="config.json").read_config(raw, where="config.json")


def test_scores_are_scaled_once_more_by_yarn() -> None:
    """Published V3: a context 40 times as long, mscale_all_dim 1: (0.1 ln 40 + 1) squared. V2: 0.707."""
    assert read().attn_scale is None
    yarn = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 32}
    assert read(rope_scaling=yarn).attn_scale == pytest.approx(9**-0.5 * 1.36888794**2)
    assert read(rope_scaling=yarn).rotary.attention_factor == 1.0
    of_v2 = yarn | {"mscale": 0.707, "mscale_all_dim": 0.707}
    assert read(rope_scaling=of_v2).attn_scale == pytest.approx(9**-0.5 * 1.26080378**2)


def test_experts_of_both_routers() -> None:
    experts = read().experts
    assert experts.layers == (3, 4)
    assert (experts.scores, experts.corrected, experts.renormalise, experts.factor) == ("sigmoid", True, True, 2.5)
    assert (experts.n_groups, experts.active_groups, experts.group_by, experts.d_shared) == (8, 4, 2, 6)
    grouped = {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 1, "first_k_dense_replace": 1}
    experts = read(model_type="deepseek_v2", **grouped).experts
    assert experts.layers == (1, 2, 3, 4)
    assert (experts.scores, experts.corrected, experts.renormalise, experts.factor) == ("softmax", False, False, 1.0)
    assert (experts.n_groups, experts.active_groups, experts.group_by, experts.d_shared) == (4, 1, 1, 12)
    assert read(model_type="deepseek_v2", n_group=4, topk_group=1).experts.n_groups == 1, "greedy: all are open"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_interleave": False}, "rope_interleave=False is not supported; expected True"),
        ({"num_key_value_heads": 1}, "num_key_value_heads=1 is not supported; expected 2"),
        ({"model_type": "deepseek_v2", "topk_method": "noaux_tc"}, "topk_method 'noaux_tc' is not supported"),
        ({"qk_nope_head_dim": 0}, "latent needs rotary with d_rotary less than d_head"),
        ({"kv_lora_rank": 0}, "latent.d_latent"),
    ],
)
def test_what_is_not_computed_is_named(changes: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(**changes)
