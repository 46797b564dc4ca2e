"""The game: its reward on a table worked by hand, its bookkeeping, and Gymnasium's own opinion of it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from tests.discovery.planted import planted_tables
from vesalius.discovery.mechrl.environment import ENVIRONMENT, PAPER_QUIRKS, Episodes, HeadsEnv, next_episode
from vesalius.discovery.mechrl.tables import CONTROL_SEED_OFFSET, Tables
from vesalius.errors import BadInput


def by_hand() -> Tables:
    """Two rows, all drawn: means 2, -1, 0.5 on the task and 0.25, 0, 1 on the control."""
    task = np.array([[1, -2, 0.5], [3, 0, 0.5]], np.float32)
    control = np.array([[0.5, 0, 0], [0, 0, 2]], np.float32)
    return Tables(("L0H0", "L0H1", "L0H2"), {"t": task}, control, rows=2, unit="logits - 1 * nats")


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


def test_the_weight_scales_the_control_alone() -> None:
    tables = by_hand()
    assert Tables(tables.heads, tables.tasks, tables.control, weight=2, rows=2).episode("t", 0).tolist() == [
        1.5,
        -1,
        -1.5,
    ]
    assert Tables(tables.heads, tables.tasks, rows=2).episode("t", 0).tolist() == [2, -1, 0.5]


def test_rows_are_drawn_by_the_published_seeds() -> None:
    tables = planted_tables(best={"t": 3})
    task = np.random.default_rng(77).choice(64, 32, replace=False)
    control = np.random.default_rng(77 + 13103).choice(64, 32, replace=False)
    assert CONTROL_SEED_OFFSET == 13103
    assert tables.control is not None
    expected = tables.tasks["t"][task].mean(0) - tables.control[control].mean(0)
    assert tables.episode("t", 77) == pytest.approx(expected, abs=1e-5)


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


def test_published_planning_forgets_what_it_paid_for_and_the_corrected_does_not() -> None:
    candidates = np.array([[4, 7, 9]])
    paper, corrected = (Episodes(planted_tables(best={"t": 7}), 1, paper=flag) for flag in (True, False))
    for games in (paper, corrected):
        games.begin(0, 1, "t")
        reward, head = games.step(candidates)
        assert head.tolist() == [7]
        assert reward[0] == games.rewards[0, 7]
        assert games.queries.tolist() == [3]
    assert np.flatnonzero(paper.tried[0]).tolist() == [7]
    assert np.flatnonzero(corrected.tried[0]).tolist() == [4, 7, 9]
    assert (paper.used[0], corrected.used[0]) == (1, 3)
    paper.step(np.array([[4, 9, 2]]))
    assert paper.queries.tolist() == [4]


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


def test_a_task_without_a_label_shows_none_and_a_primed_one_shows_the_other() -> None:
    tables = planted_tables(best={"new": 1})
    for prime, shown in ((None, [0, 0]), ("b", [0, 1])):
        games = Episodes(tables, 1, labels=("a", "b"), prime=prime)
        games.begin(0, 0, "new")
        assert games.observe()[0, :2].tolist() == shown


def test_bad_tables_are_refused() -> None:
    heads = ("L0H0", "L0H1")
    good = np.zeros((4, 2), np.float32)
    with pytest.raises(BadInput, match="not finite"):
        Tables(heads, {"t": np.full((4, 2), np.nan)}, rows=4)
    with pytest.raises(BadInput, match="an episode draws 5"):
        Tables(heads, {"t": good}, rows=5)
    with pytest.raises(BadInput, match="2 columns"):
        Tables(heads, {"t": np.zeros((4, 3))}, rows=4)
    with pytest.raises(BadInput, match="head number 2"):
        HeadsEnv(Tables(heads, {"t": good}, rows=4)).step(2)
