"""Why a head attends: sums to the score of the run in every family, on paper, and against hooks on its inputs."""

import pytest
import torch

from tests.explanations.induction_model import induction_model
from tests.model import references
from tests.models import random_model, small_config
from vesalius.intervene.attending import BIASES, POSITION, TOKEN, AttentionParts
from vesalius.model import Component, Transformer
from vesalius.model.attention import soft_cap
from vesalius.model.sources import from_transformers


def run_scores(model: Transformer, tokens: torch.Tensor, layer: int) -> torch.Tensor:
    name = f"blocks.{layer}.attn.hook_attn_scores"
    with torch.no_grad():
        return model.run_with_cache(tokens, names=name)[1][name][0]


def assert_sums(model: Transformer, tokens: torch.Tensor, heads: list[Component], *, within: float = 1e-4) -> None:
    for head in heads:
        scores = run_scores(model, tokens, head.layer)[head.head]
        for query, key in ((5, 2), (5, 5), (3, 0)):
            parts = AttentionParts(model, tokens, head, query, key)
            capped = soft_cap(torch.tensor(parts.score), model.config.attn_softcap)
            assert float(capped) == pytest.approx(float(scores[query, key]), abs=within)
            value = carried_by_hooks(model, tokens, head, query, key)
            torch.testing.assert_close(parts.carried.sum(0).float(), value, atol=within, rtol=1e-3)


def carried_by_hooks(model: Transformer, tokens: torch.Tensor, head: Component, query: int, key: int) -> torch.Tensor:
    """What the head adds at the query by its value at the key: pattern times value through W_O, from a plain run."""
    block, prefix = model.blocks[head.layer], f"blocks.{head.layer}.attn."
    assert head.head is not None
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens, names=[f"{prefix}hook_{name}" for name in ("pattern", "v", "z")])
    value = cache[f"{prefix}hook_v"][0, key, head.head // model.config.queries_per_kv]
    out = cache[f"{prefix}hook_pattern"][0, head.head, query, key] * value @ block.attn.W_O[head.head]
    if block.ln1_post.w is None:
        return out
    whole = torch.einsum("hk,hkd->d", cache[f"{prefix}hook_z"][0, query], block.attn.W_O) + block.attn.b_O
    return block.ln1_post.share(out, block.ln1_post.scale(whole))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "layer", "rotary": None},
        {"norm": "none"},
        {"qk_norm": "head"},
        {"qk_norm": "all", "norm_at": "output"},
        {"norm_at": "both", "attn_softcap": 2.0},
        {"clip_qkv": 0.3},
        {"block": "parallel"},
        {"n_kv_heads": 1, "attn_scale": 0.7},
        {"n_kv_heads": 4},
    ],
    ids=str,
)
def test_pairs_sum_to_the_score(changes: dict) -> None:
    model = random_model(small_config(n_layers=3, **changes), 3)
    tokens = torch.randint(0, 17, (1, 7), generator=torch.Generator().manual_seed(1))
    assert_sums(model, tokens, [Component(0, 1), Component(2, 3)])


@pytest.mark.parametrize("name", list(references.MODELS))
def test_pairs_sum_to_the_score_in_every_family(name: str) -> None:
    pytest.importorskip("transformers")
    model = from_transformers(references.random_reference(*references.MODELS[name]))
    assert_sums(model, torch.arange(3, 15)[None], [Component(1, 0), Component(1, 3)])


