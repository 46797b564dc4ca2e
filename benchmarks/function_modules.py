"""Entity and relation functions, explained by the built-in interpreters: every figure with its interval and baselines.

    python -m benchmarks.function_modules --seed 770001 --entities 200 --relations 75 --out FILE

`--relations 0` leaves the relations out.

`answer of another` grades each function with the answer given for one half the list away: what an answer earns by its
form alone.
`published DIR` runs the functions of a published dataset; test words there are neither asked nor named.
"""

import argparse
import dataclasses
import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vesalius.documents.metric import Metric
from vesalius.sandbox import Sandbox
from vesalius_functions import Answer, Box, Function, Reply, entities, relations
from vesalius_functions.knowledge.scoring import TableMapper, other_space
from vesalius_functions.knowledge.tables import UNDEFINED

#: The published relations were answered rightly in 91.2 % of cases.
ERRORS = 0.09


@dataclasses.dataclass(frozen=True)
class Careless:
    """Fact tables that err as often as the published language model: half the errors are silence."""

    right: TableMapper

    @property
    def name(self) -> str:
        return f"{self.right.name}, {ERRORS:.0%} wrong"

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        return [self._one(item, reply) for item, reply in zip(inputs, self.right.map(inputs), strict=True)]

    def _one(self, item: object, reply: Reply) -> Reply:
        luck = random.Random(f"{self.right.relation.name}/{self.right.exception}/{item}")
        if reply.value == UNDEFINED or luck.random() >= ERRORS:
            return reply
        return Reply(UNDEFINED if luck.random() < 0.5 else luck.choice(list(self.right.relation.values.values())))


def figure(values: Sequence[float]) -> dict[str, float]:
    """A mean with its interval over functions."""
    metric = Metric.of_circuits(values, [1] * len(values))
    return {name: round(getattr(metric, name), 3) for name in ("value", "low", "high", "n")}


def measured(
    room: Any, functions: Sequence[Function], explain: Callable[[Any], Answer], sandbox: Sandbox, seed: int
) -> dict[str, Any]:
    """Answers graded, beside the oracle's and those given for another function."""
    started = time.process_time()
    answers = [explain(function) for function in functions]
    seconds = time.process_time() - started
    half = len(functions) // 2
    rows = {
        "answer": answers,
        "oracle": [room.oracle(function) for function in functions],
        "answer of another": [*answers[half:], *answers[:half]],
    }
    report: dict[str, Any] = {"seconds_per_function": round(seconds / len(functions), 2)}
    report["queries"] = sum(answer.queries for answer in answers) / len(answers)
    for row, given in rows.items():
        grades = [
            room.grade(function, answer, sandbox=sandbox, seed=seed)
            for function, answer in zip(functions, given, strict=True)
        ]
        groups: dict[str, list[float]] = defaultdict(list)
        for function, grade in zip(functions, grades, strict=True):
            for name, value in grade.metrics.items():
                if value is not None:
                    groups[name].append(value)
                    groups[f"{name}, {function.family}"].append(value)
        report[row] = {name: figure(values) for name, values in sorted(groups.items())}
    return report


def fresh(arguments: argparse.Namespace, sandbox: Sandbox) -> dict[str, Any]:
    """Our own functions."""
    report, seed = {}, arguments.seed
    for backbone in ("glove", "wordllama"):
        functions = entities.sample(arguments.entities, seed=seed, backbone=backbone)
        space = other_space(backbone)
        report[f"entities on {backbone}"] = measured(
            entities,
            functions,
            lambda function, space=space: entities.interpret(Box(function), seed=seed, space_name=space),
            sandbox,
            seed,
        )
    if not arguments.relations:
        return report
    functions = relations.sample(arguments.relations, seed=seed)
    report["relations"] = measured(
        relations, functions, lambda function: relations.interpret(Box(function), seed=seed), sandbox, seed
    )
    careless = {
        id(one): dataclasses.replace(one, mapper=Careless(TableMapper(one.relation, one.exception)))
        for one in functions
        if one.relation
    }
    report[f"relations, {ERRORS:.0%} of the answers wrong"] = measured(
        relations,
        functions,
        lambda function: relations.interpret(Box(careless[id(function)]), seed=seed),
        sandbox,
        seed,
    )
    report["relations, each left out of the inventory"] = measured(
        relations,
        functions,
        lambda function: relations.interpret(Box(function), seed=seed, without=[function.relation.name]),
        sandbox,
        seed,
    )
    return report


def published(directory: Path, sandbox: Sandbox) -> dict[str, Any]:
    """The functions of a published dataset, on word vectors and fact tables."""
    concepts = entities.load_published(directory)
    tested = {word for function in concepts for triplet in function.triplets for word in triplet.inputs}
    return {
        "published entities on glove": measured(
            entities, concepts, lambda function: entities.interpret(Box(function), without=tested), sandbox, 0
        ),
        "published relations on fact tables": measured(
            relations,
            relations.load_published(directory, mode="fixed"),
            lambda function: relations.interpret(Box(function)),
            sandbox,
            0,
        ),
    }


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--entities", type=int, default=20)
    parser.add_argument("--relations", type=int, default=15)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with Sandbox() as sandbox:
        report = published(arguments.published, sandbox) if arguments.published else fresh(arguments, sandbox)
    text = json.dumps({"seed": arguments.seed} | report, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
