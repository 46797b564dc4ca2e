"""Search on a model itself instead of on tables: `discover --method bandit` and `--method rl`.

The heads are the arms, clean minus edited score on the prompts is the reward, and the budget counts queries: one head
replaced on all prompts. `bandit` is Thompson sampling over single prompts. `rl` plays a policy: by default the one that
comes with the package (per head, trained on two behaviours of SmolLM2), or one trained here on
prompts of another pool, which costs a whole sweep of that pool. As published (`paper`): heads are replaced by their
constant bias, the policy sees the one-hot and the vectors, is trained here, and pays for nothing beforehand.

Every search of several takes the prompts in an order of its own, and a head scores the mean of all looks at it. MLPs
are not searched and have no score. A head that was never looked at scores 0.

`forwards` counts what is run, not what the budget pays: the clean and the counterfactual prompts once for all searches,
the part of the model behind the head for every look, and for a policy attribution and attention.
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
from vesalius.discovery.clean_features import ATTRIBUTION_PASSES, CleanFeatures, measure_clean_features
from vesalius.discovery.matrices import PUBLISHED_KIND, Rows
from vesalius.discovery.mechrl.environment import REWARD_SCALE, STEPS
from vesalius.discovery.mechrl.features import HeadView
from vesalius.discovery.mechrl.policy import draw_candidates
from vesalius.discovery.mechrl.ppo import PER_HEAD, Policy, Settings, load_policy, train
from vesalius.discovery.mechrl.tables import Known, Tables
from vesalius.discovery.search.purse import Purse
from vesalius.discovery.search.rivals import Search, spend, thompson
from vesalius.errors import BadInput
from vesalius.intervene import Cost, Plan, Readout, Recordings, Replacement, run
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress

SEARCHES = ("bandit", "rl")
TRAINING_STEPS = 20_000
#: Bytes of the clean runs that are kept for all looks.
MOST_KEPT = 4 * 2**30
TASK = "task"
#: A forward pass that reads attention off.
ATTENTION_PASSES = 1
#: The readout of some material that has a slope, and the forward passes of the prompts that it took to make.
Smooth = Callable[[Transformer, Trial], tuple[Readout, int]]


@dataclass(frozen=True)
class SearchOptions:
    """How a search goes about it. `budget` None: 50 queries, or as many as there are heads. `steps` 0: no training."""

    budget: int | None = None
    paper: bool = False
    seeds: int = 1
    steps: int = 0

    def budget_of(self, heads: int) -> int:
        """The budget on a model of so many heads, refused where it makes no sense."""
        budget = min(STEPS, heads) if self.budget is None else self.budget
        if not 1 <= budget <= heads:
            raise BadInput(f"--budget {budget}: the model has {heads} heads; choose 1 to {heads}")
        return budget

    def require(self, method: str, heads: int) -> None:
        """Refuse what a search on a model of so many heads cannot do, before anything is run."""
        budget = self.budget_of(heads)
        if self.seeds < 1 or self.steps < 0:
            raise BadInput(f"--seeds {self.seeds} and --steps {self.steps} do not fit; at least 1 and 0 are needed")
        if method == "bandit" and (self.steps or self.paper):
            raise BadInput("--steps and --paper belong to --method rl; a bandit learns nothing beforehand")
        if method == "rl" and not self.paper and budget <= ATTRIBUTION_PASSES:
            raise BadInput(
                f"--budget {budget}: the policy pays {ATTRIBUTION_PASSES} queries for attribution first; "
                f"give at least {ATTRIBUTION_PASSES + 1}"
            )


@dataclass(frozen=True)
class Found:
    """Scores of the heads, forward passes of all prompts spent, and how alike the seeds' ten best are."""

    components: dict[Component, float]
    forwards: float
    jaccard: float | None


