"""From a specimen to backup groups: search on some prompts, confirm on others.

The search spends its budget on one set of prompts (a behaviour's validation split, or inputs of one seed). The sets it
suspects are tested on held-out prompts (the test split; for a finite vocabulary, inputs of another seed without those
of the search, as many as there are); those queries are counted separately. With `search="pairs"` and a directory, the
effects of all pairs are measured into effect matrices on disk, which can be resumed and read by other code; every other
search runs the model during the search.
"""

import hashlib
import itertools
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import JsonValue

from vesalius.api.door import directory_for, note_unperformed, removed_if_empty, subject_options, subject_words, verb
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import Trial, note_limits, trial
from vesalius.components import split_names
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.view import subject_of
from vesalius.errors import BadInput, choices, result_kept
from vesalius.intervene import ablation_named
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.options import Force, Out
from vesalius.progress import Progress, silent
from vesalius.statistics import mean_interval
from vesalius_mechrl.documents import SETS_FILE, HeadSets
from vesalius_mechrl.matrices import behaviour_rows
from vesalius_mechrl.options import SetSearch
from vesalius_mechrl.pictures import draw_synergy
from vesalius_mechrl.sets.policy import SetPolicy, by_policy, load_policy
from vesalius_mechrl.sets.searches import SEARCHES, search
from vesalius_mechrl.sets.sources import (
    LEAST_SHARE,
    PRICE_SHARE,
    Goal,
    HeadSet,
    LiveSource,
    SetQueries,
    Source,
    check_budget,
    head_pool,
    pair_effects,
)
from vesalius_mechrl.sets.synergy import (
    LEAST_PROMPTS,
    Confirmation,
    Synergy,
    confirm,
    judge,
    synergy_matrix,
    synergy_rows,
)

NAMES = (*SEARCHES, "rl")
#: The search and the replacement of natural models, and those of specimens.
NATURAL_SEARCH, NATURAL_KIND, USUAL_SEARCH, USUAL_KIND = "growth", "resample", "group", "mean"
#: Added to the seed for the held-out prompts that suspected sets are confirmed on.
CONFIRMATION_SEED = 104_729
SEARCH_SPLIT = "validation"
SETS_LISTED = 10


