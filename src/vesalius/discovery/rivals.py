"""Rival circuits: other sets of components, or of edges, that keep a behaviour as well as the best one.

1. A circuit is what is left when parts (components, or edges) are removed from the whole model, in some order, as long
   as `LEAST_KEPT` of the behaviour stays on the discovery's prompts. Many are tried at once and halved where too much
   is lost.
2. The best circuit removes what scores least first. Each rival removes what earlier circuits hold first, by several
   orders of the rest (by score, and shuffled with several seeds), and the faithful circuit with least overlap is kept.
3. On held-out prompts, a rival is as faithful as the best if it keeps as much, less `TOLERANCE`. The parts in all of
   these are the core.
4. A part of the best and one of a rival are exchangeable if the best circuit loses more than the tolerance without the
   first, and not with the second in its place. Their synergy in the whole model is measured beside it.
5. Two circuits are distinguished by ablations that they predict differently: each predicts what it alone keeps under
   one. Candidates are single parts of one and not the other, and all of these together; of those that ablate the
   first's own parts and of those that ablate the second's, the one with the largest difference is carried out on the
   whole model, on held-out prompts. Where parts back each other up either ablation costs the model nothing and speaks
   against the circuit that holds the part: then the two contradict each other and neither circuit is supported.
"""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import NothingUnseen, Trial
from vesalius.components import Component, Edge
from vesalius.discovery.checks import held_out_prompts
from vesalius.discovery.faithfulness import CircuitPart, interval_metric, resampled_faithfulness, scores_without
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.documents.rivals import By, Distinction, Exchange, RivalCircuit, Rivals
from vesalius.errors import BadInput, choices
from vesalius.intervene import Batch, Cost, Readout, Replacement
from vesalius.intervene.attribution import attribute, attribute_once_replaced
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer

LEAST_KEPT, TOLERANCE = 0.9, 0.05
#: Orders in which the rest is removed: by score, then shuffled with so many seeds.
SHUFFLES = 3
MOST_RIVALS = 10
#: Pairs of parts that are exchanged at most, the strongest first.
MOST_PAIRS = 64
KINDS: tuple[By, ...] = ("components", "edges")

Parts = frozenset[CircuitPart]


def require_rivals(rivals: int, by: str = "components", *, scores_edges: bool = True) -> None:
    """Refuse what cannot be searched: `by` edges needs a method that scores them."""
    if not 0 <= rivals <= MOST_RIVALS:
        raise BadInput(f"`rivals` {rivals} is not possible; choose 0 to {MOST_RIVALS}")
    if by not in KINDS:
        raise BadInput(f"`rivals_by` {by!r} does not exist; choose {choices(KINDS)}")
    if by == "edges" and not scores_edges:
        raise BadInput("`rivals_by` edges needs a method that scores edges; choose eap-ig or acdc, or leave it out")


def require_searchable(model: Transformer, by: str) -> None:
    """Refuse a model of too many edges to be removed and put back."""
    n_edges = EdgeGraph.of(model.config).n_edges
    if by == "edges" and n_edges > MAX_EDGES:
        raise BadInput(f"`rivals_by` edges: this model has {n_edges} edges, more than {MAX_EDGES}; use components")


def rival_prompts(specimen: Specimen, material: Trial, *, seed: int) -> Trial:
    """The prompts on which rivals of a circuit discovered on `material` are compared; refused where there are none."""
    try:
        return held_out_prompts(specimen, material, seed=seed)
    except NothingUnseen:
        raise BadInput(
            "`rivals` are compared on prompts that the discovery has not seen, and there are none; "
            "give more rows or a smaller `n`, or leave out `rivals`"
        ) from None


def most_searches(model: Transformer, rivals: int, by: By) -> float:
    """The passes of all prompts that a search takes at most: removing parts by halves tries fewer than twice as many
    sets as there are parts, in every order.
    """
    parts = EdgeGraph.of(model.config).n_edges if by == "edges" else len(model.components)
    return float((1 + rivals * (1 + SHUFFLES)) * 2 * parts)


@dataclass(frozen=True)
class _Discovered:
    """A circuit and the search that led to it."""

    parts: Parts
    search: str


