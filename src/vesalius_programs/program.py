"""The scientist's language: variables that can be hypothesised, and the program that they make for the whole task.

A variable has one whole number (its code) per position; -1 is undefined. Codes of tokens follow the vocabulary, codes
of counts are the counts, codes of means are the mean times `MEAN_SCALE`, codes of tables number their classes. An
`Environment` holds the codes of everything computed so far on one batch: `tokens`, `indices` and one entry per
component. Every variable defines itself in RASP (`define`), which is what is shown, run and graded, and has a phrase of
English. `evaluate` gives the same values for a whole batch at once, because a search tries thousands of variables; a
test holds the two together.

A program computes variables in order of the components and gives the effect of exchanging one of them. Its output is
the smallest table of variables (for numbers, where it fits, a straight line) that holds on natural runs and on runs
with one component exchanged.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius_programs.draft import LENGTH, UNDEFINED, Coded, Draft
from vesalius_programs.runs import Pairings, Sequences, distinct

#: Divisible by 1 to 10 and fine enough to tell fractions of sixty apart.
MEAN_SCALE = 5040
TOKENS, INDICES = "tokens", "indices"
#: Values of variables that are kept for one batch.
MOST_KNOWN = 200


@dataclass(frozen=True)
class Scope:
    """The keys that each query sees, 1 or 0, and how many they are."""

    keys: Float[Tensor, "row query key"]
    size: Float[Tensor, "row query"]

    def count(self, chosen: Bool[Tensor, "row pos"]) -> Float[Tensor, "row query"]:
        """How many of the keys seen are chosen; as a product of matrices, since a search counts thousands of times."""
        return (self.keys @ chosen.float().unsqueeze(-1)).squeeze(-1)


class View:
    """What programs see of one batch before they compute anything: `real[b, i]`, where row b has a token, and
    `visible[b, q, k]`, whether query q of row b can see key k. What variables are on it is kept for a while, because
    the programs that a search compares differ in few of their variables.
    """

    def __init__(self, real: Bool[Tensor, "row pos"], visible: Bool[Tensor, "row query key"]) -> None:
        self.real, self.visible = real, visible
        self._known: dict[tuple[Hashable, ...], tuple[object, tuple[Tensor, ...], Tensor]] = {}

    @cached_property
    def scopes(self) -> dict[str, Scope]:
        """What a query sees before and at its own position (LEQ), before it (LT), or anywhere (TRUE)."""
        n = self.visible.shape[1]
        shapes = {scope: torch.ones(n, n).tril(latest) for scope, latest in (("LEQ", 0), ("LT", -1), ("TRUE", n))}
        seen = {scope: self.visible.float() * shape for scope, shape in shapes.items()}
        return {scope: Scope(keys, keys.sum(-1)) for scope, keys in seen.items()}

    def once(self, step: object, inputs: tuple[Tensor, ...], compute: Callable[[], Tensor]) -> Tensor:
        """The result of a step on these very tensors; nobody may change it."""
        key = (id(step), *map(id, inputs))
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[key] = step, inputs, compute()  # what has an id here is held, so that no other gets the same
        return self._known[key][2]


@dataclass(frozen=True)
class Environment:
    """Codes of variables on one batch, which `view` is of."""

    values: dict[str, Int[Tensor, "row pos"]]
    view: View

    @classmethod
    def of(cls, sequences: Sequences, *, causal: bool) -> "Environment":
        """The two inputs of every program."""
        if causal not in sequences.seen:
            real = sequences.real
            n = real.shape[1]
            visible = real[:, None, :].expand(-1, n, -1)
            if causal:
                visible = visible & torch.ones(n, n, dtype=torch.bool).tril()
            indices = torch.arange(n).expand(len(sequences), -1).masked_fill(~real, UNDEFINED)
            sequences.seen[causal] = View(real, visible), indices
        view, indices = sequences.seen[causal]
        return cls({TOKENS: sequences.codes, INDICES: indices}, view)

    def __getitem__(self, name: str) -> Int[Tensor, "row pos"]:
        return self.values[name]

    @property
    def real(self) -> Bool[Tensor, "row pos"]:
        """Where a row has a token."""
        return self.view.real

    @property
    def visible(self) -> Bool[Tensor, "row query key"]:
        """Which keys a query can see."""
        return self.view.visible

    @property
    def scopes(self) -> dict[str, Scope]:
        """What a query sees before and at its own position, before it, or anywhere."""
        return self.view.scopes

    def evaluate(self, variable: "Hypothesis") -> Int[Tensor, "row pos"]:
        """A variable of a program; what is computed on the same values is computed once, and must not be changed."""
        inputs = tuple(self.values[name] for name in (TOKENS, INDICES, *variable.reads) if name in self.values)
        return self.view.once(variable, inputs, lambda: variable.evaluate(self))


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


#: Outputs that are numbers count as equal within this.
TOLERANCE = 0.05
#: An output map that fits this share of held-out outputs is good enough to stop looking for a larger one.
GOOD_FIT = 0.997
#: A larger output map must fit better by this.
BETTER_FIT = 0.003


@dataclass(frozen=True)
class StraightLine:
    """`factor` times the value of a variable, plus `offset`; the codes of the variable are its values times `scale`."""

    factor: float
    offset: float
    scale: int

    def evaluate(self, codes: Int[Tensor, "row pos"]) -> Tensor:
        """The height at every position."""
        return codes * (self.factor / self.scale) + self.offset


@dataclass(frozen=True)
class OutputMap:
    """From variables at a position to the output there: a table, or a `line` over the one variable read."""

    reads: tuple[str, ...]
    table: dict[tuple[int, ...], float]
    default: float
    line: StraightLine | None = None

    def evaluate(self, env: Environment) -> Tensor:
        """Predicted outputs, as numbers (codes for listed outputs)."""
        if self.line is not None:
            return self.line.evaluate(env[self.reads[0]])
        stacked = torch.stack([env[name] for name in self.reads], -1)
        cells, inverse = distinct(stacked.flatten(0, 1))
        outputs = torch.tensor([self.table.get(tuple(row), self.default) for row in cells.tolist()])
        return outputs[inverse].view(env.real.shape)


@dataclass(frozen=True)
class CircuitProgram:
    """Variables by component, in order of computation, and the output."""

    variables: dict[Component, Hypothesis]
    output: OutputMap | None
    causal: bool
    numeric: bool

    def environment(self, sequences: Sequences) -> Environment:
        """Every variable on natural inputs."""
        env = Environment.of(sequences, causal=self.causal)
        for component, variable in self.variables.items():
            env.values[str(component)] = env.evaluate(variable)
        return env

    def exchanged(self, sequences: Sequences, pairings: Pairings) -> Environment:
        """Every variable on the rows of `pairings`: the exchanged one from the source, later ones recomputed."""
        natural = self.environment(sequences)
        env = Environment.of(sequences.based(pairings), causal=self.causal)
        for component, variable in self.variables.items():
            values, theirs = env.evaluate(variable), natural[str(component)]
            put = partial(_put, values, theirs, sequences, pairings, component)
            env.values[str(component)] = env.view.once(component, (values, theirs), put)
        return env

    def predict(self, env: Environment) -> Tensor:
        """Outputs at every position."""
        assert self.output is not None
        return self.output.evaluate(env)

    def agrees(self, predicted: Tensor, outputs: Tensor) -> Tensor:
        """Where a prediction equals the model's output."""
        return (predicted - outputs).abs() < TOLERANCE if self.numeric else predicted.long() == outputs


