"""Overlap with known heads: hand-worked chances, the published table, and a random model of GPT-2 small's shape."""

import pytest

from vesalius.components import Component, all_components
from vesalius.discovery.known_heads import GPT2_SMALL, PUBLISHED, overlap, published_heads
from vesalius.errors import BadInput
from vesalius.model.config import Config

HEADS = [Component(0, head) for head in range(10)]


def gpt2_shaped(**changes: object) -> Config:
    data = {**GPT2_SMALL, "d_head": 64, "d_vocab_out": 50257}
    return Config.model_validate({**data, **changes})


def test_chances_by_hand() -> None:
    """Three of ten heads are known. Two drawn at random are both known in 3 of 45 draws, one or both in 24 of 45."""
    both, one, none = (
        overlap(chosen, HEADS[:3], candidates=10) for chosen in (HEADS[:2], HEADS[2:4], [HEADS[4], HEADS[9]])
    )
    assert (both.share, both.expected, both.p) == pytest.approx((1.0, 0.3, 3 / 45))
    assert (one.share, one.both, one.p) == (0.5, (HEADS[2],), pytest.approx(24 / 45))
    assert (none.share, none.p) == (0.0, pytest.approx(1.0))
    with pytest.raises(BadInput, match="no heads"):
        overlap([], HEADS, candidates=10)


def test_the_published_circuit_of_ioi() -> None:
    """26 heads, as Wang et al. count them, none in two roles."""
    ioi = PUBLISHED["ioi"]
    assert len(ioi.heads) == sum(map(len, ioi.roles.values())) == 26
    assert ioi.role_of(Component(9, 9)) == "name mover"
    assert ioi.role_of(Component(0, 0)) is None


def test_published_heads_belong_to_one_shape() -> None:
    heads = all_components(gpt2_shaped(), mlps=False)
    for behaviour in ("ioi", "mechrl-ioi", "induction", "induction-out", "mechrl-induction", "greater-than"):
        published = published_heads(gpt2_shaped(), behaviour)
        assert published is not None
        assert published.heads <= set(heads)
    assert published_heads(gpt2_shaped(), "capitals") is None
    assert published_heads(gpt2_shaped(), None) is None
    assert published_heads(gpt2_shaped(d_vocab=17, d_vocab_out=17), "ioi") is None
    assert published_heads(gpt2_shaped(n_layers=6), "ioi") is None
    neo = {"n_ctx": 2048, "attn_scale": 1.0, "windows": (None, 256) * 6}
    assert published_heads(gpt2_shaped(**neo), "ioi") is None, "GPT-Neo 125M"
