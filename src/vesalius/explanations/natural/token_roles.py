"""Roles of token positions that a head can attend to, as sets of (query, key) pairs.

General roles exist in every prompt: BOS, the position itself, the previous token, earlier copies of the current token
(*duplicate*), and the tokens right after such copies (*induction*). A behaviour adds its own, such as IO and S1, for
the answer position as the query.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.discovery.attention import Target, general_roles
from vesalius.explanations.claims.reading import as_many_others
from vesalius.explanations.natural.pool import Pool

#: General roles, and the name of a head that attends to them.
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
    """The general roles with every position but BOS as a query."""
    return everywhere_in(pool, pool.prompts.tokens)


def everywhere_in(pool: Pool, tokens: Int[Tensor, "prompt pos"]) -> dict[str, Target]:
    """The general roles in other tokens with the pool's shape, such as the counterfactual prompts."""
    return general_roles(tokens, pool.prompts.mask, first=pool.first)


def at_answer(pool: Pool) -> dict[str, Target]:
    """The general roles and the behaviour's own, with the answer position as the only query."""
    prompts = pool.prompts
    is_answer = pool.answer_only[:, :, None]
    targets = {name: target & is_answer for name, target in everywhere(pool).items()}
    for role, where in prompts.roles.items():
        if bool((where == prompts.position).all()):
            continue  # the answer position itself
        target = torch.zeros_like(is_answer.expand(-1, -1, is_answer.shape[1]))
        target[torch.arange(len(pool)), prompts.position, where] = True
        targets[role] = target
    return targets


def without_role(targets: Mapping[str, Target], pool: Pool) -> Target:
    """Keys that the answer position can attend to and that have none of these roles."""
    place = torch.arange(pool.prompts.tokens.shape[1])
    visible = pool.answer_only[:, :, None] & pool.prompts.mask[:, None, :] & (place[None, :] <= place[:, None])
    return visible & ~torch.stack(list(targets.values())).any(0)


def shuffled(target: Target) -> Target:
    """Control: each prompt with the target keys of another prompt."""
    n = target.shape[1]
    return target.roll(1, 0) & torch.ones(n, n, dtype=torch.bool).tril()


def random_keys(target: Target, pool: Pool, *, seed: int) -> Target:
    """For each query a random choice of as many keys, outside the target and BOS."""
    place = torch.arange(target.shape[1])
    is_query = target.any(-1, keepdim=True)
    allowed = is_query & pool.prompts.mask[:, None, :] & (place[None, :] <= place[:, None]) & (place >= pool.first)
    return as_many_others(target, allowed, seed)
