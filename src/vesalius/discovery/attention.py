"""Attention by token role: BOS, the position itself, the previous token, earlier copies, and the tokens after those.

A role is a set of (query, key) pairs. A head's mass on it is the attention from each query to the role's keys, averaged
over the queries that have such keys.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Target = Bool[Tensor, "prompt query key"]


def general_roles(
    tokens: Int[Tensor, "prompt pos"], real: Bool[Tensor, "prompt pos"], *, first: int
) -> dict[str, Target]:
    """The roles that exist in any text; positions before `first` (BOS) are not queries and count as a sink only."""
    place = torch.arange(tokens.shape[1])
    query, key = place[:, None], place[None, :]
    is_query = real & (place >= first)
    pairs = is_query[:, :, None] & real[:, None, :] & (key <= query)
    copies = pairs & (tokens[:, :, None] == tokens[:, None, :]) & (key < query) & (key >= first)
    after = torch.zeros_like(copies)
    after[:, :, 1:] = copies[:, :, :-1]
    sink = pairs & (key == 0) & (query > 0)
    return {
        "induction": after & (key < query),
        "duplicate": copies,
        "previous": pairs & (key == query - 1) & (key >= first),
        "self": pairs & (key == query),
        ("BOS" if first else "first token"): sink,
    }


def masses(pattern: Float[Tensor, "prompt head query key"], target: Target) -> Float[Tensor, "prompt head"]:
    """Attention on the target keys, averaged over the queries with a target; NaN if there are none."""
    target = target.to(pattern.device)
    has_target = target.any(-1)
    mass = torch.einsum("phqk,pqk->phq", pattern, target.to(pattern.dtype))
    total = (mass * has_target[:, None]).sum(-1)
    n_queries = has_target.sum(1).clamp(min=1)
    return torch.where(has_target.any(1)[:, None], total / n_queries[:, None], torch.nan).cpu()