@dataclass(frozen=True)
class SetDiscovery:
    """The result of a search, its cost, and what was confirmed on held-out prompts.

    `synergies` are those of all pairs on the search's prompts; empty unless all pairs were measured.
    """

    search: str
    queries: SetQueries
    goal: Goal
    complete: bool
    confirmation: Confirmation
    synergies: tuple[Synergy, ...]
    forwards: float
    seconds: float
    performance: Performance | None = None

    @property
    def best(self) -> HeadSet:
        """The set with the highest value."""
        return self.queries.best(self.goal)

    def scores(self) -> dict[str, float]:
        """The largest measured effect of ablating each head in addition to some other set.

        Only heads for which some set was measured with and without them have a score.
        """
        scores: dict[int, float] = {}
        for members in self.queries.measured:
            whole = self.queries.recall(members)
            for head in members:
                rest = self.queries.recall(members - {head})
                if whole is not None and rest is not None:
                    scores[head] = max(scores.get(head, -math.inf), whole - rest)
        order = sorted(scores, key=lambda head: (-scores[head], head))
        return {self.queries.source.heads[head]: scores[head] for head in order}

    def document(self) -> dict[str, Any]:
        """The search's part of the command's JSON."""
        queries, best = self.queries, self.best
        ranked = sorted(queries.measured, key=lambda members: (-queries.value(members, self.goal), len(members)))
        return {
            "components": [{"id": head, "score": score} for head, score in self.scores().items()],
            "sets": [self._describe(members) for members in ranked[:SETS_LISTED]],
            "backup_groups": [group.document() for group in self.confirmation.groups],
            "tested": [synergy.document() for synergy in self.confirmation.tested],
            "synergies": [synergy.document() for synergy in self.synergies if synergy.verdict != "none"],
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
            "performance": self.performance and self.performance.model_dump(),
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


@verb
def search_sets(
    specimen: Specimen,
    search_name: str | None = None,
    *,
    options: SetSearch,
    price: float = PRICE_SHARE,
    policy: SetPolicy | None = None,
    directory: Path | None = None,
    force: bool = False,
    progress: Progress = silent,
) -> SetDiscovery:
    """Search for sets of heads that matter together, and test which are backups of each other.

    `search_name` is one of `NAMES` (default: `_usual`); `pool` are the candidate heads (default: all), `budget` the
    maximum number of queries, `price` and `least` shares of the clean score (see `sources.Goal`). A behaviour that a
    natural model does not perform is refused, unless `force`.
    """
    search_name, options = _usual(specimen, search_name, options)
    n, seed, ablation = options.n, options.seed, ablation_named(options.kind)
    if n < LEAST_PROMPTS:
        raise BadInput(f"`n` {n}: too few prompts for an interval of a synergy; use at least {LEAST_PROMPTS}")
    heads = head_pool(specimen, options.pool)
    check_budget(options.budget, len(heads))
    performance = None if specimen.behaviour is None else require_performance(specimen, seed=seed, force=force)
    start = time.perf_counter()
    pools, tables = {SEARCH_SPLIT: n}, directory if search_name == "pairs" else None
    if tables is None:
        material = trial(specimen, n, seed=seed, split=SEARCH_SPLIT)
    else:
        rows = behaviour_rows(specimen, pools, seed=seed)(SEARCH_SPLIT)
        material = Trial(rows.batch, rows.counterfactual or rows.batch, rows.readout)
        n = min(n, len(material.batch))  # rows of one's own may be fewer
    note_limits(specimen, material.prompts, resampled=ablation.from_counterfactual)
    held_out = LiveSource(specimen, _held_out(specimen, n, material, seed=seed), heads, kind=ablation.name)
    source: Source
    if tables is None:
        source = LiveSource(specimen, material, heads, kind=ablation.name)
    else:
        if ablation.from_counterfactual and isinstance(specimen.vocabulary, FiniteVocabulary):
            raise BadInput("all pairs of this specimen cannot be resampled on disk; choose `kind` zero or mean")
        measured = {"heads": heads, "kind": ablation.name, "seed": seed, "progress": progress}
        source = pair_effects(specimen, tables, pools={SEARCH_SPLIT: n}, **measured).source(SEARCH_SPLIT)
    if source.clean == 0:
        raise BadInput("the clean score is zero on these prompts, so shares of it mean nothing; choose another `seed`")
    queries, goal = SetQueries(source, options.budget), Goal.of(source, price=price, least=options.least)
    suspected, complete, synergies = _suspects(queries, goal, search_name, policy=policy, seed=seed)
    confirmation = confirm(held_out, suspected, least=goal.least, seed=seed)
    forwards, seconds = source.forwards + held_out.forwards, time.perf_counter() - start
    return SetDiscovery(search_name, queries, goal, complete, confirmation, synergies, forwards, seconds, performance)


def _usual(specimen: Specimen, search: str | None, options: SetSearch) -> tuple[str, SetSearch]:
    """The search and the replacement that were asked for, or those that are usual for this kind of model: a behaviour
    has counterfactual prompts, so its heads get their values on these, and many of them carry it in series.
    """
    finite = isinstance(specimen.vocabulary, FiniteVocabulary)
    search = search or (USUAL_SEARCH if finite else NATURAL_SEARCH)
    if search not in NAMES:
        raise BadInput(f"search {search!r} does not exist; choose one of {choices(NAMES)}")
    kind = options.kind if options.kind is not None else USUAL_KIND if finite else NATURAL_KIND
    return search, replace(options, kind=kind)


def _held_out(specimen: Specimen, n: int, seen: Trial, *, seed: int) -> Trial:
    """Up to `n` prompts that the search does not use."""
    held_out = trial(specimen, n, seed=seed + CONFIRMATION_SEED, split="test", apart_from=seen)
    if len(held_out.batch) < LEAST_PROMPTS:
        raise BadInput(
            f"specimen {specimen.name!r}: the search uses {n} inputs and leaves {len(held_out.batch)} to confirm on; "
            f"{LEAST_PROMPTS} are needed: lower `n`"
        )
    return held_out


def _suspects(
    queries: SetQueries, goal: Goal, name: str, *, policy: SetPolicy | None, seed: int
) -> tuple[list[HeadSet], bool, tuple[Synergy, ...]]:
    """The sets a search suspects, whether it finished, and the synergies of all pairs if it measured them."""
    strategy = partial(by_policy, policy or load_policy()) if name == "rl" else SEARCHES[name]
    suspected, complete = search(queries, goal, strategy)
    if name != "pairs":
        return suspected, complete, ()
    synergies = _all_pairs(queries, goal, seed)
    significant = {synergy.heads for synergy in synergies if synergy.verdict == "backup"}
    return [members for members in suspected if tuple(queries.names(members)) in significant], complete, synergies


def _all_pairs(queries: SetQueries, goal: Goal, seed: int) -> tuple[Synergy, ...]:
    sets = [frozenset(pair) for pair in itertools.combinations(range(queries.n), 2)]
    rows = synergy_rows(queries.source, sets, dict(queries.rows))
    names = [tuple(queries.names(members)) for members in sets]
    return tuple(judge(rows, names, least=goal.least, seed=seed))


@verb
def discover_sets(
    specimen: Specimen,
    search: str | None = None,
    *,
    options: SetSearch,
    force: Force,
    out: Out = None,
    progress: Progress = silent,
) -> HeadSets:
    """Search sets of heads that matter together and confirm them on held-out prompts.

    `search` is "growth" (the default of natural models), "group" (of others), "greedy", "beam", "prune", "rl" or
    "pairs"; `kind` what heads are replaced by: the behaviour's own values on other prompts, or for others the mean;
    `budget` the number of sets to measure; `pool` the heads to choose among; `least` the smallest synergy that counts,
    as a share of the clean score. With `out` (a directory, or True for one under `vesalius-runs`) `sets.json` is
    written, with a picture where all pairs were measured; their effects are kept there, so that an interrupted search
    of them continues when the same call is made again.
    """
    search, options = _usual(specimen, search, options)
    pool = None if options.pool is None else list(map(str, split_names(options.pool)))
    options = replace(options, kind=ablation_named(options.kind).name, pool=pool)
    asked: dict[str, JsonValue] = {
        "search": search,
        "kind": options.kind,
        "least": options.least,
        "n": options.n,
        **({} if pool is None else {"pool": list[JsonValue](pool)}),
        **({} if options.budget is None else {"budget": options.budget}),
        **({"force": True} if force.force else {}),
    }
    request = Request(
        command="sets",
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        options={**asked, **subject_options(specimen)},
        seed=options.seed,
    )
    words = (
        str(request.options["metric"]) if "metric" in request.options else None,
        search,
        options.kind,
        None if pool is None else f"pool{hashlib.sha256(','.join(pool).encode()).hexdigest()[:8]}",
        None if options.budget is None else f"budget{options.budget}",
        None if options.least == LEAST_SHARE else f"least{options.least:g}",
        f"n{options.n}",
        f"seed{options.seed}",
    )
    directory = directory_for(out, "sets", *subject_words(specimen), *words) if out else None
    with removed_if_empty(directory):
        effects = directory and directory / "effects"
        result = search_sets(specimen, search, options, directory=effects, force=force.force, progress=progress)
    note_unperformed(specimen.name, specimen.behaviour, result.performance, force=force.force)
    queries = result.queries
    head_sets = HeadSets(**result.document(), request=request, pool=queries.source.heads, budget=queries.budget)
    if directory is None:
        return head_sets
    with result_kept(head_sets):
        picture = None
        if result.synergies:
            subject, heads = subject_of(Path(str(request.specimen)).name, request.behaviour), queries.source.heads
            picture = draw_synergy(
                synergy_matrix(heads, result.synergies),
                heads,
                directory / "synergy.png",
                title=f"{subject}: pairs, {options.kind} ablation, {options.n} prompts",
                unit=queries.source.unit,
                marked=[synergy.heads for synergy in result.synergies if synergy.verdict != "none"],
            )
        files = {"directory": str(directory), "picture": None if picture is None else str(picture)}
        head_sets = head_sets.model_copy(update=files)
        head_sets.write(directory / SETS_FILE)
    return head_sets
