"""PPO on tables of effects, in one file, with every number of the paper in `Settings`.

A round is: play `steps` steps in each of 8 games, estimate advantages (GAE; a finished game is terminal), then 4 passes
over the transitions in 8 shuffled portions. Everything random comes from the seed: weights, picks and shuffles from one
torch generator, episodes from one numpy generator per game. A checkpoint after every evaluation holds all of it, so a
run that was killed goes on to the same numbers.

`k` > 1 is best-of-K planning. Corrected: the step's action is the ordered draw of K candidates, with that draw's own
probability, every candidate is seen and counts against the budget. Published (`paper=True`): see
`environment.PAPER_QUIRKS`.

`view` is what the policy sees: the published one-hot and vectors over heads, or features per head. `objective` is what
it is taught: the published sum of rewards, or what the search is judged by, the best head found (each step's gain over
the best so far, as a part of the largest reward's size). `PER_HEAD` are the settings of the corrected policy.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.discovery.mechrl.environment import STEPS, Episodes, next_episode
from vesalius.discovery.mechrl.features import HeadView
from vesalius.discovery.mechrl.policy import NOBODY, ActorCritic, PerHead, draw_candidates, draw_log_prob, entropy
from vesalius.discovery.mechrl.tables import EVALUATION_SEED, Tables
from vesalius.errors import BadInput, choices
from vesalius.files import read_json, write_json
from vesalius.model.files import read_tensors, write_tensors

SCHEMA = 1
FIRST_GAME_SEED = 100
TASK_SEED_STEP = 10_000
_INDEX, _CURVE = "checkpoint.json", "curve.json"
_GAME_ARRAYS = ("task", "rewards", "tried", "paid", "used", "best", "fixed", "alike")
VIEWS, OBJECTIVES = ("one-hot", "per-head"), ("sum", "best")
Network = ActorCritic | PerHead
Told = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    """The published hyper-parameters."""

    seed: int = 1
    k: int = 1
    paper: bool = False
    games: int = 8
    steps: int = STEPS
    total_steps: int = 200_000
    learning_rate: float = 2.5e-4
    least_learning_rate_share: float = 0.2
    adam_eps: float = 1e-5
    gradient_norm: float = 0.5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.1
    value_weight: float = 0.5
    epochs: int = 4
    portions: int = 8
    width: int = 256
    evaluate_every: int = 4_000
    evaluation_episodes: int = 8
    view: str = "one-hot"
    objective: str = "sum"

    def __post_init__(self) -> None:
        if self.view not in VIEWS or self.objective not in OBJECTIVES:
            raise BadInput(f"view is one of {choices(VIEWS)} and objective one of {choices(OBJECTIVES)}")
        if self.paper and (self.view, self.objective) != ("one-hot", "sum"):
            raise BadInput("the published policy sees a one-hot and is taught the sum; leave view and objective alone")
        if min(self.k, self.games, self.steps, self.epochs, self.portions, self.evaluate_every) < 1:
            raise BadInput("k, games, steps, epochs, portions and evaluate_every must be at least 1")

    def learning_rate_at(self, round_number: int, rounds: int) -> float:
        """Linear towards zero, floored at a fifth (the paper says: linear to a fifth). Rounds count from 0."""
        return self.learning_rate * max(1 - round_number / rounds, self.least_learning_rate_share)


PER_HEAD = Settings(view="per-head", objective="best", width=32, learning_rate=5e-3, entropy_weight=0.01, gamma=0.95)


@dataclass(frozen=True)
class Policy:
    """A trained network with what is needed to use it."""

    network: Network
    tasks: tuple[str, ...]
    heads: tuple[str, ...]
    settings: Settings
    curve: list[dict[str, Any]] = field(repr=False)


@dataclass
class Rollout:
    """Transitions of one round, [step, game, ...]."""

    observation: Tensor
    legal: Tensor
    drawn: Tensor
    log_prob: Tensor
    value: Tensor
    reward: Tensor
    finished: Tensor
    last_value: Tensor


def advantages(rollout: Rollout, gamma: float, lam: float) -> Float[Tensor, "step game"]:
    """Generalised advantage estimates; nothing is carried over the end of a game."""
    found = torch.zeros_like(rollout.reward)
    following, carried = rollout.last_value, torch.zeros_like(rollout.last_value)
    for step in reversed(range(len(found))):
        goes_on = 1.0 - rollout.finished[step]
        surprise = rollout.reward[step] + gamma * following * goes_on - rollout.value[step]
        carried = surprise + gamma * lam * goes_on * carried
        found[step], following = carried, rollout.value[step]
    return found


def loss(
    network: Network,
    settings: Settings,
    rows: dict[str, Tensor],
) -> Float[Tensor, ""]:
    """Clipped policy loss, half squared value error and entropy bonus of one portion."""
    logits, value = network(rows["observation"], rows["legal"])
    ratio = (draw_log_prob(logits, rows["drawn"]) - rows["log_prob"]).exp()
    advantage = rows["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    policy = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    error = 0.5 * (value - rows["return"]).square().mean()
    return policy + settings.value_weight * error - settings.entropy_weight * entropy(logits).mean()


def learn(
    network: Any,
    optimiser: torch.optim.Optimizer,
    settings: Settings,
    rollout: Rollout,
    *,
    generator: torch.Generator,
) -> None:
    """The passes over one round's transitions; `network` maps observations and legal actions to logits and values."""
    advantage = advantages(rollout, settings.gamma, settings.gae_lambda)
    rows = {
        "observation": rollout.observation,
        "legal": rollout.legal,
        "drawn": rollout.drawn,
        "log_prob": rollout.log_prob,
        "advantage": advantage,
        "return": advantage + rollout.value,
    }
    rows = {name: column.flatten(0, 1) for name, column in rows.items()}
    for _ in range(settings.epochs):
        order = torch.randperm(len(rows["return"]), generator=generator)
        for portion in order.tensor_split(settings.portions):
            if not len(portion):
                continue
            optimiser.zero_grad()
            loss(network, settings, {name: column[portion] for name, column in rows.items()}).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), settings.gradient_norm)
            optimiser.step()


