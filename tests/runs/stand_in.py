"""A small agent in the place of HyVE, for runs that are killed, capped or replayed: light, and without a model.

It asks a language model six things about each circuit and builds the explanation from the answers, so an answer that
was lost, repeated or mixed up shows in the files.
"""

import json

from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.documents.trace import Attempt, ComponentTrace, Execution, Trace, Usage
from vesalius.explanations.scientists import Explained, Task
from vesalius_backbones import Backbone, Garbled

NAME = f"{__name__}:explain"
CALLS = 6
TAGS = ("INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER")


def explain(task: Task, backbone: Backbone | None) -> Explained:
    """Six questions about one circuit; the third is asked again with the answer to the first two."""
    assert backbone is not None
    answers: list[str] = []
    cost: float | None = 0.0
    for number in range(CALLS):
        reply = backbone.chat(f"circuit {task.id}, question {number}: {' '.join(answers)[-40:]}", label=f"q{number}")
        answers.append(reply.text)
        cost = None if cost is None or reply.cost is None else cost + reply.cost
    names = json.loads((task.directory / "specimen.json").read_text())["components"]
    parts = tuple(
        ComponentExplanation(id=name, tag=tag, tag_by_experiment=tag, note=answers[0], verdict="supported")  # type: ignore[arg-type]
        for number, name in enumerate(names)
        for tag in [TAGS[sum(answers[number % CALLS].encode()) % len(TAGS)]]
    )
    explanation = Explanation(
        specimen=task.id,
        scientist="stand-in",
        components=parts,
        information_flow=answers[3],
        task_description=answers[4],
        cost=cost or 0.0,
        seconds=0.5,
        seed=task.seed,
    )
    return Explained(explanation, _trace(task, backbone, names, answers, cost))


def hopeless(task: Task, backbone: Backbone | None) -> Explained:
    """Fails as an agent does whose model gives nothing it can use."""
    raise Garbled(f"circuit {task.id}: nothing usable")


def _trace(task: Task, backbone: Backbone, names: list[str], answers: list[str], cost: float | None) -> Trace:
    runs = (Execution(stage="validate", code="result = 1", category=None if len(answers[1]) % 2 else "shape"),)
    attempts = (Attempt(iteration=1, hypothesis=answers[2], plan=answers[3], executions=runs, verdict="supported"),)
    parts = tuple(ComponentTrace(component=name, observation=answers[0], attempts=attempts) for name in names)
    usage = Usage(calls=CALLS, cost=cost)
    return Trace(specimen=task.id, protocol="typed", backbone=backbone.name, components=parts, usage=usage)
