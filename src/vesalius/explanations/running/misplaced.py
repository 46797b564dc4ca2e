"""Where heads would look if what they look at stood where it does in another prompt.

The counterfactual's patterns are a control where the counterfactual moves attention. Where it only exchanges a word (a
country, a year), heads look at the same place in both, and their patterns say nothing of whether the place matters.
Here each head looks, from a role or from the position whose answer is read, at the positions where it looks from there
in another prompt of the behaviour, whose roles stand elsewhere: another template, or names in the other order.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.components import Component

Patterns = Mapping[Component, Float[Tensor, "prompt query key"]]


def misplaced(own: Patterns, prompts: Prompts) -> Patterns | None:
    """The patterns of heads on other prompts, at the positions of those; None where roles of some prompt stand nowhere
    else.
    """
    of = elsewhere(prompts)
    if of is None:
        return None
    n, width = prompts.tokens.shape
    last = prompts.mask[of].sum(1) - 1
    queries = torch.arange(width).expand(n, -1).minimum(last[:, None]).clone()
    for place in (*prompts.roles.values(), prompts.position):
        queries.scatter_(1, place[:, None], place[of][:, None])
    found = {}
    for head, pattern in own.items():
        looks = pattern[of[:, None], queries].tril()
        looks[:, :, 0] += (1 - looks.sum(-1)).clamp(min=0)  # what would be looked at ahead is not there
        found[head] = looks
    return found


def elsewhere(prompts: Prompts) -> Int[Tensor, " prompt"] | None:
    """For each prompt another one, the next of those with as many roles at other positions as any has; None if a
    prompt has none.
    """
    if not prompts.roles:
        return None
    places, n = torch.stack(list(prompts.roles.values()), 1), len(prompts)
    moved = (places[:, None] != places[None]).sum(-1)
    further = (torch.arange(n)[None] - torch.arange(n)[:, None]) % n
    return None if bool((moved.amax(1) == 0).any()) else (moved * n - further).argmax(1)
