"""What heads can be hypothesised to gather from other positions: how many are selected, shares, the value at one
position, and of the selected positions the first, last, most frequent, largest or smallest value, the mean or the sum.

A selection compares any variable there with any variable here, asks whether one has certain values there, or is read
off pair by pair from where the head attends (`pairs`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.rasp import Comparison, Select, indices
from vesalius_programs.draft import COMPARE, LENGTH, NOWHERE, UNDEFINED, Coded, Draft
from vesalius_programs.program import (
    INDICES,
    MEAN_SCALE,
    TOKENS,
    Environment,
    Hypothesis,
    Naming,
    plain_name,
)
from vesalius_programs.runs import distinct

_COMPARE_WORDS = {
    "EQ": "equal to",
    "NEQ": "different from",
    "LT": "smaller than",
    "LEQ": "not larger than",
    "GT": "larger than",
    "GEQ": "not smaller than",
}


@dataclass(frozen=True)
class Selector:
    """Which keys a query selects: by comparing a variable there and here, by fixed values there (`constant` or one of
    `others`), by listed `pairs` of a value there and a value here, or all.
    """

    kind: str
    keys: str = TOKENS
    queries: str = TOKENS
    comparison: str = "EQ"
    constant: int = 0
    others: tuple[int, ...] = ()
    pairs: frozenset[tuple[int, int]] = frozenset()

    def mask(self, env: Environment) -> Bool[Tensor, "row query key"]:
        """The selected keys, among those the query can see."""
        if self.kind == "all":
            return env.visible
        there = env[self.keys][:, None, :]
        if self.kind == "constant":
            return env.visible & among(there, self.constant, self.others)
        here = env[self.queries][:, :, None]
        defined = (there != UNDEFINED) & (here != UNDEFINED)
        if self.kind == "pairs":
            listed = self._listed_pairs(int(there.max()) + 1, int(here.max()) + 1)
            return env.visible & defined & listed[there.clamp(min=0), here.clamp(min=0)]
        return env.visible & defined & COMPARE[self.comparison](there, here)

    def _listed_pairs(self, n_there: int, n_here: int) -> Bool[Tensor, "there here"]:
        listed = torch.zeros(n_there, n_here, dtype=torch.bool)
        there, here = torch.tensor(list(self.pairs), dtype=torch.long).view(-1, 2).T
        occurs = (there < n_there) & (here < n_here)
        listed[there[occurs], here[occurs]] = True
        return listed

    def define(self, draft: Draft, name: str) -> Select:
        """The same selection in RASP."""
        if self.kind == "all":
            return draft.view
        if self.kind == "constant":
            return draft.one_of(name, self.keys, {self.constant, *self.others})
        if self.kind == "pairs":
            return draft.paired(self.keys, self.queries, self.pairs)
        return draft.compared(self.keys, self.queries, self.comparison)

    @property
    def reads(self) -> tuple[str, ...]:
        """Variables it needs."""
        if self.kind == "all":
            return ()
        return (self.keys,) if self.kind == "constant" else tuple(dict.fromkeys((self.keys, self.queries)))

    def words(self, naming: Naming) -> str:
        """The selected positions in words."""
        if self.kind == "all":
            return "all positions in view"
        if self.kind == "constant":
            return f"positions where {plain_name(self.keys)} is {self._listed(naming, ' or ')}"
        here = "the own one" if self.keys == self.queries else f"{plain_name(self.queries)} here"
        if self.kind == "pairs":
            return f"positions where {plain_name(self.keys)} is one of those listed for {here}"
        return f"positions where {plain_name(self.keys)} is {_COMPARE_WORDS[self.comparison]} {here}"

    def _listed(self, naming: Naming, between: str) -> str:
        return between.join(naming.value(self.keys, value) for value in (self.constant, *self.others))


def among(values: Int[Tensor, "..."], constant: int, others: tuple[int, ...]) -> Bool[Tensor, "..."]:
    """Where a value is the constant or one of the others."""
    return torch.isin(values, torch.tensor([constant, *others])) if others else values == constant


@dataclass(frozen=True)
class Width:
    """How many positions a selector selects."""

    selector: Selector
    size: float = 1.0
    family: str = "count"

    @property
    def reads(self) -> tuple[str, ...]:
        """Variables it needs."""
        return self.selector.reads

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """Counts."""
        selector = self.selector
        if selector.kind == "constant":
            chosen = among(env[selector.keys], selector.constant, selector.others)
            return env.scopes["TRUE"].count(chosen).long().masked_fill(~env.real, UNDEFINED)
        return selector.mask(env).sum(-1).masked_fill(~env.real, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """A count."""
        return draft.count(name, self.selector.define(draft, name))

    def words(self, naming: Naming) -> str:
        """A count in words."""
        if self.selector.kind == "all":
            return "the number of tokens in view (the length)"
        return f"the number of {self.selector.words(naming)}"


@dataclass(frozen=True)
class Mean:
    """The share of one value of a variable (or of `others` with it) among the positions in view whose index stands in
    the relation `scope` to the own one: LEQ (so far), LT (before here) or TRUE (all); undefined where there is none.
    """

    of: str
    value: int
    others: tuple[int, ...] = ()
    scope: str = "LEQ"
    size: float = 1.0
    family: str = "mean"

    @property
    def reads(self) -> tuple[str, ...]:
        """The variable averaged."""
        return (self.of,)

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """Shares in units of 1 / MEAN_SCALE."""
        scope = env.scopes[self.scope]
        share = scope.count(among(env[self.of], self.value, self.others)) / scope.size.clamp(min=1)
        return (share * MEAN_SCALE).round().long().masked_fill(~env.real | (scope.size == 0), UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """A share."""
        return draft.share(name, self.of, {self.value, *self.others}, self.scope, scale=MEAN_SCALE)

    def words(self, naming: Naming) -> str:
        """The share in words."""
        scope = {"LEQ": "so far", "LT": "before here", "TRUE": "in view"}[self.scope]
        values = " or ".join(naming.value(self.of, value) for value in (self.value, *self.others))
        return f"the share of positions {scope} where {plain_name(self.of)} is {values}"


@dataclass(frozen=True)
class Copy:
    """A variable's value at one other position, found by a named route, or by a table over one more variable and
    (unless `anywhere`) the own position.
    """

    of: str
    route: str
    table: Mapping[tuple[int, int], int] = field(default_factory=dict)
    by: str | None = None
    anywhere: bool = False
    size: float = 1.0
    family: str = "copy"

    @property
    def reads(self) -> tuple[str, ...]:
        """What is copied, and what steers."""
        steering = () if self.by in (None, LENGTH, INDICES) else (self.by,)
        return tuple(dict.fromkeys((self.of, *steering)))

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The copied codes; undefined where the route leads out of view."""
        place = places(self.route, env.real) if self.by is None else self._tabulated(env)
        inside = (place >= 0) & (place < env.real.shape[1])
        safe = place.clamp(0, env.real.shape[1] - 1)
        inside &= env.visible.gather(2, safe[..., None])[..., 0]
        return env[self.of].gather(1, safe).masked_fill(~inside | ~env.real, UNDEFINED)

    def _tabulated(self, env: Environment) -> Int[Tensor, "row pos"]:
        steering = env.real.sum(1, keepdim=True).expand(env.real.shape) if self.by == LENGTH else env[str(self.by)]
        own = torch.zeros_like(steering) if self.anywhere else env[INDICES]
        pairs = torch.stack([own, steering], -1).flatten(0, 1)
        cells, inverse = distinct(pairs)
        places = torch.tensor([self.table.get((p, v), UNDEFINED) for p, v in cells.tolist()])
        return places[inverse].view(env.real.shape)

    @property
    def needs_length(self) -> bool:
        """Whether where it leads depends on the length."""
        return self.by == LENGTH or (self.by is None and self.route in LENGTH_ROUTES)

    def define(self, draft: Draft, name: str) -> Coded:
        """The value at the one selected position."""
        return draft.gathered(name, self._select(draft, name), self.of)

    def _select(self, draft: Draft, name: str) -> Select:
        if draft.causal and self.needs_length:
            raise BadInput(f"{name}: a causal program does not know the length, which {self.route!r} needs")
        if self.by is not None and self.anywhere:
            return draft.route(name, (self.by,), lambda value: self.table.get((0, value), NOWHERE))
        if self.by is not None:
            return draft.route(name, (INDICES, self.by), lambda own, value: self.table.get((own, value), NOWHERE))
        leads = ROUTES[self.route]
        if self.route == "last":
            return draft.route(name, (LENGTH,), lambda length: leads(0, length - 1))
        if self.needs_length:
            return draft.route(name, (INDICES, LENGTH), lambda own, length: leads(own, length - 1))
        return Select(indices, indices, lambda key, query: key == leads(query, 0))

    def words(self, naming: Naming) -> str:
        """The copy in words."""
        if self.by is None:
            return f"{plain_name(self.of)} at {ROUTE_WORDS[self.route]}"
        if self.by == INDICES:
            return f"{plain_name(self.of)} at the position that the own position points to"
        own = "" if self.anywhere else "the own position and "
        return (
            f"{plain_name(self.of)} at the position that {own}{plain_name(str(self.by))} point{'s' * self.anywhere} to"
        )


