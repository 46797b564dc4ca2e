"""A scientist that says nothing, so that only what was asked is tested."""

from vesalius.documents import Explanation
from vesalius.explanations.scientists import Explained, Task
from vesalius_backbones import Backbone

NAME = "tests.api.scientist:silent"


def silent(task: Task, backbone: Backbone | None) -> Explained:
    """An explanation of nothing."""
    return Explained(
        Explanation(
            specimen=task.id,
            scientist=NAME,
            components=(),
            information_flow="",
            task_description="",
            seconds=0.0,
            seed=task.seed,
        )
    )
