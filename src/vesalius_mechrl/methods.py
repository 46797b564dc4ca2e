"""Search on a model itself instead of on tables: the discovery methods `bandit` and `rl`.

The heads are the arms, clean minus ablated score on the prompts is the reward, and the budget counts queries: one head
ablated on all prompts. `bandit` is Thompson sampling over single prompts. `rl` follows a policy: by default the one
that ships with the package (per head, trained on two behaviours of SmolLM2), or one trained here on prompts of another
pool, which costs a whole sweep of that pool. As published (`paper`): heads are replaced by their constant bias, the
policy observes the one-hot and the vectors, is trained here, and does not pay for attribution.

With several seeds, each search takes the prompts in another random order, and a head scores the mean of all its
samples. MLPs are not searched and have no score. A head that was never measured scores 0.

`forwards` counts what is run, not what the budget pays: the clean and the counterfactual prompts once for all searches,
the part of the model after the head for every sample, and for a policy attribution and attention.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.method import Method, MethodInput, MethodResult, NotResampled, Scores
from vesalius.discovery.stability import RESAMPLES
from vesalius.documents.checks import Stability
from vesalius.errors import BadInput, require_whole
from vesalius.intervene import Cost, Plan, Recordings, Replacement, run
from vesalius.intervene.ablations import Ablation, Resample, ValueBias
from vesalius.intervene.effects import ComponentSet
from vesalius.intervene.estimate import Workload, sweep_forwards
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.options.records import option
from vesalius_mechrl.environment import PAPER_QUIRKS, REWARD_SCALE, STEPS, HeadView
from vesalius_mechrl.matrices import Rows
from vesalius_mechrl.networks import draw_candidates
from vesalius_mechrl.ppo import Policy, load_policy, train
from vesalius_mechrl.settings import PER_HEAD, Settings
from vesalius_mechrl.strategies import QueryBudget, Strategy, run_strategy, thompson
from vesalius_mechrl.tables import ATTRIBUTION_PASSES, CleanFeatures, FeatureTables, Tables, measure_clean_features

TRAINING_STEPS = 20_000
#: Bytes of the clean run that are kept in memory for all samples.
RECORDING_MEMORY = 4 * 2**30
TASK = "task"
#: A forward pass that records attention.
ATTENTION_PASSES = 1


@dataclass(frozen=True)
class HeadSearch(Method):
    """A search of heads under a budget of queries; `strategies` says in which order each seed's search asks."""

    meaning = (
        "A head's score is the clean minus the edited score when it alone is replaced; a head that the search never "
        "paid for scores 0, and MLPs were not searched."
    )
    scores_edges = False
    heads_only = True
    budget: int | None = option(None, f"Heads to pay for. Default: {STEPS}, or all.")
    seeds: int = option(1, "Searches, each with its own random seed.")

    def __post_init__(self) -> None:
        require_whole(budget=1 if self.budget is None else self.budget, seeds=self.seeds)
        if self.seeds < 1:
            raise BadInput(f"`seeds` {self.seeds} is out of range; give at least 1")

    @property
    def as_published(self) -> bool:
        """Whether heads are replaced as in the paper."""
        return False

    def queries(self, heads: int) -> int:
        """The budget for a model with this many heads; refuses one that is out of range."""
        budget = min(STEPS, heads) if self.budget is None else self.budget
        if not 1 <= budget <= heads:
            raise BadInput(f"`budget` {budget}: the model has {heads} heads; choose 1 to {heads}")
        return budget

    def require(self, config: Config) -> None:
        """Refuse a budget that does not fit the model."""
        self.queries(config.n_layers * config.n_heads)

    def strategies(self, source: "HeadEffects", queries: int, seed: int) -> list[Strategy]:
        """One strategy per seed."""
        raise NotImplementedError

    def score(self, given: MethodInput) -> Scores:
        """The mean of all samples of each head, and the Jaccard index of the seeds' ten best (`seeds_jaccard`)."""
        material, progress, seed = given.material, given.progress, given.seed
        source = HeadEffects(given.specimen, material, paper=self.as_published)
        queries, n = self.queries(len(source.heads)), len(material.batch)
        if progress:
            total = self.seeds * queries * n
            source.on_sample = lambda done: progress(f"{self.name} search", done, total)
        samples: list[list[float]] = [[] for _ in source.heads]
        tops = []
        for number, strategy in enumerate(self.strategies(source, queries, seed)):
            rng = np.random.default_rng([seed, number])
            order = rng.permutation(n)
            budget = QueryBudget(source.sample, len(source.heads), n, float(queries), source.attribution, order=order)
            run_strategy(strategy, budget, rng)
            tops.append(_strongest(list(map(_mean, budget.samples))))
            for head, values in enumerate(budget.samples):
                samples[head] += values
        scores = dict(zip(source.heads, map(_mean, samples), strict=True))
        jaccard = _mean_jaccard(tops)
        metrics = {} if jaccard is None else {"seeds_jaccard": jaccard}
        return Scores(scores, {}, source.forwards, material.readout.unit, metrics=metrics)

    def cost(self, work: Workload) -> float:
        """The clean and the counterfactual prompts once, and the part of the model after the head for every sample."""
        heads = [(part,) for part in work.model.components if part.is_head]
        self.require(work.model.config)
        return 2 + self.seeds * self.queries(len(heads)) * _mean_share(work, heads)

    def stability(
        self, specimen: Specimen, result: MethodResult, size: int, *, seed: int = 0, resamples: int = RESAMPLES
    ) -> tuple[Stability, float]:
        """Refused: which heads were measured is a draw itself."""
        raise NotResampled(
            f"{self.name} looks where its own draws lead it, so its scores cannot be resampled; `seeds` 5 "
            "compares five searches instead"
        )


