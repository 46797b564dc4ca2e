"""From effect matrices to episodes.

The reward of replacing a head is a mean over 32 prompts less a mean over 32 rows of control text, so it is exactly the
difference of two averages of matrix rows: no model runs during training. `Tables` holds one pool (train, validation or
test) of every task; an episode draws its rows by seed, as the published environment drew its prompts:

    r(head) = mean over task rows of D_task[row, head] - w * mean over control rows of D_control[row, head]

The published reward subtracts nats of control loss from logits of task score with w = 1. That is kept, and `unit` says
so.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vesalius.discovery.matrices import Matrix
from vesalius.errors import BadInput

CONTROL_SEED_OFFSET = 13103
BATCH_ROWS = 32


@dataclass(frozen=True)
class Tables:
    """One pool's rows of every task, and the control's (None: no contrast)."""

    heads: tuple[str, ...]
    tasks: Mapping[str, Float[np.ndarray, "row head"]]
    control: Float[np.ndarray, "row head"] | None = None
    weight: float = 1.0
    rows: int = BATCH_ROWS
    unit: str = "logits"

    def __post_init__(self) -> None:
        named = {**self.tasks, **({} if self.control is None else {"the control": self.control})}
        if not self.tasks:
            raise BadInput("tables without a task have no reward; give at least one")
        for name, table in named.items():
            if table.ndim != 2 or table.shape[1] != len(self.heads):
                raise BadInput(f"table of {name}: shape {table.shape} does not have {len(self.heads)} columns of heads")
            if len(table) < self.rows:
                raise BadInput(
                    f"table of {name}: {len(table)} rows and an episode draws {self.rows}; measure more rows"
                )
            if not np.isfinite(table).all():
                raise BadInput(f"table of {name}: it has entries that are not finite; measure it again")

    @classmethod
    def from_matrices(
        cls,
        tasks: Mapping[str, Matrix],
        control: Matrix | None,
        *,
        split: str,
        weight: float = 1.0,
        rows: int = BATCH_ROWS,
    ) -> "Tables":
        """One pool of several matrices of the same model and heads."""
        matrices = [*tasks.values(), *([] if control is None else [control])]
        if not tasks:
            raise BadInput("tables without a task have no reward; give at least one")
        first = matrices[0].identity
        for matrix in matrices:
            other = matrix.identity
            if (other.model, other.heads, other.kind) != (first.model, first.heads, first.kind):
                raise BadInput(
                    f"matrices of {first.source} and {other.source} are of different models, heads or kinds of "
                    "replacement; measure them alike"
                )
        units = " or ".join(sorted({matrix.unit for matrix in tasks.values()}))
        unit = units if control is None else f"{units} - {weight:g} * {control.unit}"
        return cls(
            heads=tuple(first.heads),
            tasks={name: matrix.pool(split).numpy() for name, matrix in tasks.items()},
            control=None if control is None else control.pool(split).numpy(),
            weight=weight,
            rows=rows,
            unit=unit,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks in order."""
        return tuple(self.tasks)

    def episode(self, task: str, seed: int) -> Float[np.ndarray, " head"]:
        """The reward of every head in the episode of this seed."""
        reward = _mean_of_rows(self.tasks[task], seed, self.rows)
        if self.control is None:
            return reward
        return reward - self.weight * _mean_of_rows(self.control, seed + CONTROL_SEED_OFFSET, self.rows)

    def mean(self, task: str) -> Float[np.ndarray, " head"]:
        """The reward of every head over all rows of the pool."""
        reward = np.asarray(self.tasks[task]).mean(0, dtype=np.float64)
        return reward if self.control is None else reward - self.weight * self.control.mean(0, dtype=np.float64)

    def only(self, tasks: tuple[str, ...]) -> "Tables":
        """Some of the tasks."""
        missing = [name for name in tasks if name not in self.tasks]
        if missing:
            raise BadInput(f"task {missing[0]!r} is not in these tables; choose among {', '.join(self.names)}")
        chosen = {name: self.tasks[name] for name in tasks}
        return Tables(self.heads, chosen, self.control, self.weight, self.rows, self.unit)

    def digest(self) -> str:
        """A hash of every number and setting, so that a checkpoint can tell whose it is."""
        digest = hashlib.sha256(repr((self.heads, self.names, self.weight, self.rows, self.unit)).encode())
        for table in [*self.tasks.values(), *([] if self.control is None else [self.control])]:
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()[:16]


def _mean_of_rows(table: Float[np.ndarray, "row head"], seed: int, rows: int) -> Float[np.ndarray, " head"]:
    chosen = np.random.default_rng(seed).choice(len(table), size=rows, replace=False)
    return table[chosen].mean(0, dtype=np.float64)
