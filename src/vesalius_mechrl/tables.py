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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.intervene.ablations import Ablation, Replacement, ablation_named
from vesalius.intervene.attribution import attribute
from vesalius.model.states import read_tensors, write_tensors
from vesalius.model.transformer import Transformer
from vesalius_mechrl.matrices import Matrix, Rows

# Features of every head from the clean run, before any head is ablated: attribution and attention.
#
# Attention is free, since the clean score has to be computed anyway; attribution needs a backward pass as well and
# costs `ATTRIBUTION_PASSES` forward passes in all. Features are stored per row, like the effect matrix of the same
# rows, so an episode can average the rows it drew.

#: A forward pass and a backward pass, which counts as two.
ATTRIBUTION_PASSES = 3
#: Keys a head can attend to: the previous token, earlier copies of the token, the tokens after those, the first token.
ATTENTION_TARGETS = ("previous", "copy", "after copy", "first")
FEATURES_FILE = "clean_features.safetensors"


@dataclass(frozen=True)
class CleanFeatures:
    """One pool's rows: attribution (in the matrix's unit), and attention in the order of `ATTENTION_TARGETS`."""

    attribution: Float[Tensor, "row head"]
    attention: Float[Tensor, "row head target"]


def features_path(directory: Path) -> Path:
    """The file of the features next to a matrix."""
    return Path(directory) / FEATURES_FILE


def clean_features(
    model: Transformer, matrix: Matrix, rows: Callable[[str], Rows], directory: Path
) -> Mapping[str, CleanFeatures]:
    """Measure the features of every pool of a matrix, or load them from the matrix's directory."""
    path = features_path(directory)
    if not path.exists():
        tensors = {}
        for split in matrix.identity.pools:
            features = measure_clean_features(model, rows(split), kind=matrix.identity.kind, heads=matrix.heads)
            tensors |= {f"{split}.attribution": features.attribution, f"{split}.attention": features.attention}
        write_tensors(path, tensors)
    return load_clean_features(matrix, directory)


def load_clean_features(matrix: Matrix, directory: Path) -> Mapping[str, CleanFeatures]:
    """Load the features of every pool of a matrix."""
    path = features_path(directory)
    tensors, heads = read_tensors(path), len(matrix.identity.heads)
    features = {}
    for split, n in matrix.identity.pools.items():
        pair = [tensors.get(f"{split}.{name}") for name in ("attribution", "attention")]
        shapes = [None if tensor is None else tuple(tensor.shape) for tensor in pair]
        if shapes != [(n, heads), (n, heads, len(ATTENTION_TARGETS))]:
            raise BadInput(f"{path}: the {split} rows do not fit matrix.json next to it; delete it and measure again")
        features[split] = CleanFeatures(*(tensor for tensor in pair if tensor is not None))
    return features


def measure_clean_features(
    model: Transformer,
    pool: Rows,
    *,
    kind: Ablation | str,
    heads: Sequence[Component],
    replacement: Replacement | None = None,
) -> CleanFeatures:
    """Attribution and attention of some heads on some rows; pass `replacement` if it was computed before."""
    replacement = replacement or ablation_named(kind).table(
        model, pool.batch, counterfactual=pool.counterfactual, reference=pool.batch
    )
    columns = {component: column for column, component in enumerate(model.components)}
    scores = attribute(model, pool.batch, pool.readout, replacement)[:, [columns[head] for head in heads]].float().cpu()
    if not bool(scores.isfinite().all()):
        raise BadInput("attributions are not finite; check the model's weights for NaN or overflow")
    places = [model.config.n_heads * head.layer + (head.head or 0) for head in heads]
    return CleanFeatures(scores.contiguous(), attention_features(model, pool.batch)[:, places].contiguous())


@torch.no_grad()
def attention_features(model: Transformer, batch: Batch, *, rows: int = 32) -> Float[Tensor, "row head target"]:
    """Mean attention of every head on each of `ATTENTION_TARGETS`, over the tokens after the first, in batches of
    `rows`.
    """
    batches = torch.arange(len(batch)).split(rows)
    return torch.cat([_attention_of_batch(model, batch.take(chosen)) for chosen in batches])


def _attention_of_batch(model: Transformer, batch: Batch) -> Float[Tensor, "row head target"]:
    batch = batch.to(model.device)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.n_layers)]
    one_logit = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask, names=names, choose=one_logit)
    targets = target_keys(batch.tokens).float()
    real = torch.ones_like(batch.tokens) if batch.mask is None else batch.mask.long()
    is_query = real.clone()
    is_query[:, 0] = 0
    weight = is_query / is_query.sum(1, keepdim=True).clamp(min=1)
    parts = [torch.einsum("rhqk,rqkt,rq->rht", cache[name].float(), targets, weight) for name in names]
    return torch.cat(parts, 1).cpu().contiguous()


def target_keys(tokens: Int[Tensor, "row pos"]) -> Int[Tensor, "row query key target"]:
    """1 where a key belongs to a target of `ATTENTION_TARGETS`, 0 elsewhere."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    query, key = at[:, None], at[None, :]
    same = tokens[:, :, None] == tokens[:, None, :]
    copy = same & (key < query)
    after = torch.zeros_like(copy)
    after[:, :, 1:] = copy[:, :, :-1]
    previous, first = (key == query - 1).expand_as(copy), (key == 0).expand_as(copy)
    return torch.stack([previous, copy, after, first], -1).long()


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


class Measured(Protocol):
    """Episodes whose batches were written for their seeds (`fresh.FreshEpisodes`)."""

    def read(self, task: str, seed: int, name: str) -> Float[np.ndarray, "row ..."]:
        """One table of an episode."""
        ...


@dataclass(frozen=True)
class Tables:
    """One pool's rows of every task, and the control's (None: no contrast).

    With `fresh` an episode has its own rows, and those of the pool are used for means over many rows alone.
    """

    heads: tuple[str, ...]
    tasks: Mapping[str, Float[np.ndarray, "row head"]]
    control: Float[np.ndarray, "row head"] | None = None
    weight: float = 1.0
    rows: int = BATCH_ROWS
    unit: str = "logits"
    features: FeatureTables | None = None
    fresh: "Measured | None" = None

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
        if self.fresh is not None:
            return self._fresh_contrast(task, seed, "")
        return self._contrast(self.tasks[task], self.control, seed)

    def attribution(self, task: str, seed: int) -> Float[np.ndarray, " head"]:
        """The reward of every head as estimated by one backward pass over the episode's rows."""
        features = self._require_features()
        if self.fresh is not None:
            return self._fresh_contrast(task, seed, " attribution").mean(0)
        return self._contrast(features.attribution[task], features.control, seed).mean(0)

    def attention(self, task: str, seed: int) -> Float[np.ndarray, "head target"]:
        """The attention of every head on the episode's task rows (see `clean_features.ATTENTION_TARGETS`)."""
        rows = self._require_features().attention[task]
        if self.fresh is not None:
            return self.fresh.read(task, seed, "task attention").mean(0)
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

    def _fresh_contrast(self, task: str, seed: int, kind: str) -> Float[np.ndarray, "row head"]:
        assert self.fresh is not None
        rows = self.fresh.read(task, seed, f"task{kind}")
        return rows if self.control is None else rows - self.weight * self.fresh.read(task, seed, f"control{kind}")

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
        # What fresh batches hold follows from the model, which the pools below tell, and from the seeds.
        digest.update(b"" if self.fresh is None else b"fresh")
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