@dataclass(frozen=True)
class Bandit(HeadSearch):
    """As a sweep, heads only, by Thompson sampling over single prompts."""

    name = "bandit"

    def strategies(self, source: "HeadEffects", queries: int, seed: int) -> list[Strategy]:
        """The same for every seed."""
        return [thompson()] * self.seeds


@dataclass(frozen=True)
class RL(HeadSearch):
    """As a sweep, heads only, in the order of a policy."""

    name = "rl"
    paper: bool = option(False, "As published, quirks included; says which.")
    steps: int = option(0, "Train a policy here for so many steps (0: the packaged one).")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(steps=self.steps)
        if self.steps < 0:
            raise BadInput(f"`steps` {self.steps} is out of range; give at least 0")

    @property
    def as_published(self) -> bool:
        """By its constant bias."""
        return self.paper

    @property
    def quirks(self) -> Mapping[str, str]:
        """What the published search does."""
        return PAPER_QUIRKS if self.paper else {}

    @property
    def training_steps(self) -> int:
        """For how long a policy is trained here."""
        return self.steps or (TRAINING_STEPS if self.paper else 0)

    def require(self, config: Config) -> None:
        """Refuse a budget that leaves nothing after attribution."""
        budget = self.queries(config.n_layers * config.n_heads)
        if not self.paper and budget <= ATTRIBUTION_PASSES:
            raise BadInput(
                f"`budget` {budget}: the policy pays {ATTRIBUTION_PASSES} queries for attribution first; "
                f"give at least {ATTRIBUTION_PASSES + 1}"
            )

    def cost(self, work: Workload) -> float:
        """The same, and a sweep of another pool where a policy is trained."""
        heads = [(part,) for part in work.model.components if part.is_head]
        return super().cost(work) + (len(heads) * _mean_share(work, heads) if self.training_steps else 0.0)

    def strategies(self, source: "HeadEffects", queries: int, seed: int) -> list[Strategy]:
        """The packaged policy, or one trained here for each seed."""
        view = HeadView.of(tuple(map(str, source.heads)))
        if self.training_steps:
            tables = _training_tables(source, seed)
            base = replace(Settings(paper=True) if self.paper else PER_HEAD, steps=queries)
            settings = [replace(base, seed=seed + 1 + i, total_steps=self.training_steps) for i in range(self.seeds)]
            policies = [train(tables, each) for each in settings]
        else:
            policies = [packaged_policy()] * self.seeds
        fixed = None
        if not self.paper:
            features = source.features
            fixed = view.fixed(source.attribution(), features.attention.mean(0).double().numpy())
        return [_policy_strategy(policy, view, fixed, seed + i) for i, policy in enumerate(policies)]


def _mean_share(work: Workload, heads: Sequence[ComponentSet]) -> float:
    """The mean part of a pass that is run for one head."""
    return (sweep_forwards(work.model, heads) - 1) / len(heads)


