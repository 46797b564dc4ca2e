"""The answer key of one specimen, as grading reads it: the program, and what each component does."""

from pydantic import BaseModel, ConfigDict

from vesalius.circuits.key.in_model import note_in_model
from vesalius.circuits.key.inert import is_interchange_inert
from vesalius.circuits.key.listing import program_text
from vesalius.circuits.key.roles import task_roles
from vesalius.circuits.key.task import Task
from vesalius.rasp import Role


class ComponentAnswer(BaseModel):
    """What one component does. `interchange_inert`: no interchange between inputs can detect it (see `inert`)."""

    model_config = ConfigDict(frozen=True)

    id: str
    tag: Role
    note: str
    variables: tuple[str, ...]
    interchange_inert: bool


class AnswerKey(BaseModel):
    """What the circuit computes, by which program, in which components."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    description: str
    program: str
    components: tuple[ComponentAnswer, ...]


def answer_of(task: Task) -> AnswerKey:
    """The answer key of a task."""
    tags = task_roles(task)
    return AnswerKey(
        id=task.id,
        name=task.name,
        description=task.description,
        program=program_text(task.build()),
        components=tuple(
            ComponentAnswer(
                id=str(component),
                tag=tags[component],
                note=note_in_model(task.id, str(component), task.notes[str(component)]),
                variables=variables,
                interchange_inert=is_interchange_inert(task.id, component),
            )
            for component, variables in task.components
        ),
    )
