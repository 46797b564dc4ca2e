"""The whole circuit: the smallest connected set of components that keeps a stated share of a behaviour.

The share kept by a circuit is F = (circuit - replaced) / (model - replaced): the mean score with every other component
resampled, between the score with everything resampled (0) and that of the model (1). The search has five steps, on
three sets of prompts that share none, no counterfactual of an earlier set either:

1. *Rank* every component, by sign: what hinders comes last. Several methods may rank.
2. *Choose* the size on other prompts: the smallest first part of a ranking that keeps the share there, by two standard
   errors; its best third where none does.
3. *Trim*: leave each member out, and drop the least needed as long as the share is kept on the choosing prompts. Of
   several rankings the one whose circuit is then smallest is taken. Where none gives a circuit within the limit, every
   component is swept exactly, and that order is tried.
4. *Connect*: rank the edges inside, keep the fewest that still keep the share, and drop every component that lies on no
   path from the tokens to the logits.
5. *Report* what is left on prompts that had no part in this, on other templates where the behaviour has some, beside
   random circuits of as many heads and MLPs.

A circuit that keeps more than the model (F above 1) has left out what hinders; `documents.answers` decides what all of
this amounts to.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.apart import wordings
from vesalius.behaviours.metrics import NoSlope
from vesalius.behaviours.own import RowBehaviour
from vesalius.behaviours.prompts import SPLITS
from vesalius.behaviours.registry import behaviour_of
from vesalius.behaviours.trial import NothingUnseen, Trial, in_two, trial, unseen_of
from vesalius.components import Component, Edge
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.faithfulness import NothingToKeep
from vesalius.discovery.method import MethodInput, Scores, signed_scores
from vesalius.discovery.shares import EdgeShares, KeptShare, Shares, share_between
from vesalius.discovery.stability import LEAST_TO_HALVE, half_agreement
from vesalius.documents.whole import (
    GIVEN,
    KEEP,
    LEAST_MOST,
    MOST_SHARE,
    Point,
    Says,
    Tried,
    WholeCircuit,
    WithMLPs,
    Wording,
)
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph, on_paths
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent

#: Prompts that choose the size, and prompts that report; those that rank are the discovery's own.
CHOOSE, REPORT = 32, 32
CHOOSE_SEED, ELSEWHERE_SPLIT = 3_000_017, "validation"
#: Sizes that a ranking is read at, as shares of the components; up to `EVERY` candidates every size is read.
SHARES = (0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.12, 0.16, 0.2, 0.3, 0.5)
EVERY, REFINED, EDGE_POINTS, EDGE_REFINED = 40, 6, 10, 5
#: Of the exact sweep's order this share is eliminated from where no ranking is enough.
BEST_SHARE = 1 / 3
#: Rounds of trimming, and the prompts that say what leaving a member out costs.
TRIM_ROUNDS, TRIM_PROMPTS = 4, 16
RANDOM_CIRCUITS = 5
#: Prompts of one wording that show what is kept of it.
LEAST_OF_WORDING = 4
Circuit = frozenset[Component]


@dataclass(frozen=True)
class PromptSets:
    """Prompts that rank, that choose the size and that report, and prompts of other templates (None: there are none).
    `shared` says why they are not apart, where they are not.
    """

    rank: Trial
    choose: Trial
    report: Trial
    elsewhere: Trial | None = None
    shared: str | None = None


def prompt_sets(specimen: Specimen, rank: Trial, *, seed: int = 0, split: str = "test") -> PromptSets:
    """Prompts for choosing and reporting beside those that rank. None that reports was seen before, as a prompt or as a
    counterfactual.
    """
    if not isinstance(specimen.vocabulary, TextVocabulary):
        unseen = trial(specimen, CHOOSE + REPORT, seed=CHOOSE_SEED + seed, apart_from=rank)
        choose, report = _parted(unseen)
        return PromptSets(rank, choose, report)
    source = specimen.behaviour_source
    if isinstance(source, RowBehaviour):
        if not source.divided:
            return PromptSets(rank, rank, rank, shared="the same prompts ranked, chose and report: give more rows")
        return PromptSets(rank, *_other_rows(specimen, rank, seed, [name for name in SPLITS if name != split]))
    choose, report = _parted(_drawn_apart(specimen, rank, seed, split))
    elsewhere = None
    if split != ELSEWHERE_SPLIT:
        elsewhere = trial(specimen, CHOOSE, seed=CHOOSE_SEED + seed, split=ELSEWHERE_SPLIT)
    return PromptSets(rank, choose, report, elsewhere)


def _drawn_apart(specimen: Specimen, rank: Trial, seed: int, split: str) -> Trial:
    """Unseen prompts of the same split: as many as are wanted, or as a small split has."""
    wanted = CHOOSE + REPORT
    for n in (wanted + len(rank.batch), wanted, wanted // 2, wanted // 4):
        try:
            drawn = trial(specimen, n, seed=CHOOSE_SEED + seed, split=split, apart_from=rank)
        except NothingUnseen:
            raise
        except BadInput:
            continue
        if drawn.prompts is None:
            return drawn
        prompts = drawn.prompts.take(slice(0, wanted))
        return Trial.of(prompts, prompts.readout(specimen.model))
    return trial(specimen, wanted // 8, seed=CHOOSE_SEED + seed, split=split, apart_from=rank)


def _other_rows(specimen: Specimen, rank: Trial, seed: int, others: Sequence[str]) -> tuple[Trial, Trial]:
    """Rows of the other two splits that did not rank, those of the second apart from those of the first. Where one
    split serves as both, or the first has seen most of the second, some rows of one choose and the others report.
    """
    drawn = list[Trial]()
    for name in others:
        with suppress(NothingUnseen):
            drawn.append(trial(specimen, REPORT, seed=seed, split=name, apart_from=rank))
    if len(drawn) == 2 and (left := unseen_of(drawn[1], drawn[0])) and 2 * len(left.batch) >= len(drawn[1].batch):
        return drawn[0], left
    if not drawn:
        raise NothingUnseen(
            "every row that did not rank is the counterfactual of one that did, so that none is left to choose and to "
            "report; give more rows, or rank on fewer (--n)"
        )
    return _parted(max(drawn, key=lambda one: len(one.batch)))


def _parted(material: Trial) -> tuple[Trial, Trial]:
    """Half of them choose, the others report, apart from what was seen there."""
    n = len(material.batch)
    choose, report = in_two(material, max(1, min(CHOOSE, n // 2)))
    if report is None:
        raise NothingUnseen(f"{n} unseen prompts are left, and some must choose and others report; use fewer (--n)")
    return choose, report


@dataclass(frozen=True)
class Ranking:
    """What one ranking gave: components by helpfulness, what first parts of that order keep on the choosing prompts,
    the smallest that keeps the share (`size`, None: none does), and what is left of it once trimmed (`circuit`, None:
    nothing within the limit).
    """

    method: str
    scores: Float[Tensor, "prompt component"]
    order: list[Component]
    curve: "dict[int, KeptShare]"
    size: int | None
    circuit: list[Component] | None

    def place(self, most: int) -> tuple[float, float, float]:
        """Smallest circuit first; without one, the smaller first part, then what is kept at the limit."""
        left = float("inf") if self.circuit is None else len(self.circuit)
        return left, self.size or float("inf"), -self.curve[most].value


@dataclass
class Search:
    """One search; `asked` is the share wanted and `limit` the largest circuit looked for (None: the usual part of the
    model).
    """

    specimen: Specimen
    sets: PromptSets
    asked: float = KEEP
    limit: int | None = None
    seed: int = 0
    progress: Progress = silent
    searched: tuple[Component, ...] | None = None
    memory: int | None = None
    forwards: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    measured: list[Shares] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = self.specimen.model
        inside = set(self.model.components if self.searched is None else self.searched)
        self.parts = [part for part in self.model.components if part in inside]
        self.kept_anyway = [part for part in self.model.components if part not in inside]
        usual = max(LEAST_MOST, round(MOST_SHARE * len(self.parts)))
        self.most = min(len(self.parts), usual if self.limit is None else self.limit)
        self.choosing = self.shares(self.sets.choose)
        if not abs(float((self.choosing.full - self.choosing.nothing).double().mean())) > 0:
            raise NothingToKeep("the score is the same with everything replaced, so that there is no circuit to find")

    def shares(self, material: Trial) -> Shares:
        """What circuits keep on some prompts."""
        shares = Shares(self.model, material, searched=self.parts, memory=self.memory)
        self.measured.append(shares)
        return shares

    @cached_property
    def trimming(self) -> Shares:
        """What circuits keep on the prompts that say what leaving a member out costs."""
        return self.shares(self.sets.rank.take(slice(0, TRIM_PROMPTS)))

    def order(self, scores: Float[Tensor, "prompt component"]) -> list[Component]:
        """Components by mean score, most helpful first."""
        return [self.parts[i] for i in scores.double().mean(0).argsort(descending=True, stable=True).tolist()]

    def sizes(self) -> list[int]:
        """Sizes at which a ranking is read, up to half of the model."""
        n = len(self.parts)
        if n <= EVERY:
            return list(range(1, n + 1))
        return sorted({*(max(1, round(share * n)) for share in SHARES), self.most})

    def read(self, method: str, scores: Scores, passes: float) -> Ranking:
        """The smallest circuit that a ranking gives: its smallest sufficient first part, or its best third (of a small
        model, all), trimmed.
        """
        self.progress(f"choosing the size by {method}", len(self.tried), 0)
        signed = signed_scores(self.model, self.parts, scores)
        order = self.order(signed)
        size, curve = self.smallest(order)
        most = len(order) if len(order) <= EVERY else max(self.most, round(BEST_SHARE * len(order)))
        members = self.trimmed(order[: most if size is None else min(size, most)])
        kept = self.choosing.kept([members])[0]
        circuit = members if len(members) <= self.most and kept.clears(self.asked) else None
        left = None if circuit is None else len(circuit)
        self.tried.append(Tried(method=method, size=left, kept=None if left is None else kept.value, passes=passes))
        return Ranking(method, signed, order, curve, size, circuit)

    def smallest(self, order: Sequence[Component]) -> tuple[int | None, dict[int, KeptShare]]:
        """The smallest first part of an order that keeps the share on the choosing prompts, and what each size read
        keeps.
        """
        sizes = self.sizes()
        read = dict(zip(sizes, self.choosing.kept([order[:size] for size in sizes]), strict=True))
        enough = next((size for size in sizes if read[size].reaches(self.asked)), None)
        if enough is None:
            return None, read
        below = max((size for size in sizes if size < enough), default=0)
        between = _between(below, enough, REFINED)
        read |= dict(zip(between, self.choosing.kept([order[:size] for size in between]), strict=True))
        return next(size for size in sorted(read) if read[size].reaches(self.asked)), dict(sorted(read.items()))

    def trimmed(self, circuit: Sequence[Component]) -> list[Component]:
        """The circuit without the members that it can do without: those whose loss costs least on the ranking prompts,
        as many as the choosing prompts allow, and again for what is left.
        """
        members = list(circuit)
        for _ in range(TRIM_ROUNDS):
            if len(members) < 2:
                break
            self.progress("leaving members out", len(circuit) - len(members), len(circuit))
            without = [kept.value for kept in self.trimming.kept([set(members) - {part} for part in members])]
            order = [members[i] for i in sorted(range(len(members)), key=lambda i: -without[i])]
            drops = sorted({1, *_between(0, len(order), 8)})
            tried = self.choosing.kept([set(order[drop:]) for drop in drops])
            most = max((drop for drop, kept in zip(drops, tried, strict=True) if kept.reaches(self.asked)), default=0)
            if not most:
                break
            gone = set(order[:most])
            members = [part for part in members if part not in gone]
        return members

    def connected(
        self, members: Sequence[Component], edges: Float[Tensor, "sender receiver"]
    ) -> tuple[list[Component], list[Edge]]:
        """The fewest edges inside that keep the share, with the components that lie on their paths. The components must
        keep it by themselves as well.
        """
        graph = EdgeGraph.of(self.model.config)
        inside = graph.real & _between_members(graph, members)
        order = torch.where(inside, edges, -torch.inf).flatten().argsort(descending=True)[: int(inside.sum())]
        shares = EdgeShares(self.choosing, inside)

        def circuits(counts: Sequence[int]) -> list[tuple[list[Component], Tensor, bool]]:
            masks = torch.stack([_first(order[:count], inside) for count in counts])
            wired = shares.kept(masks)
            paths = [on_paths(graph, mask) for mask in masks]
            alone = self.choosing.kept([_members(graph, mask) for mask in paths])
            return [
                (_members(graph, mask), mask, kept.clears(self.asked) and parts.clears(self.asked))
                for mask, kept, parts in zip(paths, wired, alone, strict=True)
            ]

        total = len(order)
        counts = sorted({*_geometric(len(members), total, EDGE_POINTS), total})
        tried = dict(zip(counts, circuits(counts), strict=True))
        enough = next((count for count in counts if tried[count][2]), total)
        between = _between(max((count for count in counts if count < enough), default=0), enough, EDGE_REFINED)
        tried |= dict(zip(between, circuits(between), strict=True)) if between else {}
        best = next((count for count in sorted(tried) if tried[count][2]), total)
        parts, mask, _ = tried[best]
        return parts, [Edge(graph.senders[s], *graph.receivers[r]) for s, r in mask.nonzero().tolist()]


def whole_circuit(
    search: Search,
    rankings: Mapping[str, tuple[Scores, float]],
    exact: Callable[[], Scores] | None = None,
    *,
    edges: Float[Tensor, "sender receiver"] | None = None,
) -> tuple[WholeCircuit, list[Component], list[Edge]]:
    """The smallest connected circuit by the best of several rankings, what it keeps, its components and its edges.

    `rankings` are scores by the name of the method, with their passes; `exact` sweeps every component, where no ranking
    gives a circuit; `edges` scores edges (None: EAP-IG does).
    """
    start = time.perf_counter()
    read = [search.read(name, scores, passes) for name, (scores, passes) in rankings.items()]
    if not any(one.circuit for one in read) and exact is not None:
        search.progress("sweeping every component", 0, 0)
        scores = exact()
        read.append(search.read("sweep", scores, scores.forwards))
        search.forwards += scores.forwards
    best = min(read, key=lambda one: one.place(search.most))
    members = best.circuit or best.order[: search.most]
    if best.circuit and not search.kept_anyway:
        try:
            found = search.connected(members, _edge_table(search, edges))
        except NoSlope:  # edges are ranked by slopes: all that lie inside are kept
            found = _all_inside(search.model, members)
    else:
        found = _all_inside(search.model, [*members, *search.kept_anyway])
    return _reported(search, best, found, start), *found


def measured_circuit(
    search: Search, components: Collection[Component], edges: Sequence[Edge] | None = None
) -> WholeCircuit:
    """What given components keep, by the figures of a circuit that was searched for; `edges` are theirs (None: all that
    lie between them).
    """
    start, inside = time.perf_counter(), set(components)
    parts = [part for part in search.parts if part in inside]
    order = [*parts, *(part for part in search.parts if part not in inside)]
    given = Ranking(GIVEN, torch.zeros(0, len(order)), order, {}, len(parts), parts)
    own = _all_inside(search.model, parts)[1] if edges is None else edges
    return _reported(search, given, (parts, own), start)


def _reported(
    search: Search, best: Ranking, found: tuple[Sequence[Component], Sequence[Edge]], start: float
) -> WholeCircuit:
    """What the circuit keeps on the reported prompts, and beside what."""
    (parts, edges), is_found, order = found, best.circuit is not None, best.order
    sets, graph = search.sets, EdgeGraph.of(search.model.config)
    search.progress("reporting on unseen prompts", 0, 0)
    reporting = search.shares(sets.report)
    others = random_circuits(search.parts, parts, seed=search.seed)
    heads = _heads_beside_mlps(search, order)
    scores = reporting.scores([parts, *([] if heads is None else [heads]), *others])
    own, beside = reporting.share(scores[:, 0]), None if heads is None else reporting.share(scores[:, 1])
    mean = reporting.share(scores[:, -len(others) :].mean(1)) if others else None
    mask = torch.zeros_like(graph.real)
    for edge in edges:
        mask[graph.senders.index(edge.sender), graph.receivers.index((edge.receiver, edge.port))] = True
    wired = EdgeShares(reporting, mask).kept(mask[None])[0] if edges else None
    elsewhere = None if sets.elsewhere is None else search.shares(sets.elsewhere)
    there = None if elsewhere is None else elsewhere.kept([parts])[0]
    n = len(sets.rank.batch)
    search.forwards += sum(shares.cost.rows for shares in search.measured) / n
    stable = None
    if len(best.scores) >= LEAST_TO_HALVE:
        stable = half_agreement(best.scores.clamp(min=0.0), best.size or len(parts), seed=search.seed).jaccard
    inside = set(parts)
    return WholeCircuit(
        method=best.method,
        tried=tuple(search.tried),
        keep=search.asked,
        most=search.most,
        candidates=len(search.parts),
        found=is_found,
        reached=None if is_found else best.size,
        components=tuple(str(part) for part in search.parts if part in inside),
        kept_anyway=len(search.kept_anyway),
        edges=tuple(map(str, edges)),
        connected=bool(edges) and set(_members(graph, on_paths(graph, mask))) == inside,
        kept=own.metric(),
        says=said_alone(search.specimen, reporting, parts),
        least=least_wording(search.specimen, reporting, parts),
        wired=None if wired is None else wired.metric(),
        elsewhere=None if there is None else there.metric(),
        random=None if mean is None else mean.metric(),
        with_mlps=None if beside is None or heads is None else _beside(heads, beside),
        stable=stable,
        curve=tuple(Point(size=k, kept=one.value, low=one.low, high=one.high) for k, one in best.curve.items()),
        n_rank=n,
        n_choose=len(sets.choose.batch),
        shared=sets.shared,
        forwards=search.forwards,
        seconds=time.perf_counter() - start,
    )


def said_alone(specimen: Specimen, shares: Shares, circuit: Collection[Component]) -> Says | None:
    """How often a circuit alone says the right answer; None where there is none, or one of several right ones."""
    asked = shares.material.prompts is not None and not behaviour_of(specimen).open_answer
    return shares.says(circuit) if asked else None


def least_wording(specimen: Specimen, shares: Shares, circuit: Collection[Component]) -> Wording | None:
    """Of the wordings of a file of rows the one of which a circuit keeps least: a mean over templates hides that one
    of them, with a small range, is not kept at all. None where fewer than two are asked by `LEAST_OF_WORDING` prompts,
    or for a behaviour with templates of its own, whose other templates are asked.
    """
    prompts = shares.material.prompts
    if prompts is None or not isinstance(specimen.behaviour_source, RowBehaviour):
        return None
    groups, wording = dict[tuple[str, ...], list[int]](), wordings(prompts.texts)
    for place, text in enumerate(prompts.texts):
        groups.setdefault(wording[text], []).append(place)
    large = [rows for rows in groups.values() if len(rows) >= LEAST_OF_WORDING]
    if len(large) < 2:
        return None
    own, found = shares.scores([circuit])[:, 0], list[Wording]()
    for rows in large:
        kept = share_between(shares.nothing[rows], own[rows], shares.full[rows])
        if float((shares.full - shares.nothing)[rows].mean()) > 0:
            found.append(Wording(prompt=prompts.texts[rows[0]], kept=kept.metric()))
    return min(found, key=lambda one: one.kept.value or 0.0, default=None)


def _beside(members: Collection[Component], kept: KeptShare) -> WithMLPs:
    return WithMLPs(heads=sum(part.is_head for part in members), kept=kept.metric())


def _heads_beside_mlps(search: Search, order: Sequence[Component]) -> Circuit | None:
    """All MLPs and the fewest heads, by the order, that keep the share on the choosing prompts; None where no number up
    to the limit does, or where there are no MLPs.
    """
    heads = [part for part in order if part.is_head]
    mlps = [part for part in search.parts if not part.is_head]
    if not mlps or not heads or search.kept_anyway:
        return None
    limit = min(len(heads), search.most)
    counts = sorted({0, *_geometric(1, limit, 8), limit})
    kept = search.choosing.kept([[*mlps, *heads[:count]] for count in counts])
    enough = next((count for count, one in zip(counts, kept, strict=True) if one.clears(search.asked)), None)
    return None if enough is None else frozenset([*mlps, *heads[:enough]])


def random_circuits(parts: Sequence[Component], circuit: Collection[Component], *, seed: int) -> list[Circuit]:
    """Other circuits of as many heads and MLPs, with few members in common. Where the make-up leaves only such as share
    more than half of the members, others of the same size; none where this is the only one.
    """
    heads, mlps = [part for part in parts if part.is_head], [part for part in parts if not part.is_head]
    for kinds in ([heads, mlps], [list(parts)]):
        rng, counts = random.Random(f"random circuits/{seed}"), [sum(p in circuit for p in kind) for kind in kinds]
        drawn = [_least_alike(kinds, counts, circuit, rng) for _ in range(RANDOM_CIRCUITS)]
        if all(2 * len(one & frozenset(circuit)) <= len(one) for one in drawn):
            return drawn
    return [] if len(circuit) == len(parts) else drawn


def _least_alike(
    kinds: Sequence[Sequence[Component]], counts: Sequence[int], circuit: Collection[Component], rng: random.Random
) -> Circuit:
    """Of some random circuits the one with the fewest members in common: what a circuit shares with this one is no
    evidence that others do as well.
    """
    tries = [[p for kind, n in zip(kinds, counts, strict=True) for p in rng.sample(kind, n)] for _ in range(20)]
    return frozenset(min(tries, key=lambda one: sum(p in circuit for p in one)))


def _between_members(graph: EdgeGraph, members: Collection[Component]) -> Bool[Tensor, "sender receiver"]:
    inside = {None, *members}
    senders = torch.tensor([part in inside for part in graph.senders])
    receivers = torch.tensor([part in inside for part, _ in graph.receivers])
    return senders[:, None] & receivers[None]


def _members(graph: EdgeGraph, mask: Bool[Tensor, "sender receiver"]) -> list[Component]:
    """The components that some edge of a mask leaves."""
    return [part for part, used in zip(graph.senders, mask.any(1).tolist(), strict=True) if used and part is not None]


def _first(places: Tensor, inside: Bool[Tensor, "sender receiver"]) -> Bool[Tensor, "sender receiver"]:
    mask = torch.zeros(inside.numel(), dtype=torch.bool)
    mask[places] = True
    return mask.view(inside.shape)


def _all_inside(model: Transformer, members: Sequence[Component]) -> tuple[list[Component], list[Edge]]:
    graph = EdgeGraph.of(model.config)
    mask = graph.real & _between_members(graph, members)
    return list(members), [Edge(graph.senders[s], *graph.receivers[r]) for s, r in mask.nonzero().tolist()]


def _edge_table(search: Search, edges: Float[Tensor, "sender receiver"] | None) -> Float[Tensor, "sender receiver"]:
    if edges is not None:
        return edges
    search.progress("ranking edges", 0, 0)
    scores = EAPIG().score(MethodInput(search.specimen, search.sets.rank.take(slice(0, TRIM_PROMPTS))))
    assert scores.per_prompt is not None
    search.forwards += scores.forwards
    return scores.per_prompt.mean(0)


def _between(low: int, high: int, n: int) -> list[int]:
    """Up to `n` whole numbers between two, evenly."""
    return sorted({round(low + (high - low) * step / (n + 1)) for step in range(1, n + 1)} - {low, high})


def _geometric(low: int, high: int, n: int) -> list[int]:
    """Up to `n` whole numbers from one to another, at equal ratios."""
    low = max(1, min(low, high))
    return sorted({round(low * (high / low) ** (step / max(1, n - 1))) for step in range(n)})