class Trainer:
    """One training run, a round at a time."""

    def __init__(self, tables: Tables, settings: Settings, *, validation: Tables | None = None) -> None:
        self.tables, self.settings, self.validation = tables, settings, validation or tables
        self.generator = torch.Generator().manual_seed(settings.seed)
        view = view_of(settings, tables)
        self.games = Episodes(tables, settings.games, paper=settings.paper, steps=settings.steps, view=view)
        seeds = [settings.seed + FIRST_GAME_SEED + game for game in range(settings.games)]
        self.rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        for game, seed in enumerate(seeds):
            self._begin(game, seed)
        self.network = _network(settings, self.games.observe().shape[-1], len(tables.heads), self.generator)
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=settings.learning_rate, eps=settings.adam_eps, fused=True
        )
        self.round, self.queries, self.evaluation_queries, self.curve = 0, 0, 0, []
        per_step = 1 if settings.paper else settings.k
        self.round_steps = -(-(self.games.steps - int(self.games.used[0])) // per_step)
        self.rounds = max(1, settings.total_steps // (settings.games * self.games.steps))
        self._see()

    @property
    def steps(self) -> int:
        """Training so far in what an episode's budget counts: queries, or commitments as published."""
        return self.round * self.settings.games * self.games.steps

    def play_round(self) -> dict[str, float]:
        """Play, learn, and say how it went."""
        settings = self.settings
        rate = settings.learning_rate_at(self.round, self.rounds)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        rollout, best = self._play()
        self._learn(rollout)
        self.round += 1
        return {"step": self.steps, "learning_rate": rate, "running_max": best, "queries": self.queries}

    @torch.no_grad()
    def _play(self) -> tuple[Rollout, float]:
        settings, kept, bests = self.settings, [], []
        for _ in range(self.round_steps):
            observation, legal = self._observation, self._legal
            logits, value = self.network(observation, legal)
            candidates = draw_candidates(logits, self.games.width(settings.k), generator=self.generator)
            before, best = self.games.queries, self._best_so_far()
            reward, head = self.games.step(candidates.numpy())
            if settings.objective == "best":
                reward = (self._best_so_far() - best) / np.maximum(np.abs(self.games.rewards).max(1), 1e-12)
            self.queries += int((self.games.queries - before).sum())
            drawn = torch.from_numpy(head)[:, None] if settings.paper else candidates
            log_prob = draw_log_prob(logits, drawn)
            missing = (1 if settings.paper else settings.k) - drawn.shape[1]
            drawn = torch.nn.functional.pad(drawn, (0, missing), value=NOBODY)
            finished = self.games.finished
            bests += self.games.best[finished].tolist()
            kept.append((observation, legal, drawn, log_prob, value, as_float32(reward), as_float32(finished)))
            for game in np.flatnonzero(finished):
                self._begin(int(game))
            self._see()
        last_value = self.network(self._observation, self._legal)[1]
        columns = [torch.stack(column) for column in zip(*kept, strict=True)]
        return Rollout(*columns, last_value=last_value), float(np.mean(bests))

    def _best_so_far(self) -> Float[np.ndarray, " game"]:
        """The best reward found in each game; a game without a pick has the mean of its heads."""
        return np.where(np.isfinite(self.games.best), self.games.best, self.games.rewards.mean(1))

    def _learn(self, rollout: Rollout) -> None:
        learn(self.network, self.optimiser, self.settings, rollout, generator=self.generator)

    def evaluate(self) -> dict[str, float]:
        """Mean running maximum of each task over fixed episodes, heads sampled."""
        return self._evaluate_in_game_0() if self.settings.paper else self._evaluate_apart()

    def _evaluate_apart(self) -> dict[str, float]:
        """On validation rows, in games and with random numbers of their own: training cannot notice."""
        n, found = self.settings.evaluation_episodes, {}
        for number, task in enumerate(self.validation.names):
            view = view_of(self.settings, self.validation)
            games = Episodes(self.validation, n, steps=self.settings.steps, labels=self.tables.names, view=view)
            for game in range(n):
                games.begin(game, EVALUATION_SEED + TASK_SEED_STEP * number + game, task)
            generator = torch.Generator().manual_seed(self.settings.seed)
            play(self.network, games, k=self.settings.k, generator=generator)
            self.evaluation_queries += int(games.queries.sum())
            found[task] = float(games.best.mean())
        return found

    @torch.no_grad()
    def _evaluate_in_game_0(self) -> dict[str, float]:
        """As published: in training game 0, which stays reseeded and finished, with its old observation kept."""
        games, found = self.games, {}
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
            found[task] = float(np.mean(bests))
        return found

    def _begin(self, game: int, seed: int | None = None) -> None:
        self.games.begin(game, *next_episode(self.rngs[game], self.tables.names, seed=seed))

    def _see(self) -> None:
        self._observation, self._legal = torch.from_numpy(self.games.observe()), torch.from_numpy(self.games.legal)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything the rest of the run depends on: tensors, and what JSON can hold."""
        tensors = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        for number, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": tensor for name, tensor in moments.items()}
        tensors |= {f"games.{name}": torch.from_numpy(getattr(self.games, name)) for name in _GAME_ARRAYS}
        tensors |= {"generator": self.generator.get_state(), "observation": self._observation, "legal": self._legal}
        rngs = [rng.bit_generator.state for rng in self.rngs]
        counts = {"round": self.round, "queries": self.queries, "evaluation_queries": self.evaluation_queries}
        return tensors, {**counts, "rngs": rngs, "curve": self.curve}

    def restore(self, tensors: dict[str, Tensor], data: dict[str, Any]) -> None:
        """Go back to what `state` returned."""
        self.network.load_state_dict(_under(tensors, "network."))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, "adam.").items():
            number, moment = name.split(".")
            moments.setdefault(int(number), {})[moment] = tensor
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})
        for name in _GAME_ARRAYS:
            getattr(self.games, name)[...] = tensors[f"games.{name}"].numpy()
        self.generator.set_state(tensors["generator"])
        self._observation, self._legal = tensors["observation"], tensors["legal"]
        for rng, state in zip(self.rngs, data["rngs"], strict=True):
            rng.bit_generator.state = state
        self.round, self.curve = data["round"], data["curve"]
        self.queries, self.evaluation_queries = data["queries"], data["evaluation_queries"]


@torch.no_grad()
def play(network: Network, games: Episodes, *, k: int, generator: torch.Generator) -> list[list[int]]:
    """Play begun games to their end, heads sampled; the heads each game paid for, in order, none twice."""
    paid: list[dict[int, None]] = [{} for _ in range(len(games.used))]
    while not games.finished.all():
        logits, _ = network(torch.from_numpy(games.observe()), torch.from_numpy(games.legal))
        candidates = draw_candidates(logits, games.width(k), generator=generator).numpy()
        games.step(candidates)
        for order, heads in zip(paid, candidates.tolist(), strict=True):
            order.update(dict.fromkeys(heads))
    return [list(order) for order in paid]


def train(
    tables: Tables,
    settings: Settings | None = None,
    *,
    validation: Tables | None = None,
    directory: Path | None = None,
    told: Told | None = None,
    rounds: int | None = None,
) -> Policy:
    """Train a policy; with a `directory`, save as it goes and resume what was saved. `rounds` stops early."""
    settings = settings or Settings()
    trainer = Trainer(tables, settings, validation=validation)
    identity = {"settings": asdict(settings), "tables": tables.digest(), "validation": trainer.validation.digest()}
    if directory is not None:
        _resume(trainer, Path(directory), identity)
    with _one_thread():
        while trainer.round < min(trainer.rounds, trainer.rounds if rounds is None else rounds):
            due = trainer.steps // settings.evaluate_every
            point: dict[str, Any] = dict(trainer.play_round())
            last = trainer.round == trainer.rounds
            if trainer.round == 1 or last or trainer.steps // settings.evaluate_every > due:
                point["evaluation"] = trainer.evaluate()
                point["evaluation_queries"] = trainer.evaluation_queries
                trainer.curve.append(point)
                if directory is not None:
                    _save(trainer, Path(directory), identity)
                if told:
                    told(point)
    return Policy(trainer.network, tables.names, tables.heads, settings, trainer.curve)


def load_policy(directory: Path) -> Policy:
    """The policy of the last checkpoint in a directory."""
    directory = Path(directory)
    data = read_json(directory / _INDEX)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / _INDEX}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    settings = Settings(**data["identity"]["settings"])
    weights = _under(read_tensors(directory / data["file"]), "network.")
    first = weights["trunk.0.weight" if settings.view == "one-hot" else "single.weight"]
    network = _network(settings, first.shape[1], len(data["heads"]), None)
    network.load_state_dict(weights)
    return Policy(network, tuple(data["tasks"]), tuple(data["heads"]), settings, data["state"]["curve"])


def save_policy(policy: Policy, directory: Path) -> None:
    """Write a policy alone, without what resuming its training would need, for `load_policy`."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    name = "policy.safetensors"
    weights = {f"network.{key}": tensor.detach().contiguous() for key, tensor in policy.network.state_dict().items()}
    write_tensors(directory / name, weights)
    described = {"schema": SCHEMA, "identity": {"settings": asdict(policy.settings)}, "file": name}
    described |= {"tasks": list(policy.tasks), "heads": list(policy.heads), "state": {"curve": policy.curve}}
    write_json(directory / _INDEX, described)


def view_of(settings: Settings, tables: Tables) -> HeadView | None:
    """How a policy of these settings sees the heads of these tables."""
    return None if settings.view == "one-hot" else HeadView.of(tables.heads)


def _network(settings: Settings, features: int, heads: int, generator: torch.Generator | None) -> Network:
    if settings.view == "per-head":
        return PerHead(features, width=settings.width, generator=generator)
    return ActorCritic(features, heads, width=settings.width, generator=generator)


def _save(trainer: Trainer, directory: Path, identity: dict[str, Any]) -> None:
    """Tensors first, then the JSON that names them, then forget the checkpoint before."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors, state = trainer.state()
    name = f"round-{trainer.round:06d}.safetensors"
    write_tensors(directory / name, {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()})
    described = {"schema": SCHEMA, "identity": identity, "file": name, "state": state}
    described |= {"tasks": list(trainer.tables.names), "heads": list(trainer.tables.heads)}
    write_json(directory / _INDEX, described)
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


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def as_float32(array: np.ndarray) -> Tensor:
    """An array of rewards or flags as networks take it."""
    return torch.from_numpy(array.astype(np.float32))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sharing out products this small costs more than doing them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
