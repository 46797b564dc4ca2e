"""The circuits benchmark as a task of inspect_ai: `inspect eval vesalius/circuits`, with its logs and its viewer.

One sample is one circuit. The solver runs one of our scientists in a thread; the scorer is our grading, which opens the
answer key after the solver is done. `hyve` talks to the model that inspect was given (its retries, its limits, its
transcript), or to one of our backbones if `backbone` is named. `builtin` asks no model: `--model none/none` does.

The figures inspect prints are means over circuits; a scorecard of `vesalius bench circuits` weighs components. Errors
of infrastructure are errors of the sample, never scores.
"""

from functools import partial

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model, ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from vesalius import api
from vesalius.api.benchmarks import chosen_circuits
from vesalius.api.explanations import BUILTIN, inspect_backbone, scientist_named
from vesalius.documents import Explanation

EXPLANATION = "explanation"


@task
def circuits(
    scientist: str = BUILTIN,
    backbone: str | None = None,
    protocol: str | None = None,
    ids: str | list[str | int] | None = None,
    specimens: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Task:
    """Explain circuits with known answers. `ids` chooses among the 84, by id or name; `specimens` is a directory of
    specimens made by `vesalius train` instead.
    """
    scientist_named(scientist)
    named = ids.split(",") if isinstance(ids, str) else ids
    chosen = chosen_circuits(specimens, None if named is None else [str(name) for name in named], limit)
    samples = [
        Sample(
            id=circuit.id,
            input=f"Explain the circuit {circuit.name}: say what each component does.",
            metadata={"name": circuit.name, "specimen": circuit.source, "directory": str(circuit.directory)},
        )
        for circuit in chosen
    ]
    return Task(
        dataset=MemoryDataset(samples, name="circuits"),
        solver=explain_circuit(scientist, backbone=backbone, protocol=protocol, seed=seed),
        scorer=graded(),
    )


@solver
def explain_circuit(
    scientist: str = BUILTIN, *, backbone: str | None = None, protocol: str | None = None, seed: int = 0
) -> Solver:
    """One of our scientists as a solver; the explanation is in the sample's metadata."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model() if scientist != BUILTIN and backbone is None else None
        explanation = await anyio.to_thread.run_sync(
            partial(_explain, state.metadata["specimen"], scientist, backbone or model, protocol=protocol, seed=seed)
        )
        state.metadata[EXPLANATION] = explanation.as_data()
        state.output = ModelOutput.from_content(model=str(state.model), content=_text(explanation))
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def graded() -> Scorer:
    """Our grading: share of right tags, interchange accuracy of the program, and whether it is exact."""

    async def score(state: TaskState, target: Target) -> Score:
        explanation = Explanation.model_validate(state.metadata[EXPLANATION])
        graded = await anyio.to_thread.run_sync(partial(api.grade, explanation, directory=state.metadata["directory"]))
        assert graded.component_iia is not None
        assert graded.component_iia_changed is not None
        assert graded.task_exact is not None
        values = {
            "tag_accuracy": graded.tag_accuracy.value,
            "component_iia": graded.component_iia.value,
            "component_iia_changed": graded.component_iia_changed.value,
            "task_exact": graded.task_exact.value,
        }
        rows = {
            name.partition("/")[2]: f"{row['tag']} (true: {row['true']})" for name, row in graded.components.items()
        }
        return Score(value=values, answer=explanation.task_description, metadata={"tags": rows})

    return score


def _explain(
    specimen: str, scientist: str, backbone: str | Model | None, *, protocol: str | None, seed: int
) -> Explanation:
    asked = inspect_backbone(backbone) if isinstance(backbone, Model) else backbone
    return api.explain(specimen, scientist=scientist, backbone=asked, protocol=protocol, seed=seed, progress=False)


def _text(explanation: Explanation) -> str:
    parts = [f"{part.id}: {part.tag or 'no tag'} ({part.verdict}). {part.note}" for part in explanation.components]
    return "\n".join([explanation.task_description, *parts])
