"""Explanations of natural models against what is known about them: components found, roles, backups, false support.

A component is *named* where a claim about it is supported that says it does something. Only components and claims that
the key decides are counted:

- `found`: of the named components, how many belong to the circuit (precision); of the circuit, how many are named;
- `roles`: of the named members whose place is known, how many have a supported claim with that place and none with
  another that the key looked for;
- `backups`: pairs of components that a supported claim says stand in for each other, against pairs of one group. A
  backup of several is paired with each of them, members of a set with each other. These two figures have no interval:
  pairs come from a few groups, and one claim about four components makes six, so they are no independent cases;
- `false support`: of the supported claims that the key decides, how many it contradicts.

Beside `found` stand the components with the largest effect of zero ablation, as many as were named, and a random set of
that size; beside `roles` the commonest place given to every one, beside `backups` all pairs of the named components.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vesalius.documents.claims import ClaimRecord
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius_truth.key.natural import NaturalKey, Pair, arithmetic_key, standin_keys

#: Claims that say what a component does not do, or how little.
NEUTRAL = ("not_needed_alone", "small_part", "lens_only")
#: Claims that name the place of a component, and claims that components stand in for each other.
PLACED = ("attends", "uses", "moves_role", "reads_role", "primary")
STANDING_IN = ("redundant", "backup_of", "backs_up", "together")
ONE_SIDED = ("backup_of", "backs_up")
NECESSARY = "necessary"
ARITHMETIC = "arithmetic"


@dataclass(frozen=True)
class NaturalGrade:
    """The figures of one explanation; `top` and `random` are those of sets with as many components as were named."""

    metrics: dict[str, Metric]
    named: tuple[str, ...]
    missed: tuple[str, ...]
    wrong: tuple[str, ...]
    contradicted: tuple[str, ...]


def natural_tasks(name: str, directory: Path | None = None) -> list[str]:
    """The behaviours of a model that have a key; of `arithmetic` its own."""
    if directory is not None:
        return list(standin_keys(directory))
    if name != ARITHMETIC:
        raise BadInput(f"{name}: nothing is known about it; natural circuits with a key are {ARITHMETIC} and stand-ins")
    return [""]


def grade_natural(
    explanation: Explanation, effects: dict[str, float], *, task: str = "", directory: Path | None = None
) -> NaturalGrade:
    """Compare an explanation with the key; `effects` are those of zero ablation, for the baseline."""
    key = arithmetic_key() if directory is None else standin_keys(directory)[task]
    return graded_against(explanation, effects, key)


def graded_against(explanation: Explanation, effects: dict[str, float], key: NaturalKey) -> NaturalGrade:
    """The grade against a given key."""
    supported = [
        (part.id, claim)
        for part in explanation.components
        if part.id in key.judged
        for claim in part.claims
        if claim.verdict == "supported" and claim.kind not in NEUTRAL
    ]
    named = tuple(dict.fromkeys(id for id, _ in supported))
    ranked = sorted(key.judged, key=lambda id: (-effects.get(id, 0.0), id))
    top = ranked[: len(named)]
    base = len(key.members) / len(key.judged)
    verdicts = {f"{id}: {claim.text}": _holds(id, claim, key) for id, claim in supported}
    decided = {text: holds for text, holds in verdicts.items() if holds is not None}
    contradicted = tuple(text for text, holds in decided.items() if not holds)
    metrics = {
        "found_precision": _share(named, lambda id: id in key.members, base),
        "found_recall": _share(key.members, lambda id: id in named, len(named) / len(key.judged)),
        "top_precision": _share(top, lambda id: id in key.members, base),
        "top_recall": _share(key.members, lambda id: id in top, len(named) / len(key.judged)),
        **_roles(named, supported, key),
        **_backups(named, supported, key),
        "false_support": Metric.of_share(len(contradicted), len(decided)),
    }
    missed = tuple(sorted(key.members - set(named)))
    return NaturalGrade(metrics, named, missed, tuple(id for id in named if id not in key.members), contradicted)


def _share(ids: Sequence[str] | frozenset[str], right: Callable[[str], bool], baseline: float | None) -> Metric:
    return Metric.of_share(sum(map(right, ids)), len(ids), baseline=baseline)


def _place(claim: ClaimRecord) -> str | None:
    place = (claim.prediction or {}).get("role")
    return place if claim.kind in PLACED and isinstance(place, str) else None


def _places(id: str, supported: Sequence[tuple[str, ClaimRecord]], key: NaturalKey) -> set[str]:
    """The places that claims give a component, of those that the key looked for."""
    said = {place for one, claim in supported if one == id and (place := _place(claim)) is not None}
    return said if key.sought is None else said & key.sought


def _said_pairs(id: str, claim: ClaimRecord) -> set[Pair]:
    """Which components a claim says stand in for each other; of a backup not the others among themselves."""
    given = claim.prediction or {}
    others = tuple(given.get("others") or given.get("of") or ()) if claim.kind in STANDING_IN else ()
    if claim.kind in ONE_SIDED:
        return {frozenset((id, other)) for other in others}
    return {frozenset(pair) for pair in itertools.combinations((id, *others), 2)}


def _roles(named: Sequence[str], supported: Sequence[tuple[str, ClaimRecord]], key: NaturalKey) -> dict[str, Metric]:
    judged = [id for id in named if key.places.get(id)]
    said = {id: _places(id, supported, key) for id in judged}
    commonest = Counter(place for id in judged for place in key.places[id]).most_common(1)
    guess = commonest[0][1] / len(judged) if commonest else None
    return {"roles": _share(judged, lambda id: bool(said[id]) and said[id] <= key.places[id], guess)}


def _backups(named: Sequence[str], supported: Sequence[tuple[str, ClaimRecord]], key: NaturalKey) -> dict[str, Metric]:
    true = key.pairs
    said = {pair for id, claim in supported for pair in _said_pairs(id, claim) if key.decides(pair)}
    every = {pair for pair in map(frozenset, itertools.combinations(named, 2)) if key.decides(pair)}
    reached, drawn, tickets = len(every & true), min(len(said), len(every)), len(every) * len(true)
    return {
        "backup_precision": _share_of_pairs(len(said & true), len(said), reached / len(every) if every else None),
        "backup_recall": _share_of_pairs(len(said & true), len(true), drawn * reached / tickets if tickets else None),
    }


def _share_of_pairs(right: int, n: int, baseline: float | None) -> Metric:
    """A share without an interval."""
    value = right / n if n else None
    return Metric(value=value, low=None, high=None, n=n, baseline=baseline, statistic="share")


def _holds(id: str, claim: ClaimRecord, key: NaturalKey) -> bool | None:
    """What the key says to a supported claim; None where it says nothing."""
    if claim.kind == NECESSARY:
        return id in key.members
    if (place := _place(claim)) is not None:
        sought = key.sought is None or place in key.sought
        return place in key.places[id] if key.places.get(id) and sought else None
    if not (pairs := _said_pairs(id, claim)):
        return None
    if pairs <= key.pairs:
        return True
    whole = len(pairs) == 1 or not key.pairs_only
    return False if whole and all(map(key.decides, pairs)) else None
