"""The large grammar of heads: any variable as key, query and value, proposed by where a head attends.

The small grammar (`hypotheses`) knows counts, shares, named routes and a few look-ups; most heads are one of these.
Where none of them predicts a head well, every comparison of a variable there with a variable here is looked at: token,
position and whatever was computed before, by equality, by order where both have one, by a set of values there, or pair
by pair as the head attends. All combinations with all values and operations would be tens of thousands, so attention
proposes: selections are ranked by how much attention falls on what they select, less the share that would by chance,
and only the best are combined with values and operations. Attention decides nothing; the score on fingerprints does.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius_programs.draft import UNDEFINED
from vesalius_programs.gathering import Gathered, Selector, Width
from vesalius_programs.program import INDICES, TOLERANCE, Environment, Hypothesis, View

#: Selections that are combined with values and operations.
MOST_SELECTORS = 12
#: Inputs on which attention is looked at.
MOST_INPUTS = 160
#: A pair counts as attended from this share of what a head would give it that attends to everything alike.
ATTENDED_FROM = 0.6
#: Attention that falls on a selection by this much more than by chance makes it worth trying.
LEAST_LIFT = 0.05
#: Pairs are read off between variables of so many values at most.
MOST_VALUES = 64
#: An order is of so many values at least, and so small a share of what was seen may speak against it.
FEWEST_IN_ORDER, MOST_AGAINST = 3, 0.02
#: Numbers are fitted to so many values of a variable at most; means with them must give this share of the outputs.
MOST_NUMBERED, MEANS_FIT = 16, 0.95
#: Fitted numbers are rounded to as few decimals as give as many of the outputs.
MOST_DECIMALS = 3
#: Hypotheses are the larger, the more has to be said about what they select.
KIND_SIZE = {"all": 1.3, "constant": 1.4, "compare": 1.5, "pairs": 1.7}
HOW_SIZE = {"first": 0.0, "most": 0.01, "last": 0.02, "mean": 0.015, "sum": 0.03}


@dataclass(frozen=True)
class Attended:
    """Variables on natural inputs and where the head attends there: shares of what a query gives to tokens."""

    env: Environment
    attention: Float[Tensor, "row query key"]
    baseline: Float[Tensor, "row query 1"]
    outputs: Float[Tensor, "row pos"] | None = None

    @classmethod
    def of(
        cls,
        env: Environment,
        attention: Float[Tensor, "row query key"],
        outputs: Float[Tensor, "row pos"] | None = None,
    ) -> "Attended":
        """The inputs whose attention is known (it is zero in rows of exchanges), and their outputs where these are
        numbers.
        """
        rows = (attention.sum((1, 2)) > 0).nonzero()[:MOST_INPUTS, 0]
        values = {name: codes[rows] for name, codes in env.values.items()}
        taken = Environment(values, View(env.real[rows], env.visible[rows] & env.real[rows][:, :, None]))
        seen = attention[rows] * taken.visible
        given = None if outputs is None else outputs[rows]
        return cls(taken, seen, 1 / (taken.visible.sum(-1, keepdim=True) + 1.0), given)

    def numbers(self, of: str, selector: Selector) -> tuple[float, ...] | None:
        """The number that each value of a variable stands for, if the outputs are its mean over what is selected."""
        values = self.env[of]
        if self.outputs is None or int(values.max()) >= MOST_NUMBERED:
            return None
        kinds = torch.nn.functional.one_hot(values.clamp(min=0), int(values.max()) + 1) * (values >= 0)[..., None]
        counts = selector.mask(self.env).float() @ kinds.float()
        here = self.env.real & (counts.sum(-1) > 0)
        if int(here.sum()) < 2 * counts.shape[-1]:
            return None
        shares = (counts / counts.sum(-1, keepdim=True).clamp(min=1))[here].double()
        outputs = self.outputs[here].double()
        # Some values may never be seen together with others, so the smallest solution is taken.
        exact = torch.linalg.lstsq(shares, outputs[:, None], driver="gelsd").solution[:, 0]

        def right(numbers: Tensor) -> float:
            return float(((shares @ numbers - outputs).abs() < TOLERANCE).float().mean())

        if right(exact) < MEANS_FIT or float(exact.max() - exact.min()) < TOLERANCE:
            return None
        rounded = (exact.round(decimals=decimals) for decimals in range(MOST_DECIMALS))
        fewest = next((each for each in rounded if right(each) >= right(exact)), exact.round(decimals=MOST_DECIMALS))
        return tuple((fewest + 0.0).tolist())

    def lift(self, mask: Bool[Tensor, "row query key"]) -> float:
        """The share of attention on the selected keys, less the share by chance, where some but not all are."""
        n, visible = mask.sum(-1), self.env.visible.sum(-1)
        asked = (n > 0) & (n < visible) & self.env.real
        if not bool(asked.any()):
            return 0.0
        total = self.attention.sum(-1).clamp(min=1e-6)
        inside = (self.attention * mask).sum(-1) / total
        return float((inside - n / visible.clamp(min=1))[asked].mean()) * float(
            asked.float().sum().sqrt() / (self.env.real.float().sum().sqrt())
        )

    def relation(self, keys: str, queries: str) -> "Relation | None":
        """Which values there are attended to from which values here; None where there are too many values."""
        there, here = (self.env[name].clamp(min=0) for name in (keys, queries))
        n_there, n_here = int(there.max()) + 1, int(here.max()) + 1
        if max(n_there, n_here) > MOST_VALUES:
            return None
        defined = (self.env[keys] != UNDEFINED)[:, None, :] & (self.env[queries] != UNDEFINED)[:, :, None]
        shown = self.env.visible & defined
        pair = (there[:, None, :] * n_here + here[:, :, None])[shown]
        given = torch.zeros(n_there * n_here).index_add_(0, pair, self.attention[shown])
        usual = torch.zeros(n_there * n_here).index_add_(0, pair, self.baseline.expand_as(shown)[shown])
        return Relation((given > ATTENDED_FROM * usual).view(n_there, n_here), (usual > 0).view(n_there, n_here))


@dataclass(frozen=True)
class Relation:
    """Which value there is attended to from which value here, and which two were ever seen together."""

    attended: Bool[Tensor, "there here"]
    seen: Bool[Tensor, "there here"]

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The pairs attended."""
        return frozenset((there, here) for there, here in self.attended.nonzero().tolist())

    def order(self) -> list[int] | None:
        """The values of one variable in an order in which each attends to those before it (or, with the pairs turned
        round, after it); None where too much that was seen speaks against any order.
        """
        other = ~torch.eye(len(self.attended), dtype=torch.bool)
        seen = self.seen & self.seen.T & other
        below = self.attended & ~self.attended.T & seen
        members = seen.any(0).nonzero()[:, 0].tolist()
        if len(members) < FEWEST_IN_ORDER:
            return None
        order, left = [], set(members)
        while left:
            # The one that the fewest of those left are below; in a true order there is always one with none.
            chosen = min(left, key=lambda value: (int(below[list(left), value].sum()), value))
            order.append(chosen)
            left.remove(chosen)
        place = torch.zeros(len(self.attended), dtype=torch.long)
        place[torch.tensor(order)] = torch.arange(len(order))
        expected = place[:, None] < place
        wrong = (expected != self.attended) & seen
        return order if float(wrong.sum()) <= MOST_AGAINST * float(seen.sum()) else None

    def in_order(self, order: list[int]) -> frozenset[tuple[int, int]]:
        """The pairs of the order, those never seen together included; a value attends to itself if most do."""
        own = self.attended.diagonal()[order]
        reflexive = float(own.float().mean()) > 0.5
        return frozenset(
            (there, here) for at, here in enumerate(order) for there in (order[: at + 1] if reflexive else order[:at])
        )


