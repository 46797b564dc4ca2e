"""Effect matrices on disk: what ablating each head, or each pair of heads, does to each prompt, measured once.

A matrix belongs to one model and one source of rows: a behaviour's prompts, or ordinary text as a control. Its rows are
divided into three pools that share no prompt: train, validation and test (a natural behaviour's pools share no name or
template either, and control pools no article). Code that learns from effects reads the matrix and never runs the model.

A directory holds `matrix.safetensors` (memory-mapped when loaded) and `matrix.json`, which is written last. Until then
it also holds finished blocks of rows, and the same call resumes from there.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from vesalius.behaviours.controls import Corpus, control
from vesalius.behaviours.prompts import SPLITS, split_index
from vesalius.behaviours.trial import trial, unchanged_outputs, unique
from vesalius.components import Component, parse_components
from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.intervene import Batch, Readout, ablation_named, effects
from vesalius.intervene.values import mean_embedding
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.states import fingerprint, read_tensors, write_tensors
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress

SCHEMA = 1
PUBLISHED_KIND = "value-bias"
POOLS: Mapping[str, int] = {"train": 512, "validation": 128, "test": 128}
_DESCRIPTION, _NUMBERS, _PLAN = "matrix.json", "matrix.safetensors", "blocks.json"


@dataclass(frozen=True)
class Rows:
    """The inputs of one pool."""

    batch: Batch
    readout: Readout
    counterfactual: Batch | None


@dataclass(frozen=True)
class ControlText:
    """Ordinary text as a source of rows, and how many tokens a row has."""

    corpus: Corpus
    length: int = 60


@dataclass(frozen=True)
class Identity:
    """Everything the values depend on. A column is a set of `size` heads, in the order of combinations."""

    model: str
    source: str
    kind: str
    seed: int
    pools: dict[str, int]
    heads: list[str]
    size: int = 1

    @property
    def sets(self) -> list[tuple[str, ...]]:
        """The heads ablated together in each column."""
        return list(itertools.combinations(self.heads, self.size))


@dataclass(frozen=True)
class Matrix:
    """Clean minus ablated score of every row for every head (or set); positive means it helped. `unit` is the unit of
    the score, `forwards` the cost of measuring in forward passes of all rows.
    """

    identity: Identity
    unit: str
    pools: Mapping[str, Float[Tensor, "row set"]]
    baselines: Mapping[str, Float[Tensor, " row"]]
    forwards: float = 0.0

    @property
    def heads(self) -> list[Component]:
        """The heads, in the order of the columns (of single heads)."""
        return [Component.parse(name) for name in self.identity.heads]

    def pool(self, split: str) -> Float[Tensor, "row set"]:
        """The rows of train, validation or test."""
        split_index(split)
        if split not in self.pools:
            raise BadInput(f"matrix of {self.identity.source}: no {split} rows; measure it with that pool")
        return self.pools[split]


def behaviour_matrix(
    specimen: Specimen,
    directory: Path,
    *,
    pools: Mapping[str, int] = POOLS,
    heads: Iterable[str | Component] | None = None,
    kind: str = PUBLISHED_KIND,
    size: int = 1,
    seed: int = 0,
    block: int = 32,
    progress: Progress | None = None,
) -> Matrix:
    """Measure, resume or load the effects of each head (`size` 2: of each pair) on the specimen's behaviour."""
    source = specimen.behaviour or specimen.id
    identity = _identity(specimen, source, pools, heads, kind, seed, size)
    rows = behaviour_rows(specimen, pools, seed=seed)
    return _measure(specimen.model, identity, rows, Path(directory), block=block, progress=progress)


def behaviour_rows(specimen: Specimen, pools: Mapping[str, int], *, seed: int = 0) -> Callable[[str], Rows]:
    """The rows of each pool of a behaviour's matrix."""
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        inputs = _distinct_inputs(specimen, pools, seed)

        def rows(split: str) -> Rows:
            tokens = specimen.tokenize(inputs[split])
            batch = Batch(tokens, specimen.model.config.not_padding(tokens))
            return Rows(batch, unchanged_outputs(specimen, batch), None)
    else:

        def rows(split: str) -> Rows:
            material = trial(specimen, pools[split], seed=seed, split=split)
            return Rows(material.batch, material.readout, material.counterfactual)

    return rows


