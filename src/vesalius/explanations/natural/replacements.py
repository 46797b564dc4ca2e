"""Values to put in a component's place, beside zeros, means and counterfactuals.

*Token means* answer what a position would hold if only its own token were known (the "context-aware mean" of
arithmetic studies): the mean over the prompts that have the same token at the same position, or, where prompts differ
in length, the same token anywhere. *Corrupted* prompts have one role's token from another prompt.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.explanations.natural.answers import Answers, answer_readout, answers_of
from vesalius.explanations.natural.pool import Pool
from vesalius.intervene import Batch, Values
from vesalius.intervene.values import activations_and_logits


def token_means(pool: Pool) -> Values:
    """The mean output of every component over the clean and counterfactual prompts with the same token there."""
    keys, weights = _groups(pool)
    count = weights.new_zeros(int(keys.max()) + 1).index_add_(0, keys, weights)

    def grouped(clean: Tensor, source: Tensor) -> Tensor:
        both = torch.cat([clean, source]).flatten(0, 1)
        here, weight = keys.to(both.device), weights.to(both)
        wide = weight.view(-1, *[1] * (both.ndim - 1))
        sums = both.new_zeros(len(count), *both.shape[1:], dtype=torch.float32).index_add_(
            0, here, (both * wide).float()
        )
        mean = sums / count.to(sums).clamp(min=1.0).view(-1, *[1] * (both.ndim - 1))
        return mean[here[: clean.shape[0] * clean.shape[1]]].view(clean.shape).to(clean.dtype)

    clean, source = pool.values, pool.source_values
    return Values(
        tuple(grouped(a, b) for a, b in zip(clean.z, source.z, strict=True)),
        tuple(grouped(a, b) for a, b in zip(clean.mlp, source.mlp, strict=True)),
        grouped(clean.embed, source.embed),
    )


def _groups(pool: Pool) -> tuple[Int[Tensor, " place"], Tensor]:
    """The group of every position of the clean, then of the counterfactual prompts, and 1 where it is a real token."""
    prompts = pool.prompts
    tokens = torch.cat([prompts.tokens, prompts.counterfactual])
    key = tokens
    if bool((prompts.position == prompts.position[0]).all()):
        key = tokens * tokens.shape[1] + torch.arange(tokens.shape[1])
    keys = key.flatten().unique(return_inverse=True)[1]
    return keys, prompts.mask.repeat(2, 1).flatten().float()


class Corrupted:
    """The prompts with the token of another prompt at one role, run once.

    `whole` is what that run answers, `differs` where it is not the clean answer, `clean` the clean answers with their
    margin against it; `recordings` start from the clean run and read that margin.
    """

    def __init__(self, pool: Pool, role: str, place: Int[Tensor, " prompt"], clean: Answers) -> None:
        batch = Batch(_with_other_tokens(pool, role, place), pool.batch.mask)
        assert pool.readout.at is not None
        self.values, logits = activations_and_logits(pool.model, batch, pool.readout.at)
        prompt = torch.arange(len(pool), device=logits.device)
        rival = answers_of(answer_readout(pool).score(logits, prompt)).token
        self.differs = rival != clean.token
        readout = answer_readout(pool, own=clean.token, rival=rival)
        self.recordings = pool.recordings.read_as(readout)
        self.clean = answers_of(self.recordings.scores())
        self.whole = answers_of(readout.score(logits, prompt))
        pool.cost.rows += len(pool)


def _with_other_tokens(pool: Pool, role: str, place: Int[Tensor, " prompt"]) -> Int[Tensor, "prompt pos"]:
    """The clean prompts with the token of the next prompt that has another one at this role."""
    rows = torch.arange(len(pool))
    own = pool.prompts.tokens[rows, place]
    new = own.clone()
    for step in range(1, len(own)):
        new = torch.where(new == own, own.roll(-step), new)
    if bool((new == own).any()):
        raise BadInput(f"role {role!r}: every prompt has the same token there, so there is none to put in its place")
    tokens = pool.batch.tokens.clone()
    tokens[rows, place] = new.to(tokens.device)
    return tokens
