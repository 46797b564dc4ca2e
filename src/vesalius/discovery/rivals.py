"""Rival circuits: other sets of components that keep a behaviour as well as the best one.

1. A circuit is what is left when components are removed from the whole model, in some order, as long as `LEAST_KEPT` of
   the behaviour stays on the discovery's prompts. Many are tried at once and halved where too much is lost.
2. The best circuit removes what scores least first. Each rival removes what earlier circuits hold first, by several
   orders of the rest (by score, and shuffled with several seeds), and the faithful circuit with least overlap is kept.
3. On held-out prompts, a rival is as faithful as the best if it keeps as much, less `TOLERANCE`. The components in all
   of these are the core.
4. A component of the best and one of a rival are exchangeable if the best circuit loses more than the tolerance without
   the first, and not with the second in its place. Their synergy in the whole model is measured beside it.
5. Two circuits are distinguished by ablations that they predict differently: each predicts what it alone keeps under
   one. Candidates are single components of one and not the other, and all of these together; of those that ablate the
   first's own components and of those that ablate the second's, the one with the largest difference is carried out on
   the whole model, on held-out prompts. Where parts back each other up either ablation costs the model nothing and
   speaks against the circuit that holds the part: then the two contradict each other and neither circuit is supported.
"""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Literal

import torch

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.faithfulness import resampled_faithfulness, scores_without
from vesalius.discovery.kept import interval_metric
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.documents.rivals import Distinction, Exchange, RivalCircuit, Rivals
from vesalius.errors import BadInput
from vesalius.model.transformer import Transformer

LEAST_KEPT, TOLERANCE = 0.9, 0.05
#: Orders in which the rest is removed: by score, then shuffled with so many seeds.
SHUFFLES = 3
MOST_RIVALS = 10
#: Pairs of components that are exchanged at most, the strongest first.
MOST_PAIRS = 64
Parts = frozenset[Component]


def require_rivals(rivals: int) -> None:
    """Refuse numbers of rivals that cannot be searched."""
    if not 0 <= rivals <= MOST_RIVALS:
        raise BadInput(f"`rivals` {rivals} is not possible; choose 0 to {MOST_RIVALS}")


