"""The environment of sets: action masks, queries, and a policy that learns to search."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.closeness import adam_bound, largest_difference, mean_difference
from tests.discovery.sets.tables import FunctionSource, three_heads
from vesalius.errors import BadInput
from vesalius_mechrl.sets.policy import (
    TRAINING,
    QueriedEffects,
    Rules,
    SetGames,
    SetPolicy,
    by_policy,
    load_policy,
    save_policy,
    train_policy,
)
from vesalius_mechrl.sets.searches import search
from vesalius_mechrl.sets.sources import Goal, SetQueries

QUICK = replace(TRAINING, games=4, steps=9, total_steps=144, width=8)


def test_sets_of_a_table_do_not_grow_beyond_pairs_and_every_set_is_a_query() -> None:
    queries = SetQueries(three_heads())
    games = SetGames(1, 3, Rules(start="empty", price=0.1))
    games.begin(0, QueriedEffects(queries))
    games.step(np.array([1]))
    reward = games.step(np.array([2]))
    assert reward[0] == pytest.approx((5 - 2) / 6 - 0.1)
    assert games.legal[0].tolist() == [False, True, True, True]
    games.step(np.array([2]))
    assert queries.paid == 2
    with pytest.raises(BadInput, match="start empty"):
        SetGames(1, 3).begin(0, QueriedEffects(queries))


@pytest.mark.parametrize("rules", [{"start": "half"}, {"price": 1.5}, {"steps": 0}])
def test_rules_that_make_no_game(rules: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="rules"):
        Rules(**rules)


def test_training_is_reproducible_and_a_policy_can_be_saved(tmp_path: Path) -> None:
    one_round = replace(QUICK, total_steps=36)  # 4 games of 9 steps
    first, again = train_policy(one_round, heads=4), train_policy(one_round, heads=4)
    other = train_policy(replace(one_round, seed=2), heads=4)
    assert first.curve == pytest.approx(again.curve)
    assert first.curve != pytest.approx(other.curve)
    bound = adam_bound(QUICK.learning_rate, QUICK.epochs * QUICK.minibatches)
    assert largest_difference(_weights(first), _weights(again)) <= bound
    assert mean_difference(_weights(first), _weights(again)) < mean_difference(_weights(first), _weights(other)) / 100
    save_policy(first, tmp_path, QUICK)
    loaded = load_policy(tmp_path)
    assert all(torch.equal(tensor, _weights(loaded)[name]) for name, tensor in _weights(first).items())
    assert (loaded.rules, loaded.curve) == (first.rules, first.curve)


@pytest.mark.slow
def test_the_policy_of_the_package_finds_hidden_pairs_it_never_saw() -> None:
    """It was trained on 16 heads; here are 24, two of which matter only together. Chance of a random pair: 1 in 276."""
    policy, rng = load_policy(), np.random.default_rng(5)
    for _ in range(5):
        pair = frozenset(rng.choice(24, 2, replace=False).tolist())
        queries = SetQueries(FunctionSource(24, lambda members, pair=pair: 0.7 * (pair <= members)))
        suspected, _ = search(queries, Goal(price=0.05, least=0.1), partial(by_policy, policy))
        assert suspected == [pair]
        assert queries.paid < 276 / 2


def _weights(policy: SetPolicy) -> dict[str, torch.Tensor]:
    return policy.network.state_dict()