def large_grammar(
    env: Environment,
    attention: Float[Tensor, "row query key"],
    names: list[str],
    numbers: Mapping[str, tuple[float, ...]],
    outputs: Float[Tensor, "row pos"] | None = None,
) -> Iterator[Hypothesis]:
    """Hypotheses about a head that attention makes likely; `numbers` are what the codes of variables stand for, where
    that is a number. Where the `outputs` are numbers, those of other variables are fitted to them.
    """
    attended = Attended.of(env, attention, outputs)
    if not len(attended.attention):
        return
    everything = Selector("all")
    for selector in (everything, *_likely(attended, names, numbers)):
        size = KIND_SIZE[selector.kind]
        if selector.kind != "all":
            yield Width(selector, size=size)
        for of in names:
            fitted = None if of in numbers else attended.numbers(of, selector)
            if fitted is not None:
                yield Gathered(of, selector, "mean", fitted, size + HOW_SIZE["mean"])
        for of in (*names, INDICES):
            plain = selector.kind == "compare" and INDICES in (selector.keys, of)
            hows = ["first", *([] if plain else ["most", "last"])]
            if of in numbers:
                hows += ["mean", *(["sum"] if _whole(numbers[of]) else [])]
            for how in hows if selector.kind != "all" else [how for how in hows if how != "first"]:
                counted = numbers[of] if how in ("mean", "sum") else ()
                yield Gathered(of, selector, how, counted, size + HOW_SIZE[how])


