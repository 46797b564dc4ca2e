"""What a run of the prompts gave: score, predicted token, whether it is right, and its margin over a rival answer."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.metrics import NONE
from vesalius.explanations.natural.pool import Pool
from vesalius.intervene import Readout
from vesalius.intervene.readout import choose_tokens


@dataclass(frozen=True)
class Answers:
    """One value per prompt. `token` is the most likely next token; `right` that it is an answer, or that every token of
    an answer of several is predicted; `margin` is logit(rival answer) - logit(own answer), where those were given.
    """

    score: Float[Tensor, " prompt"]
    token: Int[Tensor, " prompt"]
    right: Bool[Tensor, " prompt"]
    margin: Float[Tensor, " prompt"]


def answers_of(reading: Float[Tensor, "prompt 4"]) -> Answers:
    """From what `answer_readout` reads."""
    score, token, right, margin = reading.cpu().unbind(1)
    return Answers(score.float(), token.long(), right > 0.5, margin.float())


def answers_lost(before: Answers, after: Answers) -> Float[Tensor, " prompt"]:
    """1 where a right answer is lost, -1 where one is gained, else 0."""
    return before.right.float() - after.right.float()


def answer_readout(
    pool: Pool, *, own: Int[Tensor, " prompt"] | None = None, rival: Int[Tensor, " prompt"] | None = None
) -> Readout:
    """A readout of the pool's metric, the predicted token, whether it is right, and the margin of `rival` over `own`
    (by default the right answer, so that the margin is 0).
    """
    prompts, metric = pool.prompts, pool.readout
    assert metric.at is not None
    question = prompts.question
    forced = question.answers[:, :1] if question.forced is None else question.forced
    steps = min(forced.shape[1], metric.at.shape[1])
    pair = tuple(prompts.correct if token is None else token for token in (own, rival))

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        chosen = logits if metric.choose is None else choose_tokens(logits, metric.choose.to(logits.device)[prompt])
        value = metric.score(chosen, prompt)
        top = logits[:, :steps].argmax(-1)
        ids = forced.to(logits.device)[prompt][:, :steps]
        several = (ids != NONE).sum(1) > 1
        every = ((top == ids) | (ids == NONE)).all(1)
        one = (top[:, :1] == question.answers.to(logits.device)[prompt]).any(1)
        rows, first = torch.arange(len(logits), device=logits.device), logits[:, 0]
        own_id, rival_id = (tokens.to(logits.device)[prompt] for tokens in pair)
        margin = first[rows, rival_id] - first[rows, own_id]
        right = torch.where(several, every, one)
        return torch.stack([value.double(), top[:, 0].double(), right.double(), margin.double()], 1)

    return Readout(score, metric.at, unit=metric.unit)
