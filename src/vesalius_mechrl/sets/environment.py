"""The search for a set as an environment; `gym` wraps it in the Gymnasium interface.

The state is a set of ablated heads; the game starts with all heads ablated (`start="full"`) or none (`"empty"`). An
action toggles one head, adding it to the set or removing it, or stops (the last action). A head may be toggled twice:
tried, and undone. With a source that has only pairs, sets of two heads cannot grow. An illegal action costs 1 and
changes nothing.

    value(S) = effect(S) - price * |S|,   effect as a share of the clean score
    reward of a step = value after - value before;   stopping has reward 0 and ends the game

so an episode's return is the value of its last set minus that of its first. The result is the best set of the episode.
The observation has one row per action, the stop action last, so that one policy works for any number of heads.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from vesalius.errors import BadInput
from vesalius_mechrl.sets.effect_models import EffectModel
from vesalius_mechrl.sets.queries import PRICE_SHARE

FEATURES = ("stop", "inside", "tried", "settled", "last", "lost", "effect", "at first", "last lost", "size", "used")
MOST_TOGGLES = 2
ILLEGAL_PENALTY = -1.0
STARTS = ("full", "empty")


@dataclass(frozen=True)
class Rules:
    """Price of a head as a share of the clean score, where the game starts, and after how many steps it ends."""

    price: float = PRICE_SHARE
    start: str = "full"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.start not in STARTS or not 0 <= self.price < 1 or (self.steps is not None and self.steps < 1):
            raise BadInput(
                f"rules: start {self.start!r} is one of {', '.join(STARTS)}, price {self.price:g} a share from 0 to 1, "
                f"steps {self.steps} at least 1"
            )


class SetGames:
    """Several games in parallel, all with the same number of heads."""

    def __init__(self, n: int, heads: int, rules: Rules | None = None) -> None:
        self.rules, self.heads = rules or Rules(), heads
        self.steps = self.rules.steps or MOST_TOGGLES * heads + 1
        self.models: list[EffectModel | None] = [None] * n
        self.inside = np.zeros((n, heads), bool)
        self.toggles = np.zeros((n, heads), np.int64)
        self.lost = np.zeros((n, heads))
        self.last = np.full(n, -1)
        self.effect, self.first_effect = np.zeros(n), np.zeros(n)
        self.best = np.full(n, -np.inf)
        self.used = np.zeros(n, np.int64)
        self.stopped = np.zeros(n, bool)

    def begin(self, game: int, model: EffectModel) -> None:
        """Start a game on a world."""
        full = self.rules.start == "full"
        if model.heads != self.heads:
            raise BadInput(f"a world of {model.heads} heads does not fit a game of {self.heads}")
        if full and model.largest < model.heads:
            raise BadInput("a table of pairs cannot start with every head removed; run the model, or start empty")
        self.models[game] = model
        self.inside[game], self.toggles[game], self.lost[game], self.last[game] = full, 0, 0.0, -1
        self.used[game], self.stopped[game] = 0, False
        self.effect[game] = self.first_effect[game] = model.effect(self.inside[game]) if full else 0.0
        self.best[game] = self.value[game]

    @property
    def value(self) -> Float[np.ndarray, " game"]:
        """Effect of each game's set minus the price of its heads."""
        return self.effect - self.rules.price * self.inside.sum(1)

    @property
    def finished(self) -> Bool[np.ndarray, " game"]:
        """Stopped, or out of steps."""
        return self.stopped | (self.used >= self.steps)

    @property
    def legal(self) -> Bool[np.ndarray, "game action"]:
        """Heads that may still be toggled, and stopping; only stopping in a finished game."""
        largest = np.array([self.heads if model is None else model.largest for model in self.models])
        may_grow = (self.inside.sum(1) < largest)[:, None]
        heads = (self.toggles < MOST_TOGGLES) & (self.inside | may_grow) & ~self.finished[:, None]
        return np.concatenate([heads, np.ones((len(heads), 1), bool)], 1)

    def observe(self) -> Float[np.ndarray, "game action feature"]:
        """One row per action, features as in `FEATURES`."""
        n, heads = self.inside.shape
        rows = np.zeros((n, heads + 1, len(FEATURES)), np.float32)
        rows[:, -1, 0] = 1
        rows[:, :-1, 1], rows[:, :-1, 2], rows[:, :-1, 3] = self.inside, self.toggles > 0, self.toggles >= MOST_TOGGLES
        rows[:, :-1, 4] = np.arange(heads) == self.last[:, None]
        rows[:, :-1, 5] = self.lost
        last_lost = np.where(self.last >= 0, self.lost[np.arange(n), self.last], 0.0)
        whole = (self.effect, self.first_effect, last_lost, self.inside.mean(1), self.used / self.steps)
        rows[:, :, 6:] = np.stack(whole, 1)[:, None]
        return rows

    def step(self, actions: Int[np.ndarray, " game"]) -> Float[np.ndarray, " game"]:
        """Take one action in every game that is not finished; returns the rewards."""
        rewards, legal = np.zeros(len(actions)), self.legal
        for game in np.flatnonzero(~self.finished):
            self.used[game] += 1
            allowed = legal[game, actions[game]]
            rewards[game] = self._act(int(game), int(actions[game])) if allowed else ILLEGAL_PENALTY
        return rewards

    def _act(self, game: int, action: int) -> float:
        if action == self.heads:
            self.stopped[game] = True
            return 0.0
        model = self.models[game]
        assert model is not None
        before, effect = self.value[game], self.effect[game]
        self.inside[game, action] ^= True
        self.effect[game] = model.effect(self.inside[game])
        change = self.effect[game] - effect
        self.lost[game, action] = change if self.inside[game, action] else -change
        self.toggles[game, action] += 1
        self.last[game] = action
        value = self.value[game]
        self.best[game] = max(self.best[game], value)
        return float(value - before)
