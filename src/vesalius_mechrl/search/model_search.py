"""Search on a model itself instead of on tables: `discover --method bandit` and `--method rl`.

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

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Plan, Readout, Recordings, Replacement, run
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius_mechrl.clean_features import ATTRIBUTION_PASSES, CleanFeatures, measure_clean_features
from vesalius_mechrl.environment import REWARD_SCALE, STEPS
from vesalius_mechrl.features import HeadView
from vesalius_mechrl.matrices import PUBLISHED_KIND, Rows
from vesalius_mechrl.policy import draw_candidates
from vesalius_mechrl.ppo import PER_HEAD, Policy, Settings, load_policy, train
from vesalius_mechrl.search.budget import QueryBudget
from vesalius_mechrl.search.strategies import Strategy, run_strategy, thompson
from vesalius_mechrl.tables import FeatureTables, Tables

SEARCHES = ("bandit", "rl")
TRAINING_STEPS = 20_000
#: Bytes of the clean run that are kept in memory for all samples.
RECORDING_MEMORY = 4 * 2**30
TASK = "task"
#: A forward pass that records attention.
ATTENTION_PASSES = 1
#: From a model and a trial to a readout with a useful gradient, and the forward passes that computing it took.
SmoothReadout = Callable[[Transformer, Trial], tuple[Readout, int]]


@dataclass(frozen=True)
class MethodOptions:
    """Options of methods. `budget`, `paper` and `seeds` are those of searches; `budget` None: 50 queries, or as many as
    there are heads. `steps` are those that the policy of `rl` is trained for (0: none), or the points at which EAP-IG
    takes the gradient (0: its usual number).
    """

    budget: int | None = None
    paper: bool = False
    seeds: int = 1
    steps: int = 0

    def budget_of(self, heads: int) -> int:
        """The budget for a model with this many heads; refuses one that is out of range."""
        budget = min(STEPS, heads) if self.budget is None else self.budget
        if not 1 <= budget <= heads:
            raise BadInput(f"`budget` {budget}: the model has {heads} heads; choose 1 to {heads}")
        return budget

    def require(self, method: str, heads: int) -> None:
        """Refuse options that do not fit a model with this many heads, before anything is run."""
        budget = self.budget_of(heads)
        if self.seeds < 1 or self.steps < 0:
            raise BadInput(
                f"`seeds` {self.seeds} and `steps` {self.steps} are out of range; they must be at least 1 and 0"
            )
        if method == "bandit" and (self.steps or self.paper):
            raise BadInput("`steps` and `paper` belong to `method` rl; a bandit is not trained before the search")
        if method == "rl" and not self.paper and budget <= ATTRIBUTION_PASSES:
            raise BadInput(
                f"`budget` {budget}: the policy pays {ATTRIBUTION_PASSES} queries for attribution first; "
                f"give at least {ATTRIBUTION_PASSES + 1}"
            )


@dataclass(frozen=True)
class SearchResult:
    """Scores of the heads, the cost in forward passes of all prompts, and the Jaccard index of the seeds' ten best."""

    components: dict[Component, float]
    forwards: float
    jaccard: float | None


