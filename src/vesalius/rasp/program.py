"""A compiled program: checked, tabulated, placed, and runnable on batches of sequences of different lengths.

    output = Aggregate(Select(indices, indices, Comparison.LEQ), Map(lambda t: t == "x", tokens), numerical=True)
    program = compile_program(output, ["a", "b", "c", "x"], 4, causal=True)
    program.run(*program.encode([["x", "a"], ["a", "x", "x"]])).output

`interchange` is the high-level side of an interchange intervention: some components take their values from another run.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.rasp.interpreter import Count, Decode, Linear, LookPair, LookUp, MeanStep, Step, Values, Vote, evaluate
from vesalius.rasp.language import (
    Aggregate,
    Expression,
    LinearSequenceMap,
    Map,
    SelectorWidth,
    SequenceMap,
    Tokens,
    Value,
    Variable,
    indices,
)
from vesalius.rasp.placement import (
    Placed,
    Widths,
    evaluation_order,
    graph_order,
    head_name,
    measure,
    place,
    unique_names,
)
from vesalius.rasp.values import Tables, tabulate
from vesalius.values import rounded

Batch = tuple[Int[Tensor, "batch pos"], Int[Tensor, " batch"]]
MAX_LENGTH = 1_000


@dataclass(frozen=True)
class ProgramTrace:
    """One run: every variable by name, codes (-1 past the end of a sequence) or floats (0 there)."""

    tokens: Int[Tensor, "batch pos"]
    lengths: Int[Tensor, " batch"]
    values: Values
    output: Tensor


class Program:
    """A compiled RASP program; made by `compile_program`."""

    def __init__(
        self,
        output: Variable,
        order: list[Expression],
        names: dict[Variable, str],
        tables: Tables,
        *,
        vocab: tuple[Value, ...],
        max_len: int,
        causal: bool,
        name: str,
        description: str,
    ) -> None:
        self.vocab, self.max_len, self.causal = vocab, max_len, causal
        self.name, self.description = name, description
        self.output = output
        self.numerical = output.numerical
        self.outputs: tuple[Value, ...] = () if output.numerical else rounded(tables.domains[output].outcomes)
        self.components: tuple[Placed, ...] = place(order, names, output)
        self.expressions = tuple(order)
        self.tables = tables
        self._names = names
        self._widths: Widths = measure(order, self.components, tables, vocab_size=len(vocab), max_len=max_len)
        self._owner = {variable: i for i, placed in enumerate(self.components) for variable in placed.variables}
        self._code_of = {rounded(token): code for code, token in enumerate(vocab)}
        self._device = torch.device("cpu")
        self._steps = {self._device: [step for node in order for step in _steps(node, names, tables)]}

    @property
    def n_layers(self) -> int:
        """Layers of the compiled model."""
        return self._widths.n_layers

    @property
    def n_heads(self) -> int:
        """Most heads in one layer of the compiled model, at least 1."""
        return self._widths.n_heads

    @property
    def d_head(self) -> int:
        """Widest query-key side of the compiled model; 1 if it has no head."""
        return self._widths.d_head

    @property
    def d_model(self) -> int:
        """Width of the compiled model's residual stream: all one-hot variables side by side."""
        return self._widths.d_model

    def name_of(self, expression: Variable) -> str:
        """The name of a variable in this program."""
        return self._names[expression]

    def value_list(self, expression: Variable) -> tuple[Value, ...]:
        """A categorical variable's values in order of their codes, None last where it can occur; () if numerical."""
        return () if expression.numerical else self.tables.domains[expression].outcomes

    def index(self, component: Component | str) -> int:
        """The column of a component in the `patched` mask of `interchange`."""
        wanted = Component.parse(component)
        for i, placed in enumerate(self.components):
            if placed.component == wanted:
                return i
        names = choices(placed.component for placed in self.components)
        raise BadInput(f"component {wanted} is not in the circuit of program {self.name!r}; it has {names}")

    def to(self, device: torch.device | str) -> "Program":
        """Let `encode` put its tensors on `device`; running follows the device of its inputs anyway."""
        self._device = torch.device(device)
        return self

    def encode(self, sequences: Sequence[Sequence[Value]]) -> Batch:
        """Token codes, padded with -1 to the longest sequence, and the lengths."""
        if not len(sequences):
            raise BadInput("no sequences given; give a list with at least one list of tokens")
        rows = [self._encode_row(row, sequence) for row, sequence in enumerate(sequences)]
        width = max(map(len, rows))
        tokens = torch.tensor([row + [-1] * (width - len(row)) for row in rows], device=self._device)
        return tokens, torch.tensor([len(row) for row in rows], device=self._device)

    def _encode_row(self, row: int, sequence: Sequence[Value]) -> list[int]:
        if isinstance(sequence, str) or not isinstance(sequence, Sequence):
            raise BadInput(f"sequence {row} is {sequence!r:.60}; give each sequence as a list of tokens")
        if not 1 <= len(sequence) <= self.max_len:
            raise BadInput(f"sequence {row} has {len(sequence)} tokens; 1 to {self.max_len} are allowed")
        codes = []
        for token in sequence:
            code = self._code_of.get(rounded(token)) if isinstance(token, str | int | float) else None
            if code is None:
                raise BadInput(f"token {token!r:.40} in sequence {row} is not in the vocabulary: {choices(self.vocab)}")
            codes.append(code)
        return codes

    def run(self, tokens: Int[Tensor, "batch pos"], lengths: Int[Tensor, " batch"]) -> ProgramTrace:
        """Run the program on token codes (as `encode` gives them) and keep every variable."""
        return self._trace(tokens, lengths, lambda name, value: value)

    def interchange(
        self,
        base: Batch | ProgramTrace,
        source: Batch | ProgramTrace,
        patched: Bool[Tensor, "batch components"],
        *,
        positions: Int[Tensor, "batch pos"] | None = None,
        carriers: Sequence[Collection[str]] | None = None,
    ) -> Tensor:
        """The output on `base` when, row by row, the components marked in `patched` take their values from `source`.

        A patched variable takes the source's value at every position that is real in the source; elsewhere it is
        computed from the base as usual. Everything downstream follows. `positions` says for each base position which
        source position to read (-1: none), for patches across positions. `carriers` names, for each column of
        `patched`, the variables it stands for (None: those of each placed component, in order).
        """
        tokens, lengths = (base.tokens, base.lengths) if isinstance(base, ProgramTrace) else base
        origin = source if isinstance(source, ProgramTrace) else self.run(*source)
        groups = [placed.variables for placed in self.components] if carriers is None else list(carriers)
        columns_of = self._columns(groups)
        if patched.shape != (len(tokens), len(groups)) or len(origin.tokens) != len(tokens):
            raise BadInput(
                f"patched is {tuple(patched.shape)} and source has {len(origin.tokens)} rows; "
                f"expected {(len(tokens), len(groups))} and {len(tokens)}"
            )
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        given = (positions >= 0) & (positions < origin.lengths[:, None])
        read = torch.where(given, positions, 0)

        def amend(name: str, value: Tensor) -> Tensor:
            columns = columns_of.get(name)
            if columns is None:
                return value
            replaced = patched[:, columns].any(1)[:, None] & given
            return torch.where(replaced, origin.values[name].gather(1, read), value)

        known = self._untouched(base, columns_of) if isinstance(base, ProgramTrace) else None
        return self._trace(tokens, lengths, amend, known).output

    def _untouched(self, base: ProgramTrace, patched: Collection[str]) -> Values:
        """What a run keeps when some variables are patched: everything that is not downstream of them."""
        touched = set(patched)
        for step in self.steps_on(base.tokens.device):
            if touched.intersection(step.reads):
                touched.add(step.name)
        # Past the end of a sequence a trace holds -1, which is not a code.
        return {
            name: value if value.is_floating_point() else value.clamp(min=0)
            for name, value in base.values.items()
            if name not in touched
        }

    def _columns(self, groups: Sequence[Collection[str]]) -> dict[str, list[int]]:
        """For every variable the columns of `patched` that stand for it."""
        columns: dict[str, list[int]] = {}
        for column, group in enumerate(groups):
            for name in [group] if isinstance(group, str) else group:
                if name not in self._owner:
                    raise BadInput(
                        f"carriers names {name!r}, which no component of program {self.name!r} writes; "
                        f"it has {choices(self._owner)}"
                    )
                columns.setdefault(name, []).append(column)
        return columns

    def decode(self, output: Tensor, lengths: Int[Tensor, " batch"]) -> list[list[Value]]:
        """Output codes (or floats) as Python values, one list per sequence, cut to its length."""
        rows = [row[:length] for row, length in zip(output.tolist(), lengths.tolist(), strict=True)]
        return rows if self.numerical else [[self.outputs[code] for code in row] for row in rows]

    def _trace(
        self, tokens: Tensor, lengths: Tensor, amend: Callable[[str, Tensor], Tensor], known: Values | None = None
    ) -> ProgramTrace:
        if tokens.ndim != 2 or lengths.shape != tokens.shape[:1] or tokens.shape[1] > self.max_len:
            raise BadInput(
                f"tokens {tuple(tokens.shape)} with lengths {tuple(lengths.shape)} do not fit: "
                f"expected [batch, at most {self.max_len}] and [batch]"
            )
        steps = self.steps_on(tokens.device)
        values = evaluate(steps, tokens, lengths, causal=self.causal, amend=amend, known=known)
        return ProgramTrace(tokens, lengths, values, values[self._names[self.output]])

    def steps_on(self, device: torch.device) -> list[Step]:
        """What the interpreter runs, inputs first, with its tables on `device`."""
        if device not in self._steps:
            self._steps[device] = [step.to(device) for step in self._steps[torch.device("cpu")]]
        return self._steps[device]


