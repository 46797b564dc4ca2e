"""`vesalius/circuits`: explain circuits with known answers.

One sample is one circuit. The solver runs one of our scientists in a thread, or with `agent=true` inspect's react agent
with our tools; the scorer is our grading. `hyve` talks to the model that inspect was given (its retries, its limits,
its transcript), or to one of our backbones if `backbone` is named. `builtin` asks no model: `--model none/none` does.
"""

from functools import partial

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model, ModelOutput, get_model
from inspect_ai.scorer import Metric as InspectMetric
from inspect_ai.scorer import Score, Scorer, Target, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import store

from vesalius import api
from vesalius.api.explanations import BUILTIN, scientist_named
from vesalius.documents import Explanation
from vesalius.documents.metric import Metric
from vesalius.options import Chosen
from vesalius_agents.cases import CircuitCase, chosen_circuits
from vesalius_agents.inspection.backbone import inspect_backbone
from vesalius_agents.inspection.metrics import COUNTS, number, over_components, share, with_ours
from vesalius_agents.inspection.sessions import ANSWER, MESSAGES, agent_with, close, in_thread, opened, ours
from vesalius_agents.inspection.tools import instruments, submit_explanation
from vesalius_agents.session import Allowed

VERSION = "2"
FIGURES = (
    "tag_accuracy",
    "tag_accuracy_experiment_only",
    "component_iia",
    "component_iia_changed",
    "component_iia_changed_mean",
    "task_exact",
)


@task
@ours
def circuits(
    scientist: str = BUILTIN,
    backbone: str | None = None,
    protocol: str | None = None,
    agent: bool = False,
    seed: int = 0,
    *,
    chosen: Chosen,
    allowed: Allowed,
) -> Task:
    """Explain circuits with known answers. `ids` chooses among the 84, by id or name; `specimens` is a directory of
    specimens made by `vesalius train` instead. With `agent`, inspect's react agent explains with our tools, held to
    `looks`, `executions` and `claims`.
    """
    scientist_named(scientist)
    cases = chosen_circuits(chosen.folder, chosen.names, chosen.limit)
    own = explain_circuit(scientist, backbone=backbone, protocol=protocol, seed=seed)
    return Task(
        dataset=MemoryDataset(
            [circuit_sample(case, "Explain the circuit: say what each component does.") for case in cases],
            name="circuits",
        ),
        setup=opened(budget=allowed.values(), seed=seed, brief=agent),
        solver=agent_with(instruments(), submit_explanation()) if agent else own,
        scorer=graded_circuit(),
        cleanup=close,
        message_limit=MESSAGES if agent else None,
        version=VERSION,
    )


def circuit_sample(case: CircuitCase, text: str) -> Sample:
    """A circuit as a sample; its name says what it does, so no text has it."""
    return Sample(id=case.id, input=text, metadata={"specimen": case.source, "directory": str(case.directory)})


@solver
@ours
def explain_circuit(
    scientist: str = BUILTIN, *, backbone: str | None = None, protocol: str | None = None, seed: int = 0
) -> Solver:
    """One of our scientists as a solver; the explanation is in the sample's store."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model() if scientist != BUILTIN and backbone is None else None
        explanation = await in_thread(
            partial(_explain, state.metadata["specimen"], scientist, backbone or model, protocol=protocol, seed=seed)
        )
        store().set(ANSWER, explanation.as_data())
        state.output = ModelOutput.from_content(model=str(state.model), content=explanation_text(explanation))
        return state

    return solve


def _summed(figure: str) -> InspectMetric:
    return share() if figure == "task_exact" else over_components(figure)


@scorer(metrics=with_ours(FIGURES, _summed))
@ours
def graded_circuit() -> Scorer:
    """Our grading: share of right tags, interchange accuracy of the program, and whether it is exact."""

    async def score(state: TaskState, target: Target) -> Score:
        explanation = submitted_explanation(state)
        graded = await in_thread(partial(api.grade, explanation, directory=state.metadata["directory"]))
        found: dict[str, Metric] = {name: graded.metrics[name] for name in FIGURES}
        rows = {
            name.partition("/")[2]: f"{row['tag'] or 'no tag'} (true: {row['true']})"
            for name, row in graded.components.items()
        }
        return Score(
            value={name: number(metric.value) for name, metric in found.items()},
            answer=explanation.task_description,
            explanation="\n".join(f"{name}: {row}" for name, row in rows.items()),
            metadata={"tags": rows, COUNTS: {name: metric.n for name, metric in found.items()}},
        )

    return score


def submitted_explanation(state: TaskState) -> Explanation:
    """The explanation that a sample ended with; one that explains nothing where none was submitted."""
    given = state.store.get(ANSWER)
    if given is not None:
        return Explanation.model_validate(given)
    return Explanation(
        specimen=str(state.sample_id),
        scientist="agent",
        components=(),
        information_flow="",
        task_description="(nothing was submitted)",
        seconds=0.0,
        seed=0,
    )


def _explain(
    specimen: str, scientist: str, backbone: str | Model | None, *, protocol: str | None, seed: int
) -> Explanation:
    asked = inspect_backbone(backbone) if isinstance(backbone, Model) else backbone
    return api.explain(specimen, scientist=scientist, backbone=asked, protocol=protocol, seed=seed, progress=False)


def explanation_text(explanation: Explanation) -> str:
    """An explanation in a few lines."""
    parts = [
        f"{part.id}: {part.role or part.tag or 'no tag'} ({part.verdict}). {part.note}"
        for part in explanation.components
    ]
    return "\n".join([explanation.task_description, *parts])
