"""`vesalius/discovery`: find circuits with known answers.

One sample is one circuit: score the components, and the edges, of a model by what the task needs. The solver runs one
of our methods, or with `agent=true` inspect's react agent with our tools. The components of the true circuit are not
told.
"""

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Metric, Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import store

from vesalius.documents import Circuit
from vesalius.options import Chosen
from vesalius_agents.cases import (
    chosen_circuits,
    discovery_case,
    grade_circuit_found,
    method_named,
    scored_circuit,
)
from vesalius_agents.cases import find_circuit as found_by
from vesalius_agents.inspection.circuit_task import circuit_sample
from vesalius_agents.inspection.metrics import median, number, with_ours
from vesalius_agents.inspection.sessions import ANSWER, MESSAGES, agent_with, close, in_thread, opened, ours
from vesalius_agents.inspection.tools import instruments, submit_circuit
from vesalius_agents.session import EVERY, Allowed

VERSION = "1"
METHOD, PROMPTS = "eap-ig", 32
#: Stability needs the method itself, so it is a figure of `vesalius bench discovery` alone.
FIGURES = ("node_auroc", "edge_auroc", "edge_auroc_all", "cmd", "cpr", "edge_cmd", "edge_cpr")


def _median(figure: str) -> Metric:
    return median()


@task
@ours
def discovery(
    method: str = METHOD,
    agent: bool = False,
    n: int = PROMPTS,
    seed: int = 0,
    *,
    chosen: Chosen,
    allowed: Allowed,
) -> Task:
    """Find circuits with known answers by a `method` on `n` prompts, or with `agent` by inspect's react agent with our
    tools. `ids`, `specimens` and `limit` are those of `vesalius/circuits`.
    """
    method_named(method, n=n, seed=seed)
    cases = chosen_circuits(chosen.folder, chosen.names, chosen.limit)
    text = "Find the circuit: score every component by what the task needs of it."
    return Task(
        dataset=MemoryDataset([circuit_sample(case, text) for case in cases], name="discovery"),
        setup=opened(budget=allowed.values(), seed=seed, components=EVERY, brief=agent, locate=True),
        solver=agent_with(instruments(), submit_circuit()) if agent else find_circuit(method, n=n, seed=seed),
        scorer=graded_discovery(None if agent else method, n=n, seed=seed),
        cleanup=close,
        message_limit=MESSAGES if agent else None,
        version=VERSION,
    )


@solver
@ours
def find_circuit(method: str = METHOD, *, n: int = PROMPTS, seed: int = 0) -> Solver:
    """One of our methods as a solver; the circuit is in the sample's store."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        case = discovery_case(method, str(state.sample_id), state.metadata["directory"], n=n, seed=seed)
        circuit = await in_thread(lambda: found_by(case))
        store().set(ANSWER, circuit.as_data())
        ranked = "\n".join(f"{part}: {score:.4g}" for part, score in circuit.ranked())
        state.output = ModelOutput.from_content(model=str(state.model), content=ranked)
        return state

    return solve


@scorer(metrics=with_ours(FIGURES, _median))
@ours
def graded_discovery(method: str | None = None, *, n: int = PROMPTS, seed: int = 0) -> Scorer:
    """Areas under the ROC curve against the true circuit, and faithfulness on prompts that the method did not see.

    Where nothing was submitted every component scores 0: the area of the nodes is then 0.5.
    """

    async def score(state: TaskState, target: Target) -> Score:
        given = state.store.get(ANSWER)
        case = discovery_case(method, str(state.sample_id), state.metadata["directory"], n=n, seed=seed)

        def circuit() -> Circuit:
            return scored_circuit(state.metadata["specimen"], {}) if given is None else Circuit.from_data(given)

        figures = await in_thread(lambda: grade_circuit_found(circuit(), case))
        answer = "(nothing was submitted)" if given is None else ", ".join(figures.chosen) or "no component"
        return Score(
            value={name: number(getattr(figures, name)) for name in FIGURES},
            answer=answer,
            metadata={"chance": dict(figures.chance), "prompts": figures.prompts, "held_out": figures.held_out},
        )

    return score
