"""The found variables put together: a program for the whole task, with the effect of exchanging one of its variables.

Variables are computed in order of the components. The output is the smallest table of them (for numbers, where it
fits, a straight line) that holds on natural runs and on runs with one component exchanged.
"""

from dataclasses import dataclass, replace
from itertools import combinations

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.codes import distinct
from vesalius.explanations.scientist.inputs import Pairings, Sequences
from vesalius.explanations.scientist.variables import INDICES, TOKENS, Environment, Hypothesis, Table, scale_of

#: Outputs that are numbers count as equal within this.
TOLERANCE = 0.05
#: An output map that fits this share of held-out outputs is good enough to stop looking for a larger one.
GOOD_FIT = 0.997
#: A larger output map must fit better by this.
BETTER_FIT = 0.003


@dataclass(frozen=True)
class Line:
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
    line: Line | None = None

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
            env.values[str(component)] = variable.evaluate(env)
        return env

    def exchanged(self, sequences: Sequences, pairings: Pairings) -> Environment:
        """Every variable on the rows of `pairings`: the exchanged one from the source, later ones recomputed."""
        natural = self.environment(sequences)
        env = Environment.of(sequences.take(pairings.base), causal=self.causal)
        for component, variable in self.variables.items():
            values = variable.evaluate(env)
            rows = pairings.rows_of(component)
            if len(rows):
                base, source = pairings.base[rows], pairings.source[rows]
                both = sequences.real[base] & sequences.real[source]
                values[rows] = torch.where(both, natural[str(component)][source], values[rows])
            env.values[str(component)] = values
        return env

    def predict(self, env: Environment) -> Tensor:
        """Outputs at every position."""
        assert self.output is not None
        return self.output.evaluate(env)

    def agrees(self, predicted: Tensor, outputs: Tensor) -> Tensor:
        """Where a prediction equals the model's output."""
        return (predicted - outputs).abs() < TOLERANCE if self.numeric else predicted.long() == outputs


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
    by_class = {(code,): value for value, code in classes.items()}
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
) -> Line | None:
    """A straight line over a share or count, where the outputs are numbers and the line fits."""
    variable = {str(c): v for c, v in program.variables.items()}.get(reads[0])
    if not program.numeric or len(reads) != 1 or variable is None or variable.family not in ("mean", "count", "linear"):
        return None
    scale = scale_of(variable)
    values = arguments[:, 0].double() / scale
    design = torch.stack([values, torch.ones_like(values)], 1)
    weights = torch.linalg.lstsq(design, observed[:, None].double()).solution[:, 0]
    errors = (design @ weights - observed).abs().sort().values
    worst = float(errors[int(0.99 * (len(errors) - 1))])
    return Line(float(weights[0]), float(weights[1]), scale) if worst < TOLERANCE else None


def _share_right(program: CircuitProgram, output: OutputMap, env: Environment, outputs: Tensor) -> float:
    tested = env.real.clone()
    tested[0::2] = False
    return float(program.agrees(output.evaluate(env), outputs)[tested].float().mean())
