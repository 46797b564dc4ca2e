"""What is read off at the end of a run: which logits, and the number made of them.

A readout names the positions and tokens it needs, so that the engine computes no other logits. All readouts are
"higher is better for the behaviour", so that an effect (clean minus ablated) is positive where a component helps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Score = Callable[[Float[Tensor, "row query out"], Int[Tensor, " row"]], Tensor]

#: The unit of scores that count the outputs which stay the same.
SHARE_OF_OUTPUTS = "share of outputs"


@dataclass(frozen=True)
class Readout:
    """`score(logits, prompt)` gives one value per row; `prompt` says which prompt each row ran.

    `at` are the positions to read in each prompt (None: all), `choose` the tokens (None: all). With `mean` the mean
    logit of the vocabulary follows the chosen tokens'.
    """

    score: Score
    at: Int[Tensor, "prompt query"] | None = None
    choose: Int[Tensor, "prompt choice"] | None = None
    unit: str = "logits"
    mean: bool = False

    def take(self, prompts: Int[Tensor, " n"]) -> "Readout":
        """The readout of some of the prompts, renumbered from 0."""
        score = self.score

        def renumbered(logits: Tensor, prompt: Tensor) -> Tensor:
            return score(logits, prompts.to(prompt.device)[prompt])

        at = None if self.at is None else self.at[prompts]
        choose = None if self.choose is None else self.choose[prompts]
        return Readout(renumbered, at, choose, self.unit, self.mean)


def chosen_logits(
    readout: Readout, logits: Float[Tensor, "row query out"], prompt: Int[Tensor, " row"]
) -> Float[Tensor, "row query choice"]:
    """What a readout asks for, from all logits at its positions."""
    if readout.choose is None:
        return logits
    tokens = readout.choose.to(logits.device)[prompt]
    chosen = logits.gather(2, tokens[:, None].expand(-1, logits.shape[1], -1))
    return torch.cat([chosen, logits.mean(-1, keepdim=True)], 2) if readout.mean else chosen


def all_logits() -> Readout:
    """Every logit at every position, as they are."""
    return Readout(lambda logits, prompt: logits)


def logit_difference(
    position: Int[Tensor, " prompt"], correct: Int[Tensor, " prompt"], wrong: Int[Tensor, " prompt"]
) -> Readout:
    """logit(correct) - logit(wrong) at one position of each prompt."""
    choose = torch.stack([correct, wrong], 1)
    return Readout(lambda logits, prompt: logits[:, 0, 0] - logits[:, 0, 1], position[:, None], choose, "logits")


def next_token_loss(tokens: Int[Tensor, "prompt pos"], mask: Bool[Tensor, "prompt pos"] | None = None) -> Readout:
    """Minus the mean next-token cross-entropy of each prompt, in nats: the control "does it still model ordinary
    text?".
    """
    real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        targets, counted = tokens.to(logits.device)[prompt, 1:], real.to(logits.device)[prompt]
        counted = counted[:, 1:] & counted[:, :-1]
        log_probs = logits[:, :-1].log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        return (log_probs * counted).sum(1) / counted.sum(1)

    return Readout(score, unit="nats")


def agreement(clean: Int[Tensor, "prompt query"], counted: Bool[Tensor, "prompt query"]) -> Readout:
    """Share of counted positions whose top class is still `clean`: 1 means nothing changed."""

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        kept, real = clean.to(logits.device)[prompt], counted.to(logits.device)[prompt]
        return ((logits.argmax(-1) == kept) & real).sum(1) / real.sum(1)

    return Readout(score, unit=SHARE_OF_OUTPUTS)
