"""Bootstrap stability: by hand, by definition, and what must be refused."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vesalius.discovery.stability import (
    bootstrap_jaccard,
    chance_jaccard,
    half_agreement,
    pairwise_jaccard,
    top_items,
)
from vesalius.errors import BadInput


def test_by_hand() -> None:
    """Circuits {0, 1}, {0, 2} and {0, 1}: the pairs agree by 1/3, 1 and 1/3."""
    scores = torch.tensor([[3.0, -2.0, 1.0], [3.0, 1.0, -2.0], [1.0, 0.5, 0.25]])
    stability = pairwise_jaccard(scores, 2)
    assert stability.value == pytest.approx(5 / 9)
    assert stability.low >= 1 / 3
    assert stability.high <= 1.0
    assert stability.inclusion == pytest.approx((1.0, 2 / 3, 1 / 3))
    assert (stability.top, stability.items, stability.resamples) == (2, 3, 3)


def test_zero_is_in_no_circuit() -> None:
    assert top_items(torch.tensor([[0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]), 2).tolist() == [
        [False, False, True],
        [False] * 3,
    ]
    assert pairwise_jaccard(torch.zeros(4, 3), 2).value == 1.0
    open_size = pairwise_jaccard(torch.tensor([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]))
    assert (open_size.value, open_size.top) == (pytest.approx(1 / 3), 2)


def test_prompts_that_agree_give_one_circuit_and_opposed_ones_many() -> None:
    alike = torch.tensor([[5.0, 1.0, 0.1]]).repeat(6, 1)
    assert bootstrap_jaccard(alike, 1).value == 1.0
    opposed = torch.eye(6)
    assert 0.05 < bootstrap_jaccard(opposed, 1).value < 0.5
    assert bootstrap_jaccard(opposed, 1) == bootstrap_jaccard(opposed, 1)
    assert bootstrap_jaccard(opposed, 1) != bootstrap_jaccard(opposed, 1, seed=1)
    assert bootstrap_jaccard(opposed, 6, combine=lambda means: means[:, :1]).items == 1


@given(st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=2, max_size=6), st.integers(1, 5))
def test_the_mean_over_all_pairs(rows: list[list[int]], top: int) -> None:
    scores = torch.tensor(rows, dtype=torch.float64)
    circuits = []
    for row in rows:
        order = sorted(range(4), key=lambda i: (-abs(row[i]), i))[:top]
        circuits.append({i for i in order if row[i]})
    pairs = list(itertools.combinations(circuits, 2))
    truth = sum(len(a & b) / len(a | b) if a | b else 1.0 for a, b in pairs) / len(pairs)
    assert pairwise_jaccard(scores, top).value == pytest.approx(truth)


@pytest.mark.parametrize(("top", "items"), [(1, 4), (2, 5), (3, 4), (3, 3)])
def test_chance_is_that_of_all_pairs_of_circuits(top: int, items: int) -> None:
    circuits = [set(c) for c in itertools.combinations(range(items), top)]
    indices = [len(a & b) / len(a | b) for a in circuits for b in circuits]
    assert chance_jaccard(top, items) == pytest.approx(sum(indices) / len(indices))


def test_refusals() -> None:
    with pytest.raises(BadInput, match="top=0"):
        bootstrap_jaccard(torch.ones(3, 2), 0)
    with pytest.raises(BadInput, match=r"\[prompt, item\]"):
        bootstrap_jaccard(torch.ones(0, 2), 1)
    with pytest.raises(BadInput, match="not finite"):
        bootstrap_jaccard(torch.tensor([[1.0, float("nan")]]), 1)
    with pytest.raises(BadInput, match="one prompt cannot be resampled"):
        bootstrap_jaccard(torch.ones(1, 2), 1)
    with pytest.raises(BadInput, match="fewer than two resamples"):
        pairwise_jaccard(torch.ones(1, 2), 1)


def test_halves_of_prompts_that_agree() -> None:
    """Every half has the same means, so the same top and the same ranks, in every halving."""
    found = half_agreement(torch.tensor([[5.0, -3.0, 1.0, 0.5]]).repeat(7, 1), 2)
    assert (found.jaccard, found.jaccard_low, found.jaccard_high) == pytest.approx((1.0, 1.0, 1.0))
    assert (found.rank_correlation, found.rank_low, found.rank_high) == pytest.approx((1.0, 1.0, 1.0))
    assert (found.top, found.items, found.half) == (2, 4, 3)
    assert found.chance == pytest.approx(chance_jaccard(2, 4))


def test_halves_of_opposed_prompts_by_hand() -> None:
    """Two prompts of each kind. A halving keeps the kinds apart (1 in 3: nothing in common, ranks reversed) or mixes
    them (2 in 3: both halves have equal means of all three items, ranks that say nothing, and the first item on top).
    """
    up, down = [3.0, 2.0, 1.0], [1.0, 2.0, 3.0]
    found = half_agreement(torch.tensor([up, up, down, down]), 1, halvings=3000)
    apart, spread = 1 / 3, (1 / 3 * 2 / 3 / 3000) ** 0.5
    assert found.jaccard == pytest.approx(1 - apart, abs=5 * spread)
    assert found.rank_correlation == pytest.approx(-apart, abs=5 * spread)
    assert (found.rank_low, found.rank_high) == pytest.approx((-1.0, 0.0))


def test_too_few_prompts_have_no_halves() -> None:
    with pytest.raises(BadInput, match=r"3 prompts are too few to halve; use at least 4 \(`n` 4\)"):
        half_agreement(torch.ones(3, 5), 2)
