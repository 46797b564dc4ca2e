"""The set of components that an explanation is about, and the account of it (`documents.account`).

The set is as large as the behaviour needs: the smallest first part of a ranking that keeps the share asked for on the
choosing prompts, trimmed, up to a limit; where there is none the strongest components up to that limit, and the account
says how little they keep. It is the search of `discovery.whole` on fewer prompts, without edges: `Best` ranks, and the
order by exact effects stands beside it, which an explanation has measured anyway.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.trial import Trial, in_two, trial
from vesalius.components import Component
from vesalius.discovery.attribution import Best
from vesalius.discovery.method import MethodInput, Scores
from vesalius.discovery.stability import LEAST_TO_HALVE, half_agreement
from vesalius.discovery.whole import (
    BEST_SHARE,
    CHOOSE_SEED,
    EVERY,
    PromptSets,
    Ranking,
    Search,
    Shares,
    least_wording,
    prompt_sets,
    random_circuits,
    said_alone,
    signed_scores,
)
from vesalius.documents.account import BAR, Account, Effect, PartOfSet, layer_name
from vesalius.documents.metric import Metric
from vesalius.documents.whole import GIVEN, KEEP, REPLACED, Point, Says, Tried, WholeCircuit, Wording
from vesalius.errors import BadInput
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.signed import parted
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, silent
from vesalius.statistics import interval_or_none

#: Prompts that rank, that choose the size, that say what leaving a member out costs, and that components are replaced
#: alone on; those that report are as many as `discover` reports on. Few, so that an explanation stays affordable.
RANK, CHOOSE, TRIM, ALONE = 8, 16, 4, 8
#: The split of the prompts that rank, choose and report; claims are made on another.
SPLIT = "train"
END, ELSEWHERE = "end", "elsewhere"


@dataclass(frozen=True)
class NamedSet:
    """The components that an account is about, and how they were found; `ranking` is None where they were given."""

    components: tuple[Component, ...]
    sets: PromptSets
    most: int
    ranking: Ranking | None = None
    tried: tuple[Tried, ...] = ()
    rows: float = 0.0

    @property
    def found(self) -> bool:
        """Whether they are a circuit that keeps the share where it was chosen, or were given."""
        return self.ranking is None or self.ranking.circuit is not None


class SetRuns:
    """The runs that whatever is measured of a set starts from, made once: of the prompts that report, and of those of
    other templates (None: there are none), clean, on the counterfactuals, and with everything replaced.
    """

    def __init__(self, model: Transformer, sets: PromptSets) -> None:
        self.model, self.sets = model, sets

    @cached_property
    def report(self) -> Shares:
        """Shares on the prompts that report."""
        return Shares(self.model, self.sets.report)

    @cached_property
    def elsewhere(self) -> Shares | None:
        """Shares on prompts of other templates."""
        return None if self.sets.elsewhere is None else Shares(self.model, self.sets.elsewhere)


def account_prompts(specimen: Specimen, n: int, *, seed: int) -> PromptSets:
    """Prompts that rank, choose and report, at least `n` of the last where there are as many; the same for all where a
    behaviour has too few.
    """
    rank = trial(specimen, RANK, seed=seed, split=SPLIT)
    try:
        sets = prompt_sets(specimen, rank, seed=seed, split=SPLIT)
    except BadInput:  # too few unseen prompts
        return PromptSets(rank, rank, rank, shared="the same prompts ranked, chose and report: there are no others")
    elsewhere = None if sets.elsewhere is None else sets.elsewhere.take(slice(0, CHOOSE))
    sets = replace(sets, choose=sets.choose.take(slice(0, CHOOSE)), elsewhere=elsewhere)
    if n <= len(sets.report.batch) or sets.elsewhere is None:  # rows of one's own are all there are
        return sets
    choose, report = in_two(trial(specimen, CHOOSE + n, seed=CHOOSE_SEED + seed, split=SPLIT, apart_from=rank), CHOOSE)
    return sets if report is None else replace(sets, choose=choose, report=report)


def given_set(specimen: Specimen, components: Collection[Component], *, n: int, seed: int) -> NamedSet:
    """Components that were given, with the prompts that report on them."""
    members = tuple(sorted(set(components)))
    return NamedSet(members, account_prompts(specimen, n, seed=seed), len(members))


def choose_set(
    specimen: Specimen,
    effects: Mapping[Component, float],
    *,
    most: int,
    n: int,
    seed: int = 0,
    progress: Progress = silent,
) -> NamedSet:
    """The set that the behaviour needs, of at most `most` components; `effects` are those of replacing each alone, `n`
    prompts at least report on it.
    """
    sets = account_prompts(specimen, n, seed=seed)
    few = sets.rank.take(slice(0, TRIM))
    search = Search(specimen, replace(sets, rank=few), KEEP, most, seed, progress)
    progress("ranking every component", 0, 0)
    scores = Best().sums(MethodInput(specimen, sets.rank, seed))
    read = [_read(search, name, one) for name, one in scores.rankings.items()]
    if len(search.parts) <= EVERY or not any(one.size and one.size <= search.most for one in read):
        exact = Scores(components=dict(effects), edges={}, forwards=0.0, unit=scores.unit)
        read.append(_read(search, "sweep", exact))
    best = min(read, key=lambda one: one.place(search.most))
    circuit = _trimmed(search, best)
    best = replace(best, circuit=circuit)
    rows = len(sets.rank.batch) * scores.forwards + len(few.batch) * search.forwards + search.choosing.cost.rows
    chosen = best.order[: search.most] if circuit is None else circuit
    return NamedSet(tuple(sorted(chosen)), sets, search.most, best, tuple(search.tried), rows)


def _read(search: Search, name: str, scores: Scores) -> Ranking:
    """What first parts of a ranking keep on the choosing prompts, without trimming any."""
    search.progress(f"choosing the size by {name}", 0, 0)
    signed = signed_scores(search.model, search.parts, scores)
    order = search.order(signed)
    size, curve = search.smallest(order)
    kept = None if size is None else curve[size].value
    search.tried.append(Tried(method=name, size=size, kept=kept, passes=scores.forwards))
    return Ranking(name, signed, order, curve, size, None)


def _trimmed(search: Search, best: Ranking) -> list[Component] | None:
    """What is left of the best ranking once trimmed; None where that does not keep the share within the limit. Of the
    rankings only one is trimmed, which costs a run of every member.
    """
    most = len(best.order) if len(best.order) <= EVERY else max(search.most, round(BEST_SHARE * len(best.order)))
    if best.size is None and len(best.order) > EVERY:
        return None
    members = search.trimmed(best.order[: most if best.size is None else min(best.size, most)])
    fits = len(members) <= search.most and search.choosing.kept([members])[0].clears(search.asked)
    return members if fits else None


def measure_account(
    specimen: Specimen,
    named: NamedSet,
    *,
    beside: Collection[Component] = (),
    suspects: Collection[Component] = (),
    runs: SetRuns | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Account:
    """The account of a set. `beside` are described components that are not in it, `suspects` all others that may cost
    more than the bar alone. `runs` are made here where none are given.
    """
    progress(f"what {len(named.components)} components keep, and what is left out", 0, 0)
    model, inside = specimen.model, set(named.components)
    every, report = frozenset(model.components), named.sets.report
    runs = runs or SetRuns(model, named.sets)
    shares, alone = runs.report, Singly(model, report.take(slice(0, ALONE)))
    mlps = {part for part in every if not part.is_head}
    others = random_circuits(model.components, inside, seed=seed)
    asked = {"kept": inside, "mlps": inside | mlps, "left": every - inside}
    scores = shares.scores([*asked.values(), *others])
    figures = {name: shares.share(scores[:, place]).metric() for place, name in enumerate(asked)}
    random = shares.share(scores[:, len(asked) :].mean(1)).metric() if others else None
    elsewhere = None
    if (there := runs.elsewhere) is not None:
        elsewhere = there.kept([inside])[0].metric()
        shares.cost.rows += there.cost.rows
    singles = alone.effects([*sorted(inside), *sorted({*beside, *suspects} - inside)])
    outside = [one for part, one in singles.items() if part not in inside]
    ranges = (shares.full - shares.nothing).double()
    kinds = {"heads": [p for p in inside if p.is_head], "MLPs": [p for p in inside if not p.is_head]}
    layers = {layer: [part for part in inside if part.layer == layer] for layer in {part.layer for part in inside}}
    low, high = interval_or_none(ranges)
    return Account(
        kept=figures["kept"],
        with_mlps=None if mlps <= inside else figures["mlps"],
        left=figures["left"],
        range=Metric(value=float(ranges.mean()), low=low, high=high, n=len(ranges)),
        unit=report.readout.unit,
        n_layers=model.config.n_layers,
        n_heads=model.config.n_heads,
        replacement=REPLACED,
        members=_by_effect(singles[part] for part in inside),
        beside=_by_effect(singles[part] for part in set(beside) - inside),
        omitted=_by_effect(one for one in outside if abs(one.effect) >= BAR),
        layers=_parts(shares, {layer_name(layer, layers[layer]): layers[layer] for layer in sorted(layers)}),
        kinds=_parts(shares, {name: parts for name, parts in kinds.items() if parts}),
        positions=_positions(shares, named.components),
        n_alone=len(alone.shares.material.batch),
        whole=_whole(
            named,
            figures["kept"],
            elsewhere,
            random,
            says=said_alone(specimen, shares, inside),
            least=least_wording(specimen, shares, inside),
            candidates=len(every),
            seed=seed,
        ),
        rows=named.rows + shares.cost.rows + alone.rows,
    )


def _whole(
    named: NamedSet,
    kept: Metric,
    elsewhere: Metric | None,
    random: Metric | None,
    *,
    says: Says | None,
    least: Wording | None,
    candidates: int,
    seed: int,
) -> WholeCircuit:
    """The figures that the answer is decided by."""
    best, sets = named.ranking, named.sets
    stable = None
    if best is not None and len(best.scores) >= LEAST_TO_HALVE:
        size = best.size or len(named.components)
        stable = half_agreement(best.scores.clamp(min=0.0), size, seed=seed).jaccard
    curve = {} if best is None else best.curve
    return WholeCircuit(
        method=GIVEN if best is None else best.method,
        tried=named.tried,
        keep=KEEP,
        most=named.most,
        candidates=candidates,
        found=named.found,
        reached=None if named.found or best is None else best.size,
        components=tuple(map(str, named.components)),
        connected=bool(named.components),
        kept=kept,
        says=says,
        least=least,
        elsewhere=elsewhere,
        random=random,
        stable=stable,
        curve=tuple(Point(size=k, kept=one.value, low=one.low, high=one.high) for k, one in curve.items()),
        n_rank=len(sets.rank.batch),
        n_choose=len(sets.choose.batch),
        shared=sets.shared,
        forwards=named.rows / max(1, len(sets.rank.batch)),
        seconds=0.0,
    )


class Singly:
    """Components replaced alone, on some prompts: what that costs of the range, and which of the two answers moves."""

    def __init__(self, model: Transformer, material: Trial) -> None:
        self.shares = Shares(model, material)
        readings = self.shares.recordings.read_as(material.signed(model))
        self.readings, self.clean = readings, readings.scores().cpu()

    @property
    def rows(self) -> float:
        """What it cost, in passes of one prompt."""
        return self.shares.cost.rows

    def effects(self, components: Sequence[Component]) -> dict[Component, Effect]:
        """The effect of replacing each."""
        if not components:
            return {}
        shares = self.shares
        sets, where = [(part,) for part in components], shares.material.where
        columns = effect_columns(self.readings, shares.replacement, sets, positions=where, cost=shares.cost)
        edited = torch.cat([readings for _, readings in columns], 1)
        scores, sides = parted(edited, 2)[0], parted(self.clean[:, None] - edited, 2)[1]
        found = {}
        for place, part in enumerate(components):
            cost = _cost(shares, scores[:, place])
            assert cost.value is not None
            found[part] = Effect(
                id=str(part),
                effect=cost.value,
                low=cost.low,
                high=cost.high,
                effect_right=None if sides is None else float(sides.right[:, place].mean()),
                effect_wrong=None if sides is None else float(sides.wrong[:, place].mean()),
            )
        return found


def _cost(shares: Shares, scores: Float[Tensor, " prompt"]) -> Metric:
    """What is lost of the range where this score is left."""
    kept = shares.share(scores)
    low, high = (None if end is None else 1 - end for end in (kept.high, kept.low))
    return Metric(value=1 - kept.value, low=low, high=high, n=kept.n)


def _parts(shares: Shares, parts: Mapping[str, Collection[Component]]) -> tuple[PartOfSet, ...]:
    """What replacing each part of the set costs."""
    if not parts:
        return ()
    every = frozenset(shares.model.components)
    scores = shares.scores([every - set(members) for members in parts.values()])
    return tuple(
        PartOfSet(name=name, size=len(members), effect=_cost(shares, column))
        for (name, members), column in zip(parts.items(), scores.T, strict=True)
    )


def _positions(shares: Shares, members: Sequence[Component]) -> tuple[PartOfSet, ...]:
    """What replacing the whole set at one role of the prompts costs, and at all other positions together. A position
    with two roles counts for the first of them.
    """
    prompts = shares.material.prompts
    if prompts is None or not members:
        return ()
    masks: dict[str, Bool[Tensor, "prompt pos"]] = {}
    free = prompts.mask.clone()
    for role, place in {**prompts.roles, END: prompts.position}.items():
        here = torch.zeros_like(free).scatter_(1, place[:, None], True) & free
        free &= ~here
        if bool(here.any()):
            masks[role] = here
    masks[ELSEWHERE] = free
    found = []
    for name, mask in masks.items():
        columns = effect_columns(
            shares.recordings, shares.replacement, [tuple(members)], positions=mask, cost=shares.cost
        )
        (scores,) = (part for _, part in columns)
        found.append(PartOfSet(name=name, size=len(members), effect=_cost(shares, scores[:, 0])))
    return tuple(found)


def _by_effect(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    return tuple(sorted(effects, key=lambda one: (-abs(one.effect), one.id)))
