"""The tag of every component: the rule of `vesalius.rasp`, with one exception.

The rule tags every head whose attention depends on positions as a router. The last head of task 21 is such a head, but
it filters: it keeps a token at its first occurrence and drops it elsewhere. It is tagged as an aggregator, and then
the totals over the 84 circuits equal the published ones.
"""

from vesalius.circuits.key.task import Task
from vesalius.components import Component
from vesalius.rasp import Role, roles_of

EXCEPTIONS = {("21", Component(3, 0)): Role.AGGREGATOR}


def task_roles(task: Task) -> dict[Component, Role]:
    """The tag of each component of a task's circuit, by its name in the trained model."""
    return {
        task.locate(component): EXCEPTIONS.get((task.id, component), role)
        for component, role in roles_of(task.program()).items()
    }
