"""Regret on matched episodes, and ranks that know about ties."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.discovery.planted import planted_tables
from vesalius.errors import BadInput
from vesalius_mechrl.ppo import Settings, Trainer, train
from vesalius_mechrl.strategies import static_scores
from vesalius_mechrl.study import compare, most_picked, pick_ranks, policy_orders

pytestmark = pytest.mark.slow

QUICK = Settings(total_steps=800, width=32, evaluation_episodes=2)


@given(seed=st.integers(0, 1000), k=st.integers(1, 6), paper=st.booleans())
@settings(max_examples=20)
def test_no_policy_beats_the_oracle_on_its_own_episodes(seed: int, k: int, paper: bool) -> None:
    tables = planted_tables(best={"a": 3, "b": 11}, seed=seed, noise=2.0)
    trainer = Trainer(tables, replace(QUICK, seed=seed, paper=paper, steps=7))
    policy = train(tables, trainer.settings, rounds=0)
    numbers = list(range(seed, seed + 5))
    orders = policy_orders(policy, tables, "b", numbers, k=k, seed=seed)
    rewards = np.stack([tables.episode("b", number) for number in numbers])
    for row, order in zip(rewards, orders, strict=True):
        assert row[order].max() <= row.max()
        assert len(set(order)) == len(order)
        assert len(order) == 7 if not paper else 7 <= len(order) <= 7 * k


def test_comparison_is_matched_and_its_sweep_exact() -> None:
    best = {"a": 3, "b": 3, "c": 11}
    training, held_out = planted_tables(best=best), planted_tables(best=best, seed=1)
    policies = [train(training.only(("a", "c")), replace(QUICK, seed=seed)) for seed in (1, 2)]
    comparison = compare(policies, held_out, "b", ranking=training.only(("a", "c")), seeds=3, episodes=6)
    by_name = {regret.method: regret for regret in comparison.methods}
    bandits = {"halving", "thompson", "thompson-static"}
    assert set(by_name) == {"policy", "random", "layers", "static", "sweep", *bandits}
    assert by_name["sweep"].budgets == (1, 2, 5, 10, 20)
    for regret in comparison.methods:
        assert min(regret.mean) >= 0
        assert regret.method in bandits or list(regret.mean) == sorted(regret.mean, reverse=True)
        assert regret.low is not None
        assert regret.high is not None
        assert all(low <= mean <= high for low, mean, high in zip(regret.low, regret.mean, regret.high, strict=True))
    assert by_name["sweep"].mean[-1] == by_name["random"].mean[-1] == 0
    assert by_name["static"].mean[1] == 0, "the head planted in a is b's, so the other tasks' list has it early"
    assert comparison.oracle == pytest.approx(3, abs=0.2)


def test_the_static_list_never_saw_its_own_task() -> None:
    tables = planted_tables(best={"a": 3, "b": 11})
    scores = static_scores(tables, "a")
    assert scores is not None
    assert scores.argmax() == 11
    assert static_scores(tables.only(("a",)), "a") is None


def test_a_policy_of_other_heads_is_refused() -> None:
    policy = train(planted_tables(best={"a": 3}, heads=12), replace(QUICK, total_steps=96))
    tables = planted_tables(best={"a": 3})
    with pytest.raises(BadInput, match="other heads"):
        compare([policy], tables, "a", ranking=tables)
    with pytest.raises(BadInput, match="tables to rank by"):
        compare([], tables, "a", ranking=planted_tables(best={"a": 3}, heads=12))
    with pytest.raises(BadInput, match="every budget"):
        compare([], tables, "a", ranking=tables, budgets=(0, 1))
    with pytest.raises(BadInput, match="task 'z'"):
        compare([], tables, "z", ranking=tables)


def test_ties_share_a_rank_and_the_published_ranks_depend_on_luck() -> None:
    one, other = [[4, 2, 0], [4, 0, 2]], [[0, 4, 2], [4, 2, 0]]
    assert pick_ranks(one, 5).tolist() == pick_ranks(other, 5).tolist() == [2, 4.5, 2, 4.5, 2]
    assert pick_ranks(one, 5, paper=True).tolist() == [3, 6, 2, 6, 1]
    assert pick_ranks(other, 5, paper=True).tolist() == [1, 6, 3, 6, 2]


def test_most_picked_heads_by_hand() -> None:
    orders = [[4, 2, 0], [4, 3], [2, 4]]
    assert most_picked(orders, 6) == [(4, 3), (2, 2), (0, 1), (3, 1)], "ties in the order of the model"
    assert most_picked([[3, 1], [1, 3], [2]], 6, paper=True) == [(3, 2), (1, 2), (2, 1)], "ties by who came first"
    assert most_picked([[3, 1], [1, 3], [2]], 6) == [(1, 2), (3, 2), (2, 1)]