def compile_program(
    output: Variable,
    vocab: Sequence[Value],
    max_len: int,
    *,
    causal: bool,
    name: str = "program",
    description: str = "",
) -> Program:
    """Check a program, find the values of all its variables, and place it in a transformer.

    `vocab` lists the tokens (strings or numbers), `max_len` is the longest sequence (BOS not counted), and with
    `causal` every selector sees only the position itself and those before it.
    """
    if not isinstance(output, Variable):
        raise BadInput(
            f"program {name!r} must output a variable (Map, Aggregate, ...), not {type(output).__name__} {output!r:.60}"
        )
    if isinstance(vocab, str) or not isinstance(vocab, Sequence):
        raise BadInput(f"vocab is of type {type(vocab).__name__}; give a list of tokens, whose order fixes their codes")
    for token in vocab:
        if isinstance(token, bool) or not isinstance(token, str | int | float):
            raise BadInput(f"vocab holds {token!r:.40}; tokens are strings or numbers")
        if isinstance(token, float) and not math.isfinite(token):
            raise BadInput(f"vocab holds {token!r}; numbers among tokens are finite")
    if not vocab:
        raise BadInput("vocab is empty; give at least one token")
    keys = rounded(list(vocab))
    if len(set(keys)) < len(keys):
        twice = next(token for i, token in enumerate(vocab) if keys[i] in keys[:i])
        raise BadInput(f"vocab holds {twice!r} twice; every token must be different")
    checked = tuple(vocab)
    if isinstance(max_len, bool) or not isinstance(max_len, int) or not 1 <= max_len <= MAX_LENGTH:
        raise BadInput(f"max_len={max_len!r} is not a whole number from 1 to {MAX_LENGTH}")
    if not isinstance(causal, bool):
        raise BadInput(f"causal={causal!r} is neither True nor False")
    order = evaluation_order(graph_order(output))
    names = unique_names(order)
    tables = tabulate(order, names, vocab=checked, max_len=max_len)
    details = {"vocab": checked, "max_len": max_len, "causal": causal, "name": name, "description": description}
    return Program(output, order, names, tables, **details)


