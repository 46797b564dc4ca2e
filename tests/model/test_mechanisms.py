"""What single heads and experts compute, worked by hand: sinks, chunks, scaled queries, routers, shared experts."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.models import random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene.patterns import without_keys
from vesalius.model import Config, Transformer
from vesalius.model.attention import Heads, attention_weights
from vesalius.model.config import QueryScale
from vesalius.model.hooks import Cache, Tap
from vesalius.model.positions import alibi_scores, alibi_slopes
from vesalius.model.states import fingerprint, load_model, save_model

TOKENS = torch.tensor([[1, 5, 3, 9, 2, 7]])


def cached(model: Transformer, tokens: Tensor = TOKENS, mask: Tensor | None = None) -> Cache:
    return model.run_with_cache(tokens, mask=mask)[1]


# Attention.


def test_a_sink_takes_its_share_by_hand() -> None:
    """Scores of log 1, log 2 and a sink of log 5: 1, 2 and 5 of 8 parts."""
    scores = torch.tensor([[[[0.0, math.log(2)]]]])
    weights = attention_weights(scores, torch.tensor([math.log(5)]))
    assert torch.allclose(weights, torch.tensor([1 / 8, 2 / 8]))


def test_patterns_with_sinks_are_those_without_less_a_share() -> None:
    """The keys keep their proportions; what is missing is the sink's part of the sum."""
    model = random_model(small_config(sinks=True)).double()
    cache = cached(model)
    scores, pattern = cache["blocks.0.attn.hook_attn_scores"], cache["blocks.0.attn.hook_pattern"]
    sinks = model.blocks[0].attn.sinks
    assert sinks is not None
    assert sinks.abs().min() > 0.01
    sums = scores.exp().sum(-1)
    share = sums / (sums + sinks.exp()[:, None])
    assert torch.allclose(pattern.sum(-1), share)
    assert torch.allclose(pattern, scores.softmax(-1) * share[..., None])


def test_some_heads_mix_with_their_own_sinks() -> None:
    model = random_model(small_config(sinks=True, n_kv_heads=4)).double()
    block, layout = model.blocks[0], model.layout(TOKENS)
    cache = cached(model)
    heads = [3, 1]
    some = Heads(*(cache[f"blocks.0.attn.hook_{port}"][:, :, heads] for port in "qkv"))
    z = block.attn.mix(some, layout, None, Tap(), which=heads)
    assert torch.allclose(z, cache["blocks.0.attn.hook_z"][:, :, heads])


def test_keys_that_are_taken_away_leave_their_share_to_the_others_and_the_sink() -> None:
    scores, sink = torch.randn(1, 1, 4, 4, dtype=torch.float64), torch.randn(1, dtype=torch.float64)
    keys = torch.zeros(1, 4, 4, dtype=torch.bool)
    keys[:, :, 2] = True
    expected = attention_weights(scores.masked_fill(keys[:, None], -torch.inf), sink)[:, 0]
    assert torch.allclose(without_keys(attention_weights(scores, sink)[:, 0], keys, sinks=True), expected)
    expected = scores.masked_fill(keys[:, None], -torch.inf).softmax(-1)[:, 0]
    assert torch.allclose(without_keys(scores.softmax(-1)[:, 0], keys, sinks=False), expected)


def test_chunks_begin_anew_and_count_real_tokens() -> None:
    """Chunks of two tokens: the second token of a chunk sees the first, and no token sees another chunk."""
    model = random_model(small_config(chunks=(2, None)))
    pattern = cached(model)["blocks.0.attn.hook_pattern"][0, 0]
    seen = [[0], [0, 1], [2], [2, 3], [4], [4, 5]]
    assert [row.nonzero()[:, 0].tolist() for row in pattern] == seen
    mask = torch.tensor([[False, True, True, True, True, True]])
    pattern = cached(model, mask=mask)["blocks.0.attn.hook_pattern"][0, 0]
    assert [row.nonzero()[:, 0].tolist() for row in pattern[1:]] == [[1], [1, 2], [3], [3, 4], [5]]


def test_queries_grow_with_their_position() -> None:
    """Positions 0 to 5, `first` 1, every 2: log(1 + 0), log(1 + 1) twice, log(1 + 2) twice, log(1 + 3)."""
    plain = random_model(small_config())
    rule = QueryScale(strength=0.5, every=2, first=1, layers=(0,))
    scaled = random_model(small_config(query_scale=rule))
    name = "blocks.0.attn.hook_attn_scores"
    steps = torch.tensor([0, 1, 1, 2, 2, 3])
    seen = torch.ones(6, 6, dtype=torch.bool).tril()
    grown = cached(plain)[name] * (1 + 0.5 * (1 + steps).log())[:, None]
    assert torch.allclose(cached(scaled)[name][..., seen], grown[..., seen], atol=1e-6)


# Positions as a bias of scores.


