"""What heads can be hypothesised to gather from other positions: counts, shares, copies, look-ups, extremes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.explanations.scientist.program import INDICES, MEAN_SCALE, TOKENS, Environment, Naming, plain_name
from vesalius.explanations.scientist.runs import distinct
from vesalius.rasp import Comparison, Select, indices
from vesalius.rasp.draft import COMPARE, LENGTH, NOWHERE, UNDEFINED, Coded, Draft

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
    `others`), or all.
    """

    kind: str
    keys: str = TOKENS
    queries: str = TOKENS
    comparison: str = "EQ"
    constant: int = 0
    others: tuple[int, ...] = ()

    def mask(self, env: Environment) -> Bool[Tensor, "row query key"]:
        """The selected keys, among those the query can see."""
        if self.kind == "all":
            return env.visible
        there = env[self.keys][:, None, :]
        if self.kind == "constant":
            return env.visible & among(there, self.constant, self.others)
        here = env[self.queries][:, :, None]
        defined = (there != UNDEFINED) & (here != UNDEFINED)
        return env.visible & defined & COMPARE[self.comparison](there, here)

    def define(self, draft: Draft, name: str) -> Select:
        """The same selection in RASP."""
        if self.kind == "all":
            return draft.view
        if self.kind == "constant":
            return draft.one_of(name, self.keys, {self.constant, *self.others})
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


@dataclass(frozen=True)
class Matched:
    """A variable's value at the first position where `keys` equals the own `queries`."""

    of: str
    keys: str
    queries: str
    size: float = 1.5
    family: str = "match"

    @property
    def reads(self) -> tuple[str, ...]:
        """What is copied and what is compared."""
        return tuple(name for name in dict.fromkeys((self.of, self.keys, self.queries)) if name != INDICES)

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The copied codes; undefined where nothing matches."""
        mask = Selector("compare", self.keys, self.queries).mask(env)
        place = mask.long().argmax(-1)
        return env[self.of].gather(1, place).masked_fill(~mask.any(-1) | ~env.real, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """The value at the first match."""
        select = draft.compared(self.keys, self.queries, "EQ")
        return draft.gathered(name, select if self.keys == INDICES else draft.first(name, select), self.of)

    def words(self, naming: Naming) -> str:
        """The lookup in words."""
        there, here = plain_name(self.keys), plain_name(self.queries)
        return f"{plain_name(self.of)} at the position where {there} equals {here} here"


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


@dataclass(frozen=True)
class Extreme:
    """The largest or smallest value of a variable in view."""

    of: str
    largest: bool
    size: float = 1.5
    family: str = "extreme"

    @property
    def reads(self) -> tuple[str, ...]:
        """The variable searched."""
        return (self.of,)

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The extreme code in view."""
        there = env[self.of][:, None, :].expand(env.visible.shape)
        if self.largest:
            place = there.masked_fill(~env.visible, -1).amax(-1)
        else:
            place = there.masked_fill(~env.visible, 10**9).amin(-1)
        return place.masked_fill(~env.real, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """The largest or smallest in view."""
        return draft.extreme(name, self.of, largest=self.largest)

    def words(self, naming: Naming) -> str:
        """The extreme in words."""
        return f"the {'largest' if self.largest else 'smallest'} {plain_name(self.of)} in view"


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
