"""Hypotheses about one component, smallest first, each with its score.

An MLP is a table over some of: the token, upstream variables. A head counts what a selector selects, averages one
value or several, copies a variable from one position, looks a variable up by matching two others, or takes the largest
or smallest. Where none of these predicts a head well, the large grammar of `attended` is searched as well. The smallest
hypothesis among those nearly as good as the best is chosen; all scores are kept, because the ones that lost are part of
the record.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from jaxtyping import Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from vesalius_programs.attended import large_grammar
from vesalius_programs.draft import LENGTH, UNDEFINED
from vesalius_programs.gathering import (
    LENGTH_ROUTES,
    ROUTES,
    Copy,
    Gated,
    Mean,
    Selector,
    Width,
    extreme,
    matched,
)
from vesalius_programs.observe import Observations
from vesalius_programs.program import (
    INDICES,
    TOKENS,
    Environment,
    Hypothesis,
    Naming,
    Table,
    plain_name,
)
from vesalius_programs.runs import distinct

#: Two argument values are one class below this share of the mean distance between two observations.
MERGE_BELOW = 0.08
#: The coarser of two tables is taken when it predicts the fingerprints as well, up to this.
COARSER_LOSS = 0.0015
#: Larger tables are kept as they are: every argument value its own class.
MOST_MERGED = 500


def read_table(observations: Observations, reads: tuple[str, ...], arguments: Int[Tensor, "n argument"]) -> Table:
    """The table from arguments to classes of equal effect."""
    cells, group = distinct(arguments)
    labels = torch.arange(len(cells))
    if 1 < len(cells) <= MOST_MERGED:
        fine, coarse = (_clusters(each) for each in _distances(observations, group, len(cells)))
        loss = _fit(observations, fine[group]) - _fit(observations, coarse[group])
        labels = coarse if loss < COARSER_LOSS else fine
    labels = _named(labels)
    n_classes = int(labels.max()) + 1
    codes = {tuple(row): int(label) for row, label in zip(cells.tolist(), labels, strict=True)}
    return Table(reads, codes, n_classes)


def _distances(observations: Observations, group: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Squared distances of mean fingerprints relative to the mean squared distance of two observations: the largest
    over the positions where both values were seen (values may differ at one position only), and pooled over them.
    """
    largest, distance, scale = torch.zeros(n, n), torch.zeros(n, n), torch.zeros(n, n)
    for position in observations.position.unique():
        here = observations.position == position
        vectors, members = observations.fingerprint[here], group[here]
        spread = 2 * float(vectors.square().sum(1).mean())
        if spread == 0:
            continue
        counts = torch.bincount(members, minlength=n)
        means = torch.zeros(n, vectors.shape[1]).index_add_(0, members, vectors) / counts.clamp(min=1)[:, None]
        shared = (counts > 0)[:, None] & (counts > 0)
        apart = torch.cdist(means, means).square() * shared
        largest = torch.maximum(largest, apart / spread)
        distance += apart
        scale += spread * shared
    pooled = torch.where(scale > 0, distance / scale.clamp(min=1e-12), 1.0)
    return torch.where(scale > 0, largest, 1.0), pooled


def _fit(observations: Observations, labels: Int[Tensor, " n"]) -> float:
    """Share of all fingerprints' variance within positions that the labels account for."""
    _, group = distinct(torch.stack([observations.position, labels], 1))
    vectors = observations.fingerprint
    counts = torch.bincount(group).clamp(min=1)[:, None]
    means = vectors.new_zeros(len(counts), vectors.shape[1]).index_add_(0, group, vectors) / counts
    return 1 - float((vectors - means[group]).square().sum()) / max(float(vectors.square().sum()), 1e-12)


def _clusters(distance: Float[Tensor, "value value"]) -> Int[Tensor, " value"]:
    symmetric = ((distance + distance.T) / 2).numpy()
    tree = linkage(squareform(symmetric, checks=False), "average")
    return torch.from_numpy(fcluster(tree, MERGE_BELOW, "distance")).long()


def _named(labels: Int[Tensor, " value"]) -> Int[Tensor, " value"]:
    """Classes numbered by their first member; of two classes the smaller is 1, as an indicator would have it."""
    order = list(dict.fromkeys(labels.tolist()))
    named = torch.tensor([order.index(label) for label in labels.tolist()])
    if len(order) == 2 and 2 * int(named.sum()) > len(named):
        named = 1 - named
    return named


