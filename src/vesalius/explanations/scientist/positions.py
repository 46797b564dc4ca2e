"""Where does position enter? An activation moved to another position tells.

What an MLP wrote at position j of a source is put at position p of a base. If its variable is free of position, the
model goes on as if the value had arisen at p; if position is already inside, as if it were still at j. The program
says what each would give; only cases in which the two differ count.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.assemble import CircuitProgram
from vesalius.explanations.scientist.circuit_runs import CircuitRuns, Edit, RecordedRun
from vesalius.explanations.scientist.variables import INDICES, Environment

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
