"""The judge: does the program predict what exchanging each component does, on inputs nobody has looked at?

For every component, fresh base and source inputs are drawn, its output moves from source to base at all shared
positions, and the model's outputs are compared with those of the program under the same exchange. Outputs that change
count, since unchanged ones are easy. The verdict follows the rule with the fewest false supports in the measured
comparison of rules: the share right on changed outputs, the share right for the worst argument value and the worst
position, and the agreement of the whole program with the model.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.explain.explanation import Verdict
from vesalius.explain.scientist.assemble import Program
from vesalius.explain.scientist.body import Body, Recorded
from vesalius.explain.scientist.inputs import Pairings, exchange_pairings
from vesalius.explain.scientist.variables import Environment
from vesalius.model.components import Component

#: Rule of support. The four numbers are those of the measured comparison of rules; they were not tuned here.
CHANGED_RIGHT, WORST_RIGHT, WORST_CASES, PROGRAM_RIGHT = 0.95, 0.8, 12, 0.97
RULE = (
    f"supported iff share right on changed outputs >= {CHANGED_RIGHT}, worst argument value or position >= "
    f"{WORST_RIGHT} (where n >= {WORST_CASES}) and program agreement >= {PROGRAM_RIGHT}"
)


@dataclass(frozen=True)
class Check:
    """Interchange results of one component. `right` and `changed` count outputs."""

    iia: float
    iia_changed: float | None
    right: int
    changed: int
    worst: float | None
    worst_where: str
    shuffled: float | None
    ignored: float | None

    def verdict(self, agreement: float) -> Verdict:
        """Supported or refuted by the rule; untested where too little changes."""
        if self.iia_changed is None or self.changed < WORST_CASES:
            return "untested"
        worst_holds = self.worst is None or self.worst >= WORST_RIGHT
        holds = self.iia_changed >= CHANGED_RIGHT and worst_holds and agreement >= PROGRAM_RIGHT
        return "supported" if holds else "refuted"


def agreement(program: Program, recorded: Recorded) -> Bool[Tensor, " row"]:
    """Per input: does the program give every output of the model?"""
    env = program.environment(recorded.sequences)
    return (program.agrees(program.predict(env), recorded.outputs) | ~env.real).all(1)


def check_components(
    body: Body, program: Program, recorded: Recorded, *, pairs: int, seed: int
) -> dict[Component, Check]:
    """Interchange accuracy of every component inside the program."""
    pairings = exchange_pairings(len(recorded.sequences), pairs, list(program.variables), seed=seed)
    env = program.exchanged(recorded.sequences, pairings)
    shuffled_env = program.exchanged(recorded.sequences, _shuffled(pairings, pairs))
    predicted, shuffled = program.predict(env), program.predict(shuffled_env)
    unpatched = program.predict(program.environment(recorded.sequences))
    checks = {}
    for component in program.variables:
        rows = pairings.rows_of(component)
        base = pairings.base[rows]
        outputs, _ = body.interchange(recorded, pairings, component)
        real = env.real[rows]
        model_changed = ~program.agrees(outputs, recorded.outputs[base])
        program_changed = ~program.agrees(predicted[rows], unpatched[base])
        changed = real & (model_changed | program_changed)
        right = program.agrees(predicted[rows], outputs)
        worst, where = _worst(program, env, component, rows, right, changed)
        checks[component] = Check(
            iia=float(right[real].float().mean()),
            iia_changed=_share(right, changed),
            right=int((right & changed).sum()),
            changed=int(changed.sum()),
            worst=worst,
            worst_where=where,
            shuffled=_share(program.agrees(shuffled[rows], outputs), changed),
            ignored=_share(program.agrees(unpatched[base], outputs), changed),
        )
    return checks


def _shuffled(pairings: Pairings, pairs: int) -> Pairings:
    """The same rows with the sources of every component handed on by one."""
    source = pairings.source.view(-1, pairs).roll(1, 1).flatten()
    return Pairings(pairings.base, source, pairings.moved)


def _share(right: Tensor, among: Tensor) -> float | None:
    n = int(among.sum())
    return float((right & among).sum() / n) if n else None


def _worst(
    program: Program, env: Environment, component: Component, rows: Tensor, right: Tensor, changed: Tensor
) -> tuple[float | None, str]:
    """The smallest share right among changed outputs over positions, argument values and own values."""
    groupings = {"position": torch.arange(changed.shape[1]).expand(changed.shape)}
    for name in dict.fromkeys((str(component), *program.variables[component].reads)):
        groupings[name] = env[name][rows]
    worst, where = None, ""
    for name, values in groupings.items():
        for value in values[changed].unique().tolist():
            cell = changed & (values == value)
            if int(cell.sum()) < WORST_CASES:
                continue
            share = float((right & cell).sum() / cell.sum())
            if worst is None or share < worst:
                worst, where = share, f"{name} = {value}"
    return worst, where
