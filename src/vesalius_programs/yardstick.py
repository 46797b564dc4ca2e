"""What a program is measured by while it is searched for: agreement, exchanges at the same position, moved outputs.

Base and source inputs are paired at random, the component's output moves from source to base at all shared positions,
and the model's outputs are compared with those of the program under the same exchange. Only outputs that change count,
since unchanged ones are easy. The model's answers do not depend on the program, so they are run once; every candidate
program is then compared with them.

Where position enters, an activation moved to another position tells. What an MLP wrote at position j of a source is put
at position p of a base. If its variable is free of position, the model goes on as if the value had arisen at p; if
position is already inside, as if it were still at j. Only cases in which the program's answers to the two differ count.

These figures choose between programs and are not verdicts, which come from the laboratory (`writing`).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.claims.moved import MIN_INPUTS, MIN_RIVAL, MIN_RIVAL_LEAD
from vesalius_programs.gathering import Copy
from vesalius_programs.program import INDICES, CircuitProgram, Environment, Table
from vesalius_programs.runs import CircuitRuns, Edit, Pairings, RecordedRun, Sequences, exchange_pairings


def agreement(program: CircuitProgram, recorded: RecordedRun) -> Bool[Tensor, " row"]:
    """Per input: does the program give every output of the model?"""
    env = program.environment(recorded.sequences)
    return (program.agrees(program.predict(env), recorded.outputs) | ~env.real).all(1)


def exchange_accuracy(
    runs: CircuitRuns, program: CircuitProgram, recorded: RecordedRun, *, pairs: int, seed: int
) -> dict[Component, float | None]:
    """For each component, the share of changed outputs that the program predicts; None where nothing changes."""
    pairings = exchange_pairings(len(recorded.sequences), pairs, list(program.variables), seed=seed)
    outputs = {component: runs.outputs_exchanged(recorded, pairings, component) for component in program.variables}
    return exchange_shares(program, recorded, pairings, outputs)


def exchange_shares(
    program: CircuitProgram, recorded: RecordedRun, pairings: Pairings, outputs_of: dict[Component, Tensor]
) -> dict[Component, float | None]:
    """The same for exchanges whose outputs are known."""
    env = program.exchanged(recorded.sequences, pairings)
    predicted = program.predict(env)
    unpatched = program.predict(program.environment(recorded.sequences))
    shares: dict[Component, float | None] = {}
    for component in program.variables:
        rows = pairings.rows_of(component)
        base, outputs = pairings.base[rows], outputs_of[component]
        model_changed = ~program.agrees(outputs, recorded.outputs[base])
        program_changed = ~program.agrees(predicted[rows], unpatched[base])
        changed = env.real[rows] & (model_changed | program_changed)
        right = program.agrees(predicted[rows], outputs)
        shares[component] = float(right[changed].float().mean()) if bool(changed.any()) else None
    return shares


#: Moves of one output, and moves of all outputs of a component in random order.
SINGLE_MOVES, WHOLE_MOVES = 400, 200
#: A change may lower the agreement, and the accuracy of any component's exchanges, by no more than this.
AGREEMENT_LOSS, EXCHANGE_LOSS = 0.002, 0.005


@dataclass(frozen=True)
class MovedRuns:
    """Runs with outputs of one component moved: base position i reads the source's position `reads[i]` (-1: none)."""

    component: Component
    base: Int[Tensor, " row"]
    source: Int[Tensor, " row"]
    reads: Int[Tensor, "row pos"]
    outputs: Tensor


@dataclass(frozen=True)
class MovedShares:
    """How often the program is right where a moved output changes an answer, and how often it and its rival with the
    position inside are where the two differ.
    """

    accuracy: float
    by_new: float
    by_old: float
    telling: int

    @property
    def is_inside(self) -> bool:
        """The model follows the old position: it was inside the value already."""
        lead = self.by_old - self.by_new
        return self.telling >= MIN_INPUTS and self.by_old >= MIN_RIVAL and lead >= MIN_RIVAL_LEAD


@dataclass(frozen=True)
class Quality:
    """Share of inputs on which a program gives every output, and of changed outputs per exchanged component."""

    agreement: float
    exchanges: dict[Component, float | None]

    def is_kept_by(self, other: "Quality") -> bool:
        """Whether another program is as good, up to what may be lost."""
        if other.agreement < self.agreement - AGREEMENT_LOSS:
            return False
        for component, share in self.exchanges.items():
            theirs = other.exchanges.get(component)
            if share is not None and (theirs is None or theirs < share - EXCHANGE_LOSS):
                return False
        return True


