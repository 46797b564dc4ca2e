"""The 84 programs, by family: look-ups, counting, routing, combining."""

from vesalius_truth.key.task import Task
from vesalius_truth.key.tasks import combining, counting, lookups, routing

TASKS: tuple[Task, ...] = tuple(
    sorted(
        (*lookups.TASKS, *counting.TASKS, *routing.TASKS, *combining.TASKS),
        key=lambda task: int(task.id),
    )
)