class HeadEffects:
    """Effects of a specimen's heads on its prompts, measured on request; counts forward passes."""

    def __init__(self, specimen: Specimen, material: Trial, *, paper: bool) -> None:
        self.specimen, self.material = specimen, material
        self.ablation: Ablation = ValueBias() if paper else Resample()
        self.heads = [part for part in specimen.model.components if part.is_head]
        self.n_samples, self._cost = 0, Cost()
        self.on_sample: Callable[[int], None] | None = None
        model = specimen.model
        # A larger memory limit than elsewhere: recomputing the clean run for every sample would cost too much.
        self._clean = Recordings(model, material.batch.to(model.device), material.readout, memory=RECORDING_MEMORY)

    @property
    def forwards(self) -> float:
        """The cost so far, in forward passes of all prompts."""
        return self._cost.rows / len(self.material.batch)

    def add_cost(self, rows: float) -> None:
        """Count work on other prompts, in forward passes of one prompt."""
        self._cost.rows += rows

    @cached_property
    def baseline(self) -> Float[Tensor, " prompt"]:
        """The clean score of every prompt."""
        self._cost.rows += len(self.material.batch)
        return self._clean.scores().cpu()

    @cached_property
    def replacement(self) -> Replacement:
        """The values that heads are replaced by."""
        data = self.material
        self._cost.rows += self.ablation.runs * len(data.batch)
        return self.ablation.table(self.specimen.model, data.batch, counterfactual=data.counterfactual)

    def sample(self, head: int, rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Clean minus ablated score of one head on some prompts; `on_sample` gets the number of samples so far."""
        self.n_samples += len(rows)
        if self.on_sample:
            self.on_sample(self.n_samples)
        return self.effects([self.heads[head]], torch.from_numpy(rows))[:, 0]

    def effects(self, heads: list[Component], rows: Int[Tensor, " row"]) -> Float[np.ndarray, "row head"]:
        """Clean minus ablated score of several heads on some prompts."""
        clean, replacement = self.baseline, self.replacement
        where = self.material.where if self.ablation.from_counterfactual else None
        plan = Plan.grid(
            self.specimen.model.config,
            [[head] for head in heads],
            choices=replacement.choices[rows],
            positions=None if where is None else where[rows],
        )
        plan = replace(plan, prompt=rows[plan.prompt])
        scores = run(self._clean, plan, replacement.values, cost=self._cost).cpu().view(len(heads), len(rows)).T
        return (clean[rows][:, None] - scores).double().numpy()

    @cached_property
    def features(self) -> CleanFeatures:
        """Attribution and attention of every head."""
        data, model = self.material, self.specimen.model
        readout, passes = smooth_readout(model, data)
        self._cost.rows += (passes + ATTRIBUTION_PASSES + ATTENTION_PASSES) * len(data.batch)
        rows = Rows(data.batch, readout, data.counterfactual)
        return measure_clean_features(model, rows, kind=self.ablation, heads=self.heads, replacement=self.replacement)

    def attribution(self) -> Float[np.ndarray, " head"]:
        """Mean attribution of every head."""
        return self.features.attribution.mean(0).double().numpy()


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _strongest(scores: list[float]) -> set[int]:
    """The ten heads with the largest scores by magnitude, without those that score 0."""
    return {int(head) for head in np.argsort(-np.abs(scores))[:10] if scores[head] != 0}


def packaged_policy() -> Policy:
    """The per-head policy that ships with the package."""
    return load_policy(Path(str(files("vesalius_mechrl") / "trained")))


def _policy_strategy(
    policy: Policy, view: HeadView, fixed: Float[np.ndarray, "head feature"] | None, seed: int
) -> Strategy:
    """A policy's actions on a model, sampled as in training."""

    @torch.no_grad()
    def strategy(budget: QueryBudget, rng: np.random.Generator) -> None:
        generator = torch.Generator().manual_seed(seed)
        tried, rewards = np.zeros((1, budget.heads), bool), np.zeros((1, budget.heads))
        if fixed is not None:
            budget.attribute()
        while not tried.all():
            if fixed is None:
                observation = np.concatenate([np.ones((1, 1)), tried, np.where(tried, rewards / REWARD_SCALE, 0)], 1)
            else:
                spent = np.array([budget.spent / budget.total])
                observation = view.observe(fixed[None], view.similarity(fixed)[None], tried, rewards, spent)
            logits, _ = policy.network(torch.from_numpy(observation.astype(np.float32)), torch.from_numpy(~tried))
            head = int(draw_candidates(logits, 1, generator=generator)[0, 0])
            rewards[0, head] = budget.query(head)
            tried[0, head] = True

    return strategy


def _training_tables(source: HeadEffects, seed: int) -> Tables:
    """Effects of every head on as many prompts of the training pool, none of them used in the search."""
    paper = not source.ablation.from_counterfactual
    other = trial(source.specimen, len(source.material.batch), seed=seed + 1, split="train", apart_from=source.material)
    n = len(other.batch)
    training = HeadEffects(source.specimen, other, paper=paper)
    table = training.effects(training.heads, torch.arange(n)).astype(np.float32)
    features = None if paper else FeatureTables.of({TASK: training.features}, None)
    source.add_cost(training.forwards * n)
    unit = other.readout.unit
    return Tables(tuple(map(str, source.heads)), {TASK: table}, None, rows=max(1, n // 2), unit=unit, features=features)


def _mean_jaccard(tops: list[set[int]]) -> float | None:
    """Mean Jaccard index of the seeds' ten strongest heads."""
    pairs = [(one, other) for i, one in enumerate(tops) for other in tops[i + 1 :] if one | other]
    return float(np.mean([len(one & other) / len(one | other) for one, other in pairs])) if pairs else None