class Bench:
    """One specimen's heads and prompts, ready to be looked at; counts forward passes."""

    def __init__(self, specimen: Specimen, material: Trial, *, paper: bool, smooth: Smooth) -> None:
        self.specimen, self.material, self.smooth = specimen, material, smooth
        self.kind = PUBLISHED_KIND if paper else "resample"
        self.heads = [part for part in specimen.model.components if part.is_head]
        self.looks, self._cost = 0, Cost()
        self.told: Callable[[int], None] | None = None
        model = specimen.model
        # Kept whole up to a larger size than elsewhere: made again for every look, it would cost more than the looks.
        self._clean = Recordings(model, material.batch.to(model.device), material.readout, memory=MOST_KEPT)

    @property
    def forwards(self) -> float:
        """The work so far, in forward passes of all prompts."""
        return self._cost.rows / len(self.material.batch)

    def spend_elsewhere(self, rows: float) -> None:
        """Count work on other prompts, in forward passes of one."""
        self._cost.rows += rows

    @cached_property
    def baseline(self) -> Float[Tensor, " prompt"]:
        """The clean score of every prompt."""
        self._cost.rows += len(self.material.batch)
        return self._clean.scores().cpu()

    @cached_property
    def replacement(self) -> Replacement:
        """What heads are replaced by."""
        given = self.material
        self._cost.rows += len(given.batch) if self.kind == "resample" else 0
        return Replacement.of_kind(self.kind, self.specimen.model, given.batch, counterfactual=given.counterfactual)

    def look(self, head: int, rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Clean minus edited score of one head on some prompts; `told` hears how many were looked at so far."""
        self.looks += len(rows)
        if self.told:
            self.told(self.looks)
        return self.effects([self.heads[head]], torch.from_numpy(rows))[:, 0]

    def effects(self, heads: list[Component], rows: Int[Tensor, " row"]) -> Float[np.ndarray, "row head"]:
        """The same for several heads."""
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
    def known(self) -> CleanFeatures:
        """Attribution and attention of every head."""
        given, model = self.material, self.specimen.model
        readout, passes = self.smooth(model, given)
        self._cost.rows += (passes + ATTRIBUTION_PASSES + ATTENTION_PASSES) * len(given.batch)
        rows = Rows(given.batch, readout, given.counterfactual)
        return measure_clean_features(model, rows, kind=self.kind, heads=self.heads, replacement=self.replacement)

    def attribution(self) -> Float[np.ndarray, " head"]:
        """Mean attribution of every head."""
        return self.known.attribution.mean(0).double().numpy()


def search_heads(
    specimen: Specimen,
    material: Trial,
    method: str,
    options: SearchOptions,
    *,
    smooth: Smooth,
    seed: int = 0,
    progress: Progress | None = None,
) -> Found:
    """Search a specimen's heads on given prompts; `smooth` gives a readout with a slope, for attribution."""
    bench = Bench(specimen, material, paper=options.paper, smooth=smooth)
    options.require(method, len(bench.heads))
    budget, n = options.budget_of(len(bench.heads)), len(material.batch)
    if progress:
        bench.told = partial(_tell, progress, method, options.seeds * budget * n)
    searches = [thompson()] * options.seeds if method == "bandit" else _policies(bench, options, budget, seed)
    looks: list[list[float]] = [[] for _ in bench.heads]
    tops = []
    for number, search in enumerate(searches):
        rng = np.random.default_rng([seed, number])
        purse = Purse(bench.look, len(bench.heads), n, float(budget), bench.attribution, order=rng.permutation(n))
        spend(search, purse, rng)
        tops.append(_strongest(list(map(_mean, purse.seen))))
        for head, values in enumerate(purse.seen):
            looks[head] += values
    return Found(dict(zip(bench.heads, map(_mean, looks), strict=True)), bench.forwards, _alike(tops))


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _strongest(scores: list[float]) -> set[int]:
    """The ten heads of the largest scores by magnitude, as far as they are not 0."""
    return {int(head) for head in np.argsort(-np.abs(scores))[:10] if scores[head] != 0}


def _tell(progress: Progress, method: str, most: int, looks: int) -> None:
    progress(f"{method} search", looks, most)


def packaged_policy() -> Policy:
    """The per-head policy that comes with the package."""
    return load_policy(Path(str(files("vesalius.discovery.mechrl") / "trained")))


def _policies(bench: Bench, options: SearchOptions, budget: int, seed: int) -> list[Search]:
    """One search per seed."""
    view = HeadView.of(tuple(map(str, bench.heads)))
    steps = options.steps or (TRAINING_STEPS if options.paper else 0)
    if steps:
        tables = _own_tables(bench, seed)
        base = Settings(paper=True) if options.paper else PER_HEAD
        wanted = [replace(base, seed=seed + 1 + i, steps=budget, total_steps=steps) for i in range(options.seeds)]
        policies = [train(tables, each) for each in wanted]
    else:
        policies = [packaged_policy()] * options.seeds
    fixed = None
    if not options.paper:
        known = bench.known
        fixed = view.fixed(bench.attribution(), known.attention.mean(0).double().numpy())
    return [_played(policy, view, fixed, seed + i) for i, policy in enumerate(policies)]


def _played(policy: Policy, view: HeadView, fixed: Float[np.ndarray, "head feature"] | None, seed: int) -> Search:
    """A policy's picks on a live model, drawn as in training."""

    @torch.no_grad()
    def search(purse: Purse, rng: np.random.Generator) -> None:
        generator = torch.Generator().manual_seed(seed)
        tried, rewards = np.zeros((1, purse.heads), bool), np.zeros((1, purse.heads))
        if fixed is not None:
            purse.attribute()
        while not tried.all():
            if fixed is None:
                shown = np.concatenate([np.ones((1, 1)), tried, np.where(tried, rewards / REWARD_SCALE, 0)], 1)
            else:
                spent = np.array([purse.spent / purse.budget])
                shown = view.observe(fixed[None], view.alike(fixed)[None], tried, rewards, spent)
            logits, _ = policy.network(torch.from_numpy(shown.astype(np.float32)), torch.from_numpy(~tried))
            head = int(draw_candidates(logits, 1, generator=generator)[0, 0])
            rewards[0, head] = purse.query(head)
            tried[0, head] = True

    return search


def _own_tables(bench: Bench, seed: int) -> Tables:
    """Effects of every head on as many prompts of the training pool, none of them seen in the search."""
    other = trial(bench.specimen, len(bench.material.batch), seed=seed + 1, split="train", apart_from=bench.material)
    n = len(other.batch)
    training = Bench(bench.specimen, other, paper=bench.kind == PUBLISHED_KIND, smooth=bench.smooth)
    table = training.effects(training.heads, torch.arange(n)).astype(np.float32)
    known = None if bench.kind == PUBLISHED_KIND else Known.of({TASK: training.known}, None)
    bench.spend_elsewhere(training.forwards * n)
    unit = other.readout.unit
    return Tables(tuple(map(str, bench.heads)), {TASK: table}, None, rows=max(1, n // 2), unit=unit, known=known)


def _alike(tops: list[set[int]]) -> float | None:
    """Mean Jaccard index of the seeds' ten strongest heads."""
    pairs = [(one, other) for i, one in enumerate(tops) for other in tops[i + 1 :] if one | other]
    return float(np.mean([len(one & other) / len(one | other) for one, other in pairs])) if pairs else None
