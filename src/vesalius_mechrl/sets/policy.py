"""A policy for `Vesalius/Sets-v0`: the same weights for every head, trained by PPO on simulated effects.

The PPO updates are those of `ppo`; only the environment differs. Training costs no query, because simulated
effects need no model. A trained policy is then used on a model, where every new set is a query. It observes heads only
by what happened to them, so it cannot learn *which* heads matter, only *how to search*. One ships with the package
(`load_policy`); it was made by `python -m benchmarks.backup --train`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model.states import read_tensors, write_tensors
from vesalius_mechrl.networks import MASKED, draw_candidates, draw_log_prob
from vesalius_mechrl.ppo import Rollout, Settings, as_float32, learn
from vesalius_mechrl.sets.searches import STARTS, suspects
from vesalius_mechrl.sets.sources import PRICE_SHARE, Goal, HeadSet, SetQueries

# The effect of every set of heads, as the environment needs it.
#
# `QueriedEffects` measures a model through `SetQueries`, which counts. `planted_effects` simulates effects from a seed,
# so that a policy can be trained without a model. Both give effects as shares of the clean score.
#
# A simulation has one to three groups of one to three heads, and a few specialists; every group that is completely
# inside the set takes its weight of the remaining score, and every head adds some noise:
#
#     effect(S) = 1 - product over groups inside S of (1 - weight) + sum over heads in S of noise

MOST_GROUPS, MOST_TOGETHER = 3, 3
GROUP_WEIGHT, SPECIALIST_WEIGHT, NOISE = (0.3, 1.0), (0.01, 0.2), 0.003


class EffectModel(Protocol):
    """Effects of sets, as shares of the clean score."""

    @property
    def heads(self) -> int:
        """The number of heads."""
        ...

    @property
    def largest(self) -> int:
        """The largest number of heads of a set."""
        ...

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """The effect of ablating these heads."""
        ...


EffectModels = Callable[[int], EffectModel]


class QueriedEffects:
    """The effects of a real source; every new set is a query."""

    def __init__(self, queries: SetQueries) -> None:
        self.queries, self._clean = queries, abs(queries.source.clean) or 1.0

    @property
    def heads(self) -> int:
        """The number of heads of the source."""
        return self.queries.n

    @property
    def largest(self) -> int:
        """Two for a table of pairs."""
        return self.queries.source.largest

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """Query the set."""
        return self.queries.one(frozenset(np.flatnonzero(inside).tolist())) / self._clean


class PlantedEffects:
    """Simulated effects: groups with weights, and noise."""

    def __init__(
        self, groups: Bool[np.ndarray, "group head"], weights: np.ndarray, noise: np.ndarray | None = None
    ) -> None:
        self.groups, self.weights = groups, weights
        self.noise = np.zeros(groups.shape[1]) if noise is None else noise

    @property
    def heads(self) -> int:
        """The number of heads."""
        return self.groups.shape[1]

    @property
    def largest(self) -> int:
        """Every set has an effect."""
        return self.heads

    def effect(self, inside: Bool[np.ndarray, " head"]) -> float:
        """The effect of the groups inside the set, and noise."""
        complete = ~(self.groups & ~inside).any(1)
        return float(1 - np.prod(1 - self.weights[complete]) + self.noise[inside].sum())


def planted_effects(seed: int, *, heads: int = 16) -> PlantedEffects:
    """The simulated effects of this seed."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, MOST_TOGETHER + 1, rng.integers(1, MOST_GROUPS + 1)).tolist()
    specialists = int(rng.integers(0, heads // 3 + 1))
    weights = [*rng.uniform(*GROUP_WEIGHT, len(sizes)), *rng.uniform(*SPECIALIST_WEIGHT, specialists)]
    sizes += [1] * specialists
    order = rng.permutation(heads)
    groups, first = np.zeros((len(sizes), heads), bool), 0
    for number, size in enumerate(sizes):
        groups[number, order[first : first + size]] = True
        first += size
    filled = groups.any(1)  # with few heads, the last groups are empty
    return PlantedEffects(groups[filled], np.array(weights)[filled], rng.normal(0, NOISE, heads))


# The search for a set as an environment; `gym` wraps it in the Gymnasium interface.
#
# The state is a set of ablated heads; the game starts with all heads ablated (`start="full"`) or none (`"empty"`). An
# action toggles one head, adding it to the set or removing it, or stops (the last action). A head may be toggled twice:
# tried, and undone. With a source that has only pairs, sets of two heads cannot grow. An illegal action costs 1 and
# changes nothing.
#
#     value(S) = effect(S) - price * |S|,   effect as a share of the clean score
#     reward of a step = value after - value before;   stopping has reward 0 and ends the game
#
# so an episode's return is the value of its last set minus that of its first. The result is the best set of the
# episode. The observation has one row per action, the stop action last, so that one policy works for any number of
# heads.

FEATURES = ("stop", "inside", "tried", "settled", "last", "lost", "effect", "at first", "last lost", "size", "used")
MOST_TOGGLES = 2
ILLEGAL_PENALTY = -1.0
STARTING_SETS = ("full", "empty")


@dataclass(frozen=True)
class Rules:
    """Price of a head as a share of the clean score, where the game starts, and after how many steps it ends."""

    price: float = PRICE_SHARE
    start: str = "full"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.start not in STARTING_SETS or not 0 <= self.price < 1 or (self.steps is not None and self.steps < 1):
            raise BadInput(
                f"rules: start {self.start!r} is one of {', '.join(STARTING_SETS)}, price {self.price:g} a share "
                f"from 0 to 1, steps {self.steps} at least 1"
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


SCHEMA = 1
_DESCRIPTION, _WEIGHTS = "policy.json", "policy.safetensors"
TRAINING = Settings(
    seed=1,
    games=32,
    steps=33,
    total_steps=100_000,
    learning_rate=2e-3,
    gamma=0.95,
    gae_lambda=0.9,
    entropy_weight=0.01,
    epochs=3,
    minibatches=4,
    width=32,
)
TRAINING_HEADS = 16
SEEDS_PER_GAME = 1_000_000


class PerAction(nn.Module):
    """Features of every action to its logit, with shared weights; each also receives the mean over all actions."""

    def __init__(self, *, width: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.own, self.whole = nn.Linear(len(FEATURES), width), nn.Linear(width, width, bias=False)
        self.mixed, self.actor, self.critic = nn.Linear(width, width), nn.Linear(width, 1), nn.Linear(width, 1)
        root = math.sqrt(2)
        for layer, gain in zip(self.children(), (root, root, root, 0.01, 1.0), strict=True):
            assert isinstance(layer, nn.Linear)
            nn.init.orthogonal_(layer.weight, gain, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(
        self, observation: Float[Tensor, "game action feature"], legal: Bool[Tensor, "game action"]
    ) -> tuple[Float[Tensor, "game action"], Float[Tensor, " game"]]:
        """Masked logits and values."""
        own = self.own(observation).tanh()
        hidden = (self.mixed(own) + self.whole(own.mean(1))[:, None]).tanh()
        return self.actor(hidden)[..., 0].masked_fill(~legal, MASKED), self.critic(hidden.mean(1))[:, 0]


@dataclass(frozen=True)
class SetPolicy:
    """A trained network, the rules it was trained with, and its learning curve (mean best value per round)."""

    network: PerAction
    rules: Rules
    curve: tuple[float, ...]


def train_policy(
    settings: Settings = TRAINING,
    *,
    rules: Rules | None = None,
    models: EffectModels | None = None,
    heads: int = TRAINING_HEADS,
) -> SetPolicy:
    """Train a policy on simulated effects; the same settings give the same policy."""
    rules = rules or Rules()
    models = models or partial(planted_effects, heads=heads)
    generator = torch.Generator().manual_seed(settings.seed)
    network = PerAction(width=settings.width, generator=generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, eps=settings.adam_eps)
    games = SetGames(settings.games, heads, rules)
    seeds = [SEEDS_PER_GAME * (settings.games * settings.seed + game) for game in range(settings.games)]
    for game, seed in enumerate(seeds):
        games.begin(game, models(seed))
    rounds, curve = max(1, settings.total_steps // (settings.games * settings.steps)), []
    for number in range(rounds):
        for options in optimiser.param_groups:
            options["lr"] = settings.learning_rate_at(number, rounds)
        rollout, best = _play_round(network, games, models, seeds, settings, generator)
        learn(network, optimiser, settings, rollout, generator=generator)
        curve.append(best)
    return SetPolicy(network, rules, tuple(curve))


def by_policy(
    policy: SetPolicy, queries: SetQueries, goal: Goal, *, starts: int = STARTS, seed: int = 0
) -> Iterator[HeadSet]:
    """A search like those of `searches`, following a policy. The first game takes the most likely action (ties go to
    the first head), the others sample, so that heads are tried in another order.
    """
    model = QueriedEffects(queries)
    price = goal.price / (abs(queries.source.clean) or 1.0)
    games = SetGames(1, model.heads, replace(policy.rules, price=price, steps=None))
    generator = torch.Generator().manual_seed(seed)
    for start in range(starts):
        games.begin(0, model)
        while not games.finished[0]:
            with torch.no_grad():
                logits, _ = policy.network(torch.from_numpy(games.observe()), torch.from_numpy(games.legal))
            action = draw_candidates(logits, 1, generator=generator)[:, 0] if start else logits.argmax(1)
            games.step(action.numpy())
    yield from suspects(queries, goal, queries.best(goal))


def save_policy(policy: SetPolicy, directory: Path, settings: Settings = TRAINING) -> None:
    """Write `policy.safetensors` and `policy.json`."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / _WEIGHTS, {name: t.contiguous() for name, t in policy.network.state_dict().items()})
    description = {"rules": asdict(policy.rules), "settings": settings.document(), "curve": list(policy.curve)}
    write_json(directory / _DESCRIPTION, {"schema": SCHEMA, **description})


def load_policy(directory: Path | None = None) -> SetPolicy:
    """Read what `save_policy` wrote; by default the policy that ships with the package."""
    directory = directory or Path(str(files("vesalius_mechrl.sets").joinpath("trained")))
    data = read_json(directory / _DESCRIPTION)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / _DESCRIPTION}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    network = PerAction(width=data["settings"]["width"])
    network.load_state_dict(read_tensors(directory / _WEIGHTS))
    return SetPolicy(network, Rules(**data["rules"]), tuple(data["curve"]))


@torch.no_grad()
def _play_round(
    network: PerAction,
    games: SetGames,
    models: EffectModels,
    seeds: list[int],
    settings: Settings,
    generator: torch.Generator,
) -> tuple[Rollout, float]:
    """Transitions of one round, and the mean best value of the games that ended in it."""
    transitions, bests = [], []
    for _ in range(settings.steps):
        observation, legal = torch.from_numpy(games.observe()), torch.from_numpy(games.legal)
        logits, value = network(observation, legal)
        action = draw_candidates(logits, 1, generator=generator)
        reward = games.step(action[:, 0].numpy())
        done = games.finished
        log_prob = draw_log_prob(logits, action)
        transitions.append((observation, legal, action, log_prob, value, as_float32(reward), as_float32(done)))
        bests += games.best[done].tolist()
        for game in np.flatnonzero(done):
            seeds[game] += 1
            games.begin(int(game), models(seeds[game]))
    next_value = network(torch.from_numpy(games.observe()), torch.from_numpy(games.legal))[1]
    columns = [torch.stack(column) for column in zip(*transitions, strict=True)]
    return Rollout(*columns, next_value=next_value), float(np.mean(bests)) if bests else 0.0
