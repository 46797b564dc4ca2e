"""What can be known about every head before any is replaced: attribution and where it looks.

Both come from the clean run. Attention is free, since the clean score has to be computed anyway; attribution costs one
backward pass more and is charged for as such (`ATTRIBUTION_PASSES` forward passes in all). Per row, like the effect
matrix of the same rows, so that an episode can average the rows it drew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.matrices import Matrix, Rows
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.intervene.attribution import attribute
from vesalius.intervene.effects import Replacement
from vesalius.model.files import read_tensors, write_tensors
from vesalius.model.transformer import Transformer

#: A forward pass and a backward pass, which counts as two.
ATTRIBUTION_PASSES = 3
#: Where a head can look: the token before, earlier copies of the token, what came after those, the first token.
LOOKS = ("previous", "copy", "after copy", "first")
_FILE = "beforehand.safetensors"


@dataclass(frozen=True)
class Beforehand:
    """One pool's rows: estimated effects (in the matrix's unit) and shares of attention, in the order of `LOOKS`."""

    attribution: Float[Tensor, "row head"]
    attention: Float[Tensor, "row head look"]


def beforehand(
    model: Transformer, matrix: Matrix, rows: Callable[[str], Rows], directory: Path
) -> Mapping[str, Beforehand]:
    """Measure, or load from beside the matrix, what is known before paying, for every pool of the matrix."""
    path = Path(directory) / _FILE
    if not path.exists():
        tensors = {}
        for split in matrix.identity.pools:
            pool = rows(split)
            found = known_of(model, pool, kind=matrix.identity.kind, heads=matrix.heads)
            tensors |= {f"{split}.attribution": found.attribution, f"{split}.attention": found.attention}
        write_tensors(path, tensors)
    return load_beforehand(matrix, directory)


def load_beforehand(matrix: Matrix, directory: Path) -> Mapping[str, Beforehand]:
    """What was measured for this matrix."""
    path = Path(directory) / _FILE
    tensors, heads = read_tensors(path), len(matrix.identity.heads)
    found = {}
    for split, n in matrix.identity.pools.items():
        pair = [tensors.get(f"{split}.{name}") for name in ("attribution", "attention")]
        shapes = [None if tensor is None else tuple(tensor.shape) for tensor in pair]
        if shapes != [(n, heads), (n, heads, len(LOOKS))]:
            raise BadInput(f"{path}: the {split} rows do not fit the matrix beside it; delete it and measure again")
        found[split] = Beforehand(*(tensor for tensor in pair if tensor is not None))
    return found


def known_of(
    model: Transformer,
    pool: Rows,
    *,
    kind: str,
    heads: Sequence[Component],
    replacement: Replacement | None = None,
) -> Beforehand:
    """Attribution and attention of some heads on some rows; `replacement` where that of the kind is there already."""
    replacement = replacement or Replacement.of_kind(
        kind, model, pool.batch, counterfactual=pool.counterfactual, reference=pool.batch
    )
    columns = {component: column for column, component in enumerate(model.components)}
    scores = attribute(model, pool.batch, pool.readout, replacement)[:, [columns[head] for head in heads]].float().cpu()
    if not bool(scores.isfinite().all()):
        raise BadInput("attributions are not finite; check the model's weights for NaN or overflow")
    places = [model.config.n_heads * head.layer + (head.head or 0) for head in heads]
    return Beforehand(scores.contiguous(), looks(model, pool.batch)[:, places].contiguous())


@torch.no_grad()
def looks(model: Transformer, batch: Batch, *, rows: int = 32) -> Float[Tensor, "row head look"]:
    """Mean attention of every head on each of `LOOKS`, over the real tokens after the first, `rows` at a time."""
    portions = torch.arange(len(batch)).split(rows)
    return torch.cat([_looks_of_portion(model, batch.take(portion)) for portion in portions])


def _looks_of_portion(model: Transformer, batch: Batch) -> Float[Tensor, "row head look"]:
    moved = batch.to(model.device)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.config.n_layers)]
    one_logit = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
    _, cache = model.run_with_cache(moved.tokens, mask=moved.mask, names=names, choose=one_logit)
    places = places_of(moved.tokens).float()
    real = torch.ones_like(moved.tokens) if moved.mask is None else moved.mask.long()
    asking = real.clone()
    asking[:, 0] = 0
    weight = asking / asking.sum(1, keepdim=True).clamp(min=1)
    parts = [torch.einsum("rhqk,rqkl,rq->rhl", cache[name].float(), places, weight) for name in names]
    return torch.cat(parts, 1).cpu().contiguous()


def places_of(tokens: Int[Tensor, "row pos"]) -> Int[Tensor, "row query key look"]:
    """1 where a key is what a kind of look is after, 0 elsewhere."""
    at = torch.arange(tokens.shape[1], device=tokens.device)
    query, key = at[:, None], at[None, :]
    same = tokens[:, :, None] == tokens[:, None, :]
    copy = same & (key < query)
    after = torch.zeros_like(copy)
    after[:, :, 1:] = copy[:, :, :-1]
    fixed = [(key == query - 1).expand_as(copy), (key == 0).expand_as(copy)]
    return torch.stack([fixed[0], copy, after, fixed[1]], -1).long()