class Yardstick:
    """The model's answers to the experiments that programs are compared on."""

    def __init__(self, runs: CircuitRuns, recorded: RecordedRun, *, pairs: int, seed: int) -> None:
        self.runs, self.recorded, self.seed = runs, recorded, seed
        self.pairings = exchange_pairings(len(recorded.sequences), pairs, runs.components, seed=seed)
        self._moved: dict[Component, tuple[MovedRuns, ...]] = {}

    @cached_property
    def _exchanged(self) -> dict[Component, Tensor]:
        return {c: self.runs.interchange(self.recorded, self.pairings, c)[0] for c in self.runs.components}

    def quality(self, program: CircuitProgram) -> Quality:
        """The program on natural inputs and on exchanges at the same position."""
        shares = exchange_shares(program, self.recorded, self.pairings, self._exchanged)
        return Quality(float(agreement(program, self.recorded).float().mean()), shares)

    def moved_runs(self, component: Component) -> tuple[MovedRuns, ...]:
        """The model's answers to moved outputs, one at a time and all at once."""
        if component not in self._moved:
            generator = torch.Generator().manual_seed(self.seed + 31)
            moves = (_single(self.recorded.sequences, generator), _whole(self.recorded.sequences, generator))
            self._moved[component] = tuple(self._run(component, *move) for move in moves)
        return self._moved[component]

    def _run(self, component: Component, base: Tensor, source: Tensor, reads: Tensor) -> MovedRuns:
        written = self.recorded.component_outputs[component][source]
        places = torch.cat([torch.zeros_like(reads[:, :1]), reads.clamp(min=0) + 1], 1)
        values = written.gather(1, places[..., None].expand(-1, -1, written.shape[2]))
        where = torch.cat([torch.zeros_like(reads[:, :1], dtype=torch.bool), reads >= 0], 1)
        outputs, _ = self.runs.patched(self.recorded, base, Edit(component, values, where))
        return MovedRuns(component, base, source, reads, outputs)

    def moved(self, program: CircuitProgram, component: Component) -> MovedShares:
        """The program on moved outputs, in the design that speaks most clearly."""
        shares = [self._moved_shares(program, runs) for runs in self.moved_runs(component)]
        inside = [share for share in shares if share.is_inside]
        return inside[0] if inside else max(shares, key=lambda share: share.accuracy)

    def moved_effect(self, component: Component) -> float:
        """The largest share of outputs that moving this component's outputs changes."""
        shares = []
        for runs in self.moved_runs(component):
            real = self.recorded.sequences.real[runs.base]
            changed = self._differs(runs.outputs, self.recorded.outputs[runs.base])
            shares.append(float(changed[real].float().mean()))
        return max(shares)

    def _differs(self, first: Tensor, second: Tensor) -> Tensor:
        return (first - second).abs() > 0.02 if self.runs.numeric else first != second

    def _moved_shares(self, program: CircuitProgram, runs: MovedRuns) -> MovedShares:
        real = self.recorded.sequences.real[runs.base]
        new, old = (predict_moved(program, self.recorded, runs, inside=inside) for inside in (False, True))
        right, inside = program.agrees(new, runs.outputs), program.agrees(old, runs.outputs)
        before = program.predict(program.environment(self.recorded.sequences.take(runs.base)))
        clean = self.recorded.outputs[runs.base]
        changed = real & (~program.agrees(new, before) | ~program.agrees(runs.outputs, clean))
        telling = real & ~program.agrees(new, old)
        return MovedShares(
            _share(right, changed), _share(right, telling), _share(inside, telling), int(telling.any(1).sum())
        )


def predict_moved(program: CircuitProgram, recorded: RecordedRun, runs: MovedRuns, *, inside: bool = False) -> Tensor:
    """The program's outputs with the moved values in place; `inside`: readers at the own position see the position
    that the value came from.
    """
    assert program.output is not None
    env, below, old = _with_moved(program, recorded, runs, inside=inside)
    return program.output.evaluate(_at(program, env, old) if inside and below & {*program.output.reads} else env)


def moved_environment(program: CircuitProgram, recorded: RecordedRun, runs: MovedRuns) -> Environment:
    """Every variable with the moved values in place."""
    return _with_moved(program, recorded, runs, inside=False)[0]


def _with_moved(
    program: CircuitProgram, recorded: RecordedRun, runs: MovedRuns, *, inside: bool
) -> tuple[Environment, set[str], Tensor]:
    """The variables, which of them follow from the moved value at the own position, and the positions it came from."""
    origin = program.environment(recorded.sequences.take(runs.source))
    env = Environment.of(recorded.sequences.take(runs.base), causal=program.causal)
    given, read = runs.reads >= 0, runs.reads.clamp(min=0)
    old = torch.where(given, runs.reads, env[INDICES])
    below: set[str] = set()
    for component, variable in program.variables.items():
        steered = isinstance(variable, Copy) and variable.by in below
        follows = isinstance(variable, Table) and bool(below & {*variable.reads})
        values = (_at(program, env, old) if inside and (steered or follows) else env).evaluate(variable)
        if component == runs.component:
            values = torch.where(given, origin[str(component)].gather(1, read), values)
        if component == runs.component or follows:
            below.add(str(component))
        env.values[str(component)] = values
    return env, below, old