def _put(values: Tensor, theirs: Tensor, sequences: Sequences, pairings: Pairings, component: Component) -> Tensor:
    """The values with those of the source in rows that exchange a component, where base and source have a token."""
    rows = pairings.rows_of(component)
    base, source = pairings.base[rows], pairings.source[rows]
    both = sequences.real[base] & sequences.real[source]
    return values.index_copy(0, rows, torch.where(both, theirs[source], values[rows]))


def with_output(program: CircuitProgram, env: Environment, outputs: Tensor) -> CircuitProgram:
    """The program with the smallest output map that fits these rows; even rows fit, odd rows test."""
    live = [str(component) for component, variable in program.variables.items() if variable.family != "nothing"]
    if not live:
        live = [TOKENS]
    best, best_fit = None, -1.0
    for reads in _candidates(live):
        output = _fit(program, env, outputs, reads)
        fit = _share_right(program, output, env, outputs)
        if best is None or fit > best_fit + BETTER_FIT:
            best, best_fit = output, fit
        if best_fit >= GOOD_FIT:
            break
    assert best is not None
    return replace(program, output=_fit(program, env, outputs, best.reads, everything=True))


def simplified(program: CircuitProgram) -> CircuitProgram:
    """The program without those arguments of its last table that make no difference to the output read off it."""
    output = program.output
    last = list(program.variables)[-1]
    variable = program.variables[last]
    if program.numeric or output is None or output.reads != (str(last),) or not isinstance(variable, Table):
        return program
    reads = variable.reads
    cells = {key: output.table.get((code,), output.default) for key, code in variable.codes.items()}
    for name in variable.reads:
        without = reads.index(name)
        smaller: dict[tuple[int, ...], set[float]] = {}
        for key, value in cells.items():
            smaller.setdefault(key[:without] + key[without + 1 :], set()).add(value)
        if len(reads) > 1 and all(len(values) == 1 for values in smaller.values()):
            reads = reads[:without] + reads[without + 1 :]
            cells = {key: values.pop() for key, values in smaller.items()}
    if reads == variable.reads:
        return program
    classes = {value: code for code, value in enumerate(dict.fromkeys(cells.values()))}
    table = Table(reads, {key: classes[value] for key, value in cells.items()}, len(classes))
    by_class: dict[tuple[int, ...], float] = {(code,): value for value, code in classes.items()}
    return replace(program, variables={**program.variables, last: table}, output=replace(output, table=by_class))


