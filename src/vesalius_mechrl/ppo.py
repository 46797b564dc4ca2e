"""PPO on tables of effects, in one file, with every hyper-parameter in `Settings`.

A round is: play `steps` steps in each of 8 games, estimate advantages (GAE; a finished game is terminal), then 4 epochs
over the transitions in 8 shuffled minibatches. All randomness comes from the seed: weights, actions and shuffles from
one torch generator, episodes from one numpy generator per game. A checkpoint after every evaluation holds all of it, so
a run that was killed resumes and reaches the same numbers.

`k` > 1 is best-of-K planning. Corrected: the action of a step is the ordered draw of K candidates, with the probability
of that draw; every candidate is observed and counts against the budget. Published (`paper=True`): see
`environment.PAPER_QUIRKS`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.model.states import read_tensors, write_tensors
from vesalius_mechrl.environment import Episodes, HeadView, next_episode
from vesalius_mechrl.networks import (
    NO_HEAD,
    ActorCritic,
    PerHead,
    WithEncoder,
    WithRewardEncoder,
    draw_candidates,
    draw_log_prob,
    entropy,
)
from vesalius_mechrl.settings import ONE_HOT, PER_HEAD_VIEW, PROMPTS_VIEW, REWARDS_VIEW, Settings
from vesalius_mechrl.tables import EVALUATION_SEED, Tables

SCHEMA = 1
FIRST_GAME_SEED = 100
TASK_SEED_STEP = 10_000
_INDEX, _CURVE = "checkpoint.json", "curve.json"
#: Arrays of the games by their name in a checkpoint.
_GAME_ARRAYS = {
    **{name: name for name in ("task", "rewards", "tried", "paid", "used", "best", "fixed")},
    "alike": "similarity",
}
Network = ActorCritic | WithEncoder | WithRewardEncoder | PerHead


@dataclass(frozen=True)
class Policy:
    """A trained network with the tasks, heads and settings it was trained with, and its learning curve.

    `entropy` is how undecided it was about its first pick, in nats, by step (of policies with a label).
    """

    network: Network
    tasks: tuple[str, ...]
    heads: tuple[str, ...]
    settings: Settings
    curve: list[dict[str, Any]] = field(repr=False)
    entropy: list[tuple[int, float]] = field(default_factory=list, repr=False)


@dataclass
class Rollout:
    """Transitions of one round, [step, game, ...]; `next_value` is the value after the last step, [game]."""

    observations: Tensor
    action_masks: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor
    next_value: Tensor


def advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> Float[Tensor, "step game"]:
    """Generalised advantage estimates; a finished game is terminal."""
    estimates = torch.zeros_like(rollout.rewards)
    next_value, last_estimate = rollout.next_value, torch.zeros_like(rollout.next_value)
    for step in reversed(range(len(estimates))):
        continues = 1.0 - rollout.dones[step]
        td_error = rollout.rewards[step] + gamma * next_value * continues - rollout.values[step]
        last_estimate = td_error + gamma * gae_lambda * continues * last_estimate
        estimates[step], next_value = last_estimate, rollout.values[step]
    return estimates


def loss(
    network: Network,
    settings: Settings,
    minibatch: dict[str, Tensor],
) -> tuple[Float[Tensor, ""], dict[str, float]]:
    """Clipped policy loss, half squared value error and entropy bonus of one minibatch, and the diagnostics
    `approx_kl` and `clip_fraction`.
    """
    logits, value = network(minibatch["observations"], minibatch["action_masks"])
    log_ratio = draw_log_prob(logits, minibatch["actions"]) - minibatch["log_probs"]
    ratio = log_ratio.exp()
    advantage = minibatch["advantages"]
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    clipped_ratio = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    policy_loss = -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()
    value_loss = 0.5 * (value - minibatch["returns"]).square().mean()
    entropy_loss = entropy(logits).mean()
    with torch.no_grad():
        diagnostics = {
            "approx_kl": float((ratio - 1 - log_ratio).mean()),
            "clip_fraction": float(((ratio - 1).abs() > settings.clip).float().mean()),
        }
    total = policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy_loss
    return total, diagnostics


def learn(
    network: Any,
    optimiser: torch.optim.Optimizer,
    settings: Settings,
    rollout: Rollout,
    *,
    generator: torch.Generator,
) -> dict[str, float]:
    """The epochs over one round's transitions, and the mean diagnostics of their minibatches; `network` maps
    observations and action masks to logits and values.
    """
    estimates = advantages(rollout, settings.gamma, settings.gae_lambda)
    batch = {
        "observations": rollout.observations,
        "action_masks": rollout.action_masks,
        "actions": rollout.actions,
        "log_probs": rollout.log_probs,
        "advantages": estimates,
        "returns": estimates + rollout.values,
    }
    batch = {name: column.flatten(0, 1) for name, column in batch.items()}
    diagnostics: list[dict[str, float]] = []
    for _ in range(settings.epochs):
        order = torch.randperm(len(batch["returns"]), generator=generator)
        for index in order.tensor_split(settings.minibatches):
            if not len(index):
                continue
            optimiser.zero_grad()
            total, figures = loss(network, settings, {name: column[index] for name, column in batch.items()})
            total.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_norm)
            optimiser.step()
            diagnostics.append(figures)
    return {name: float(np.mean([figures[name] for figures in diagnostics])) for name in diagnostics[0]}


class Trainer:
    """One training run, one round at a time."""

    def __init__(self, tables: Tables, settings: Settings, *, validation: Tables | None = None) -> None:
        self.tables, self.settings, self.validation = tables, settings, validation or tables
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.games = games_of(settings, tables, settings.games, tables.names, paper=settings.paper)
        seeds = [settings.seed + FIRST_GAME_SEED + game for game in range(settings.games)]
        self.rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        for game, seed in enumerate(seeds):
            self._begin(game, seed)
        self.network = _network(settings, self.games.observe().shape[-1], len(tables.heads), self.generator)
        if isinstance(self.network, WithEncoder):
            self.network.standardise(as_float32(tables.embeddings()))
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=settings.learning_rate, eps=settings.adam_eps, fused=True
        )
        self.round, self.queries, self.evaluation_queries, self.curve = 0, 0, 0, []
        self.entropy: list[tuple[int, float]] = []
        per_step = 1 if settings.paper else settings.k
        self.round_steps = -(-(self.games.steps - int(self.games.used[0])) // per_step)
        self.rounds = max(1, settings.total_steps // (settings.games * self.games.steps))
        self._observe()

    @property
    def steps(self) -> int:
        """Training so far in the unit of an episode's budget: queries, or steps as published."""
        return self.round * self.settings.games * self.games.steps

    def play_round(self) -> dict[str, float]:
        """Play and learn one round; returns its point of the learning curve."""
        settings = self.settings
        rate = settings.learning_rate_at(self.round, self.rounds)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        rollout, best = self._play()
        diagnostics = learn(self.network, self.optimiser, settings, rollout, generator=self.generator)
        self.round += 1
        self.entropy += [(self.steps, value) for value in self._first_pick_entropy()]
        point = {"step": self.steps, "learning_rate": rate, "running_max": best, "queries": self.queries}
        return {**point, **diagnostics}

    @torch.no_grad()
    def _play(self) -> tuple[Rollout, float]:
        settings, transitions, bests = self.settings, [], []
        for _ in range(self.round_steps):
            observation, legal = self._observation, self._legal
            logits, value = self.network(observation, legal)
            candidates = draw_candidates(logits, self.games.width(settings.k), generator=self.generator)
            before, best = self.games.queries, self._best_so_far()
            reward, head = self.games.step(candidates.numpy())
            if settings.objective == "best":
                reward = (self._best_so_far() - best) / np.maximum(np.abs(self.games.rewards).max(1), 1e-12)
            self.queries += int((self.games.queries - before).sum())
            action = torch.from_numpy(head)[:, None] if settings.paper else candidates
            log_prob = draw_log_prob(logits, action)
            padding = (1 if settings.paper else settings.k) - action.shape[1]
            action = torch.nn.functional.pad(action, (0, padding), value=NO_HEAD)
            done = self.games.finished
            bests += self.games.best[done].tolist()
            transitions.append((observation, legal, action, log_prob, value, as_float32(reward), as_float32(done)))
            for game in np.flatnonzero(done):
                self._begin(int(game))
            self._observe()
        next_value = self.network(self._observation, self._legal)[1]
        columns = [torch.stack(column) for column in zip(*transitions, strict=True)]
        return Rollout(*columns, next_value=next_value), float(np.mean(bests))

    @torch.no_grad()
    def _first_pick_entropy(self) -> list[float]:
        """Mean entropy of an episode's first pick over the tasks; nothing of a policy that sees no label."""
        if self.settings.view != ONE_HOT:
            return []
        tasks, heads = len(self.tables.names), len(self.tables.heads)
        start = torch.cat([torch.eye(tasks), torch.zeros(tasks, 2 * heads)], 1)
        return [float(entropy(self.network(start, torch.ones(tasks, heads, dtype=torch.bool))[0]).mean())]

    def run_round(self) -> None:
        """Play and learn a round, and evaluate where that is due: after the first, the last and at every interval."""
        due = self.steps // self.settings.evaluate_every
        point: dict[str, Any] = dict(self.play_round())
        last = self.round == self.rounds
        if self.round == 1 or last or self.steps // self.settings.evaluate_every > due:
            point["evaluation"] = self.evaluate()
            point["evaluation_queries"] = self.evaluation_queries
            self.curve.append(point)

    def _best_so_far(self) -> Float[np.ndarray, " game"]:
        """The best reward of each game so far; before the first action it is the mean over all heads."""
        return np.where(np.isfinite(self.games.best), self.games.best, self.games.rewards.mean(1))

    def evaluate(self) -> dict[str, float]:
        """Mean running maximum of each task over fixed episodes; actions are sampled."""
        return self._evaluate_in_training_game() if self.settings.paper else self._evaluate_on_validation()

    def _evaluate_on_validation(self) -> dict[str, float]:
        """On validation rows, with separate games and random generators, so that training is not affected."""
        n, best_by_task = self.settings.evaluation_episodes, {}
        for number, task in enumerate(self.validation.names):
            games = games_of(self.settings, self.validation, n, self.tables.names)
            for game in range(n):
                games.begin(game, EVALUATION_SEED + TASK_SEED_STEP * number + game, task)
            generator = torch.Generator().manual_seed(self.settings.seed)
            play(self.network, games, k=self.settings.k, generator=generator)
            self.evaluation_queries += int(games.queries.sum())
            best_by_task[task] = float(games.best.mean())
        return best_by_task

    @torch.no_grad()
    def _evaluate_in_training_game(self) -> dict[str, float]:
        """As published: in training game 0, which stays reseeded and finished and keeps its old observation."""
        games, best_by_task = self.games, {}
        for number, task in enumerate(self.tables.names):
            bests = []
            for episode in range(self.settings.evaluation_episodes):
                seed = EVALUATION_SEED + TASK_SEED_STEP * number + episode
                self.rngs[0] = np.random.Generator(np.random.PCG64(seed))
                games.begin(0, *next_episode(self.rngs[0], self.tables.names, seed=seed, task=task))
                while not games.finished[0]:
                    legal = torch.from_numpy(games.legal[:1])
                    logits, _ = self.network(torch.from_numpy(games.observe()[:1]), legal)
                    width = min(self.settings.k, int(legal.sum()))
                    games.step(draw_candidates(logits, width, generator=self.generator).numpy(), slice(0, 1))
                self.evaluation_queries += int(games.queries[0])
                bests.append(games.best[0])
            best_by_task[task] = float(np.mean(bests))
        return best_by_task

    def _begin(self, game: int, seed: int | None = None) -> None:
        self.games.begin(game, *next_episode(self.rngs[game], self.tables.names, seed=seed))

    def _observe(self) -> None:
        self._observation, self._legal = torch.from_numpy(self.games.observe()), torch.from_numpy(self.games.legal)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything the rest of the run depends on: tensors, and data for JSON."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": tensor for name, tensor in moments.items()}
        for name, attribute in _GAME_ARRAYS.items():
            tensors[f"games.{name}"] = torch.from_numpy(getattr(self.games, attribute))
        tensors |= {"generator": self.generator.get_state(), "observation": self._observation, "legal": self._legal}
        rngs = [rng.bit_generator.state for rng in self.rngs]
        counts = {"round": self.round, "queries": self.queries, "evaluation_queries": self.evaluation_queries}
        return tensors, {**counts, "rngs": rngs, "curve": self.curve, "entropy": self.entropy}

    def restore(self, tensors: dict[str, Tensor], data: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.network.load_state_dict(_with_prefix(tensors, "network."))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _with_prefix(tensors, "adam.").items():
            number, moment = name.split(".")
            moments.setdefault(int(number), {})[moment] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        for name, attribute in _GAME_ARRAYS.items():
            getattr(self.games, attribute)[...] = tensors[f"games.{name}"].numpy()
        self.generator.set_state(tensors["generator"])
        self._observation, self._legal = tensors["observation"], tensors["legal"]
        for rng, state in zip(self.rngs, data["rngs"], strict=True):
            rng.bit_generator.state = state
        self.round, self.curve = data["round"], data["curve"]
        self.entropy = [(int(step), float(value)) for step, value in data.get("entropy", ())]
        self.queries, self.evaluation_queries = data["queries"], data["evaluation_queries"]


@torch.no_grad()
def play(network: Network, games: Episodes, *, k: int, generator: torch.Generator) -> list[list[int]]:
    """Play started games to their end with sampled actions; returns the heads each game queried, in order."""
    queried: list[dict[int, None]] = [{} for _ in range(len(games.used))]
    while not games.finished.all():
        logits, _ = network(torch.from_numpy(games.observe()), torch.from_numpy(games.legal))
        candidates = draw_candidates(logits, games.width(k), generator=generator).numpy()
        games.step(candidates)
        for order, heads in zip(queried, candidates.tolist(), strict=True):
            order.update(dict.fromkeys(heads))
    return [list(order) for order in queried]


def train(
    tables: Tables,
    settings: Settings | None = None,
    *,
    validation: Tables | None = None,
    directory: Path | None = None,
    rounds: int | None = None,
) -> Policy:
    """Train a policy; with a `directory`, write checkpoints and resume from the last one. `rounds` stops early."""
    settings = settings or Settings()
    trainer = Trainer(tables, settings, validation=validation)
    identity = {"settings": settings.document(), "tables": tables.digest(), "validation": trainer.validation.digest()}
    if directory is not None:
        _resume(trainer, Path(directory), identity)
    with _one_thread():
        while trainer.round < min(trainer.rounds, trainer.rounds if rounds is None else rounds):
            points = len(trainer.curve)
            trainer.run_round()
            if directory is not None and len(trainer.curve) > points:
                _save(trainer, Path(directory), identity)
    return Policy(trainer.network, tables.names, tables.heads, settings, trainer.curve, trainer.entropy)


def load_policy(directory: Path) -> Policy:
    """The policy of the last checkpoint in a directory."""
    directory = Path(directory)
    data = read_json(directory / _INDEX)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / _INDEX}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    settings = Settings.from_document(data["identity"]["settings"])
    weights = _with_prefix(read_tensors(directory / data["file"]), "network.")
    inputs = {ONE_HOT: "trunk.0.weight", PROMPTS_VIEW: "encoder.weight", PER_HEAD_VIEW: "single.weight"}
    features = weights[inputs.get(settings.view, "head")].shape[1]
    if settings.view == PROMPTS_VIEW:
        features += 2 * len(data["heads"])
    network = _network(settings, features, len(data["heads"]), None)
    network.load_state_dict(weights)
    return Policy(network, tuple(data["tasks"]), tuple(data["heads"]), settings, data["state"]["curve"])


