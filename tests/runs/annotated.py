"""Runs whose texts are numbered, so that a test knows what each rater thinks of every one of them."""

from pathlib import Path

from vesalius.api import specimens
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.files import write_json

#: Five circuits with 12 components and so 17 texts in each of two runs.
CIRCUITS = ("3", "8", "20", "21", "67")
RUNS = {"run-one": "openai:model-a", "run-two": "anthropic:model-b"}


def write_runs(place: Path, circuits: tuple[str, ...] = CIRCUITS) -> list[Path]:
    """Two benchmark runs, each with a text for every component and every circuit: `Text 0.`, `Text 1.`, ..."""
    known = {row["id"]: row["components"] for row in specimens()}
    number = 0
    for name, agent in RUNS.items():
        (place / name / "explanations").mkdir(parents=True)
        settings = {"benchmark": "circuits", "scientist": "hyve", "backbone": agent}
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
    return [place / name for name in RUNS]