def find_rivals(
    model: Transformer,
    circuit: Circuit,
    seen: Trial,
    held_out: Trial,
    *,
    rivals: int,
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> Rivals:
    """The best circuit by a discovery's scores and up to `rivals` others, compared and distinguished; `shuffles` random
    orders are tried beside that of the scores.
    """
    start, strength = time.perf_counter(), {part: abs(score) for part, score in circuit.ranked()}
    search, confirm = _Keeping(model, seen, tuple(strength)), _Keeping(model, held_out, tuple(strength))
    found = _search(search, strength, rivals, shuffles, seed)
    rows = _confirmed(found, search, confirm)
    alike = [parts for (parts, _), row in zip(found, rows, strict=True) if row.as_faithful]
    best = found[0][0]
    exchanges = [pair for other in alike[1:] for pair in _exchanges(best, other, confirm, strength)]
    pairs = [(i, j) for i, j in combinations(range(len(rows)), 2) if rows[i].as_faithful and rows[j].as_faithful]
    return Rivals(
        asked=rivals,
        least_kept=LEAST_KEPT,
        tolerance=TOLERANCE,
        n=len(held_out.batch),
        circuits=tuple(rows),
        core=_names(frozenset.intersection(*alike)),
        exchangeable=tuple({(pair.one, pair.other): pair for pair in exchanges}.values()),
        distinctions=tuple(
            one for i, j in pairs for one in _distinctions((i, found[i][0]), (j, found[j][0]), search, confirm)
        ),
        forwards=search.forwards + confirm.forwards * len(held_out.batch) / len(seen.batch),
        seconds=time.perf_counter() - start,
    )


@dataclass
class _Keeping:
    """How much of the behaviour stays on some prompts; every set of components is run once."""

    model: Transformer
    material: Trial
    parts: tuple[Component, ...]
    forwards: float = 0.0
    columns: dict[Parts, torch.Tensor] = field(default_factory=dict)

    def table(self, kept: Sequence[Parts]) -> torch.Tensor:
        """Scores of every prompt: nothing kept, each of these circuits, everything kept."""
        whole = frozenset(self.parts)
        asked = [frozenset[Component](), *kept, whole]
        new = list(dict.fromkeys(one for one in asked if one not in self.columns))
        if new:
            scores, forwards = scores_without(self.model, self.material, [whole - one for one in new])
            self.forwards += forwards
            self.columns |= dict(zip(new, scores.double().T, strict=True))
        return torch.stack([self.columns[one] for one in asked], 1)

    def shares(self, kept: Sequence[Parts]) -> list[float]:
        """What each circuit keeps."""
        return resampled_faithfulness(self.table(kept))[1][0, 1:-1].tolist()

    def metric(self, kept: Parts) -> Metric:
        """What one circuit keeps, with its interval over the prompts."""
        _, value, drawn = resampled_faithfulness(self.table([kept]))
        return interval_metric(value[0, 1], drawn[:, 1], len(self.material.batch))


def _search(
    keeping: _Keeping, strength: dict[Component, float], rivals: int, shuffles: int, seed: int
) -> list[tuple[Parts, str]]:
    """The best circuit, then rivals: each with how it was found."""
    weakest = sorted(strength, key=lambda part: strength[part])
    found = [(_eliminated(keeping, weakest), "weakest first")]
    for rival in range(rivals):
        used = frozenset().union(*(parts for parts, _ in found))
        orders = {"what earlier circuits hold first, then the weakest": weakest}
        for shuffle in range(shuffles):
            order = random.Random(f"rivals/{seed}/{rival}/{shuffle}").sample(weakest, len(weakest))
            orders[f"what earlier circuits hold first, shuffle {shuffle}"] = order
        tried = [
            (_eliminated(keeping, sorted(order, key=lambda part: part not in used)), name)
            for name, order in orders.items()
        ]
        known = {parts for parts, _ in found}
        new = [(parts, name) for parts, name in tried if parts not in known]
        if not new:
            break
        found.append(min(new, key=lambda one: (len(one[0] & used) / len(one[0] | used), len(one[0]))))
    return found


def _eliminated(keeping: _Keeping, order: Sequence[Component]) -> Parts:
    """What is left of all parts when those in order are removed wherever enough of the behaviour stays."""
    kept = frozenset(keeping.parts)
    waiting = [list(order)]
    while waiting:
        block = waiting.pop(0)
        fewer = kept - frozenset(block)
        if keeping.shares([fewer])[0] >= LEAST_KEPT:
            kept = fewer
        elif len(block) > 1:
            middle = len(block) // 2
            waiting[:0] = [block[:middle], block[middle:]]
    return kept


def _confirmed(found: Sequence[tuple[Parts, str]], search: _Keeping, confirm: _Keeping) -> list[RivalCircuit]:
    best = found[0][0]
    least = confirm.shares([best])[0] - TOLERANCE
    rows = []
    for parts, name in found:
        metric = confirm.metric(parts)
        rows.append(
            RivalCircuit(
                components=_names(parts),
                search=name,
                searched=search.shares([parts])[0],
                faithfulness=metric,
                overlap=len(parts & best) / max(1, len(parts | best)),
                as_faithful=metric.value is not None and metric.value >= least,
            )
        )
    return rows


def _exchanges(best: Parts, other: Parts, confirm: _Keeping, strength: dict[Component, float]) -> list[Exchange]:
    """Components of the best circuit that one of the other replaces."""
    pairs = sorted(product(best - other, other - best), key=lambda pair: -strength[pair[0]] * strength[pair[1]])
    whole, (own,) = frozenset(confirm.parts), confirm.shares([best])
    rows = []
    for one, another in pairs[:MOST_PAIRS]:
        removed = [whole - {one}, whole - {another}, whole - {one, another}]
        without, exchanged, *rest = confirm.shares([best - {one}, best - {one} | {another}, *removed])
        alone, second, both = (1 - share for share in rest)
        if without < own - TOLERANCE <= exchanged:
            synergy = both - alone - second
            names = (str(one), str(another))
            rows.append(Exchange(one=names[0], other=names[1], without=without, exchanged=exchanged, synergy=synergy))
    return rows


def _distinctions(
    first: tuple[int, Parts], second: tuple[int, Parts], search: _Keeping, confirm: _Keeping
) -> list[Distinction]:
    """The ablation within each circuit's own components that the two predict most differently, carried out; where the
    outcomes contradict each other, neither circuit is supported.
    """
    own = [parts for parts in (first[1] - second[1], second[1] - first[1]) if parts]
    rows = [_distinction(first, second, parts, search, confirm) for parts in own]
    if {"first", "second"} <= {row.supports for row in rows}:
        return [row.model_copy(update={"supports": "neither"}) for row in rows]
    return rows


def _distinction(
    first: tuple[int, Parts], second: tuple[int, Parts], own: Parts, search: _Keeping, confirm: _Keeping
) -> Distinction:
    """Of `own` components of one circuit, those whose ablation two circuits predict most differently, and what it does
    to the whole model.
    """
    (i, one), (j, other) = first, second
    candidates = list(dict.fromkeys([*(frozenset({part}) for part in sorted(own)), own]))
    predicted = search.shares([circuit - cut for cut in candidates for circuit in (one, other)])
    gaps = [abs(predicted[2 * k] - predicted[2 * k + 1]) for k in range(len(candidates))]
    chosen = candidates[max(range(len(candidates)), key=lambda k: (gaps[k], -len(candidates[k])))]
    predictions = confirm.shares([one - chosen, other - chosen])
    outcome = confirm.metric(frozenset(confirm.parts) - chosen)
    return Distinction(
        first=i,
        second=j,
        ablated=_names(chosen),
        first_predicts=predictions[0],
        second_predicts=predictions[1],
        outcome=outcome,
        supports=_nearer(predictions, outcome),
    )


def _nearer(predictions: Sequence[float], outcome: Metric) -> Literal["first", "second", "neither"]:
    """The prediction nearer to the outcome; neither where predictions are alike or the outcome lies between them."""
    assert outcome.value is not None
    middle, (one, other) = sum(predictions) / 2, predictions
    low, high = (outcome.value if end is None else end for end in (outcome.low, outcome.high))
    if abs(one - other) <= TOLERANCE or low <= middle <= high:
        return "neither"
    return "first" if (outcome.value > middle) == (one > other) else "second"


def _names(parts: Iterable[Component]) -> tuple[str, ...]:
    return tuple(map(str, sorted(parts)))