def _whole(numbers: tuple[float, ...]) -> bool:
    return all(number >= 0 and number == int(number) for number in numbers)


def _likely(attended: Attended, names: list[str], numbers: Mapping[str, tuple[float, ...]]) -> list[Selector]:
    """The selections on which most attention falls, each kind of selection once."""
    scored: list[tuple[float, int, Selector]] = []
    seen: set[bytes] = set()
    for place, selector in enumerate(_selectors(attended, names, numbers)):
        mask = selector.mask(attended.env)
        key = mask.numpy().tobytes()
        if key not in seen:
            seen.add(key)
            scored.append((attended.lift(mask), place, selector))
    scored.sort(key=lambda each: (-each[0], each[1]))
    return [selector for lift, _, selector in scored[:MOST_SELECTORS] if lift > LEAST_LIFT]


def _selectors(attended: Attended, names: list[str], numbers: Mapping[str, tuple[float, ...]]) -> Iterator[Selector]:
    """Comparisons first: of selections that are the same on these inputs the first is kept."""
    every = [*names, INDICES]
    for keys in every:
        for queries in every:
            ordered = keys == queries or (keys in numbers and queries in numbers)
            if keys == queries == INDICES:
                yield from (Selector("compare", keys, queries, comparison) for comparison in ("LT", "LEQ", "GT", "GEQ"))
            elif keys in numbers and queries in numbers and not _is_index(numbers, keys, queries):
                continue  # their codes are not the numbers, so codes do not compare as the numbers do
            else:
                comparisons = ("EQ", "NEQ", "LT", "LEQ", "GT", "GEQ") if ordered else ("EQ", "NEQ")
                yield from (Selector("compare", keys, queries, comparison) for comparison in comparisons)
    for keys in names:
        yield from _sets(attended, keys)
        if (relation := attended.relation(keys, keys)) is not None:
            yield from _orders(relation, keys)
    for keys in every:
        for queries in every:
            relation = attended.relation(keys, queries) if {keys, queries} != {INDICES} else None
            if relation is not None and relation.pairs:
                yield Selector("pairs", keys, queries, pairs=relation.pairs)


def _orders(relation: Relation, name: str) -> Iterator[Selector]:
    """A variable compared with itself in an order of its values that attention shows, rising or falling."""
    turned = Relation(relation.attended.T, relation.seen.T)
    for pairs, turn in ((relation, False), (turned, True)):
        if (order := pairs.order()) is not None:
            both = pairs.in_order(order)
            yield Selector("pairs", name, name, pairs=frozenset((b, a) for a, b in both) if turn else both)


def _is_index(numbers: Mapping[str, tuple[float, ...]], *names: str) -> bool:
    """Whether the codes of all these variables are the numbers that they stand for."""
    return all(numbers[name] == tuple(range(len(numbers[name]))) for name in names)


def _sets(attended: Attended, keys: str) -> Iterator[Selector]:
    """The set of values there that the head attends to, wherever it stands."""
    codes = attended.env[keys]
    n = int(codes.max()) + 1
    defined = (codes != UNDEFINED)[:, None, :] & attended.env.visible
    value = codes.clamp(min=0)[:, None, :].expand_as(defined)[defined]
    given = torch.zeros(n).index_add_(0, value, attended.attention[defined])
    usual = torch.zeros(n).index_add_(0, value, attended.baseline.expand_as(defined)[defined])
    chosen = (given > ATTENDED_FROM * usual).nonzero()[:, 0].tolist()
    if 0 < len(chosen) < n:
        yield Selector("constant", keys, constant=chosen[0], others=tuple(chosen[1:]))
