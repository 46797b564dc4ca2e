"""Which policies a study trains, how, and on which episodes.

A kind of policy has a name, and one policy is trained for each seed, in its own directory. Which episodes it plays
depends on the seeds alone and never on what it does, so they are known before the training (`episodes_of`): with fresh
batches they are measured first, and training looks them up.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius_mechrl.environment import STEPS
from vesalius_mechrl.ppo import Policy, Trainer, train
from vesalius_mechrl.settings import PER_HEAD, PER_HEAD_VIEW, PROMPTS_VIEW, REWARDS_VIEW, Settings
from vesalius_mechrl.strategies import BUDGETS, episode_seeds
from vesalius_mechrl.suite import Suite
from vesalius_mechrl.tables import Tables

#: The policies of each mode: what is trained.
RUNS = {
    True: {"paper K=1": Settings(paper=True), "paper K=5": Settings(paper=True, k=5)},
    False: {"one-hot": Settings(), "per-head": PER_HEAD},
}
#: With `Scope.context`: the published network with an encoder in place of the label, by what the encoder reads.
PROMPTS, REWARDS = "prompts", "rewards"
ENCODERS = {
    REWARDS: ("reward-encoder", Settings(view=REWARDS_VIEW)),
    PROMPTS: ("prompt-encoder", Settings(view=PROMPTS_VIEW)),
}
#: With `Scope.collapse`: the published policy with one game in place of eight, for as many updates.
SINGLE = "single environment"
#: A step of the per-head policy costs several times as much, and it learns faster: its steps are divided by this.
PER_HEAD_SHARE = 4
#: Corrected, the same policies are also run with best-of-K planning, with every candidate counted as a query.
PLANNED_K = 5
#: Episodes for the policy and for the oracle in Table 1, and in Table 4.
PAPER_POLICY_EPISODES, PAPER_ORACLE_EPISODES = 20, 10
PAPER_TRANSFER_EPISODES, PAPER_TRANSFER_ORACLE = 30, 15


@dataclass(frozen=True)
class Scope:
    """How much is trained and evaluated; an episode has `picks` picks (as published, 50)."""

    paper: bool = False
    seeds: int = 5
    steps: int = 200_000
    episodes: int = 30
    budgets: tuple[float, ...] = BUDGETS
    context: tuple[str, ...] = ()
    collapse: bool = False
    picks: int = STEPS

    @property
    def kinds(self) -> dict[str, Settings]:
        """The settings of every kind of policy, by its name."""
        kinds = RUNS[self.paper] | dict(ENCODERS[encoder] for encoder in self.context)
        return kinds | ({SINGLE: Settings(paper=self.paper, games=1)} if self.collapse else {})

    @property
    def budgets_paid(self) -> tuple[float, ...]:
        """The budgets up to an episode's picks, which are the last of them."""
        return (*(budget for budget in self.budgets if budget < self.picks), float(self.picks))


@dataclass(frozen=True)
class Training:
    """One policy of a study: its kind, its settings, and its directory."""

    name: str
    settings: Settings
    directory: Path

    def run(self, suite: Suite) -> Policy:
        """Train it, resume its training, or load it if it is finished."""
        return train(suite.train, self.settings, validation=suite.validation, directory=self.directory)


def trainings(scope: Scope, directory: Path) -> list[Training]:
    """Every policy of the mode, one per kind and seed, each with its own directory."""
    jobs = []
    for name, settings in scope.kinds.items():
        shared = PER_HEAD_SHARE if settings.view == PER_HEAD_VIEW else 1
        steps = scope.steps * settings.games // (Settings().games * shared)
        for seed in range(1, scope.seeds + 1):
            run_directory = Path(directory) / f"{name.replace(' ', '-')}-seed{seed}"
            seeded = replace(settings, seed=seed, total_steps=steps, steps=scope.picks)
            jobs.append(Training(name, seeded, run_directory))
    return jobs