#: A larger hypothesis must beat a smaller one by this (0.03 chose a wrong route on the development tasks).
TIE = 0.012
#: An extra argument of a table must add this much, and a quarter of what is missing where much is missing.
EXTRA_ARGUMENT, MUCH_MISSING, SHARE_OF_MISSING = 0.03, 0.9, 0.25
#: Values of a variable that are tried one by one in selectors.
MOST_CONSTANTS = 30
#: Counts of several values are built from the best count of one, unless that is good already or far from the best.
WIDEN_BELOW, WIDEN_NEAR = 0.95, 0.5
#: All triples of arguments are tried up to so many names; beyond, only those that extend the best pair.
MOST_NAMES_IN_TRIPLES = 6
#: A head that the small grammar predicts so well is not looked at in the large one.
WELL_PREDICTED = 0.95
#: Kinds of hypotheses that can be left out of the grammar.
FAMILIES = ("count", "mean", "sum", "copy", "match", "gated", "extreme", "table", "linear")


@dataclass(frozen=True)
class Scored:
    """A hypothesis with the share of fingerprint variance it predicts."""

    hypothesis: Hypothesis
    score: float


@dataclass(frozen=True)
class Arguments:
    """A set of variables a table may read, with its score."""

    reads: tuple[str, ...]
    score: float


@dataclass(frozen=True)
class TableForm:
    """How the table of an MLP is to be read off: over which arguments, and whether argument values of equal effect are
    one class ("merged"), all stay "apart" (different readers may use different parts), all stay apart at every position
    too ("placed"), or positions where nothing shows are a class of their own ("silent"): a later head may compare what
    stands at one position with what stands at another.
    """

    reads: tuple[str, ...]
    how: str = "merged"

    def words(self, naming: Naming) -> str:
        """A phrase that completes 'this component computes'."""
        kept = {
            "merged": "",
            "apart": ", all values kept apart",
            "placed": " and the position, all values kept apart",
            "silent": " and the position",
        }[self.how]
        return f"a table of {' and '.join(map(plain_name, self.reads))}{kept}"


def rank_tables(observations: Observations, env: Environment, names: list[str]) -> list[Arguments]:
    """Subsets of `names` (nearest first) an MLP may be a table of, the chosen one first, then by score."""
    tried: dict[tuple[str, ...], float] = {}

    def score(reads: tuple[str, ...]) -> float:
        if reads not in tried:
            tried[reads] = observations.score(observations.groups(distinct(arguments_of(observations, env, reads))[1]))
        return tried[reads]

    chosen = _best([(name,) for name in names], score)
    for size in (2, 3):
        if len(names) < size or len(chosen) == size:
            continue
        extending = size == 3 and (len(names) > MOST_NAMES_IN_TRIPLES or score(chosen) >= MUCH_MISSING)
        pool = list(combinations(names, size))
        if extending:
            pool = [(*chosen, *rest) for rest in combinations([n for n in names if n not in chosen], 3 - len(chosen))]
        larger = _best(pool, score)
        gain, missing = score(larger) - score(chosen), 1 - score(chosen)
        needed = EXTRA_ARGUMENT if score(chosen) >= MUCH_MISSING else max(EXTRA_ARGUMENT, SHARE_OF_MISSING * missing)
        if gain >= needed:
            chosen = larger
        elif score(chosen) >= MUCH_MISSING:
            break
    rest = sorted((reads for reads in tried if reads != chosen), key=lambda reads: -tried[reads])
    return [Arguments(reads, tried[reads]) for reads in (chosen, *rest)]


def _best(pool: list[tuple[str, ...]], score: Callable[[tuple[str, ...]], float]) -> tuple[str, ...]:
    """The first in the pool that is within a tie of the best."""
    top = max(score(reads) for reads in pool)
    return next(reads for reads in pool if score(reads) >= top - TIE)


def arguments_of(observations: Observations, env: Environment, reads: tuple[str, ...]) -> Int[Tensor, "n argument"]:
    """Values of variables at the observed places."""
    return torch.stack([observations.values(env[name]) for name in reads], -1)


def table_over(
    observations: Observations, env: Environment, reading: TableForm, silent: Int[Tensor, " position"]
) -> Hypothesis:
    """The table of an MLP over chosen arguments, read off its fingerprints."""
    arguments = arguments_of(observations, env, reading.reads)
    if reading.how == "merged":
        return read_table(observations, reading.reads, arguments)
    if reading.how in ("apart", "placed"):
        reads = reading.reads if reading.how == "apart" else (*reading.reads, INDICES)
        cells = distinct(arguments_of(observations, env, reads))[0].tolist()
        return Table(reads, {tuple(row): code for code, row in enumerate(cells)}, len(cells))
    merged = read_table(observations, reading.reads, arguments)
    return _with_silent_positions(merged, observations.position.unique().tolist(), set(silent.tolist()))