def control_matrix(
    specimen: Specimen,
    text: ControlText,
    directory: Path,
    *,
    pools: Mapping[str, int] = POOLS,
    heads: Iterable[str | Component] | None = None,
    kind: str = PUBLISHED_KIND,
    size: int = 1,
    seed: int = 0,
    block: int = 32,
    progress: Progress | None = None,
) -> Matrix:
    """Measure, resume or load the effects on ordinary text, in nats of next-token loss. The counterfactual of a row is
    the next row.
    """
    rows = control_rows(specimen, text, pools, seed=seed)
    identity = _identity(specimen, control_source(text.corpus.name, text.length), pools, heads, kind, seed, size)
    return _measure(specimen.model, identity, rows, Path(directory), block=block, progress=progress)


def control_source(corpus: str, length: int) -> str:
    """What identities call a control text."""
    return f"control/{corpus}/{length}"


def control_rows(
    specimen: Specimen, text: ControlText, pools: Mapping[str, int], *, seed: int = 0
) -> Callable[[str], Rows]:
    """The rows of each pool of a control matrix."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} has a finite vocabulary; control text needs a natural model")

    def rows(split: str) -> Rows:
        drawn = control(
            text.corpus,
            vocabulary.tokenizer,
            n=pools[split],
            length=text.length,
            seed=seed,
            split=split,
            n_ctx=specimen.model.config.n_ctx,
        )
        return Rows(drawn.batch, drawn.readout, Batch(drawn.batch.tokens.roll(-1, 0), drawn.batch.mask))

    return rows


def load_matrix(directory: Path, *, model: Transformer | None = None) -> Matrix:
    """Open a finished matrix, memory-mapped; with `model`, refuse the matrix of another model."""
    directory = Path(directory)
    data = read_json(directory / _DESCRIPTION)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / _DESCRIPTION}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    for name, kind in (("identity", dict), ("unit", str)):
        if not isinstance(data.get(name), kind):
            raise BadInput(f"{directory / _DESCRIPTION}: {name!r} is missing or damaged; measure it again")
    try:
        identity, unit = TypeAdapter(Identity).validate_python(data["identity"]), data["unit"]
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(("identity", *map(str, first["loc"])))
        raise BadInput(f"{directory / _DESCRIPTION}: {place}: {first['msg'].lower()}; measure it again") from None
    if model is not None and identity.model != (own := fingerprint(model)):
        raise BadInput(f"{directory}: effects of model {identity.model}, not of this one ({own}); measure them again")
    tensors = read_tensors(directory / _NUMBERS)
    columns = math.comb(len(identity.heads), identity.size)
    for split, n in identity.pools.items():
        if [tensors[name].shape for name in (split, f"{split}.baseline") if name in tensors] != [
            (n, columns),
            (n,),
        ]:
            raise BadInput(f"{directory / _NUMBERS}: the {split} rows do not fit matrix.json; measure it again")
    pools = {split: tensors[split] for split in identity.pools}
    baselines = {split: tensors[f"{split}.baseline"] for split in pools}
    return Matrix(identity, unit, pools, baselines, float(data.get("forwards", 0.0)))


def _identity(
    specimen: Specimen,
    source: str,
    pools: Mapping[str, int],
    heads: Iterable[str | Component] | None,
    kind: str,
    seed: int,
    size: int,
) -> Identity:
    ablation_named(kind)
    for split, n in pools.items():
        split_index(split)
        if n < 1:
            raise BadInput(f"a {split} pool of {n} rows is empty; request at least one row or leave the pool out")
    model = specimen.model
    components = parse_components(heads, model.config) if heads is not None else model.components
    names = [str(component) for component in components if component.head is not None]
    if not pools or not names:
        raise BadInput(f"an effect matrix of {len(names)} heads and {len(pools)} pools is empty; name some of each")
    if not 1 <= size <= len(names):
        raise BadInput(f"sets of {size} of {len(names)} heads do not exist; use 1 (heads) or 2 (pairs), or more heads")
    return Identity(fingerprint(model), source, kind, seed, dict(pools), names, size)


def _distinct_inputs(specimen: Specimen, pools: Mapping[str, int], seed: int) -> dict[str, list[Any]]:
    """Inputs of a specimen with a finite vocabulary, all distinct over all pools."""
    needed = sum(pools.values())
    inputs = unique(specimen.sample(4 * needed, seed))
    if len(inputs) < needed:
        raise BadInput(
            f"specimen {specimen.name!r}: the pools need {needed} distinct inputs and a sample has {len(inputs)}; "
            "request fewer rows"
        )
    remaining = iter(inputs)
    return {split: [next(remaining) for _ in range(pools[split])] for split in SPLITS if split in pools}


def _measure(
    model: Transformer,
    identity: Identity,
    rows: Callable[[str], Rows],
    directory: Path,
    *,
    block: int,
    progress: Progress | None,
) -> Matrix:
    """Load the matrix of the directory if there is one, else measure the missing blocks and join all."""
    if (directory / _DESCRIPTION).exists():
        matrix = load_matrix(directory)
        if matrix.identity != identity:
            raise BadInput(f"{directory}: holds another effect matrix; choose an empty directory or delete it")
        return matrix
    _require_same_plan(directory, identity, block)
    done, total, tensors, unit, passes = 0, sum(identity.pools.values()), {}, "", 0.0
    for split, n in identity.pools.items():
        pool, parts = rows(split), []
        unit = pool.readout.unit
        for start in range(0, n, block):
            parts.append(_block(model, identity, pool, split, range(start, min(start + block, n)), directory))
            done += len(parts[-1]["baseline"])
            passes += float(parts[-1]["passes"])
            if progress:
                progress(f"effects of {identity.source}", done, total)
        tensors[split] = torch.cat([part["effects"] for part in parts])
        tensors[f"{split}.baseline"] = torch.cat([part["baseline"] for part in parts])
    write_tensors(directory / _NUMBERS, tensors)
    description = {"identity": asdict(identity), "unit": unit, "forwards": passes / total}
    write_json(directory / _DESCRIPTION, {"schema": SCHEMA, **description})
    for path in [directory / _PLAN, *directory.glob("block-*.safetensors")]:
        path.unlink(missing_ok=True)
    return load_matrix(directory)


def _require_same_plan(directory: Path, identity: Identity, block: int) -> None:
    """Record which matrix the directory's blocks belong to; refuse a directory with blocks of another."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = {"schema": SCHEMA, "identity": asdict(identity), "block": block}
    if not (directory / _PLAN).exists():
        write_json(directory / _PLAN, plan)
    elif read_json(directory / _PLAN) != plan:
        raise BadInput(f"{directory}: holds blocks of another effect matrix; choose an empty directory or delete it")


