"""Runs whose texts are numbered, so that a test knows what each rater thinks of every one of them."""

from pathlib import Path

from vesalius.api import specimens
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.documents.trace import Attempt, ComponentTrace, Execution, Trace
from vesalius.files import write_json

#: Five circuits with 12 components and so 17 texts in each of two runs.
CIRCUITS = ("3", "8", "20", "21", "67")
RUNS = {"run-one": "openai:model-a", "run-two": "anthropic:model-b"}


#: Nine components in seven circuits: the 34 texts of an agent with traces are 9 of each kind about them, and 7 tasks.
TRACED = ("8", "29", "43", "62", "79", "3", "7")


def write_traced(place: Path, name: str = "run-one", circuits: tuple[str, ...] = TRACED) -> Path:
    """A benchmark run of protocol paper: of every component a note, and a trace of two hypotheses of which the second
    was supported, each with a plan and a program that gave a number.
    """
    (run,) = write_runs(place, circuits, runs={name: "openai:model-a"}, protocol="paper")
    for circuit in circuits:
        known = {row["id"]: row["components"] for row in specimens()}[circuit]
        parts = [
            ComponentTrace(
                component=component,
                observation=f"model-a saw {component} of {circuit} differ by token.",
                attempts=tuple(
                    Attempt(
                        iteration=number,
                        hypothesis=f"Hypothesis {number} about {component}.",
                        plan=f"Plan {number}: exchange {component}.",
                        executions=(Execution(stage="validate", code="result = 0.97", result="0.97"),),
                        verdict=verdict,
                        reasoning="HyVE finds the effect large.",
                        decided_by="model",
                    )
                    for number, verdict in ((1, "refuted"), (2, "supported"))
                ),
            )
            for component in known
        ]
        trace = Trace(specimen=circuit, protocol="paper", backbone="openai:model-a", components=tuple(parts))
        trace.write(run / "traces" / f"{circuit}.json")
    return run


def write_runs(
    place: Path, circuits: tuple[str, ...] = CIRCUITS, *, runs: dict[str, str] = RUNS, protocol: str | None = None
) -> list[Path]:
    """Benchmark runs, each with a text for every component and every circuit: `Text 0.`, `Text 1.`, ..."""
    known = {row["id"]: row["components"] for row in specimens()}
    number = 0
    for name, agent in runs.items():
        for folder in ("explanations", "traces"):
            (place / name / folder).mkdir(parents=True)
        settings = {"benchmark": "circuits", "scientist": "hyve", "backbone": agent, "protocol": protocol}
        write_json(place / name / "run.json", {"schema": 1, "settings": settings})
        for circuit in circuits:
            parts = []
            for component in known[circuit]:
                note = f"Text {number}."
                parts.append(
                    ComponentExplanation(id=component, tag=None, tag_by_experiment=None, note=note, verdict="untested")
                )
                number += 1
            task = f"Text {number}. It says what {agent} thinks."
            number += 1
            Explanation(
                specimen=circuit,
                scientist="hyve",
                components=parts,
                information_flow="",
                task_description=task,
                seconds=0.0,
                seed=0,
            ).write(place / name / "explanations" / f"{circuit}.json")
    return [place / name for name in runs]
