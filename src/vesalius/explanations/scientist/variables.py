"""Variables the scientist can hypothesise, and how each is computed on a batch of inputs.

A variable has one whole number (its code) per position; -1 is undefined. Codes of tokens follow the vocabulary, codes
of counts are the counts, codes of means are the mean times `MEAN_SCALE`, codes of tables number their classes. An
`Environment` holds the codes of everything computed so far on one batch: `tokens`, `indices` and one entry per
component. Every variable defines itself in RASP (`define`), which is what is shown, run and graded, and has a phrase of
English. `evaluate` gives the same values for a whole batch at once, because a search tries thousands of variables; a
test holds the two together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.explanations.scientist.codes import distinct
from vesalius.explanations.scientist.inputs import Sequences
from vesalius.rasp.draft import LENGTH, UNDEFINED, Coded, Draft

#: Divisible by 1 to 10 and fine enough to tell fractions of sixty apart.
MEAN_SCALE = 5040
TOKENS, INDICES = "tokens", "indices"


@dataclass(frozen=True)
class Environment:
    """Codes of variables on one batch. `visible[b, q, k]`: query q of row b can see key k."""

    values: dict[str, Int[Tensor, "row pos"]]
    real: Bool[Tensor, "row pos"]
    visible: Bool[Tensor, "row query key"]

    @classmethod
    def of(cls, sequences: Sequences, *, causal: bool) -> "Environment":
        """The two inputs of every program."""
        real = sequences.real
        n = real.shape[1]
        visible = real[:, None, :].expand(-1, n, -1)
        if causal:
            visible = visible & torch.ones(n, n, dtype=torch.bool).tril()
        indices = torch.arange(n).expand(len(sequences), -1).masked_fill(~real, UNDEFINED)
        return cls({TOKENS: sequences.codes, INDICES: indices}, real, visible)

    def __getitem__(self, name: str) -> Int[Tensor, "row pos"]:
        return self.values[name]


class Naming(Protocol):
    """Who knows how the codes of a variable are written."""

    def value(self, name: str, code: int) -> str:
        """A code of the variable `name` as text."""
        ...


class Hypothesis(Protocol):
    """A candidate variable. `family` is what is classified; `size` orders equally good ones."""

    @property
    def family(self) -> str:
        """What kind of variable it is."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables it needs."""
        ...

    @property
    def size(self) -> float:
        """Smaller is preferred."""
        ...

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """Codes at every position."""
        ...

    def define(self, draft: Draft, name: str) -> Coded:
        """The same variable in a program of RASP, under this name."""
        ...

    def words(self, naming: Naming) -> str:
        """A phrase that completes 'this component computes'."""
        ...


@dataclass(frozen=True)
class Table:
    """A look-up table over one or several variables at the same position."""

    reads: tuple[str, ...]
    codes: Mapping[tuple[int, ...], int]
    n_classes: int
    family: str = "table"
    size: float = 1.0

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The class of the arguments; a tuple that was never seen gets a class of its own."""
        stacked = torch.stack([env[name] for name in self.reads], -1)
        cells, inverse = distinct(stacked.flatten(0, 1))
        classes = torch.tensor([self.codes.get(tuple(row), self.n_classes) for row in cells.tolist()])
        return classes[inverse].view(env.real.shape).masked_fill(~env.real, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """A look-up; what was never seen is said to be."""
        return draft.table(name, self.reads, self.codes, self.n_classes)

    def words(self, naming: Naming) -> str:
        """The classes, by their members."""
        what = " and ".join(plain_name(name) for name in self.reads)
        if len(self.reads) == 1 and self.n_classes == len(self.codes) > 2:
            return f"{what}, all {self.n_classes} values kept apart"
        members: dict[int, list[str]] = {}
        for key, code in self.codes.items():
            members.setdefault(code, []).append(self._key(key, naming))
        if len(members) > 6:
            return f"a table of {what} with {len(members)} classes"
        smallest_first = sorted(members.values(), key=len)
        entries = "; ".join(
            "{" + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") + "}" for names in smallest_first
        )
        return f"which of {len(members)} classes {what} falls into: {entries}"

    def _key(self, key: tuple[int, ...], naming: Naming) -> str:
        parts = [naming.value(name, code) for name, code in zip(self.reads, key, strict=True)]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


@dataclass(frozen=True)
class Linear:
    """A weighted sum of shares at the same position."""

    reads: tuple[str, ...]
    weights: tuple[float, ...]
    offset: float
    family: str = "linear"
    size: float = 1.0

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """The sum in units of 1 / MEAN_SCALE."""
        total = torch.full(env.real.shape, self.offset * MEAN_SCALE)
        for name, weight in zip(self.reads, self.weights, strict=True):
            total = total + weight * env[name]
        return total.round().long()

    def define(self, draft: Draft, name: str) -> Coded:
        """A weighted sum."""
        return draft.weighted_sum(name, self.reads, self.weights, self.offset, scale=MEAN_SCALE)

    def words(self, naming: Naming) -> str:
        """The sum in words, terms that are added before terms that are taken away."""
        terms = sorted(zip(self.weights, self.reads, strict=True), key=lambda term: term[0] < 0)
        said = [
            (weight, plain_name(read) if abs(weight) == 1 else f"{abs(weight):.6g} times {plain_name(read)}")
            for weight, read in terms
        ]
        (weight, text), *rest = [*said, *([(self.offset, f"{abs(self.offset):.6g}")] if self.offset else [])]
        text = text if weight >= 0 else f"minus {text}"
        return text + "".join(f" {'plus' if weight >= 0 else 'minus'} {term}" for weight, term in rest)


@dataclass(frozen=True)
class Constant:
    """Nothing that matters: the component is inert or unexplained."""

    reads: tuple[str, ...] = ()
    size: float = 0.0
    family: str = "nothing"

    def evaluate(self, env: Environment) -> Int[Tensor, "row pos"]:
        """Zero everywhere."""
        return torch.zeros_like(env[TOKENS]).masked_fill(~env.real, UNDEFINED)

    def define(self, draft: Draft, name: str) -> Coded:
        """A constant."""
        return draft.table(name, (INDICES,), {(place,): 0 for place in range(draft.max_len)}, 1)

    def words(self, naming: Naming) -> str:
        """Nothing in words."""
        return "nothing that was found to matter"


def scale_of(variable: Hypothesis) -> int:
    """Codes are values times this."""
    return MEAN_SCALE if variable.family in ("mean", "linear") else 1


def plain_name(name: str) -> str:
    """A variable as English names it."""
    return {TOKENS: "the token", INDICES: "the position", LENGTH: "the length"}.get(name, f"the value of {name}")