def _block(
    model: Transformer, identity: Identity, pool: Rows, split: str, rows: range, directory: Path
) -> dict[str, Tensor]:
    """Effects on a range of rows, from disk if they were measured before."""
    path = directory / f"block-{split}-{rows.start:06d}.safetensors"
    if path.exists():
        return read_tensors(path)
    index = torch.arange(rows.start, rows.stop)
    counterfactual = pool.counterfactual
    result = effects(
        model,
        pool.batch.take(index).to(model.device),
        pool.readout.take(index),
        kind=identity.kind,
        sets=identity.sets,
        counterfactual=None if counterfactual is None else counterfactual.take(index),
        reference=pool.batch,
    )
    part = {"effects": result.matrix.float().contiguous(), "baseline": result.baseline.float().contiguous()}
    part["passes"] = torch.tensor(result.forwards * len(rows))
    if not all(bool(tensor.isfinite().all()) for tensor in part.values()):
        raise BadInput(
            f"effects of {identity.source} on {split} rows {rows.start} to {rows.stop - 1} are not finite; "
            "check the model's weights for NaN or overflow"
        )
    write_tensors(path, part)
    return part


# The mean token embedding of every prompt of an effect matrix: what a prompt is about, before the model has run.
#
# One vector per row, next to the matrix of the same rows, so that an episode can average the rows it drew. Embeddings
# are looked up and no forward pass is needed: they cost no queries.

EMBEDDINGS_FILE = "prompt_embeddings.safetensors"


def prompt_embeddings(model: Transformer, matrix: Matrix, rows: Callable[[str], Rows], directory: Path) -> None:
    """Write the embeddings of every pool of a matrix into its directory, unless they are there."""
    path = Path(directory) / EMBEDDINGS_FILE
    if not path.exists():
        write_tensors(path, {split: mean_embedding(model, rows(split).batch) for split in matrix.identity.pools})


def load_prompt_embeddings(matrix: Matrix, directory: Path) -> Mapping[str, Float[Tensor, "row width"]]:
    """The embeddings of every pool of a matrix."""
    path = Path(directory) / EMBEDDINGS_FILE
    tensors = read_tensors(path)
    for split, n in matrix.identity.pools.items():
        if split not in tensors or tensors[split].ndim != 2 or len(tensors[split]) != n:
            raise BadInput(f"{path}: the {split} rows do not fit matrix.json next to it; delete it and measure again")
    return {split: tensors[split] for split in matrix.identity.pools}
