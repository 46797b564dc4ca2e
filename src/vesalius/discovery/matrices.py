"""Effect matrices on disk: what replacing each head, or each pair of heads, does to each prompt, measured once.

A matrix belongs to one model and one source of rows: a behaviour's prompts, or ordinary text as a control. Its rows lie
in three pools that share no prompt: train, validation and test (a natural behaviour's pools share no name or template
either, and control pools no article). Whatever learns from effects reads the matrix; nothing after this runs the model.

A directory holds `matrix.safetensors` (memory-mapped when loaded) and `matrix.json`, which is written last. Until then
finished blocks of rows lie beside them, and the same call goes on from there.
"""

import itertools
import json
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
from vesalius.behaviours.material import SPLITS, split_index
from vesalius.behaviours.trial import trial, unchanged_outputs
from vesalius.components import Component, parse_components
from vesalius.errors import BadInput
from vesalius.files import read_json, write_json
from vesalius.intervene import KINDS, Batch, Readout, effects
from vesalius.model.files import read_tensors, write_tensors
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress

SCHEMA = 1
PUBLISHED_KIND = "value-bias"
POOLS: Mapping[str, int] = {"train": 512, "validation": 128, "test": 128}
_DESCRIPTION, _NUMBERS, _PLAN = "matrix.json", "matrix.safetensors", "blocks.json"


@dataclass(frozen=True)
class Rows:
    """One pool's rows before they are measured."""

    batch: Batch
    readout: Readout
    counterfactual: Batch | None


@dataclass(frozen=True)
class Identity:
    """Everything the numbers depend on. A column is a set of `size` heads, in the order of combinations."""

    model: str
    source: str
    kind: str
    seed: int
    pools: dict[str, int]
    heads: list[str]
    size: int = 1

    @property
    def sets(self) -> list[tuple[str, ...]]:
        """The heads replaced together in each column."""
        return list(itertools.combinations(self.heads, self.size))


@dataclass(frozen=True)
class Matrix:
    """Clean minus edited score of every row for every head (or set); positive means it helped. `unit` is the score's,
    `forwards` what measuring took, in forward passes of all rows.
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
            raise BadInput(f"matrix of {self.identity.source}: it has no {split} rows; measure it with that pool")
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
    """Measure, or finish measuring, or load, what each head (`size` 2: each pair) does to the specimen's behaviour."""
    source = specimen.behaviour or specimen.id
    identity = _identity(specimen, source, pools, heads, kind, seed, size)
    rows = behaviour_rows(specimen, pools, seed=seed)
    return _measured(specimen.model, identity, rows, Path(directory), block=block, progress=progress)


def behaviour_rows(specimen: Specimen, pools: Mapping[str, int], *, seed: int = 0) -> Callable[[str], Rows]:
    """The rows of each pool of a behaviour's matrix."""
    if isinstance(specimen.vocabulary, FiniteVocabulary):
        drawn = _different_inputs(specimen, pools, seed)

        def rows(split: str) -> Rows:
            tokens = specimen.tokenize(drawn[split])
            batch = Batch(tokens, tokens != specimen.model.config.pad_token)
            return Rows(batch, unchanged_outputs(specimen, batch), None)
    else:

        def rows(split: str) -> Rows:
            material = trial(specimen, pools[split], seed=seed, split=split)
            return Rows(material.batch, material.readout, material.counterfactual)

    return rows


def control_matrix(
    specimen: Specimen,
    corpus: Corpus,
    directory: Path,
    *,
    pools: Mapping[str, int] = POOLS,
    heads: Iterable[str | Component] | None = None,
    kind: str = PUBLISHED_KIND,
    size: int = 1,
    length: int = 60,
    seed: int = 0,
    block: int = 32,
    progress: Progress | None = None,
) -> Matrix:
    """The same for ordinary text: how many nats of next-token loss each head saves. Rows are resampled from the row
    after them.
    """
    rows = control_rows(specimen, corpus, pools, length=length, seed=seed)
    identity = _identity(specimen, f"control/{corpus.name}/{length}", pools, heads, kind, seed, size)
    return _measured(specimen.model, identity, rows, Path(directory), block=block, progress=progress)


