"""The model size of a task: the published rule and its three exceptions.

The rule scales the widths of the program's literal compilation (`Program.d_head`, `Program.d_model`) down by a
factor that is 2 for most tasks. Most models get their width from the head size; a listed few get it from the
model width.
"""

from dataclasses import dataclass

from vesalius.circuits.key.task import Task

SHRINK = {
    "7": 1.5, "18": 1.6, "21": 1.3, "24": 1.2, "25": 1.5, "34": 1.5, "35": 3.0, "36": 2.5, "37": 2.2,
}  # fmt: skip
DEFAULT_SHRINK = 2.0
WIDTH_FROM_D_MODEL = frozenset({"7", "18", "21", "25", "26", "29", "34", "35", "36", "37"})

# The published model of task 20 is wider than the rule says (4).
PUBLISHED_D_MODEL = {"20": 13}
# These two meet the acceptance gate at a fraction of their published width (120 and 200), so they are trained smaller.
TRAINED_D_MODEL = {"20": 13, "39": 32, "97": 64}


@dataclass(frozen=True)
class Size:
    """The shape of a low-level model."""

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int

    @property
    def d_mlp(self) -> int:
        """Hidden width of each MLP."""
        return 4 * self.d_model


def rule_size(task: Task) -> Size:
    """The size that the published rule gives, without exceptions."""
    program = task.program()
    n_layers, n_heads = max(2, program.n_layers), max(4, program.n_heads)
    shrink = SHRINK.get(task.id, DEFAULT_SHRINK)
    if task.id in WIDTH_FROM_D_MODEL:
        d_model = max(2, int(program.d_model / shrink))
        return Size(n_layers, n_heads, d_model, max(1, d_model // n_heads))
    d_head = max(1, int(program.d_head / shrink))
    return Size(n_layers, n_heads, n_heads * d_head, d_head)


def published_size(task: Task) -> Size:
    """The size of the published model."""
    return _with_width(task, PUBLISHED_D_MODEL)


def trained_size(task: Task) -> Size:
    """The size we train: the published one, except that tasks 39 and 97 are smaller."""
    return _with_width(task, TRAINED_D_MODEL)


def _with_width(task: Task, widths: dict[str, int]) -> Size:
    size = rule_size(task)
    if task.id not in widths:
        return size
    d_model = widths[task.id]
    return Size(size.n_layers, size.n_heads, d_model, d_model // size.n_heads)