def _with_silent_positions(merged: Table, positions: list[int], silent: set[int]) -> Table:
    """One class for everything at positions where nothing shows, the merged classes elsewhere."""
    codes: dict[tuple[int, ...], int] = {
        (*key, position): 0 if position in silent else code + 1
        for key, code in merged.codes.items()
        for position in positions
    }
    return Table((*merged.reads, INDICES), codes, merged.n_classes + 1)


def rank_heads(
    observations: Observations,
    env: Environment,
    names: list[str],
    *,
    attention: Float[Tensor, "row query key"],
    numeric: bool,
    causal: bool = False,
    without: frozenset[str] = frozenset(),
    numbers: Mapping[str, tuple[float, ...]] | None = None,
    outputs: Float[Tensor, "row pos"] | None = None,
) -> list[Scored]:
    """Hypotheses about a head, the chosen one first, then by score. `names`: tokens and upstream variables; families
    in `without` are left out, and the list is empty when none is left. `numbers`: what codes stand for, where that is
    a number; `outputs`: those of the model, where they are numbers.
    """
    scored: list[Scored] = []
    seen: set[bytes] = set()

    def consider(hypothesis: Hypothesis) -> None:
        if hypothesis.family in without:
            return
        values = hypothesis.evaluate(env)[observations.row, observations.position]
        groups = observations.groups(values)
        partition = _partition(groups)
        if partition not in seen:
            seen.add(partition)
            scored.append(Scored(hypothesis, observations.score(groups)))

    for hypothesis in _head_hypotheses(observations, env, names, attention, numeric, causal):
        consider(hypothesis)
    if not scored:
        return []
    _widen(env, scored, consider)
    if max(each.score for each in scored) < WELL_PREDICTED:
        for hypothesis in large_grammar(env, attention, names, numbers or {}, outputs):
            consider(hypothesis)
    top = max(each.score for each in scored)
    near = [each for each in scored if each.score >= top - TIE]
    chosen = min(near, key=lambda each: (each.hypothesis.size, _farness(each.hypothesis, names), -each.score))
    rest = sorted((each for each in scored if each is not chosen), key=lambda each: -each.score)
    return [chosen, *rest]


def _widen(env: Environment, scored: list[Scored], consider: Callable[[Hypothesis], None]) -> None:
    """Let the best count and share of one value of each variable take in further values while that predicts more."""
    best_of: dict[tuple[object, ...], Scored] = {}
    for each in scored:
        of, values = _counted(each.hypothesis)
        key = (type(each.hypothesis), of, getattr(each.hypothesis, "scope", ""))
        if values and (key not in best_of or each.score > best_of[key].score):
            best_of[key] = each
    top = max(each.score for each in scored)
    for best in best_of.values():
        while best.score < WIDEN_BELOW and best.score > top - WIDEN_NEAR:
            of, values = _counted(best.hypothesis)
            n_before = len(scored)
            for value in _constants(env, of):
                if value not in values:
                    consider(_taking_in(best.hypothesis, value))
            wider = max(scored[n_before:], key=lambda each: each.score, default=best)
            if wider.score < best.score + TIE or len(values) >= MOST_CONSTANTS // 2:
                break
            best = wider


def _counted(hypothesis: Hypothesis) -> tuple[str, tuple[int, ...]]:
    """The variable and the values a count or share is about; no values where it is about something else."""
    if isinstance(hypothesis, Mean):
        return hypothesis.of, (hypothesis.value, *hypothesis.others)
    if isinstance(hypothesis, Width) and hypothesis.selector.kind == "constant":
        return hypothesis.selector.keys, (hypothesis.selector.constant, *hypothesis.selector.others)
    return "", ()


def _taking_in(hypothesis: Hypothesis, value: int) -> Hypothesis:
    if isinstance(hypothesis, Mean):
        return replace(hypothesis, others=(*hypothesis.others, value), size=hypothesis.size + 0.01)
    assert isinstance(hypothesis, Width)
    selector = replace(hypothesis.selector, others=(*hypothesis.selector.others, value))
    return replace(hypothesis, selector=selector, size=hypothesis.size + 0.01)


def _farness(hypothesis: Hypothesis, names: list[str]) -> int:
    """How far upstream the nearest variable read is: among equals the nearest is the likelier cause."""
    return min((names.index(name) for name in hypothesis.reads if name in names), default=len(names))


def _partition(groups: Int[Tensor, " n"]) -> bytes:
    """A key that is the same for hypotheses that group the observations alike."""
    n = int(groups.max()) + 1
    first = torch.full((n,), len(groups)).scatter_reduce_(0, groups, torch.arange(len(groups)), "amin")
    return first[groups].numpy().tobytes()


