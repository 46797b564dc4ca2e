"""Explanations that are submitted, and their grade: the only step that opens the answer key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import SPECIMEN_FILE, benchmark_directory
from vesalius.components import Component
from vesalius.documents.claims import ComponentExplanation, Tag
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.grading.circuits import Grade, grade
from vesalius_agents.experiments import Experiments

__all__ = ["Grade", "grade_submission", "submitted_explanation"]
AUTHOR = "submitted"


def submitted_explanation(
    experiments: Experiments,
    tags: Mapping[str, Tag],
    *,
    notes: Mapping[str, str] | None = None,
    program: Any = None,
    carriers: Any = None,
    task_description: str = "",
    information_flow: str = "",
) -> Explanation:
    """What an agent says about a specimen, as an explanation that can be graded: a tag for each component and, where
    it has one, the program of the task and which of its variables each component carries.
    """
    specimen = experiments.specimen
    require_graded(specimen.source or specimen.id)
    named: dict[str, Tag] = {
        str(Component.parse(name).within(specimen.model.config)): tag for name, tag in tags.items()
    }
    if not named:
        raise BadInput('components: none is explained; give a tag for each, as in {"L0_MLP": "MAPPER"}')
    words = {str(Component.parse(name)): text for name, text in (notes or {}).items()}
    executable = None if program is None else experiments.executable(program, carriers)
    return Explanation(
        specimen=specimen.id,
        scientist=AUTHOR,
        components=tuple(
            ComponentExplanation(
                id=name,
                tag=tag,
                tag_by_experiment=None,
                tag_by_model=tag,
                note=words.get(name, ""),
                verdict="untested",
            )
            for name, tag in named.items()
        ),
        information_flow=information_flow,
        task_description=task_description,
        executable=executable,
        seconds=0.0,
        seed=0,
    )


def grade_submission(explanation: Explanation, specimen: str) -> Grade:
    """The grade of such an explanation of a benchmark circuit, or of a specimen directory that has an answer key."""
    own = benchmark_directory(specimen)
    return grade(explanation, directory=None if own is not None else Path(specimen))


def require_graded(specimen: str) -> None:
    """Refuse a specimen that has no answer key."""
    if benchmark_directory(specimen) is None and not (Path(specimen) / SPECIMEN_FILE).is_file():
        raise BadInput(f"specimen {specimen!r} has no answer key; explanations of benchmark circuits are graded")