def test_slopes_by_hand() -> None:
    """A power of two: a geometric row that ends at 2 ** -8. Others: the row of the next lower power, then every other
    slope of the next higher.
    """
    exponents = {
        1: [8],
        2: [4, 8],
        3: [4, 8, 2],
        4: [2, 4, 6, 8],
        6: [2, 4, 6, 8, 1, 3],
        7: [2, 4, 6, 8, 1, 3, 5],
        8: [1, 2, 3, 4, 5, 6, 7, 8],
        12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    }
    for n_heads, expected in exponents.items():
        assert (-alibi_slopes(n_heads).log2()).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("n_heads", [1, 5, 16, 25, 32, 71, 112])
def test_slopes_are_those_of_transformers(n_heads: int) -> None:
    """BLOOM's and MPT's, which are written in two ways, and Falcon's in bfloat16."""
    models = pytest.importorskip("transformers").models
    slopes, ones = alibi_slopes(n_heads), torch.ones(1, 300, dtype=torch.long)
    bloom = models.bloom.modeling_bloom.build_alibi_tensor(ones, n_heads, torch.float32)[:, 0, 1]
    mpt = models.mpt.modeling_mpt.build_mpt_alibi_tensor(n_heads, 2)[:, 0]
    assert torch.allclose(slopes, bloom, rtol=1e-6, atol=0)
    assert torch.allclose(slopes, mpt[:, 1] - mpt[:, 0], rtol=1e-6, atol=0)
    rule = {"rotary": None, "alibi": {"rounded": True}, "n_heads": n_heads, "n_kv_heads": 1}
    falcon = models.falcon.modeling_falcon.build_alibi_tensor(ones, n_heads, torch.float32)[:, 0]
    ours = alibi_scores(small_config(**rule), torch.arange(300)[None], torch.float32)[0, :, 0].T
    assert torch.equal(ours, falcon), "far positions are rounded, too"


@pytest.mark.parametrize("scaled", [False, True])
def test_scores_fall_with_the_distance(scaled: bool) -> None:
    """Four heads take 1/4, 1/16, 1/64 and 1/256 of the distance from a score, or half of that where d_head is 4 and the
    bias is scaled like the score. Padding in front is no distance.
    """
    plain = random_model(small_config(rotary=None, alibi={"scaled": scaled}))
    name, slopes = "blocks.0.attn.hook_attn_scores", torch.tensor([2.0, 4, 6, 8]).neg().exp2() / (2 if scaled else 1)
    mask = torch.tensor([[False, False, True, True, True, True]])
    for given, first in ((None, 0), (mask, 2)):
        cache = cached(plain, mask=given)
        q, k = (cache[f"blocks.0.attn.hook_{port}"].repeat_interleave(n, 2) for port, n in (("q", 1), ("k", 2)))
        products = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2
        for query in range(first, 6):
            for key in range(first, query + 1):
                expected = products[0, :, query, key] - slopes * (query - key)
                assert torch.allclose(cache[name][0, :, query, key], expected, atol=1e-6)


def test_positions_are_nowhere_but_in_scores(tmp_path: Path) -> None:
    """No table of positions: the same token has the same embedding everywhere, and the files hold none."""
    model = random_model(small_config(rotary=None, alibi={"rounded": True}))
    _, cache = model.run_with_cache(torch.tensor([[3, 3, 3]]))
    assert torch.equal(cache["blocks.0.hook_resid_pre"][0, 0], cache["blocks.0.hook_resid_pre"][0, 2])
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert fingerprint(model) != fingerprint(random_model(small_config(rotary=None, alibi={})))


def test_some_heads_mix_with_their_own_slopes() -> None:
    model = random_model(small_config(rotary=None, alibi={}, n_kv_heads=4)).double()
    cache, heads = cached(model), [3, 1]
    some = Heads(*(cache[f"blocks.0.attn.hook_{port}"][:, :, heads] for port in "qkv"))
    z = model.blocks[0].attn.mix(some, model.layout(TOKENS), None, Tap(), which=heads)
    assert torch.allclose(z, cache["blocks.0.attn.hook_z"][:, :, heads])


# Experts.


def experts_config(**changes: object) -> Config:
    experts = {"n_experts": 6, "n_active": 2, "d_expert": 5, "renormalise": False, "layers": (0, 1), **changes}
    return small_config(experts=experts)


def test_an_expert_with_limits_by_hand() -> None:
    model = random_model(
        small_config(
            activation="quick_gelu",
            experts={
                "n_experts": 1,
                "n_active": 1,
                "d_expert": 5,
                "renormalise": True,
                "layers": (0, 1),
                "biased": True,
                "limit": 0.3,
                "offset": 1.0,
            },
        )
    )
    mlp, x = model.blocks[0].mlp, torch.randn(1, 3, 12)
    gate = (x @ mlp.W_gate[0] + mlp.b_gate[0]).clamp(max=0.3)
    linear = (x @ mlp.W_in[0] + mlp.b_in[0]).clamp(-0.3, 0.3)
    expected = ((linear + 1) * gate * torch.sigmoid(1.702 * gate)) @ mlp.W_out[0] + mlp.b_out[0]
    assert torch.allclose(mlp(x, Tap()), expected, atol=1e-6)


