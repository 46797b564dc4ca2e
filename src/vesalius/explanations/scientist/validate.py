"""What the search looks at while it refines: does the program predict what exchanging each component does?

These figures choose between hypotheses and so are not verdicts; verdicts come from the laboratory (`judge`). Base and
source inputs are paired at random, the component's output moves from source to base at all shared positions, and the
model's outputs are compared with those of the program under the same exchange. Only outputs that change count, since
unchanged ones are easy.
"""

from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.scientist.assemble import CircuitProgram
from vesalius.explanations.scientist.circuit_runs import CircuitRuns, RecordedRun
from vesalius.explanations.scientist.inputs import Pairings, exchange_pairings


def agreement(program: CircuitProgram, recorded: RecordedRun) -> Bool[Tensor, " row"]:
    """Per input: does the program give every output of the model?"""
    env = program.environment(recorded.sequences)
    return (program.agrees(program.predict(env), recorded.outputs) | ~env.real).all(1)


def exchange_accuracy(
    runs: CircuitRuns, program: CircuitProgram, recorded: RecordedRun, *, pairs: int, seed: int
) -> dict[Component, float | None]:
    """For each component, the share of changed outputs that the program predicts; None where nothing changes."""
    pairings = exchange_pairings(len(recorded.sequences), pairs, list(program.variables), seed=seed)
    outputs = {component: runs.interchange(recorded, pairings, component)[0] for component in program.variables}
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
