"""Where a head can look: the roles of token positions, as sets of (query, key) pairs.

General roles hold for every prompt: BOS, the position itself, the previous token, earlier copies of the current token
(*duplicate*), and the tokens right after such copies (*induction*). A behaviour adds its own, such as IO and S1, seen
from the answer position.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.discovery.attention import Target, general_roles
from vesalius.explanations.natural.pool import Pool

#: Roles of any text, and what a head that attends to them is called.
NAMES = {"induction": "induction head", "duplicate": "duplicate-token head", "previous": "previous-token head"}
MEANINGS = {
    "induction": "the token after an earlier copy of the current one",
    "duplicate": "earlier copies of the current token",
    "previous": "the previous token",
    "self": "its own position",
    "BOS": "BOS",
    "first token": "the first token",
}


def everywhere(pool: Pool) -> dict[str, Target]:
    """The general roles at every query but BOS."""
    return everywhere_in(pool, pool.prompts.tokens)


def everywhere_in(pool: Pool, tokens: Int[Tensor, "prompt pos"]) -> dict[str, Target]:
    """The general roles in other tokens of the pool's shape, such as the counterfactual prompts."""
    return general_roles(tokens, pool.prompts.mask, first=pool.first)


def at_answer(pool: Pool) -> dict[str, Target]:
    """The general roles and the behaviour's own, seen from the answer position alone."""
    prompts = pool.prompts
    asked = pool.answer_only[:, :, None]
    found = {name: target & asked for name, target in everywhere(pool).items()}
    for role, where in prompts.roles.items():
        if bool((where == prompts.position).all()):
            continue  # the answer position itself
        target = torch.zeros_like(asked.expand(-1, -1, asked.shape[1]))
        target[torch.arange(len(pool)), prompts.position, where] = True
        found[role] = target
    return found


def others(targets: Mapping[str, Target], pool: Pool) -> Target:
    """Keys that the answer position may look at and that have no role."""
    place = torch.arange(pool.prompts.tokens.shape[1])
    open_to = pool.answer_only[:, :, None] & pool.prompts.mask[:, None, :] & (place[None, :] <= place[:, None])
    taken = torch.stack(list(targets.values())).any(0)
    return open_to & ~taken


def shuffled(target: Target) -> Target:
    """Each prompt with the keys of the next one: the same amount of looking at the wrong places."""
    moved = target.roll(1, 0)
    n = target.shape[1]
    return moved & torch.ones(n, n, dtype=torch.bool).tril()


def as_many_others(target: Target, pool: Pool, *, seed: int) -> Target:
    """For each query as many keys outside the target and BOS, drawn at random."""
    place = torch.arange(target.shape[1])
    asked = target.any(-1, keepdim=True)
    allowed = asked & pool.prompts.mask[:, None, :] & (place[None, :] <= place[:, None]) & (place >= pool.first)
    order = torch.rand(target.shape, generator=torch.Generator().manual_seed(seed))
    rank = order.masked_fill(~(allowed & ~target), 2.0).argsort(-1).argsort(-1)
    return (rank < target.sum(-1, keepdim=True)) & allowed & ~target
