"""Search on a model itself instead of on tables: `discover --method bandit` and `--method rl`.

The heads are the arms, clean minus edited score on the prompts is the reward, and the budget counts queries: one head
replaced on all prompts. `bandit` is Thompson sampling over single prompts. `rl` plays a policy: by default the one that
comes with the package (per head, trained on two behaviours of SmolLM2; see docs/mechrl.md), or one trained here on
prompts of another pool, which costs a whole sweep of that pool. As published (`paper`): heads are replaced by their
constant bias, the policy sees the one-hot and the vectors, is trained here, and pays for nothing beforehand.

MLPs are not searched and have no score. A head that was never looked at scores 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from vesalius.behaviours.trial import Trial, trial
from vesalius.discovery.beforehand import ATTRIBUTION_PASSES, Beforehand, known_of
from vesalius.discovery.matrices import PUBLISHED_KIND, Rows
from vesalius.discovery.mechrl.environment import REWARD_SCALE, STEPS
from vesalius.discovery.mechrl.features import HeadView
from vesalius.discovery.mechrl.policy import draw_candidates
from vesalius.discovery.mechrl.ppo import PER_HEAD, Policy, Settings, load_policy, train
from vesalius.discovery.mechrl.tables import Known, Tables
from vesalius.discovery.search.purse import Purse
from vesalius.discovery.search.rivals import Search, spend, thompson
from vesalius.errors import BadInput
from vesalius.intervene import Readout, effects
from vesalius.model.components import Component
from vesalius.model.specimen import Specimen

SEARCHES = ("bandit", "rl")
TRAINING_STEPS = 20_000
TASK = "task"
#: The readout of some material that has a slope.
Smooth = Callable[[Trial], Readout]


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
        self.forwards, self.looks = 0.0, 0
        self.told: Callable[[int], None] | None = None
        self._known: Beforehand | None = None

    def look(self, head: int, rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """Clean minus edited score of one head on some prompts; `told` hears how many were looked at so far."""
        self.looks += len(rows)
        if self.told:
            self.told(self.looks)
        return self.effects([self.heads[head]], torch.from_numpy(rows))[:, 0]

    def effects(self, heads: list[Component], rows: torch.Tensor) -> Float[np.ndarray, "row head"]:
        """The same for several heads."""
        given = self.material
        found = effects(
            self.specimen.model,
            given.batch.take(rows).to(self.specimen.model.device),
            given.readout.take(rows),
            kind=self.kind,
            sets=[[head] for head in heads],
            counterfactual=given.counterfactual.take(rows),
            positions=None if given.where is None or self.kind != "resample" else given.where[rows],
        )
        self.forwards += found.forwards * len(rows) / len(given.batch)
        return found.matrix.double().numpy()

    def beforehand(self) -> Beforehand:
        """Attribution and attention of every head."""
        if self._known is None:
            given = self.material
            self.forwards += ATTRIBUTION_PASSES
            rows = Rows(given.batch, self.smooth(given), given.counterfactual)
            self._known = known_of(self.specimen.model, rows, kind=self.kind, heads=self.heads)
        return self._known

    def attribution(self) -> Float[np.ndarray, " head"]:
        """Mean attribution of every head."""
        return self.beforehand().attribution.mean(0).double().numpy()


def search_heads(
    specimen: Specimen,
    material: Trial,
    method: str,
    options: SearchOptions,
    *,
    smooth: Smooth,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Search a specimen's heads on given prompts; `smooth` gives a readout with a slope, for attribution."""
    bench = Bench(specimen, material, paper=options.paper, smooth=smooth)
    options.require(method, len(bench.heads))
    budget, n = options.budget_of(len(bench.heads)), len(material.batch)
    if progress:
        bench.told = partial(_tell, progress, options.seeds * budget * n)
    searches = [thompson()] * options.seeds if method == "bandit" else _policies(bench, options, budget, seed)
    seen: list[list[float]] = []
    tops = []
    for number, search in enumerate(searches):
        purse = Purse(bench.look, len(bench.heads), n, float(budget), bench.attribution)
        spend(search, purse, np.random.default_rng([seed, number]))
        scores = [float(np.mean(values)) if values else np.nan for values in purse.seen]
        seen.append(scores)
        tops.append({int(head) for head in np.argsort(-np.abs(np.nan_to_num(scores)))[:10] if abs(scores[head]) > 0})
    # Looks of several seeds at one head differ in the prompts only; the mean over those that looked stands for it.
    stacked = np.array(seen)
    looked = np.maximum((~np.isnan(stacked)).sum(0), 1)
    components = dict(zip(bench.heads, (np.nansum(stacked, 0) / looked).tolist(), strict=True))
    return Found(components, bench.forwards, _alike(tops))


def _tell(progress: Callable[[int, int], None], most: int, looks: int) -> None:
    progress(looks, most)


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
        known = bench.beforehand()
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
    """Effects of every head on as many prompts of the training pool: what a policy is trained on here."""
    n = len(bench.material.batch)
    other = trial(bench.specimen, n, seed=seed + 1, split="train")
    training = Bench(bench.specimen, other, paper=bench.kind == PUBLISHED_KIND, smooth=bench.smooth)
    table = training.effects(training.heads, torch.arange(n)).astype(np.float32)
    known = None
    if bench.kind != PUBLISHED_KIND:
        told = training.beforehand()
        known = Known.of({TASK: told}, None)
    bench.forwards += training.forwards
    unit = other.readout.unit
    return Tables(tuple(map(str, bench.heads)), {TASK: table}, None, rows=max(1, n // 2), unit=unit, known=known)


def _alike(tops: list[set[int]]) -> float | None:
    """Mean Jaccard index of the seeds' ten strongest heads."""
    pairs = [(one, other) for i, one in enumerate(tops) for other in tops[i + 1 :] if one | other]
    return float(np.mean([len(one & other) / len(one | other) for one, other in pairs])) if pairs else None