#: How a gathered value is chosen or computed, with the family of hypotheses it belongs to.
OPERATIONS = {
    "first": "match",
    "last": "match",
    "most": "match",
    "largest": "extreme",
    "smallest": "extreme",
    "mean": "mean",
    "sum": "sum",
}
#: Operations that pass on the value of one position; a vote over several cannot be said class by class.
ONE_POSITION = ("first", "last")


@dataclass(frozen=True)
class Gathered:
    """What a head makes of a variable at the selected positions: the value at the `first` or `last` of them, the `most`
    frequent, `largest` or `smallest` value (the last two over all positions in view), or the `mean` or `sum` of
    `numbers`, the number that each code stands for.
    """

    of: str
    selector: Selector
    how: str = "first"
    numbers: tuple[float, ...] = ()
    size: float = 1.5

    @property
    def family(self) -> str:
        """Look-ups, extremes, means and sums are families."""
        return OPERATIONS[self.how]

    @property
    def reads(self) -> tuple[str, ...]:
        """What is gathered and what is compared."""
        return tuple(name for name in dict.fromkeys((self.of, *self.selector.reads)) if name != INDICES)

    @property
    def uses_position(self) -> bool:
        """Whether the selection compares with the position."""
        return INDICES in self.selector.reads

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The codes gathered; undefined where nothing is selected."""
        mask, values = self.selector.mask(env), env[self.of]
        if self.how in ("mean", "sum"):
            return self._computed(env, mask)
        if self.how in ("largest", "smallest"):
            gathered = self._extreme(env)
        elif self.how == "most":
            gathered = _most_frequent(mask, values)
        else:
            place = mask.long().argmax(-1) if self.how == "first" else _last(mask)
            gathered = values.gather(1, place)
        return gathered.masked_fill(~mask.any(-1) | ~env.real, UNDEFINED)

    def _extreme(self, env: Environment) -> Int[Tensor, "row pos"]:
        there = env[self.of][:, None, :].expand(env.visible.shape)
        if self.how == "largest":
            return there.masked_fill(~env.visible, UNDEFINED).amax(-1)
        return there.masked_fill(~env.visible, 10**9).amin(-1)

    def _computed(self, env: Environment, mask: Bool[Tensor, "row query key"]) -> Int[Tensor, "row pos"]:
        """The mean in units of 1 / MEAN_SCALE, or the sum; values that are undefined are left out."""
        values = env[self.of]
        number_of = torch.tensor([*self.numbers, 0.0])
        numbers = number_of[values.clamp(min=UNDEFINED, max=len(self.numbers) - 1)]
        counted = (mask & (values != UNDEFINED)[:, None, :]).float()
        total = (counted @ numbers.unsqueeze(-1)).squeeze(-1)
        if self.how == "sum":
            return total.round().long().masked_fill(~env.real, UNDEFINED)
        n = counted.sum(-1)
        mean = (total / n.clamp(min=1) * MEAN_SCALE).round().long()
        return mean.masked_fill(~env.real | (n == 0), UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """The same in RASP."""
        if self.how in ("largest", "smallest"):
            return draft.extreme(name, self.of, largest=self.how == "largest")
        select = self.selector.define(draft, name)
        if self.how == "mean":
            return draft.mean(name, select, self.of, self.numbers, scale=MEAN_SCALE)
        if self.how == "sum":
            return draft.sum(name, select, self.of, self.numbers)
        if self.how == "most":
            return draft.most_frequent(name, select, self.of)
        if self.selector.keys == INDICES and self.selector.comparison == "EQ" and self.selector.kind == "compare":
            return draft.gathered(name, select, self.of)
        return draft.gathered(name, draft.first(name, select, last=self.how == "last"), self.of)

    def words(self, naming: Naming) -> str:
        """The operation, what it is done to, and where."""
        what, where = plain_name(self.of), self.selector.words(naming)
        bare = what.removeprefix("the ")
        if self.how in ONE_POSITION:
            if self.selector.kind == "compare" and self.selector.comparison == "EQ" and self.how == "first":
                there, here = plain_name(self.selector.keys), plain_name(self.selector.queries)
                return f"{what} at the position where {there} equals {here} here"
            return f"{what} at the {self.how} of the {where}"
        if self.how in ("mean", "sum"):
            return f"the {self.how} of {what} over {where}"
        where = "in view" if self.selector.kind == "all" else f"among {where}"
        return f"the {'most frequent' if self.how == 'most' else self.how} {bare} {where}"


def matched(of: str, keys: str, queries: str) -> Gathered:
    """A variable's value at the first position where `keys` equals the own `queries`."""
    return Gathered(of, Selector("compare", keys, queries))


