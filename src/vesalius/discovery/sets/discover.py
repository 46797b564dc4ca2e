"""From a specimen to backup groups: search on some prompts, confirm on others.

The search spends its budget on one set of prompts (a behaviour's validation split, or inputs of one seed). What it
suspects is tested on prompts it never saw (the test split; of a listed vocabulary, inputs of another seed less those
that were searched on, as many as there are); those queries are counted apart. With `search="pairs"` and a
directory, the effects of all pairs are measured into effect matrices on disk, which can be interrupted and read by
others; every other search runs the model as it goes.
"""

import itertools
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.performance import Performance
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component
from vesalius.discovery.matrices import behaviour_rows
from vesalius.discovery.sets.backups import Confirmation, confirm
from vesalius.discovery.sets.policy import SetPolicy, by_policy, load_policy
from vesalius.discovery.sets.queries import LEAST_SHARE, PRICE_SHARE, Goal, Queries, check_budget
from vesalius.discovery.sets.searches import SEARCHES, Search, search
from vesalius.discovery.sets.sources import HeadSet, LiveSource, Source, head_pool, pair_effects
from vesalius.discovery.sets.synergy import LEAST_PROMPTS, Synergy, judge, synergy_rows
from vesalius.errors import BadInput, choices
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.progress import Progress
from vesalius.statistics import mean_interval

NAMES = (*SEARCHES, "rl")
DEFAULT_SEARCH = "group"
HELD_OUT_SEED = 104_729
SEARCHED = "validation"
SETS_LISTED = 10


@dataclass(frozen=True)
class SetDiscovery:
    """What a search found, what it cost, and what held on other prompts.

    `synergies` are those of all pairs on the search's prompts; empty unless all pairs were measured.
    """

    search: str
    queries: Queries
    goal: Goal
    complete: bool
    confirmation: Confirmation
    synergies: tuple[Synergy, ...]
    forwards: float
    seconds: float
    performance: Performance | None = None

    @property
    def best(self) -> HeadSet:
        """The set of the highest value."""
        return self.queries.best(self.goal)

    def scores(self) -> dict[str, float]:
        """The largest effect that removing each head was seen to have, whatever was removed already.

        Only heads for which some set was known with and without them have a score.
        """
        found: dict[int, float] = {}
        for members in self.queries.known:
            whole = self.queries.recall(members)
            for head in members:
                rest = self.queries.recall(members - {head})
                if whole is not None and rest is not None:
                    found[head] = max(found.get(head, -math.inf), whole - rest)
        order = sorted(found, key=lambda head: (-found[head], head))
        return {self.queries.source.heads[head]: found[head] for head in order}

    def document(self) -> dict[str, Any]:
        """The parts of the command's JSON that the search answers for."""
        queries, best = self.queries, self.best
        ranked = sorted(queries.known, key=lambda members: (-queries.value(members, self.goal), len(members)))
        return {
            "components": [{"id": head, "score": score} for head, score in self.scores().items()],
            "sets": [self._describe(members) for members in ranked[:SETS_LISTED]],
            "backup_groups": [group.document() for group in self.confirmation.groups],
            "tested": [found.document() for found in self.confirmation.tested],
            "synergies": [found.document() for found in self.synergies if found.verdict != "none"],
            "metrics": {
                "clean": queries.source.clean,
                "best_effect": queries.recall(best),
                "best_value": queries.value(best, self.goal),
                "queries": queries.paid,
                "queries_to_confirm": self.confirmation.queries,
                "all_pairs": math.comb(queries.n, 2),
            },
            "unit": queries.source.unit,
            "price": self.goal.price,
            "least_synergy": self.goal.least,
            "complete": self.complete,
            "forwards": self.forwards,
            "seconds": self.seconds,
            "performance": self.performance and asdict(self.performance),
        }

    def _describe(self, members: HeadSet) -> dict[str, Any]:
        rows = torch.from_numpy(np.ascontiguousarray(self.queries.rows[members]))
        low, high = mean_interval(rows[:, None])
        return {
            "heads": self.queries.names(members),
            "effect": float(rows.mean()),
            "low": float(low[0]),
            "high": float(high[0]),
            "value": self.queries.value(members, self.goal),
        }


