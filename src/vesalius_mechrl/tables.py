"""From effect matrices to episodes.

The reward of ablating a head is a mean over 32 prompts minus a mean over 32 rows of control text, so it is exactly the
difference of two averages of matrix rows: no model runs during training. `Tables` holds one pool (train, validation or
test) of every task; an episode draws its rows by seed, as the published environment drew its prompts:

    r(head) = mean over task rows of D_task[row, head] - w * mean over control rows of D_control[row, head]

A pool may also hold features of the clean run (`FeatureTables`: attribution and attention of the same rows); an episode
averages the same rows of them.

The published reward subtracts nats of control loss from logits of task score with w = 1. That is kept, and `unit` names
both units.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from vesalius.errors import BadInput
from vesalius_mechrl.clean_features import CleanFeatures
from vesalius_mechrl.matrices import Matrix

CONTROL_SEED_OFFSET = 13103
EVALUATION_SEED = 10_000_000
BATCH_ROWS = 32


@dataclass(frozen=True)
class FeatureTables:
    """Attribution (also on the control) and attention of every head on one pool's rows of the clean run, and the mean
    token embedding of the rows where it was asked for.
    """

    attribution: Mapping[str, Float[np.ndarray, "row head"]]
    control: Float[np.ndarray, "row head"] | None
    attention: Mapping[str, Float[np.ndarray, "row head target"]]
    embedding: Mapping[str, Float[np.ndarray, "row width"]] | None = None

    @classmethod
    def of(
        cls,
        tasks: Mapping[str, CleanFeatures],
        control: CleanFeatures | None,
        embedding: Mapping[str, Float[np.ndarray, "row width"]] | None = None,
    ) -> "FeatureTables":
        """From the features of one pool of each matrix, and the embeddings of its prompts."""
        return cls(
            {name: pool.attribution.numpy() for name, pool in tasks.items()},
            None if control is None else control.attribution.numpy(),
            {name: pool.attention.numpy() for name, pool in tasks.items()},
            embedding,
        )


@dataclass(frozen=True)
class Tables:
    """One pool's rows of every task, and the control's (None: no contrast)."""

    heads: tuple[str, ...]
    tasks: Mapping[str, Float[np.ndarray, "row head"]]
    control: Float[np.ndarray, "row head"] | None = None
    weight: float = 1.0
    rows: int = BATCH_ROWS
    unit: str = "logits"
    features: FeatureTables | None = None

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
        features: FeatureTables | None = None,
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
                    "replacement; measure them with the same model, heads and kind"
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
            features=features,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks in order."""
        return tuple(self.tasks)

    def episode(self, task: str, seed: int) -> Float[np.ndarray, " head"]:
        """The reward of every head in the episode of this seed."""
        return self.episode_rows(task, seed).mean(0)

    def episode_rows(self, task: str, seed: int) -> Float[np.ndarray, "row head"]:
        """The reward of every head on each of the episode's rows (a task row with a control row); their mean is the
        episode's reward.
        """
        return self._contrast(self.tasks[task], self.control, seed)

    def attribution(self, task: str, seed: int) -> Float[np.ndarray, " head"]:
        """The reward of every head as estimated by one backward pass over the episode's rows."""
        features = self._require_features()
        return self._contrast(features.attribution[task], features.control, seed).mean(0)

    def attention(self, task: str, seed: int) -> Float[np.ndarray, "head target"]:
        """The attention of every head on the episode's task rows (see `clean_features.ATTENTION_TARGETS`)."""
        rows = self._require_features().attention[task]
        return rows[_episode_index(len(rows), seed, self.rows)].mean(0, dtype=np.float64)

    def embedding(self, task: str, seed: int) -> Float[np.ndarray, " width"]:
        """The mean embedding of the episode's prompts."""
        rows = self._require_embedding()[task]
        return rows[_episode_index(len(rows), seed, self.rows)].mean(0, dtype=np.float64)

    def embeddings(self) -> Float[np.ndarray, "row width"]:
        """The embeddings of all rows of all tasks."""
        return np.concatenate([self._require_embedding()[name] for name in self.names])

    def _require_embedding(self) -> Mapping[str, Float[np.ndarray, "row width"]]:
        if self.features is None or self.features.embedding is None:
            raise BadInput("these tables have no prompt embeddings; measure them with `prompt_embeddings`")
        return self.features.embedding

    def _require_features(self) -> FeatureTables:
        if self.features is None:
            raise BadInput("these tables have no attribution and no attention; measure them with `clean_features`")
        return self.features

    def _contrast(
        self, task: Float[np.ndarray, "row head"], control: Float[np.ndarray, "row head"] | None, seed: int
    ) -> Float[np.ndarray, "row head"]:
        rows = task[_episode_index(len(task), seed, self.rows)].astype(np.float64)
        if control is None:
            return rows
        return rows - self.weight * control[_episode_index(len(control), seed + CONTROL_SEED_OFFSET, self.rows)]

    def mean(self, task: str) -> Float[np.ndarray, " head"]:
        """The reward of every head over all rows of the pool."""
        reward = np.asarray(self.tasks[task]).mean(0, dtype=np.float64)
        return reward if self.control is None else reward - self.weight * self.control.mean(0, dtype=np.float64)

    def only(self, tasks: tuple[str, ...]) -> "Tables":
        """Some of the tasks."""
        missing = [name for name in tasks if name not in self.tasks]
        if missing:
            raise BadInput(f"task {missing[0]!r} is not in these tables; choose among {', '.join(self.names)}")
        return replace(self, tasks={name: self.tasks[name] for name in tasks})

    def digest(self) -> str:
        """A hash of every value and setting, by which a checkpoint is recognised."""
        digest = hashlib.sha256(repr((self.heads, self.names, self.weight, self.rows, self.unit)).encode())
        tables = [*self.tasks.values(), *([] if self.control is None else [self.control])]
        if self.features is not None:
            tables += [
                part[name] for part in (self.features.attribution, self.features.attention) for name in self.names
            ]
            if self.features.embedding is not None:
                tables += [self.features.embedding[name] for name in self.names]
        for table in tables:
            digest.update(np.ascontiguousarray(table).tobytes())
        return digest.hexdigest()[:16]


def _episode_index(pool: int, seed: int, rows: int) -> Int[np.ndarray, " row"]:
    """The rows of a pool that belong to the episode of this seed."""
    return np.random.default_rng(seed).choice(pool, size=rows, replace=False)