def extreme(of: str, *, largest: bool) -> Gathered:
    """The largest or smallest code of a variable in view."""
    return Gathered(of, Selector("all"), "largest" if largest else "smallest")


def _last(mask: Bool[Tensor, "row query key"]) -> Int[Tensor, "row query"]:
    return mask.shape[-1] - 1 - mask.flip(-1).long().argmax(-1)


def _most_frequent(mask: Bool[Tensor, "row query key"], values: Int[Tensor, "row pos"]) -> Int[Tensor, "row query"]:
    """The code most often selected, of several the smallest; undefined comes last."""
    n = int(values.max()) + 2
    placed = torch.where(values == UNDEFINED, n - 1, values)
    votes = mask.float() @ torch.nn.functional.one_hot(placed, n).float()
    chosen = votes.argmax(-1)
    return torch.where(chosen == n - 1, UNDEFINED, chosen)


def passes_on(variable: Hypothesis) -> bool:
    """A head that hands on the value of one position as it is."""
    return isinstance(variable, Copy | Gated) or (isinstance(variable, Gathered) and variable.how in ONE_POSITION)


@dataclass(frozen=True)
class Gated:
    """A variable's own value where another variable has one value, undefined elsewhere."""

    of: str
    by: str
    value: int
    size: float = 1.5
    family: str = "gated"

    @property
    def reads(self) -> tuple[str, ...]:
        """What is passed on, and what opens the gate."""
        return (self.of, self.by)

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The own codes where the gate is open."""
        return env[self.of].masked_fill(env[self.by] != self.value, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """The value at the own position where the gate is open."""
        own = draft.rule(
            f"{name}_gate", (INDICES, self.by), lambda place, value: place if value == self.value else NOWHERE
        )
        return draft.gathered(name, Select(indices, own, Comparison.EQ), self.of)

    def words(self, naming: Naming) -> str:
        """The gate in words."""
        return (
            f"{plain_name(self.of)} here if {plain_name(self.by)} is {naming.value(self.by, self.value)}, else nothing"
        )


#: Where each named route leads from a position, given the last position; for numbers and tensors alike.
ROUTES: dict[str, Callable[[Any, Any], Any]] = {
    "self": lambda query, last: query,
    "next": lambda query, last: query + 1,
    "previous": lambda query, last: query - 1,
    "next_but_one": lambda query, last: query + 2,
    "previous_but_one": lambda query, last: query - 2,
    "half": lambda query, last: query // 2,
    "first": lambda query, last: 0 * query,
    "second": lambda query, last: 0 * query + 1,
    "last": lambda query, last: 0 * query + last,
    "reverse": lambda query, last: last - query,
}
#: Routes that need the length.
LENGTH_ROUTES = ("last", "reverse")
ROUTE_WORDS = {
    "self": "the own position",
    "next": "the next position",
    "previous": "the previous position",
    "next_but_one": "the position two after",
    "previous_but_one": "the position two before",
    "half": "half the own position, rounded down",
    "first": "the first position",
    "second": "the second position",
    "last": "the last position",
    "reverse": "the mirrored position",
}


def places(route: str, real: Bool[Tensor, "row pos"]) -> Int[Tensor, "row pos"]:
    """Where a named route leads from every position; -1 or past the end where it leads nowhere."""
    query = torch.arange(real.shape[1]).expand(real.shape)
    return ROUTES[route](query, real.sum(1, keepdim=True) - 1)