def find_rivals(
    model: Transformer,
    circuit: Circuit,
    seen: Trial,
    held_out: Trial,
    *,
    rivals: int,
    by: By = "components",
    shuffles: int = SHUFFLES,
    seed: int = 0,
) -> Rivals:
    """The best circuit by a discovery's scores and up to `rivals` others, compared and distinguished; `shuffles` random
    orders are tried beside that of the scores.
    """
    start, ranked = time.perf_counter(), circuit.ranked() if by == "components" else circuit.ranked_edges()
    strength: dict[CircuitPart, float] = {part: abs(score) for part, score in ranked}
    search, confirm = _Keeping(model, seen, tuple(strength)), _Keeping(model, held_out, tuple(strength))
    circuits = _search(search, strength, rivals, shuffles, seed)
    rows = _confirmed(circuits, search, confirm)
    faithful = [place for place, row in enumerate(rows) if row.as_faithful]
    best = circuits[0].parts
    exchanges = [
        pair for place in faithful if place for pair in _exchanges(best, circuits[place].parts, confirm, strength)
    ]
    distinctions = [
        one
        for i, j in combinations(faithful, 2)
        for one in _distinctions((i, circuits[i].parts), (j, circuits[j].parts), search, confirm)
    ]
    return Rivals(
        by=by,
        asked=rivals,
        least_kept=LEAST_KEPT,
        tolerance=TOLERANCE,
        n=len(held_out.batch),
        circuits=tuple(rows),
        core=_names(frozenset.intersection(*(circuits[place].parts for place in faithful))),
        exchangeable=tuple({(pair.one, pair.other): pair for pair in exchanges}.values()),
        distinctions=tuple(distinctions),
        forwards=search.forwards + confirm.forwards * len(held_out.batch) / len(seen.batch),
        seconds=time.perf_counter() - start,
    )


@dataclass
class _Keeping:
    """How much of the behaviour stays on some prompts; every set of parts is run once."""

    model: Transformer
    material: Trial
    parts: tuple[CircuitPart, ...]
    forwards: float = 0.0
    columns: dict[Parts, torch.Tensor] = field(default_factory=dict)

    def table(self, kept: Sequence[Parts]) -> torch.Tensor:
        """Scores of every prompt: nothing kept, each of these circuits, everything kept."""
        whole = frozenset(self.parts)
        circuits = [frozenset[CircuitPart](), *kept, whole]
        new = list(dict.fromkeys(one for one in circuits if one not in self.columns))
        if new:
            scores, forwards = scores_without(self.model, self.material, [whole - one for one in new])
            self.forwards += forwards
            self.columns |= dict(zip(new, scores.double().T, strict=True))
        return torch.stack([self.columns[one] for one in circuits], 1)

    def shares(self, kept: Sequence[Parts]) -> list[float]:
        """What each circuit keeps."""
        return resampled_faithfulness(self.table(kept))[1][0, 1:-1].tolist()

    def metric(self, kept: Parts) -> Metric:
        """What one circuit keeps, with its interval over the prompts."""
        _, value, drawn = resampled_faithfulness(self.table([kept]))
        return interval_metric(value[0, 1], drawn[:, 1], len(self.material.batch))


def _search(
    keeping: _Keeping, strength: dict[CircuitPart, float], rivals: int, shuffles: int, seed: int
) -> list[_Discovered]:
    """The best circuit, then rivals."""
    weakest = sorted(strength, key=lambda part: strength[part])
    circuits = [_Discovered(_eliminated(keeping, weakest), "weakest first")]
    for rival in range(rivals):
        used = frozenset[CircuitPart]().union(*(one.parts for one in circuits))
        orders = {"what earlier circuits hold first, then the weakest": weakest}
        for shuffle in range(shuffles):
            order = random.Random(f"rivals/{seed}/{rival}/{shuffle}").sample(weakest, len(weakest))
            orders[f"what earlier circuits hold first, shuffle {shuffle}"] = order
        candidates = [
            _Discovered(_eliminated(keeping, sorted(order, key=lambda part: part not in used)), name)
            for name, order in orders.items()
        ]
        known = {one.parts for one in circuits}
        new = [one for one in candidates if one.parts not in known]
        if not new:
            break
        circuits.append(min(new, key=lambda one: (_overlap(one.parts, used), len(one.parts))))
    return circuits


def _overlap(one: Parts, other: Parts) -> float:
    """The Jaccard index."""
    return len(one & other) / max(1, len(one | other))


def _eliminated(keeping: _Keeping, order: Sequence[CircuitPart]) -> Parts:
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