def test_the_best_groups_are_chosen_first() -> None:
    """Groups (0, 1), (2, 3), (4, 5): the best two experts of the first sum to 1.1, of the second to 1.0, of the third
    to 1.4 once corrected. Expert 3 is the best of all but in the worst group.
    """
    scores = torch.tensor([0.5, 0.6, 0.05, 0.95, 0.4, 0.7])
    model = random_model(experts_config(scores="sigmoid", n_groups=3, active_groups=2, corrected=True, factor=3.0))
    mlp, x = model.blocks[0].mlp, torch.eye(12)[None, :1]
    with torch.no_grad():
        mlp.W_router[0] = (scores / (1 - scores)).log()
        mlp.b_choice[:] = torch.tensor([0, 0, 0, 0, 0.3, 0])
    _, cache = _of_mlp(mlp, x)
    assert sorted(cache["blocks.0.mlp.hook_expert_indices"].flatten().tolist()) == [4, 5]
    weights = cache["blocks.0.mlp.hook_expert_weights"].flatten().sort().values
    assert torch.allclose(weights, 3 * torch.tensor([0.4, 0.7])), "the correction counts for the choice alone"


def test_groups_may_be_judged_by_their_best_expert() -> None:
    """Of the groups (0, 1), (2, 3), (4, 5) the second has the best expert, the first the best two."""
    scores = torch.tensor([0.3, 0.29, 0.35, 0.01, 0.04, 0.01])
    for group_by, expected in ((1, [2, 3]), (2, [0, 1])):
        model = random_model(experts_config(n_groups=3, active_groups=1, group_by=group_by, factor=2.0))
        mlp, x = model.blocks[0].mlp, torch.eye(12)[None, :1]
        with torch.no_grad():
            mlp.W_router[0] = scores.log()
        _, cache = _of_mlp(mlp, x)
        assert sorted(cache["blocks.0.mlp.hook_expert_indices"].flatten().tolist()) == expected
        weights = cache["blocks.0.mlp.hook_expert_weights"].flatten()
        assert float(weights.sum()) == pytest.approx(2 * float(scores[expected].sum()))


def _of_mlp(mlp, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    tap = Tap(keep=lambda name: True)
    return mlp(x, tap), tap.stored


@pytest.mark.parametrize("weighs", ["output", "input"])
@pytest.mark.parametrize("gated", [False, True])
def test_routed_and_shared_experts_by_hand(weighs: str, gated: bool) -> None:
    model = random_model(experts_config(scores="sigmoid", weighs=weighs, d_shared=7, shared_gated=gated))
    mlp, x = model.blocks[1].mlp, torch.randn(2, 3, 12)

    def swiglu(x: Tensor, w_gate: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
        return (F.silu(x @ w_gate) * (x @ w_in)) @ w_out

    scores = (x @ mlp.W_router).sigmoid()
    shared = swiglu(x, mlp.shared.W_gate, mlp.shared.W_in, mlp.shared.W_out)
    shared = shared + F.silu(x @ mlp.shared.W_gate) * mlp.shared.b_in @ mlp.shared.W_out + mlp.shared.b_out
    expected = shared * (x @ mlp.W_shared_gate).sigmoid() if gated else shared
    added = torch.zeros(2, 3, 7, 12)
    added[:, :, 6] = expected
    for row in range(2):
        for pos in range(3):
            for expert in scores[row, pos].topk(2).indices.tolist():
                weight, token = scores[row, pos, expert], x[row, pos]
                weights = mlp.W_gate[expert], mlp.W_in[expert], mlp.W_out[expert]
                one = swiglu(token * weight, *weights) if weighs == "input" else weight * swiglu(token, *weights)
                added[row, pos, expert] = one
    whole, kept = _of_mlp(mlp, x)
    assert torch.allclose(whole, added.sum(2), atol=1e-5)
    assert torch.allclose(kept["blocks.1.mlp.hook_expert_out"], added, atol=1e-5)


# What cannot be.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_groups": 4}, "n_experts 6 is not a multiple of n_groups 4"),
        ({"n_groups": 6, "active_groups": 2}, "best 2 experts: groups have only 1"),
        ({"n_groups": 3, "active_groups": 1, "n_active": 3}, "1 of 3 groups do not hold n_active 3"),
        ({"weighs": "input", "biased": True}, "weighs must be 'output'"),
        ({"shared_gated": True}, "shared_gated needs d_shared"),
        ({"layers": (0, 2)}, "experts: layers (0, 2) are named; there are 2 layers"),
    ],
)
def test_impossible_experts_are_refused(changes: dict, message: str) -> None:
    whole = experts_config().model_dump()
    with pytest.raises(BadInput) as caught:
        Config.read({**whole, "experts": {**whole["experts"], **changes}}, where="config.json")
    assert message in str(caught.value)


def test_settings_that_are_not_used_leave_the_fingerprint_of_a_shape_as_it_was() -> None:
    experts = experts_config().identity()["experts"]
    assert set(experts) == {"n_experts", "n_active", "d_expert", "renormalise", "layers"}
    assert not {"sinks", "chunks", "layer_qk_norm", "query_scale"} & set(experts_config().identity())
    assert experts_config(factor=2.0).identity()["experts"]["factor"] == 2.0