def _at(program: CircuitProgram, env: Environment, positions: Tensor) -> Environment:
    """The same variables read at other positions: the position itself and whatever depends on it alone."""
    there = Environment({**env.values, INDICES: positions}, env.view)
    for component, variable in program.variables.items():
        if variable.reads == (INDICES,) and isinstance(variable, Table) and str(component) in env.values:
            there.values[str(component)] = there.evaluate(variable)
    return there


def _share(right: Tensor, cases: Tensor) -> float:
    n = int(cases.sum())
    return float((right & cases).sum() / n) if n else 0.0


def _single(sequences: Sequences, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """One output per row, to another position."""
    base, source = (torch.randint(len(sequences), (SINGLE_MOVES,), generator=generator) for _ in range(2))
    new = (torch.rand(SINGLE_MOVES, generator=generator) * sequences.lengths[base]).long()
    old = (torch.rand(SINGLE_MOVES, generator=generator) * (sequences.lengths[source] - 1)).long()
    old = old + (old >= new).long()
    reads = torch.full((SINGLE_MOVES, sequences.codes.shape[1]), -1)
    rows = (old < sequences.lengths[source]).nonzero()[:, 0]
    reads[rows, new[rows]] = old[rows]
    return base, source, reads


def _whole(sequences: Sequences, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """All outputs of a source in random order."""
    base, source = (torch.randint(len(sequences), (WHOLE_MOVES,), generator=generator) for _ in range(2))
    real = sequences.real[source]
    order = torch.rand(real.shape, generator=generator).masked_fill(~real, 2.0).argsort(1)
    return base, source, torch.where(real & sequences.real[base], order, -1)


TRIALS = 400
#: Position is inside when the model follows the old position this often, and this much more than the new one.
FOLLOWS, MARGIN = 0.7, 0.15
#: Fewer telling cases than this say nothing.
FEWEST = 12


@dataclass(frozen=True)
class PositionTest:
    """Shares of telling cases in which the model acted by the old position and by the new one."""

    by_old: float
    by_new: float
    n: int

    @property
    def is_inside(self) -> bool:
        """Position was already part of the variable when the component wrote it."""
        return self.n >= FEWEST and self.by_old > FOLLOWS and self.by_old - self.by_new > MARGIN


def position_test(
    runs: CircuitRuns, program: CircuitProgram, recorded: RecordedRun, component: Component, *, seed: int
) -> PositionTest:
    """Move a component's output across positions and see which position the model follows."""
    generator = torch.Generator().manual_seed(seed)
    n = len(recorded.sequences)
    base = torch.randint(n, (TRIALS,), generator=generator)
    source = torch.randint(n, (TRIALS,), generator=generator)
    lengths = recorded.sequences.lengths
    new = (torch.rand(TRIALS, generator=generator) * lengths[base]).long()
    old = (torch.rand(TRIALS, generator=generator) * lengths[source]).long()
    moved = torch.zeros_like(recorded.component_outputs[component][base])
    moved[torch.arange(TRIALS), new + 1] = recorded.component_outputs[component][source, old + 1]
    here = torch.arange(moved.shape[1]) == new[:, None] + 1
    outputs, _ = runs.patched(recorded, base, Edit(component, moved, here))
    by_new = _predict(program, recorded, component, base, source, new, old, old_position=False)
    by_old = _predict(program, recorded, component, base, source, new, old, old_position=True)
    rows = torch.arange(TRIALS)
    seen, free, inside = outputs[rows, new], by_new[rows, new], by_old[rows, new]
    telling = ~program.agrees(free, inside)
    if not bool(telling.any()):
        return PositionTest(0.0, 0.0, 0)
    shares = [float(program.agrees(p, seen)[telling].float().mean()) for p in (inside, free)]
    return PositionTest(shares[0], shares[1], int(telling.sum()))


def _predict(
    program: CircuitProgram,
    recorded: RecordedRun,
    component: Component,
    base: Tensor,
    source: Tensor,
    new: Tensor,
    old: Tensor,
    *,
    old_position: bool,
) -> Tensor:
    """The program's outputs with the moved value in place; later readers see the new position or still the old one."""
    natural = program.environment(recorded.sequences)
    env = Environment.of(recorded.sequences.take(base), causal=program.causal)
    rows = torch.arange(len(base))
    for each, variable in program.variables.items():
        values = variable.evaluate(env).clone()
        if each == component:
            values[rows, new] = natural[str(component)][source, old]
            if old_position:
                env.values[INDICES] = env[INDICES].clone()
                env.values[INDICES][rows, new] = old
        env.values[str(each)] = values
    return program.predict(env)
