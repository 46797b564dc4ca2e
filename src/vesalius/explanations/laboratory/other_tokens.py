"""Attention on prompts with other tokens: what tells a head that follows tokens from one that keeps to a place.

Where a role sits at one position in every prompt, attention on it may be attention on the position. So tokens are put
in: before the prompt, which moves the role and leaves its distance from the answer position, and between the role and
the answer position, which moves the distance and leaves the position. A head that attends to the role follows it. Where
every counterfactual keeps the earlier copies of a prompt, these are exchanged for tokens that occur nowhere else in it:
a head that looks for copies has then nothing to find at the same places.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.discovery.head_tests import Target, general_roles
from vesalius.explanations.laboratory.runs import Runs

#: Tokens that are put in.
PUT_IN = 2


@torch.no_grad()
def patterns_of(
    runs: Runs, tokens: Int[Tensor, "prompt pos"], mask: Bool[Tensor, "prompt pos"]
) -> Callable[[int], Float[Tensor, "prompt head query key"]]:
    """The attention of every layer on other tokens, run once."""
    device = runs.model.device
    runs.cost.rows += len(tokens)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(runs.model.config.n_layers)]
    one_logit = torch.zeros(len(tokens), 1, dtype=torch.long, device=device)
    _, cache = runs.model.run_with_cache(tokens.to(device), mask=mask.to(device), names=names, choose=one_logit)
    return lambda layer: cache[names[layer]].cpu()


def following(runs: Runs, place: Int[Tensor, " prompt"]) -> Float[Tensor, "prompt layer head"] | None:
    """How much more every head attends from the answer position to what was at `place` than to where it was, once it
    has been moved: by position or by distance, whichever it follows less. None where prompts have no room for that.
    """
    prompts, rows = runs.prompts, torch.arange(len(runs))
    end, first = prompts.position, torch.full_like(prompts.position, runs.first)
    if prompts.tokens.shape[1] + PUT_IN > runs.model.config.n_ctx or bool((place >= end).any()):
        return None
    words, moves = _words(runs), []
    for at, moved, was in ((first, place + PUT_IN, place), (end, place, place + PUT_IN)):
        tokens, mask = _with_words(prompts.tokens, prompts.mask, at, words)
        pattern = patterns_of(runs, tokens, mask)
        seen = [pattern(layer)[rows, :, end + PUT_IN] for layer in range(runs.model.config.n_layers)]
        moves.append(torch.stack([one[rows, :, moved] - one[rows, :, was] for one in seen], dim=1))
    return torch.stack(moves).amin(0)


def _words(runs: Runs) -> Int[Tensor, "prompt word"]:
    """For each prompt the first words of the one before that have no role there; any, where too few have none."""
    prompts = runs.prompts
    taken = torch.zeros_like(prompts.mask) | ~prompts.mask
    taken[:, : runs.first] = True
    for where in (*prompts.roles.values(), prompts.position):
        taken[torch.arange(len(prompts)), where] = True
    order = taken.long().argsort(dim=1, stable=True)[:, :PUT_IN]
    return prompts.tokens.gather(1, order).roll(1, 0)


def _with_words(
    tokens: Int[Tensor, "prompt pos"],
    mask: Bool[Tensor, "prompt pos"],
    at: Int[Tensor, " prompt"],
    words: Int[Tensor, "prompt word"],
) -> tuple[Int[Tensor, "prompt longer"], Bool[Tensor, "prompt longer"]]:
    """The prompts with words put in before a position of each."""
    many = words.shape[1]
    place = torch.arange(tokens.shape[1] + many)[None] - at[:, None]
    old = torch.where(place < 0, place, place - many).add(at[:, None]).clamp(0, tokens.shape[1] - 1)
    new = (place >= 0) & (place < many)
    word = words.gather(1, place.clamp(0, many - 1))
    return torch.where(new, word, tokens.gather(1, old)), new | mask.gather(1, old)


def without_copies(runs: Runs, *, seed: int) -> tuple[Int[Tensor, "prompt pos"], dict[str, Target]]:
    """The prompts with every token that comes again later exchanged for one that is nowhere else in the prompt, and by
    role the places where a head found a copy before and finds none now. Prompts without enough other tokens stay.
    """
    prompts, first = runs.prompts, runs.first
    known = prompts.tokens[:, first:][prompts.mask[:, first:]].unique().tolist()
    random, tokens = torch.Generator().manual_seed(seed), prompts.tokens.clone()
    for row, (padded, length) in enumerate(zip(prompts.tokens.tolist(), prompts.mask.sum(1).tolist(), strict=True)):
        own = padded[:length]
        places = [i for i, token in enumerate(own) if i >= first and token in own[i + 1 :]]
        others = [token for token in known if token not in own]
        if len(others) >= len(places):
            chosen = torch.randperm(len(others), generator=random)[: len(places)].tolist()
            for place, other in zip(places, chosen, strict=True):
                tokens[row, place] = others[other]
    before, after = (general_roles(one, prompts.mask, first=first) for one in (prompts.tokens, tokens))
    same = tokens == prompts.tokens
    kept = {"induction": same[:, :, None] & same[:, None, :], "duplicate": same[:, :, None] & ~same[:, None, :]}
    return tokens, {role: before[role] & ~after[role] & kept[role] for role in kept}