def train_policies(suite: Suite, jobs: Sequence[Training]) -> dict[str, list[Policy]]:
    """The policies, by kind in the order of their seeds."""
    policies: dict[str, list[Policy]] = {}
    for training in jobs:
        policies.setdefault(training.name, []).append(training.run(suite))
    return policies


def is_learned(method: str) -> bool:
    """Whether a method of the study is a trained policy."""
    names = [*RUNS[True], *RUNS[False], *(name for name, _ in ENCODERS.values()), SINGLE]
    return any(method.startswith(name) for name in names)


def planned_name(name: str) -> str:
    """The name of a policy that is run with best-of-K planning."""
    return f"{name} best-of-{PLANNED_K}"


# The episodes of a study, before it is made.

#: A task and the seed of its batch.
Episode = tuple[str, int]


class _Asked(Tables):
    """Tables without figures, which note the episodes that are asked for."""

    asked: dict[Episode, None]

    @classmethod
    def of(cls, tasks: Sequence[str], heads: tuple[str, ...]) -> "_Asked":
        """Tables of these tasks and heads."""
        tables = cls(heads, {task: np.zeros((1, len(heads)), np.float32) for task in tasks}, rows=1)
        object.__setattr__(tables, "asked", {})
        return tables

    def episode(self, task: str, seed: int) -> Float[np.ndarray, " head"]:
        """Nothing; the episode is noted."""
        self.asked[(task, seed)] = None
        return np.zeros(len(self.heads))


class _Rehearsal(Trainer):
    """A training that learns nothing: its games are played, at random, for their episodes' sake."""

    def play_round(self) -> dict[str, float]:
        """Play one round."""
        self.network = _at_random  # type: ignore[assignment]
        self._play()
        self.round += 1
        return {}


def _at_random(observation: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros(legal.shape).masked_fill(~legal, -1e9), torch.zeros(len(legal))


def episodes_of(settings: Settings, tasks: Sequence[str], heads: tuple[str, ...]) -> list[Episode]:
    """Every episode that a training of these settings plays, in order; which they are does not depend on the policy."""
    tables = _Asked.of(tasks, heads)
    rehearsal = _Rehearsal(tables, settings)
    while rehearsal.round < rehearsal.rounds:
        rehearsal.run_round()
    return list(tables.asked)


def training_episodes(jobs: Sequence[Training], tasks: Sequence[str], heads: tuple[str, ...]) -> list[Episode]:
    """The episodes of all trainings, each once. K = 1 and K = 5 of a seed play the same ones, as published."""
    alike: dict[tuple[object, ...], Settings] = {}
    for job in jobs:
        one = job.settings
        key = (one.seed, one.games, one.steps, one.total_steps, one.evaluate_every, one.paper or one.k)
        alike.setdefault(key, one)
    every = (episode for settings in alike.values() for episode in episodes_of(settings, tasks, heads))
    return list(dict.fromkeys(every))


def episodes_of_tables(scope: Scope, tasks: Sequence[str], held_out: Sequence[str]) -> Iterator[Episode]:
    """The episodes of all tables, each once."""
    for task in tasks:
        published = PAPER_TRANSFER_EPISODES if task in held_out else PAPER_POLICY_EPISODES
        needed = max(scope.episodes, published if scope.paper else 0)
        yield from ((task, number) for seed in range(scope.seeds) for number in episode_seeds(seed, needed))


def entropies(policies: Mapping[str, Sequence[Policy]]) -> dict[str, list[list[dict[str, float]]]]:
    """By kind and seed: in nats, how undecided a policy is about its first pick, as it learns."""
    return {
        name: [[{"step": step, "entropy": value} for step, value in _thinned(policy.entropy)] for policy in trained]
        for name, trained in policies.items()
        if all(policy.entropy for policy in trained)
    }


#: Points of a curve that are kept at most.
_POINTS = 60


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    step = -(-len(points) // _POINTS)
    return [*points[:-1:step], points[-1]]
