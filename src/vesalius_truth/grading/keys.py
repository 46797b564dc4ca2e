"""Where the right answers are: the key of the 84 benchmark circuits, the program beside a trained specimen, or the
published annotation of an original InterpBench model; the reference roles of Llama-3-8B and of `arithmetic`,
which claims about natural models are compared with.

`vesalius train` leaves the program it trained on under `answer_key/`. Its tags follow from it by rule, so a specimen
made today is graded like a benchmark circuit. Reading that key runs no code outside a sandbox. The annotation of an
original is a file of AgenticInterpBench: the one given, or `annotations/case_ID.json` beside the model's folder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vesalius.circuits.originals import ORIGINAL, WEIGHTS, load_directory
from vesalius.circuits.specimens import benchmark_directory
from vesalius.documents.explanation import ClaimRecord
from vesalius.errors import BadInput
from vesalius.model.sources import ARITHMETIC
from vesalius.model.specimen import Specimen
from vesalius.rasp import roles_of
from vesalius_truth.key import answer, task
from vesalius_truth.key.other_keys import (
    ANNOTATIONS,
    af1_roles,
    annotation_beside,
    annotation_file,
    established_roles,
    read_annotation,
)
from vesalius_truth.key.task import AnswerKey, second_task_roles
from vesalius_truth.making import key_file, key_program
from vesalius_truth.readings import second_roles

__all__ = [
    "ANNOTATIONS",
    "ReferenceRoles",
    "ReferenceTexts",
    "annotation_file",
    "graded_specimen",
    "known_roles",
    "published_key",
    "reference_texts",
    "second_tags",
    "true_tags",
]


def true_tags(specimen: str, directory: Path | None = None, annotation: Path | None = None) -> dict[str, str]:
    """The tag of every component: of a benchmark circuit by id or name, of the trained specimen in `directory`, or of
    the original there by its `annotation`.
    """
    if (key := _written_key(specimen, directory, annotation)) is not None:
        return {part.id: str(part.tag) for part in key.components}
    assert directory is not None
    program = key_program(directory)
    return {str(component): str(role) for component, role in roles_of(program).items()}


def second_tags(specimen: str, directory: Path | None = None) -> dict[str, str] | None:
    """The second tag of the components of which the published rule allows two readings (`rasp.readings`); None where
    the key is an annotation without a program, of which no reading can be derived.
    """
    if directory is None or directory == benchmark_directory(specimen):
        return {str(component): str(role) for component, role in second_task_roles(task(specimen)).items()}
    if (directory / WEIGHTS).is_file():
        return None
    return {str(component): str(role) for component, role in second_roles(key_program(directory)).items()}


@dataclass(frozen=True)
class ReferenceTexts:
    """The right answers in words: what the circuit computes, what each component does, and its tag."""

    task: str
    notes: dict[str, str]
    tags: dict[str, str] = field(default_factory=dict)


def reference_texts(specimen: str, directory: Path | None = None, annotation: Path | None = None) -> ReferenceTexts:
    """What judges compare with. A trained specimen has no notes, so its program and variables speak for themselves."""
    if (key := _written_key(specimen, directory, annotation)) is not None:
        notes = {part.id: part.note for part in key.components}
        return ReferenceTexts(key.description, notes, {part.id: str(part.tag) for part in key.components})
    assert directory is not None
    path = key_file(directory)
    program, text = key_program(directory), path.read_text(encoding="utf-8", errors="replace")
    notes = {
        str(placed.component): f"Computes {' and '.join(placed.variables)} of this RASP program.\n\n{text}"
        for placed in program.components
    }
    tags = {str(component): str(role) for component, role in roles_of(program).items()}
    return ReferenceTexts(program.description or f"Computes what this RASP program returns.\n\n{text}", notes, tags)


def graded_specimen(specimen: str, directory: Path | None = None) -> Specimen:
    """The model an explanation is graded on; `directory` is needed for everything but benchmark circuits."""
    place = directory or benchmark_directory(specimen)
    if place is None:
        answer(specimen)  # says what there is
    assert place is not None
    loaded = load_directory(place)
    if specimen not in (loaded.id, loaded.name, loaded.id.removeprefix(ORIGINAL)):
        raise BadInput(
            f"{place}: is specimen {loaded.id!r}, the explanation is of {specimen!r}; name its own directory"
        )
    return loaded


def published_key(directory: Path, annotation: Path | None = None) -> AnswerKey:
    """The published annotation of the original in `directory`, read and refused in one line where it does not fit."""
    file = annotation or annotation_beside(directory)
    if file is None:
        raise BadInput(f"{directory}: has no annotation; expected annotations/case_{directory.name}.json beside it")
    key = read_annotation(file)
    components = {str(part) for part in load_directory(directory).model.components}
    if strange := [part.id for part in key.components if part.id not in components]:
        raise BadInput(f"{file}: component {strange[0]} does not exist in the model of {directory}; give its own file")
    return key


def _written_key(specimen: str, directory: Path | None, annotation: Path | None) -> AnswerKey | None:
    """The key of a benchmark circuit or of an original; None for a specimen that `vesalius train` made."""
    if directory is None or directory == benchmark_directory(specimen):
        return answer(specimen)
    return published_key(directory, annotation) if (directory / WEIGHTS).is_file() else None


@dataclass(frozen=True)
class ReferenceRoles:
    """What each component does, in words, and where that was established; `task` is what the whole circuit does."""

    source: str
    task: str
    roles: Mapping[str, str]


def known_roles(model: str | None) -> ReferenceRoles | None:
    """The reference roles of a model that we have, by its name; None where there are none."""
    if model == "Llama-3-8B":
        key, source = af1_roles(), "Tables 13 and 14 of the HyVE paper, in our words"
    elif model == "arithmetic":
        key, source = established_roles(), "roles established by interventions on sets of components"
    else:
        return None
    roles = {name: f"{part['role']}. {part['note']}" for name, part in key["components"].items()}
    task = key.get("task") or "Computes A - B + C of three whole numbers; the answer is read at the equals sign."
    return ReferenceRoles(source, task, roles)


# Supported claims about a natural model against established roles, where there are some: the arithmetic model's.
#
# Interventions on sets of heads established which heads move which operand, and how much moves with each group. A claim
# is decided where these figures decide it:
#
# - `moves_role` and `primary` say that a head moves an operand: false where no group that the head belongs to switches
#   any answer with that operand;
# - `necessary` says that a component is needed: false for the heads whose whole group can be zeroed without loss.
#
# Other claims are left open.

MOVES = ("moves_role", "primary")
#: The groups by operand, as the key names them, and the heads that nothing needs.
OPERANDS, UNNEEDED = ("A", "B", "C"), "none"


@dataclass(frozen=True)
class Decided:
    """How many claims the established roles decide, and the texts of those they contradict."""

    n: int
    false: tuple[str, ...]


def false_claims(model: str, supported: Iterable[tuple[str, ClaimRecord]]) -> Decided | None:
    """Supported claims, each with its component, against the roles of a model; None where none are established."""
    if model != ARITHMETIC:
        return None
    groups = established_roles()["groups"]
    verdicts = [(record.text, _holds(groups, part, record)) for part, record in supported]
    known = [(text, holds) for text, holds in verdicts if holds is not None]
    return Decided(len(known), tuple(text for text, holds in known if not holds))


def _holds(groups: Mapping[str, Any], component: str, record: ClaimRecord) -> bool | None:
    own = [groups[name] for name in (*OPERANDS, UNNEEDED) if component in groups[name]["members"]]
    if not own:
        return None  # an MLP, of which no group was established
    if record.kind == "necessary":
        return False if component in groups[UNNEEDED]["members"] else None
    operand = str((record.prediction or {}).get("role", "")).rpartition(" ")[2]
    if record.kind not in MOVES or operand not in OPERANDS:
        return None
    return any(group["switch rate"][operand] > 0 for group in own)
