"""The circuits benchmark as a task of inspect_ai: `inspect eval vesalius/circuits`, with its logs and its viewer.

One sample is one circuit. The solver runs one of our scientists in a thread; the scorer is our grading, which opens the
answer key after the solver is done. `hyve` talks to the model that inspect was given (its retries, its limits, its
transcript), or to one of our backbones if `backbone` is named. `builtin` asks no model: `--model none/none` does.

The figures inspect prints are means over circuits; a scorecard of `vesalius bench circuits` weighs components. Errors
of infrastructure are errors of the sample, never scores.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from vesalius.backbones import Backbone, Redactor, Request, RetryPolicy, Unreachable, open_backbone
from vesalius.backbones import Usage as Tokens
from vesalius.backbones.connection import Abilities
from vesalius.backbones.messages import Answer, Finish, Message, Settings
from vesalius.backbones.retry import Retrier, SystemClock
from vesalius.documents.explanation import Explanation
from vesalius.grading import grade
from vesalius.runs.scientists import BUILTIN, HYVE, PROTOCOLS, Explained, scientist_named
from vesalius.runs.scientists import Task as Circuit
from vesalius.runs.selection import benchmark_circuits, first, trained_circuits

EXPLANATION = "explanation"
_FINISHES: dict[str, Finish] = {"max_tokens": "length", "model_length": "length", "content_filter": "refused"}
_ROLES: dict[str, Callable[..., ChatMessage]] = {
    "system": ChatMessageSystem,
    "assistant": ChatMessageAssistant,
}


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
    chosen = (
        trained_circuits(Path(specimens))
        if specimens is not None
        else benchmark_circuits(None if named is None else [str(name) for name in named])
    )
    samples = [
        Sample(
            id=circuit.id,
            input=f"Explain the circuit {circuit.name}: say what each component does.",
            metadata={"name": circuit.name, "directory": str(circuit.directory)},
        )
        for circuit in first(chosen, limit)
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
        chosen = PROTOCOLS[0] if scientist == HYVE and protocol is None else protocol
        circuit = Circuit(str(state.sample_id), Path(state.metadata["directory"]), seed, chosen)
        model = get_model() if scientist != BUILTIN and backbone is None else None
        found = await anyio.to_thread.run_sync(partial(_explain, scientist, circuit, backbone, model))
        state.metadata[EXPLANATION] = found.explanation.model_dump(mode="json")
        state.output = ModelOutput.from_content(model=str(state.model), content=_text(found.explanation))
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def graded() -> Scorer:
    """Our grading: share of right tags, interchange accuracy of the program, and whether it is exact."""

    async def score(state: TaskState, target: Target) -> Score:
        explanation = Explanation.model_validate(state.metadata[EXPLANATION])
        found = await anyio.to_thread.run_sync(partial(grade, explanation, directory=state.metadata["directory"]))
        assert found.component_iia is not None
        assert found.component_iia_changed is not None
        assert found.task_exact is not None
        values = {
            "tag_accuracy": found.tag_accuracy.value,
            "component_iia": found.component_iia.value,
            "component_iia_changed": found.component_iia_changed.value,
            "task_exact": found.task_exact.value,
        }
        rows = {name.partition("/")[2]: f"{row['tag']} (true: {row['true']})" for name, row in found.components.items()}
        return Score(value=values, answer=explanation.task_description, metadata={"tags": rows})

    return score


class InspectConnection:
    """The model of an inspect evaluation as our backbones see one; called from the solver's thread."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def complete(self, request: Request) -> Answer:
        """One call through inspect, which tries again and keeps the transcript itself."""
        asked = request.settings
        config = GenerateConfig(
            temperature=asked.temperature, max_tokens=asked.max_tokens, stop_seqs=list(asked.stop) or None
        )
        turns = [_turn(message) for message in request.messages]
        output: ModelOutput = anyio.from_thread.run(partial(self._model.generate, turns, config=config))
        if output.error or not output.choices:
            raise Unreachable(f"inspect model {self._model.name}: {output.error or 'no answer'}")
        used = output.usage
        return Answer(
            text=output.completion,
            usage=None if used is None else Tokens(input=used.input_tokens, output=used.output_tokens),
            finish=_FINISHES.get(output.stop_reason, "stop"),
        )

    def close(self) -> None:
        """The model belongs to inspect."""


def inspect_backbone(model: Model) -> Backbone:
    """A backbone over an inspect model; tools and objects are asked for in words, which every model understands."""
    return Backbone(
        "inspect",
        model.name,
        settings=Settings(),
        connection=InspectConnection(model),
        abilities=Abilities(tools=False, schema=False),
        retrier=Retrier(RetryPolicy(), SystemClock(), random.Random(0)),
        redactor=Redactor([]),
    )


def _explain(scientist: str, circuit: Circuit, backbone: str | None, model: Model | None) -> Explained:
    explain = scientist_named(scientist)
    if model is not None:
        return explain(circuit, inspect_backbone(model))
    if backbone is None:
        return explain(circuit, None)
    with open_backbone(backbone) as opened:
        return explain(circuit, opened)


def _turn(message: Message) -> Any:
    return _ROLES.get(message.role, ChatMessageUser)(content=message.text)


def _text(explanation: Explanation) -> str:
    parts = [f"{part.id}: {part.tag} ({part.verdict}). {part.note}" for part in explanation.components]
    return "\n".join([explanation.task_description, *parts])
