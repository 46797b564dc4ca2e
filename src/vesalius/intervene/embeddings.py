"""The mean token embedding of each row, looked up without a forward pass."""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.intervene.values import Batch
from vesalius.model.transformer import Transformer


@torch.no_grad()
def mean_embedding(model: Transformer, batch: Batch) -> Float[Tensor, "row width"]:
    """The mean embedding of each row's tokens, padding left out."""
    tokens = batch.tokens.to(model.device)
    real = torch.ones_like(tokens) if batch.mask is None else batch.mask.to(model.device).long()
    weight = real / real.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("rp,rpd->rd", weight, model.W_E[tokens].float()).cpu().contiguous()
