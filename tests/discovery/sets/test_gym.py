"""The environment of sets in the Gymnasium interface: rewards by hand, action masks, Gymnasium's checker."""

import importlib
import sys
from functools import partial

import numpy as np
import pytest

from vesalius.errors import BadInput
from vesalius_mechrl.sets.policy import FEATURES, PlantedEffects, Rules, planted_effects

gymnasium = pytest.importorskip("gymnasium")
from gymnasium.utils.env_checker import check_env  # noqa: E402

from vesalius_mechrl.sets.gym import ENVIRONMENT, SetsEnv  # noqa: E402

PAIR = PlantedEffects(np.array([[True, False, True]]), np.array([0.8]))
STOP = 3


def test_a_game_from_the_full_set_by_hand() -> None:
    """Heads 0 and 2 are worth 0.8 together; each head costs 0.1; all three removed is 0.8 - 0.3 = 0.5."""
    env = SetsEnv(lambda seed: PAIR, heads=3, rules=Rules(price=0.1))
    observation, info = env.reset(seed=0)
    assert observation.shape == (4, len(FEATURES))
    assert info["value"] == pytest.approx(0.5)
    steps = [env.step(action) for action in (1, 0, 0, STOP)]
    assert [step[1] for step in steps] == pytest.approx([0.1, -0.8 + 0.1, 0.8 - 0.1, 0])
    assert [step[2] for step in steps] == [False, False, False, True]
    assert [step[4]["set"] for step in steps] == [[0, 2], [2], [0, 2], [0, 2]]
    assert steps[2][4]["action_mask"].tolist() == [0, 1, 1, 1]
    assert steps[-1][4]["best"] == pytest.approx(0.6)


def test_an_illegal_action_costs_one_and_changes_nothing() -> None:
    env = SetsEnv(lambda seed: PAIR, heads=3)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    _, reward, terminated, truncated, info = env.step(0)
    assert (reward, terminated, truncated, info["set"]) == (-1, False, False, [0, 1, 2])
    for action in (4, -1):
        with pytest.raises(BadInput, match="choose 0 to 3"):
            env.step(action)


def test_a_game_without_a_stop_ends_by_truncation() -> None:
    env = SetsEnv(lambda seed: PAIR, heads=3, rules=Rules(start="empty", steps=2))
    env.reset(seed=0)
    env.step(0)
    *_, terminated, truncated, info = env.step(2)
    assert (terminated, truncated, info["set"]) == (False, True, [0, 2])


@pytest.mark.filterwarnings("ignore:.*Box.*")
def test_gymnasium_accepts_it() -> None:
    env = gymnasium.make(ENVIRONMENT, models=partial(planted_effects, heads=5), heads=5)
    check_env(env.unwrapped, skip_render_check=True)


def test_a_missing_gymnasium_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "vesalius_mechrl.sets.gym")
    with pytest.raises(
        BadInput, match=r"^Vesalius/Sets-v0: gymnasium is not installed; run: pip install 'vesalius\[rl\]'$"
    ):
        importlib.import_module("vesalius_mechrl.sets.gym")