def _head_hypotheses(
    observations: Observations, env: Environment, names: list[str], attention: Tensor, numeric: bool, causal: bool
) -> Iterator[Hypothesis]:
    upstream = [name for name in names if name != TOKENS]
    yield Width(Selector("all"), size=1.0)
    for name in names:
        for constant in _constants(env, name):
            count, share = (
                Width(Selector("constant", name, constant=constant), size=1.2),
                Mean(name, constant, size=1.2),
            )
            # In a causal model the two group alike; where outputs are numbers a share is the simpler word.
            yield from (share, count) if numeric else (count, share)
            yield from (Mean(name, constant, scope=scope, size=1.3) for scope in ("TRUE", "LT"))
        for comparison in ("EQ", "NEQ", "LT", "LEQ", "GT", "GEQ"):
            yield Width(Selector("compare", name, name, comparison), size=1.2)
        yield from (extreme(name, largest=largest) for largest in (True, False))
    for keys in [INDICES, *upstream]:
        for queries in [INDICES, *upstream]:
            if keys != queries:
                yield from (matched(name, keys, queries) for name in names if name not in (keys, queries))
    # A causal model cannot know the length.
    routes = [route for route in ROUTES if not (causal and route in LENGTH_ROUTES)]
    for route in routes:
        yield from (Copy(name, route, size=1.1) for name in names)
    own = _own_route_table(env, attention)
    yield from (Copy(name, "table", own, INDICES, anywhere=True, size=1.5) for name in names)
    for by in [*upstream, *([] if causal else [LENGTH])]:
        for anywhere in (True, False):
            # Steering by a variable of the circuit is preferred to steering by the length itself, and both to steering
            # by the own position as well: where little shows at a position, any table of the two fits.
            size = 1.4 + 0.2 * (by == LENGTH) + 0.15 * (not anywhere)
            table = _route_table(observations, env, by, attention, anywhere=anywhere)
            yield from (Copy(name, "table", table, by, anywhere, size=size) for name in names)
    for gate in upstream:
        for constant in _constants(env, gate)[:4]:
            yield from (Gated(name, gate, constant) for name in names if name != gate)


def _constants(env: Environment, name: str) -> list[int]:
    """The values of a variable, rarest first, so that an indicator's marked class is named."""
    values, counts = env[name][env.real].unique(return_counts=True)
    order = counts.argsort(stable=True)
    return [int(values[i]) for i in order[:MOST_CONSTANTS] if int(values[i]) != UNDEFINED]


def _route_table(
    observations: Observations,
    env: Environment,
    by: str,
    attention: Tensor,
    *,
    anywhere: bool,
) -> dict[tuple[int, int], int]:
    """The position most attended to where it is in view, for every value of `by`, at each position apart, or anywhere
    the head matters: where the position that a value leads to is out of view, a head attends to anything.
    """
    steering = env.real.sum(1, keepdim=True).expand(env.real.shape) if by == LENGTH else env[by]
    row, query = env.real.nonzero(as_tuple=True)
    if anywhere:
        kept = _strong_positions(observations, env.real.shape[1])[query]
        row, query = row[kept], query[kept]
    own = torch.zeros_like(query) if anywhere else query
    groups, member = distinct(torch.stack([own, steering[row, query]], 1))
    in_view = env.visible[row, query] & (attention[row, query].sum(-1, keepdim=True) > 0)
    given, n = attention.new_zeros(2, len(groups), attention.shape[2])
    given.index_add_(0, member, attention[row, query] * in_view)
    mean = given / n.index_add_(0, member, in_view.to(n.dtype)).clamp(min=1)
    return {(p, v): int(place) for (p, v), place in zip(groups.tolist(), mean.argmax(1), strict=True)}


def _own_route_table(env: Environment, attention: Tensor) -> dict[tuple[int, int], int]:
    """For every position the one it attends to most where that is in view: a route may lead past the end of short
    inputs, and then the head attends to anything.
    """
    in_view = env.visible & env.real[:, :, None] & (attention.sum(-1, keepdim=True) > 0)
    mean = (attention * in_view).sum(0) / in_view.sum(0).clamp(min=1)
    return {(0, place): int(target) for place, target in enumerate(mean.argmax(1))}


def _strong_positions(observations: Observations, n: int) -> Bool[Tensor, " pos"]:
    """Positions where the component's fingerprints vary at least half as much as where they vary most."""
    energy = torch.zeros(n).index_add_(0, observations.position, observations.fingerprint.square().sum(1))
    energy = energy / torch.bincount(observations.position, minlength=n).clamp(min=1)
    return energy >= 0.5 * energy.max()
