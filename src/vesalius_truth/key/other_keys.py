"""Answer keys that others wrote or studies established: AgenticInterpBench's annotation files, the AF1 components
and the arithmetic model.

The dataset holds one `annotations/case_ID.json` per circuit: a task summary, examples, the RASP program, the model
and the components, each with `id`, `hook`, `role` (`tag` and `note`) and `labels`. Names and places of fields are read
leniently, since only their meaning is documented; tags and component names are read strictly, since explanations are
graded against them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.circuits.originals import hook_component
from vesalius.components import Component
from vesalius.errors import BadInput, choices
from vesalius.files import read_json
from vesalius.rasp import Role
from vesalius_truth.key.task import AnswerKey, ComponentAnswer, is_interchange_inert

ANNOTATIONS = "annotations"
_PREFIX = "case_"
#: Objects of a file that may hold a field instead of the top level.
_SECTIONS = ("task", "circuit")
_ID = ("id", "case_id", "task_id", "case")
_NAME = ("name", "task_name", "title")
_DESCRIPTION = ("task_summary", "summary", "description", "task_description", "task")
_PROGRAM = ("program", "rasp_program", "rasp", "rasp_code", "code")
#: Fields in which an object may hold its text.
_TEXT = (*_PROGRAM, "source", "text")


def annotation_file(source: str | Path, case: str) -> Path | None:
    """The file of one case in a directory of annotations, in the dataset's root, or that file itself; None if it has
    none.
    """
    root = Path(source).expanduser()
    if root.is_file():
        return root if root.stem == f"{_PREFIX}{case}" else None
    name = f"{_PREFIX}{case}.json"
    return next((file for file in (root / ANNOTATIONS / name, root / name) if file.is_file()), None)


def annotation_beside(folder: Path) -> Path | None:
    """The annotation of a published case in the directory `annotations` beside its folder, if there is one."""
    folder = folder.resolve()
    return annotation_file(folder.parent / ANNOTATIONS, folder.name)


def read_annotation(path: str | Path) -> AnswerKey:
    """The answer key of one `case_ID.json` file."""
    file = Path(path).expanduser()
    data = read_json(file)
    in_file_name = file.stem.removeprefix(_PREFIX) if file.stem.startswith(_PREFIX) else None
    case = in_file_name or _text(_field(data, _ID))
    description = _text(_field(data, _DESCRIPTION))
    if not case:
        raise BadInput(f"{file}: no id; name the file case_ID.json")
    if not description:
        raise BadInput(f"{file}: no task summary under {choices(_DESCRIPTION)}; it has {choices(sorted(data))}")
    return AnswerKey(
        id=case,
        name=_text(_field(data, _NAME)) or f"{_PREFIX}{case}",
        description=description,
        program=_text(_field(data, _PROGRAM)),
        components=_components(data, case, file),
    )


def _components(data: dict[str, Any], case: str, file: Path) -> tuple[ComponentAnswer, ...]:
    entries = _field(data, ("components",))
    if not isinstance(entries, list) or not entries:
        raise BadInput(f"{file}: components is not a list with entries; expected [{{id, hook, role, labels}}, ...]")
    answers = tuple(_component(entry, place, case, file) for place, entry in enumerate(entries))
    ids = [answer.id for answer in answers]
    if repeated := [name for name in ids if ids.count(name) > 1]:
        raise BadInput(f"{file}: component {repeated[0]} is listed twice; keep one entry")
    return answers


def _component(entry: object, place: int, case: str, file: Path) -> ComponentAnswer:
    if not isinstance(entry, dict):
        raise BadInput(f"{file}: component {place} is {type(entry).__name__}; expected {{id, hook, role, labels}}")
    component = _component_name(entry, place, file)
    role = entry.get("role")
    role = role if isinstance(role, dict) else {"tag": role, **entry}
    tag, note, labels = role.get("tag"), role.get("note"), entry.get("labels") or []
    if tag not in list(Role):
        raise BadInput(f"{file}: component {component} has tag {tag!r}; the tags are {choices(Role)}")
    if not isinstance(note, str) or not note.strip():
        raise BadInput(f"{file}: component {component} has no note; expected a text in role.note")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise BadInput(f"{file}: labels of component {component} are not a list of variable names")
    return ComponentAnswer(
        id=str(component),
        tag=Role(tag),
        note=note.strip(),
        variables=tuple(labels),
        interchange_inert=is_interchange_inert(case, component),
    )


def _component_name(entry: Mapping[str, object], place: int, file: Path) -> Component:
    """The component of an entry; its hook, if present, must belong to the same component."""
    name, hook = entry.get("id"), entry.get("hook")
    if not isinstance(name, str) or not isinstance(hook, str | None):
        raise BadInput(f"{file}: component {place} needs an id such as L1H2_ATTN, and a hook that is a name")
    try:
        component, of_hook = Component.parse(name), hook_component(hook or name)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    if component != of_hook:
        raise BadInput(f"{file}: component {place}: id {name} and hook {hook} name different components")
    return component


def _field(data: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first field with one of these names, at the top level or in one of the sections."""
    sections = [data[name] for name in _SECTIONS if isinstance(data.get(name), dict)]
    values = (section.get(name) for section in (data, *sections) for name in names)
    return next((value for value in values if value is not None and not any(value is s for s in sections)), None)


def _text(value: object) -> str:
    """A text in any of its forms: a string, a number, a list of lines, or an object that holds one of them."""
    if isinstance(value, dict):
        return _text(next((value[name] for name in _TEXT if name in value), None))
    if isinstance(value, list):
        return "\n".join(line for line in value if isinstance(line, str))
    return str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""


# What each of the ten AF1 components of Llama-3-8B does, by Tables 13 and 14 of the HyVE paper, in our own words.
#
# Nothing that proposes explanations may read it; the names of the components alone are in `discovery.known_heads`.


def af1_roles() -> dict[str, Any]:
    """The task, and a role and a note for each component."""
    return read_json(Path(__file__).with_name("af1.json"))


# What every component of the arithmetic model does, established by `scripts/study_arithmetic.py`.
#
# `components` has for each a role, a note and the figures behind them; `groups` has the heads that move one operand.
# Nothing that proposes explanations may read it.


def established_roles() -> dict[str, Any]:
    """Roles and figures of the arithmetic model."""
    return read_json(Path(__file__).with_name("arithmetic.json"))
