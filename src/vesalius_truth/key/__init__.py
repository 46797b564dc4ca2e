"""The answer key of the 84 benchmark circuits: programs, roles and notes.

Only grading imports it, and the code here that trains the circuits: nothing an explainer sees may come from here.

- `task("frac_prevs")`: the task with its program, vocabulary and the components of the trained model
- `answer("3")`: what grading compares with: the program text, and a tag and a note per component
"""

from vesalius.errors import BadInput, choices
from vesalius_truth.key.task import (
    CARRY_MORE,
    INERT,
    AnswerKey,
    ComponentAnswer,
    Example,
    Size,
    Task,
    answer_of,
    examples,
    is_interchange_inert,
    published_size,
    rule_size,
    shows_across_positions,
    task_roles,
    trained_size,
)
from vesalius_truth.key.tasks import TASKS

__all__ = [
    "CARRY_MORE",
    "INERT",
    "AnswerKey",
    "ComponentAnswer",
    "Example",
    "Size",
    "Task",
    "all_tasks",
    "answer",
    "examples",
    "is_interchange_inert",
    "published_size",
    "rule_size",
    "shows_across_positions",
    "task",
    "task_roles",
    "trained_size",
]


def all_tasks() -> tuple[Task, ...]:
    """The 84 tasks in the order of their published ids."""
    return TASKS


def task(id_or_name: str | int) -> Task:
    """The task with this published id (`"3"` or `3`) or name (`"frac_prevs"`)."""
    key = str(id_or_name).strip()
    for candidate in TASKS:
        if key in (candidate.id, candidate.name):
            return candidate
    names = choices([f"{candidate.id} {candidate.name}" for candidate in TASKS])
    raise BadInput(f"benchmark circuit {key!r} does not exist; give an id or a name: {names}")


def answer(id_or_name: str | int) -> AnswerKey:
    """The answer key of one circuit, by published id or name."""
    return answer_of(task(id_or_name))