class HeadEffects:
    """Effects of a specimen's heads on its prompts, measured on request; counts forward passes."""

    def __init__(self, specimen: Specimen, material: Trial, *, paper: bool, smooth: SmoothReadout) -> None:
        self.specimen, self.material, self.smooth = specimen, material, smooth
        self.kind = PUBLISHED_KIND if paper else "resample"
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
        self._cost.rows += len(data.batch) if self.kind == "resample" else 0
        return Replacement.of_kind(self.kind, self.specimen.model, data.batch, counterfactual=data.counterfactual)

    def sample(self, head: int, rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Clean minus ablated score of one head on some prompts; `on_sample` gets the number of samples so far."""
        self.n_samples += len(rows)
        if self.on_sample:
            self.on_sample(self.n_samples)
        return self.effects([self.heads[head]], torch.from_numpy(rows))[:, 0]

    def effects(self, heads: list[Component], rows: Int[Tensor, " row"]) -> Float[np.ndarray, "row head"]:
        """Clean minus ablated score of several heads on some prompts."""
        clean, replacement = self.baseline, self.replacement
        where = self.material.where if self.kind == "resample" else None
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
        readout, passes = self.smooth(model, data)
        self._cost.rows += (passes + ATTRIBUTION_PASSES + ATTENTION_PASSES) * len(data.batch)
        rows = Rows(data.batch, readout, data.counterfactual)
        return measure_clean_features(model, rows, kind=self.kind, heads=self.heads, replacement=self.replacement)

    def attribution(self) -> Float[np.ndarray, " head"]:
        """Mean attribution of every head."""
        return self.features.attribution.mean(0).double().numpy()


def search_heads(
    specimen: Specimen,
    material: Trial,
    method: str,
    options: MethodOptions,
    *,
    smooth: SmoothReadout,
    seed: int = 0,
    progress: Progress | None = None,
) -> SearchResult:
    """Search a specimen's heads on the given prompts; `smooth` makes the readout for attribution."""
    source = HeadEffects(specimen, material, paper=options.paper, smooth=smooth)
    options.require(method, len(source.heads))
    queries, n = options.budget_of(len(source.heads)), len(material.batch)
    if progress:
        source.on_sample = partial(_report, progress, method, options.seeds * queries * n)
    strategies = [thompson()] * options.seeds if method == "bandit" else _policies(source, options, queries, seed)
    samples: list[list[float]] = [[] for _ in source.heads]
    tops = []
    for number, strategy in enumerate(strategies):
        rng = np.random.default_rng([seed, number])
        order = rng.permutation(n)
        budget = QueryBudget(source.sample, len(source.heads), n, float(queries), source.attribution, order=order)
        run_strategy(strategy, budget, rng)
        tops.append(_strongest(list(map(_mean, budget.samples))))
        for head, values in enumerate(budget.samples):
            samples[head] += values
    scores = dict(zip(source.heads, map(_mean, samples), strict=True))
    return SearchResult(scores, source.forwards, _mean_jaccard(tops))


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _strongest(scores: list[float]) -> set[int]:
    """The ten heads with the largest scores by magnitude, without those that score 0."""
    return {int(head) for head in np.argsort(-np.abs(scores))[:10] if scores[head] != 0}


def _report(progress: Progress, method: str, total: int, done: int) -> None:
    progress(f"{method} search", done, total)


def packaged_policy() -> Policy:
    """The per-head policy that ships with the package."""
    return load_policy(Path(str(files("vesalius_mechrl") / "trained")))


def _policies(source: HeadEffects, options: MethodOptions, queries: int, seed: int) -> list[Strategy]:
    """One strategy per seed."""
    view = HeadView.of(tuple(map(str, source.heads)))
    steps = options.steps or (TRAINING_STEPS if options.paper else 0)
    if steps:
        tables = _training_tables(source, seed)
        base = Settings(paper=True) if options.paper else PER_HEAD
        settings = [replace(base, seed=seed + 1 + i, steps=queries, total_steps=steps) for i in range(options.seeds)]
        policies = [train(tables, each) for each in settings]
    else:
        policies = [packaged_policy()] * options.seeds
    fixed = None
    if not options.paper:
        features = source.features
        fixed = view.fixed(source.attribution(), features.attention.mean(0).double().numpy())
    return [_policy_strategy(policy, view, fixed, seed + i) for i, policy in enumerate(policies)]


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
    other = trial(source.specimen, len(source.material.batch), seed=seed + 1, split="train", apart_from=source.material)
    n = len(other.batch)
    training = HeadEffects(source.specimen, other, paper=source.kind == PUBLISHED_KIND, smooth=source.smooth)
    table = training.effects(training.heads, torch.arange(n)).astype(np.float32)
    features = None if source.kind == PUBLISHED_KIND else FeatureTables.of({TASK: training.features}, None)
    source.add_cost(training.forwards * n)
    unit = other.readout.unit
    return Tables(tuple(map(str, source.heads)), {TASK: table}, None, rows=max(1, n // 2), unit=unit, features=features)


def _mean_jaccard(tops: list[set[int]]) -> float | None:
    """Mean Jaccard index of the seeds' ten strongest heads."""
    pairs = [(one, other) for i, one in enumerate(tops) for other in tops[i + 1 :] if one | other]
    return float(np.mean([len(one & other) / len(one | other) for one, other in pairs])) if pairs else None
