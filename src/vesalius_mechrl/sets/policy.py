"""A policy for `Vesalius/Sets-v0`: the same weights for every head, trained by PPO on simulated effects.

The PPO updates are those of `mechrl.ppo`; only the environment differs. Training costs no query, because simulated
effects need no model. A trained policy is then used on a model, where every new set is a query. It observes heads only
by what happened to them, so it cannot learn *which* heads matter, only *how to search*. One ships with the package
(`load_policy`); it was made by `python -m benchmarks.backup --train`.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model.states import read_tensors, write_tensors
from vesalius_mechrl.policy import MASKED, draw_candidates, draw_log_prob
from vesalius_mechrl.ppo import Rollout, Settings, as_float32, learn
from vesalius_mechrl.sets.effect_models import EffectModels, QueriedEffects, planted_effects
from vesalius_mechrl.sets.environment import FEATURES, Rules, SetGames
from vesalius_mechrl.sets.queries import Goal, SetQueries
from vesalius_mechrl.sets.searches import STARTS, suspects
from vesalius_mechrl.sets.sources import HeadSet

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