def _steps(node: Expression, names: dict[Variable, str], tables: Tables) -> list[Step]:
    """The steps of one node: none for inputs and Selects, two for a SelectorWidth."""
    if isinstance(node, Map):
        return [LookUp(names[node], (names[node.x],), torch.from_numpy(tables.codes[node]))]
    if isinstance(node, SequenceMap | LinearSequenceMap):
        x, y = node.inputs
        reads = (names[x], names[y])  # type: ignore[index]
        if isinstance(node, SequenceMap):
            return [LookPair(names[node], reads, torch.from_numpy(tables.codes[node]))]
        return [Linear(names[node], reads, (node.x_factor, node.y_factor), _numbers(x, tables), _numbers(y, tables))]
    if isinstance(node, SelectorWidth | Aggregate):
        return _attention_steps(node, names, tables)
    return []


def _attention_steps(node: SelectorWidth | Aggregate, names: dict[Variable, str], tables: Tables) -> list[Step]:
    name = names[node]
    selected = torch.from_numpy(tables.selected[node.selector])
    reads = (names[node.selector.keys], names[node.selector.queries])
    if isinstance(node, SelectorWidth):
        return [Count(head_name(name), reads, selected), Decode(name, (head_name(name),))]
    reads = (*reads, names[node.values])
    if node.numerical:
        return [MeanStep(name, reads, selected, _numbers(node.values, tables))]
    domain = tables.domains[node]
    empty = domain.size if node.default is None else domain.code_of(node.default)
    assert empty is not None
    return [Vote(name, reads, selected, tables.domains[node.values].size, empty)]