def discover_sets(
    specimen: Specimen,
    search_name: str = DEFAULT_SEARCH,
    *,
    pool: Iterable[str | Component] | None = None,
    budget: int | None = None,
    kind: str = "mean",
    n: int = 32,
    seed: int = 0,
    price: float = PRICE_SHARE,
    least: float = LEAST_SHARE,
    policy: SetPolicy | None = None,
    directory: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> SetDiscovery:
    """Look for sets of heads that matter together, and say which back each other up.

    `pool` are the heads to choose among (default: all), `budget` the most queries, `price` and `least` shares of the
    clean score (see `queries.Goal`). `search_name` is one of `NAMES`. A behaviour that a natural model does not perform
    is refused, unless `force`.
    """
    if search_name not in NAMES:
        raise BadInput(f"search {search_name!r} does not exist; choose one of {choices(NAMES)}")
    if n < LEAST_PROMPTS:
        raise BadInput(f"--n {n}: synergies over so few prompts say nothing; use at least {LEAST_PROMPTS}")
    heads = head_pool(specimen, pool)
    check_budget(budget, len(heads))
    performance = None if specimen.behaviour is None else require_performance(specimen, seed=seed, force=force)
    start = time.perf_counter()
    tables = directory if search_name == "pairs" else None
    material = _material(specimen, n, seed=seed, on_disk=tables is not None)
    fresh = LiveSource(specimen, _held_out(specimen, n, material, seed=seed), heads, kind=kind)
    source: Source
    if tables is None:
        source = LiveSource(specimen, material, heads, kind=kind)
    else:
        source = _measured_pairs(specimen, tables, heads, n=n, kind=kind, seed=seed, progress=progress)
    if source.clean == 0:
        raise BadInput("the clean score is zero on these prompts, so shares of it mean nothing; choose another --seed")
    queries, goal = Queries(source, budget), Goal.of(source, price=price, least=least)
    suspected, complete, synergies = _suspects(queries, goal, search_name, policy=policy, seed=seed)
    confirmation = confirm(fresh, suspected, least=goal.least, seed=seed)
    forwards, seconds = source.forwards + fresh.forwards, time.perf_counter() - start
    return SetDiscovery(search_name, queries, goal, complete, confirmation, synergies, forwards, seconds, performance)


def _material(specimen: Specimen, n: int, *, seed: int, on_disk: bool) -> Trial:
    """The prompts of the search: those of effect matrices if they are measured on disk, else a trial of their own."""
    if not on_disk:
        return trial(specimen, n, seed=seed, split=SEARCHED)
    rows = behaviour_rows(specimen, {SEARCHED: n}, seed=seed)(SEARCHED)
    return Trial(rows.batch, rows.counterfactual or rows.batch, rows.readout)


def _held_out(specimen: Specimen, n: int, seen: Trial, *, seed: int) -> Trial:
    """As many as `n` prompts of which the search sees none."""
    fresh = trial(specimen, n, seed=seed + HELD_OUT_SEED, split="test", apart_from=seen)
    if len(fresh.batch) < LEAST_PROMPTS:
        raise BadInput(
            f"specimen {specimen.name!r}: only {len(fresh.batch)} inputs are left to confirm on once {n} are searched "
            f"on, and it takes {LEAST_PROMPTS}; lower --n"
        )
    return fresh


def _measured_pairs(
    specimen: Specimen,
    directory: Path,
    heads: Sequence[Component],
    *,
    n: int,
    kind: str,
    seed: int,
    progress: Progress | None,
) -> Source:
    if kind == "resample" and isinstance(specimen.vocabulary, FiniteVocabulary):
        raise BadInput("all pairs of this specimen cannot be resampled on disk; choose --kind zero or mean")
    pools = {SEARCHED: n}
    tables = pair_effects(specimen, directory, pools=pools, heads=heads, kind=kind, seed=seed, progress=progress)
    return tables.source(SEARCHED)


def _suspects(
    queries: Queries, goal: Goal, name: str, *, policy: SetPolicy | None, seed: int
) -> tuple[list[HeadSet], bool, tuple[Synergy, ...]]:
    """The sets a search suspects, whether it came to its end, and the synergies of all pairs if it measured them."""
    suspected, complete = search(queries, goal, _way(name, policy))
    if name != "pairs":
        return suspected, complete, ()
    synergies = _all_pairs(queries, goal, seed)
    significant = {found.heads for found in synergies if found.verdict == "backup"}
    return [members for members in suspected if tuple(queries.names(members)) in significant], complete, synergies


def _way(name: str, policy: SetPolicy | None) -> Search:
    return partial(by_policy, policy or load_policy()) if name == "rl" else SEARCHES[name]


def _all_pairs(queries: Queries, goal: Goal, seed: int) -> tuple[Synergy, ...]:
    sets = [frozenset(pair) for pair in itertools.combinations(range(queries.n), 2)]
    rows = synergy_rows(queries.source, sets, dict(queries.rows))
    names = [tuple(queries.names(members)) for members in sets]
    return tuple(judge(rows, names, least=goal.least, seed=seed))
