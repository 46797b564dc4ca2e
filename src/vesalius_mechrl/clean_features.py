"""Features of every head from the clean run, before any head is ablated: attribution and attention.

Attention is free, since the clean score has to be computed anyway; attribution needs a backward pass as well and costs
`ATTRIBUTION_PASSES` forward passes in all. Features are stored per row, like the effect matrix of the same rows, so an
episode can average the rows it drew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