def refitted(program: CircuitProgram, env: Environment, outputs: Tensor) -> CircuitProgram:
    """The program with the table of its output read off these rows."""
    assert program.output is not None
    return replace(program, output=_fit(program, env, outputs, program.output.reads, everything=True))


def _candidates(live: list[str]) -> list[tuple[str, ...]]:
    """Smallest first, the last component before others."""
    nearest = [*reversed(live), TOKENS]
    names = list(dict.fromkeys([nearest[0], INDICES, *nearest]))
    last = nearest[0]
    pairs = [(last, name) for name in names if name != last]
    others = [pair for pair in combinations(nearest, 2) if last not in pair][:12]
    triples = [(last, *pair) for pair in combinations([name for name in names if name != last], 2)][:10]
    return [(last,), *pairs, *[(name,) for name in nearest[1:]], *others, *triples]


def _fit(
    program: CircuitProgram, env: Environment, outputs: Tensor, reads: tuple[str, ...], *, everything: bool = False
) -> OutputMap:
    used = env.real.clone()
    if not everything:
        used[1::2] = False
    arguments = torch.stack([env[name][used] for name in reads], -1)
    observed = outputs[used]
    cells, group = distinct(arguments)
    if program.numeric:
        fitted = observed.new_zeros(len(cells)).index_add_(0, group, observed) / torch.bincount(group)
        default = float(observed.mean())
    else:
        votes = torch.zeros(len(cells), int(outputs.max()) + 1)
        votes.index_put_((group, observed), torch.ones(len(group)), accumulate=True)
        fitted, default = votes.argmax(1).float(), float(observed.mode().values)
    table = {tuple(row): float(value) for row, value in zip(cells.tolist(), fitted, strict=True)}
    return OutputMap(reads, table, default, _line(program, reads, arguments, observed))


def _line(
    program: CircuitProgram, reads: tuple[str, ...], arguments: Int[Tensor, "n argument"], observed: Tensor
) -> StraightLine | None:
    """A straight line over a share or count, where the outputs are numbers and the line fits."""
    variable = {str(c): v for c, v in program.variables.items()}.get(reads[0])
    if (
        not program.numeric
        or len(reads) != 1
        or variable is None
        or variable.family not in ("mean", "count", "sum", "linear")
    ):
        return None
    scale = scale_of(variable)
    values = arguments[:, 0].double() / scale
    design = torch.stack([values, torch.ones_like(values)], 1)
    weights = torch.linalg.lstsq(design, observed[:, None].double()).solution[:, 0]
    errors = (design @ weights - observed).abs().sort().values
    worst = float(errors[int(0.99 * (len(errors) - 1))])
    return StraightLine(float(weights[0]), float(weights[1]), scale) if worst < TOLERANCE else None


def _share_right(program: CircuitProgram, output: OutputMap, env: Environment, outputs: Tensor) -> float:
    tested = env.real.clone()
    tested[0::2] = False
    return float(program.agrees(output.evaluate(env), outputs)[tested].float().mean())