def _confirmed(circuits: Sequence[_Discovered], search: _Keeping, confirm: _Keeping) -> list[RivalCircuit]:
    best = circuits[0].parts
    least = confirm.shares([best])[0] - TOLERANCE
    rows = []
    for one in circuits:
        metric = confirm.metric(one.parts)
        edges = [part for part in one.parts if isinstance(part, Edge)]
        ends = {end for edge in edges for end in (edge.sender, edge.receiver) if end is not None}
        rows.append(
            RivalCircuit(
                components=_names(ends if edges else one.parts),
                edges=_names(edges),
                search=one.search,
                searched=search.shares([one.parts])[0],
                faithfulness=metric,
                overlap=_overlap(one.parts, best),
                as_faithful=metric.value is not None and metric.value >= least,
            )
        )
    return rows


def _exchanges(best: Parts, other: Parts, confirm: _Keeping, strength: dict[CircuitPart, float]) -> list[Exchange]:
    """Parts of the best circuit that one of the other replaces."""
    pairs = sorted(
        product(_in_order(best - other), _in_order(other - best)),
        key=lambda pair: -strength[pair[0]] * strength[pair[1]],
    )
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
    """The ablation within each circuit's own parts that the two predict most differently, carried out; where the
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
    """Of `own` parts of one circuit, those whose ablation two circuits predict most differently, and what it does
    to the whole model.
    """
    (i, one), (j, other) = first, second
    candidates = list(dict.fromkeys([*(frozenset({part}) for part in _in_order(own)), own]))
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


def _in_order(parts: Iterable[CircuitPart]) -> list[CircuitPart]:
    """Components in order of computation, edges by name."""
    given = list(parts)
    components = sorted(part for part in given if isinstance(part, Component))
    return [*components, *sorted((part for part in given if isinstance(part, Edge)), key=str)]


def _names(parts: Iterable[CircuitPart]) -> tuple[str, ...]:
    return tuple(map(str, _in_order(parts)))


# Pairs of heads that may stand in for each other, proposed with few passes from the effects of single heads.
#
# A pair shows as the effect of replacing both beyond the sum of the single effects. Of 270 heads there are 36,315
# pairs; a model with two heads that do the same has few. So:
#
# 1. The strongest heads by their single effect are replaced one after the other. With each, one forward and one
#    backward pass estimate what every other head then costs, as `attribute` does for the model as it is.
# 2. What a head costs then beyond what it costs in the model as it is, its *growth*, estimates the synergy of the pair.
#    The pairs that grow most are proposed.
#
# The proposal is a guess: whoever asks measures the pairs, on the same prompts and then on others. It misses pairs of
# which neither head is strong alone; group testing (`vesalius sets --search group`) looks for those.

#: A forward and a backward pass cost about as much as so many forward passes.
PASSES = 3
#: Heads that are replaced first, and pairs that are proposed, where the caller has passes to spend.
FIRST, PROPOSED = 32, 64


def growth(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    heads: Sequence[Component],
    first: Sequence[Component],
    cost: Cost,
) -> Float[Tensor, "first head"]:
    """How much more each head is estimated to cost once each of `first` is replaced, on average over prompts."""
    order = {part: place for place, part in enumerate(model.components)}
    places = [order[head] for head in heads]
    alone = attribute(model, batch, readout, replacement)[:, places].mean(0)
    then = attribute_once_replaced(model, batch, readout, replacement, first)[:, :, places].mean(1)
    cost.rows += PASSES * len(batch) * (1 + len(first))
    return then - alone


def growing_pairs(
    grown: Float[Tensor, "first head"], heads: Sequence[Component], first: Sequence[Component], *, most: int
) -> list[tuple[Component, Component]]:
    """The pairs that grow most, strongest first; of a pair that was estimated both ways the larger counts."""
    best: dict[tuple[Component, Component], float] = {}
    for one, row in zip(first, grown.tolist(), strict=True):
        for other, value in zip(heads, row, strict=True):
            if other != one:
                pair = (min(one, other), max(one, other))
                best[pair] = max(best[pair], value) if pair in best else value
    ranked = sorted(best, key=lambda pair: (-best[pair], pair))
    return [pair for pair in ranked[:most] if best[pair] > 0]


def strongest(effects: dict[Component, float], *, most: int) -> list[Component]:
    """The heads with the largest effects alone, of either sign."""
    heads = [part for part in effects if part.is_head]
    return sorted(heads, key=lambda head: (-abs(effects[head]), head))[:most]