def test_an_induction_head_set_by_hand() -> None:
    """The query of L1H0 is 60 times the token, its key what L0H0 wrote: the token before. With a head of 64 dimensions
    the pair adds 60 / 8 to the score where these are the same unit vector, and nothing else adds much.
    """
    model = induction_model(40, junk=0.0)
    tokens = torch.tensor([[1, 7, 9, 11, 7]])
    parts = AttentionParts(model, tokens, Component(1, 0), 4, 2)  # from the second 7 to what followed the first
    assert parts.sources == (TOKEN, POSITION, "L0H0", "L0H1", "L0H2", "L0H3", "L0_MLP", BIASES)
    pairs = {(a, b): float(parts.pairs[i, j]) for i, a in enumerate(parts.sources) for j, b in enumerate(parts.sources)}
    assert pairs[TOKEN, "L0H0"] == pytest.approx(60 / 8, abs=0.01)
    assert sum(abs(value) for pair, value in pairs.items() if pair != (TOKEN, "L0H0")) < 0.01
    assert parts.score == pytest.approx(60 / 8, abs=0.01)
    shares = parts.carried @ parts.carried.sum(0) / parts.carried.sum(0).square().sum()
    assert dict(zip(parts.sources, shares.tolist(), strict=True))[TOKEN] == pytest.approx(1.0, abs=1e-3)
    token = model.unembed_weight.double() @ parts.carried.sum(0)
    assert int(token.argmax()) == 9


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_a_pair_is_confirmed_by_hooks_on_the_inputs_of_the_head(norm: str) -> None:
    """Contributions taken out of the query input and of the key input of one head in a plain run; with norms the terms
    of the sum are near to that, without they are equal.
    """
    model = random_model(small_config(n_layers=3, norm=norm), 5)
    tokens = torch.randint(0, 17, (1, 7), generator=torch.Generator().manual_seed(2))
    head, query, key = Component(2, 1), 6, 3
    parts = AttentionParts(model, tokens, head, query, key)

    def score(at_query: int | None, at_key: int | None) -> float:
        def take(place: int, source: int | None, side: int):
            def hook(inputs: torch.Tensor, _: object) -> torch.Tensor:
                inputs = inputs.clone()
                if source is not None:
                    inputs[0, place, head.head] -= parts.streams[source, side].float()
                return inputs

            return hook

        seen = {}
        hooks = [
            ("blocks.2.hook_q_input", take(query, at_query, 0)),
            ("blocks.2.hook_k_input", take(key, at_key, 1)),
            ("blocks.2.attn.hook_attn_scores", lambda x, _: seen.update(score=x[0, head.head, query, key])),
        ]
        model.run_with_hooks(tokens, fwd_hooks=hooks)
        return float(seen["score"])

    for pair in ((None, None), (0, None), (None, 2), (1, 4), (0, 0)):
        assert parts.patched_score(*pair) == pytest.approx(score(*pair), abs=1e-4)


def test_without_norms_terms_are_what_path_patching_gives() -> None:
    model = random_model(small_config(n_layers=3, norm="none"), 6)
    parts = AttentionParts(model, torch.arange(7)[None], Component(2, 2), 6, 4)
    for pair in ((0, 0), (3, 1), (5, 8), (0, 7)):
        assert parts.patched_pair(*pair) == pytest.approx(float(parts.pairs[pair]), abs=1e-4)


def test_contributions_of_another_prompt_take_the_place_of_these() -> None:
    """Without norms the change of the score is what the sum says, and a replaced source leaves that of the other."""
    model, head = random_model(small_config(n_layers=3, norm="none"), 8), Component(2, 3)
    other = AttentionParts(model, torch.arange(7).flip(0)[None], head, 6, 4)
    parts = AttentionParts(model, torch.arange(7)[None], head, 6, 4, other)
    for pair in ((0, 0), (3, 1), (5, 8)):
        queries, keys = parts.queries[pair[0]] - other.queries[pair[0]], parts.keys[pair[1]] - other.keys[pair[1]]
        assert float(parts.expected_pairs[pair]) == pytest.approx(float(queries @ keys) / 2, abs=1e-6)  # d_head 4
        assert parts.patched_pair(*pair) == pytest.approx(float(parts.expected_pairs[pair]), abs=1e-4)


def test_biases_are_the_same_everywhere() -> None:
    """What is left of the stream once all sources are named is no more than the biases of earlier layers."""
    model = random_model(small_config(n_layers=3), 7)
    parts = AttentionParts(model, torch.arange(7)[None], Component(2, 0), 6, 1)
    earlier = model.blocks[:2]
    named = torch.stack([block.attn.b_O + block.mlp_bias for block in earlier]).sum(0).double()
    torch.testing.assert_close(parts.streams[-1], named.expand(2, -1), atol=1e-5, rtol=0)