def control_rows(
    specimen: Specimen, corpus: Corpus, pools: Mapping[str, int], *, length: int = 60, seed: int = 0
) -> Callable[[str], Rows]:
    """The rows of each pool of a control matrix."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} does not read text; control text needs a natural model")

    def rows(split: str) -> Rows:
        n_ctx = specimen.model.config.n_ctx
        text = control(corpus, vocabulary.tokenizer, n=pools[split], length=length, seed=seed, split=split, n_ctx=n_ctx)
        return Rows(text.batch, text.readout, Batch(text.batch.tokens.roll(-1, 0), text.batch.mask))

    return rows


def load_matrix(directory: Path, *, model: Transformer | None = None) -> Matrix:
    """Open a finished matrix without reading its numbers into memory; with `model`, refuse another model's."""
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
    if model is not None and identity.model != (mine := fingerprint(model)):
        raise BadInput(f"{directory}: effects of model {identity.model}, not of this one ({mine}); measure them again")
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
    if kind not in KINDS:
        raise BadInput(f"kind {kind!r} does not exist; choose one of {', '.join(KINDS)}")
    for split, n in pools.items():
        split_index(split)
        if n < 1:
            raise BadInput(f"a {split} pool of {n} rows is empty; ask for at least one row or leave the pool out")
    model = specimen.model
    chosen = parse_components(heads, model.config) if heads is not None else model.components
    names = [str(component) for component in chosen if component.head is not None]
    if not pools or not names:
        raise BadInput(f"an effect matrix of {len(names)} heads and {len(pools)} pools is empty; name some of each")
    if not 1 <= size <= len(names):
        raise BadInput(f"sets of {size} of {len(names)} heads do not exist; take 1 (heads) or 2 (pairs), or more heads")
    return Identity(fingerprint(model), source, kind, seed, dict(pools), names, size)


def _different_inputs(specimen: Specimen, pools: Mapping[str, int], seed: int) -> dict[str, list[Any]]:
    """Inputs of a finite specimen, no two alike in any pools."""
    needed = sum(pools.values())
    distinct = list({json.dumps(given): given for given in specimen.sample(4 * needed, seed)}.values())
    if len(distinct) < needed:
        raise BadInput(
            f"specimen {specimen.name!r}: {len(distinct)} different inputs were found and the pools need {needed}; "
            "ask for fewer rows"
        )
    supply = iter(distinct)
    return {split: [next(supply) for _ in range(pools[split])] for split in SPLITS if split in pools}


def _measured(
    model: Transformer,
    identity: Identity,
    rows: Callable[[str], Rows],
    directory: Path,
    *,
    block: int,
    progress: Progress | None,
) -> Matrix:
    """Load the directory's matrix if it is this one, else measure the blocks that are missing and put them together."""
    if (directory / _DESCRIPTION).exists():
        found = load_matrix(directory)
        if found.identity != identity:
            raise BadInput(f"{directory}: holds another effect matrix; choose an empty directory or delete it")
        return found
    _claim(directory, identity, block)
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
    described = {"identity": asdict(identity), "unit": unit, "forwards": passes / total}
    write_json(directory / _DESCRIPTION, {"schema": SCHEMA, **described})
    for path in [directory / _PLAN, *directory.glob("block-*.safetensors")]:
        path.unlink(missing_ok=True)
    return load_matrix(directory)


def _claim(directory: Path, identity: Identity, block: int) -> None:
    """Write down what the directory's blocks are of, or check that it is the same."""
    directory.mkdir(parents=True, exist_ok=True)
    plan = {"schema": SCHEMA, "identity": asdict(identity), "block": block}
    if not (directory / _PLAN).exists():
        write_json(directory / _PLAN, plan)
    elif read_json(directory / _PLAN) != plan:
        raise BadInput(f"{directory}: holds blocks of another effect matrix; choose an empty directory or delete it")


def _block(
    model: Transformer, identity: Identity, pool: Rows, split: str, rows: range, directory: Path
) -> dict[str, Tensor]:
    """Effects on some rows, from disk if they were measured before."""
    path = directory / f"block-{split}-{rows.start:06d}.safetensors"
    if path.exists():
        return read_tensors(path)
    chosen = torch.arange(rows.start, rows.stop)
    other = pool.counterfactual
    found = effects(
        model,
        pool.batch.take(chosen).to(model.device),
        pool.readout.take(chosen),
        kind=identity.kind,
        sets=identity.sets,
        counterfactual=None if other is None else other.take(chosen),
        reference=pool.batch,
    )
    part = {"effects": found.matrix.float().contiguous(), "baseline": found.baseline.float().contiguous()}
    part["passes"] = torch.tensor(found.forwards * len(rows))
    if not all(bool(tensor.isfinite().all()) for tensor in part.values()):
        raise BadInput(
            f"effects of {identity.source} on {split} rows {rows.start} to {rows.stop - 1} are not finite; "
            "check the model's weights for NaN or overflow"
        )
    write_tensors(path, part)
    return part
