"""The tag of every component: the rule of `vesalius.rasp`, with one exception.

The rule calls every head that is steered by positions a router. The last head of task 21 is one of these, but
what it does is filter: it keeps a token where it is the first of its kind and drops it elsewhere. It counts as
an aggregator, which also makes the totals over the 84 circuits the published ones.
"""

from vesalius.circuits.key.task import Task
from vesalius.components import Component
from vesalius.rasp import Role, roles_of

EXCEPTIONS = {("21", Component(3, 0)): Role.AGGREGATOR}


def task_roles(task: Task) -> dict[Component, Role]:
    """The tag of each component of a task's circuit, by its place in the trained model."""
    return {
        task.locate(component): EXCEPTIONS.get((task.id, component), role)
        for component, role in roles_of(task.program()).items()
    }
