"""Where the right answers are: the key of the 84 benchmark circuits, or the program beside a trained specimen.

`vesalius train` leaves the program it trained on under `answer_key/`. Its tags follow from it by rule, so a specimen
made today is graded like a benchmark circuit. Reading that key runs no code outside a sandbox.
"""

from dataclasses import dataclass
from pathlib import Path

from vesalius.circuits.foreign_spec import key_file, key_program
from vesalius.circuits.key import answer
from vesalius.circuits.specimens import benchmark_directory, load_specimen
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.rasp import roles_of


def true_tags(specimen: str, directory: Path | None = None) -> dict[str, str]:
    """The tag of every component: of a benchmark circuit by id or name, or of the trained specimen in `directory`."""
    if directory is None or directory == benchmark_directory(specimen):
        return {part.id: str(part.tag) for part in answer(specimen).components}
    program = key_program(directory)
    return {str(component): str(role) for component, role in roles_of(program).items()}


@dataclass(frozen=True)
class ReferenceTexts:
    """The right answers in words: what the circuit computes, and what each component does."""

    task: str
    notes: dict[str, str]


def reference_texts(specimen: str, directory: Path | None = None) -> ReferenceTexts:
    """What judges compare with. A trained specimen has no notes, so its program and variables speak for themselves."""
    if directory is None or directory == benchmark_directory(specimen):
        key = answer(specimen)
        return ReferenceTexts(key.description, {part.id: part.note for part in key.components})
    path = key_file(directory)
    program, text = key_program(directory), path.read_text(encoding="utf-8", errors="replace")
    notes = {
        str(placed.component): f"Computes {' and '.join(placed.variables)} of this RASP program.\n\n{text}"
        for placed in program.components
    }
    return ReferenceTexts(program.description or f"Computes what this RASP program returns.\n\n{text}", notes)


def graded_specimen(specimen: str, directory: Path | None = None) -> Specimen:
    """The model an explanation is graded on; `directory` is needed for everything but benchmark circuits."""
    place = directory or benchmark_directory(specimen)
    if place is None:
        answer(specimen)  # says what there is
    assert place is not None
    loaded = load_specimen(place)
    if specimen not in (loaded.id, loaded.name):
        raise BadInput(
            f"{place}: is specimen {loaded.id!r}, the explanation is of {specimen!r}; name its own directory"
        )
    return loaded