def save_policy(policy: Policy, directory: Path) -> None:
    """Write a policy for `load_policy`, without the state that resuming its training would need."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    name = "policy.safetensors"
    weights = {f"network.{key}": tensor.detach().contiguous() for key, tensor in policy.network.state_dict().items()}
    write_tensors(directory / name, weights)
    description = {"schema": SCHEMA, "identity": {"settings": policy.settings.document()}, "file": name}
    description |= {"tasks": list(policy.tasks), "heads": list(policy.heads), "state": {"curve": policy.curve}}
    write_json(directory / _INDEX, description)


def view_of(settings: Settings, tables: Tables) -> HeadView | None:
    """The per-head view for these settings and tables; None for observations that are one vector."""
    return HeadView.of(tables.heads) if settings.view == PER_HEAD_VIEW else None


def games_of(
    settings: Settings,
    tables: Tables,
    n: int,
    tasks: tuple[str, ...],
    *,
    prime: str | None = None,
    paper: bool = False,
) -> Episodes:
    """Games with what a policy of these settings observes; `tasks` are those that it was trained on."""
    return Episodes(
        tables,
        n,
        paper=paper,
        steps=settings.steps,
        labels=() if settings.view == REWARDS_VIEW else tasks,
        prime=prime,
        view=view_of(settings, tables),
        context=settings.view == PROMPTS_VIEW,
    )


def _network(settings: Settings, features: int, heads: int, generator: torch.Generator | None) -> Network:
    if settings.view == "per-head":
        return PerHead(features, width=settings.width, generator=generator)
    if settings.view == REWARDS_VIEW:
        return WithRewardEncoder(heads, width=settings.width, generator=generator)
    if settings.view == PROMPTS_VIEW:
        return WithEncoder(features - 2 * heads, heads, width=settings.width, generator=generator)
    return ActorCritic(features, heads, width=settings.width, generator=generator)


def _save(trainer: Trainer, directory: Path, identity: dict[str, Any]) -> None:
    """Write the tensors, then the JSON that names them, then delete the previous checkpoint."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors, state = trainer.state()
    name = f"round-{trainer.round:06d}.safetensors"
    write_tensors(directory / name, {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()})
    description = {"schema": SCHEMA, "identity": identity, "file": name, "state": state}
    description |= {"tasks": list(trainer.tables.names), "heads": list(trainer.tables.heads)}
    write_json(directory / _INDEX, description)
    write_json(directory / _CURVE, {"unit": trainer.tables.unit, "curve": trainer.curve})
    for old in directory.glob("round-*.safetensors"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _resume(trainer: Trainer, directory: Path, identity: dict[str, Any]) -> None:
    if not (directory / _INDEX).exists():
        return
    data = read_json(directory / _INDEX)
    if data.get("schema") != SCHEMA or data.get("identity") != json.loads(json.dumps(identity)):
        raise BadInput(f"{directory}: holds the checkpoint of another run; choose an empty directory or delete it")
    trainer.restore(read_tensors(directory / data["file"]), data["state"])


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def as_float32(array: np.ndarray) -> Tensor:
    """A numpy array as a float32 tensor."""
    return torch.from_numpy(array.astype(np.float32))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run with one thread: for matrix products this small, more threads are slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
