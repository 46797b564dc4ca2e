"""The game of heads behind the Gymnasium interface: hand-worked rewards, the arrays as a twin, Gymnasium's checker."""

import importlib
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.planted import by_hand, planted_tables
from vesalius.errors import BadInput
from vesalius_mechrl.environment import PAPER_QUIRKS, Episodes, next_episode

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from vesalius_mechrl.gym import ENVIRONMENT, HeadsEnv  # noqa: E402


@pytest.mark.parametrize("paper", [True, False])
def test_the_reward_is_the_recovered_formula(paper: bool) -> None:
    env = HeadsEnv(by_hand(), paper=paper)
    observation, info = env.reset(seed=5)
    assert observation.tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert info["running_max"] == 0
    assert info["unit"] == "logits - 1 * nats"
    observation, reward, terminated, truncated, info = env.step(1)
    assert reward == -1.0
    assert info["running_max"] == -1.0
    observation, reward, terminated, truncated, info = env.step(0)
    assert reward == 1.75
    assert observation == pytest.approx([1, 1, 1, 0, 1.75 / 5, -1 / 5, 0])
    assert info["action_mask"].tolist() == [0, 0, 1]
    assert (terminated, truncated) == (False, False)
    observation, reward, terminated, truncated, info = env.step(2)
    assert reward == -0.5
    assert (terminated, truncated, info["running_max"], info["queries"]) == (False, True, 1.75, 3)


def test_trying_a_head_again_costs_one_and_changes_nothing() -> None:
    env = HeadsEnv(by_hand(), paper=True)
    env.reset(seed=0)
    before = env.step(0)[0]
    after, reward, _, _, info = env.step(0)
    assert (reward, info["running_max"], info["queries"]) == (-1.0, 1.75, 1)
    assert (after == before).all()


def test_unseeded_resets_follow_the_published_order_of_draws() -> None:
    tables = planted_tables(best={"a": 1, "b": 2})
    env = HeadsEnv(tables)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(9)))
    info = env.reset(seed=9)[1]
    assert (info["seed"], info["task"]) == (9, tables.names[rng.integers(0, 2)])
    for _ in range(5):
        info = env.reset()[1]
        assert (info["seed"], info["task"]) == (rng.integers(0, 2**31 - 1), tables.names[rng.integers(0, 2)])
    assert env.reset(options={"task_index": 1})[1]["task"] == "b"
    assert env.reset(options={"task": "a"})[1]["task"] == "a"
    with pytest.raises(BadInput, match="task 'c'"):
        env.reset(options={"task": "c"})


@pytest.mark.parametrize("paper", [True, False])
def test_gymnasium_accepts_it(paper: bool) -> None:
    tables = planted_tables(best={"a": 1, "b": 2}, heads=60)
    env = gymnasium.make(ENVIRONMENT, tables=tables, paper=paper)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    ends = [env.step(head)[3] for head in range(50)]
    assert ends == [False] * 49 + [True]


def test_the_paper_flag_says_what_it_does() -> None:
    assert HeadsEnv(by_hand(), paper=True).quirks == PAPER_QUIRKS
    assert HeadsEnv(by_hand()).quirks == {}


@pytest.mark.slow
@given(st.lists(st.permutations(range(8)), min_size=2, max_size=2), st.integers(0, 2**31 - 1))
def test_games_side_by_side_are_single_games(orders: list[list[int]], seed: int) -> None:
    tables = planted_tables(best={"a": 1, "b": 2}, heads=8)
    games, singles = Episodes(tables, 2), [HeadsEnv(tables), HeadsEnv(tables)]
    for game, env in enumerate(singles):
        rng = np.random.Generator(np.random.PCG64(seed + game))
        games.begin(game, *next_episode(rng, tables.names, seed=seed + game))
        assert (env.reset(seed=seed + game)[0] == games.observe()[game]).all()
    for heads in zip(*orders, strict=True):
        rewards, _ = games.step(np.array(heads)[:, None])
        for game, env in enumerate(singles):
            observation, reward, _, truncated, _ = env.step(heads[game])
            assert reward == rewards[game]
            assert (observation == games.observe()[game]).all()
            assert truncated == games.finished[game]


def test_a_head_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match=r"head number 3 does not exist; choose 0 to 2"):
        HeadsEnv(by_hand()).step(3)


def test_a_missing_gymnasium_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "vesalius_mechrl.gym")
    with pytest.raises(
        BadInput, match=r"^Vesalius/Heads-v0: gymnasium is not installed; run: pip install 'vesalius\[rl\]'$"
    ):
        importlib.import_module("vesalius_mechrl.gym")