def _numbers(operand: Expression, tables: Tables) -> Tensor | None:
    """The float of each code; None where the operand is numerical already."""
    return torch.from_numpy(tables.numbers[operand]) if operand in tables.numbers else None  # type: ignore[index]


# What a placed component does, by rule: the first match decides.
#
# 1. The head of a SelectorWidth or of a numerical Aggregate: AGGREGATOR.
# 2. The head of a categorical Aggregate: ROUTER if `indices` is the key or the query of its Select, else AGGREGATOR.
# 3. An MLP with a SequenceMap or LinearSequenceMap of two different variables: COMBINER.
# 4. An MLP whose Map reads `tokens` and tells exactly two cases apart: INDICATOR (constants beside it are ignored).
# 5. Any other MLP: MAPPER.


class Role(StrEnum):
    """The five tags."""

    INDICATOR = "INDICATOR"
    AGGREGATOR = "AGGREGATOR"
    ROUTER = "ROUTER"
    MAPPER = "MAPPER"
    COMBINER = "COMBINER"


def roles_of(program: Program) -> dict[Component, Role]:
    """The role of every component of the circuit, in order of computation."""
    return {placed.component: role_of(placed, program) for placed in program.components}


def role_of(placed: Placed, program: Program) -> Role:
    """The role of one placed component."""
    if placed.kind == "head":
        return _head_role(placed.expressions[0])
    if any(isinstance(node, SequenceMap | LinearSequenceMap) and node.combines for node in placed.expressions):
        return Role.COMBINER
    telling = [node for node in placed.expressions if len(program.value_list(node)) > 1]
    if telling and all(_is_indicator(node, program) for node in telling):
        return Role.INDICATOR
    return Role.MAPPER


def role_of_carrier(program: Program, variables: Collection[str], *, is_head: bool) -> Role | None:
    """The role of a component that carries some variables of a program; None where no component of its kind writes
    them, or where they have different roles.
    """
    roles = set()
    for placed in program.components:
        written = [name in variables for name in placed.variables]
        if any(written) and (placed.kind == "head") == is_head:
            kept = tuple(node for node, own in zip(placed.expressions, written, strict=True) if own)
            roles.add(role_of(replace(placed, expressions=kept), program))
    return roles.pop() if len(roles) == 1 else None


def _head_role(node: Variable) -> Role:
    if isinstance(node, Aggregate) and not node.numerical and indices in node.selector.inputs:
        return Role.ROUTER
    return Role.AGGREGATOR


def _is_indicator(node: Variable, program: Program) -> bool:
    return isinstance(node, Map) and isinstance(node.x, Tokens) and len(program.value_list(node)) == 2
