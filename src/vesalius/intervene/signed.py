"""Signed effects: what a component does to the right answer's logit, to the wrong one's, and to the rest.

A score of right minus wrong hides which of the two moved: a head that pushes the wrong answer down looks like one that
brings the right one up. So the same run is read three times more: `right` and `wrong` are the logits that the score is
the difference of (of several answers, the log of their summed exponentials), `rest` is the mean of all other logits.
The mean is linear, so direct effects add up, and costs one more row of the unembedding; no logit but those named is
computed. Adding the same to every logit changes no probability, which is why `rest` is needed: a token gains only if
it gains more than the rest.

The rule from figures to words is here too, and only here:

    mover                      the right answer gains, and more than the rest does: both intervals above 0
    suppressor                 the wrong answer falls, and more than the rest does
    suppressor of the answer   the right answer falls, and more than the rest does
    mover of the wrong answer  the wrong answer gains, and more than the rest does
    calibrates                 none of these, and right, wrong and the rest all move in one direction

Where several hold, the one with the largest figure against the rest is the word. These are names of what a component
writes, so that they are given to direct effects; of a replacement `PHRASES` say the same of what changes.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.intervene.readout import Readout
from vesalius.statistics import means_interval

MOVER, SUPPRESSOR, CALIBRATES = "mover", "suppressor", "calibrates"
ANSWER_SUPPRESSOR, WRONG_MOVER = "suppressor of the answer", "mover of the wrong answer"
#: The same as what a component does to the logits.
PHRASES = {
    MOVER: "raises the answer",
    SUPPRESSOR: "lowers the wrong answer",
    ANSWER_SUPPRESSOR: "lowers the answer",
    WRONG_MOVER: "raises the wrong answer",
    CALIBRATES: "moves all logits alike",
}
#: Side and direction of each name, in the order of `_candidates`.
_NAMES = (MOVER, SUPPRESSOR, ANSWER_SUPPRESSOR, WRONG_MOVER)


class LogitSides(NamedTuple):
    """The logits of the right answer, of the wrong one and of the rest, or what something adds to them."""

    right: Float[Tensor, "*prompt"]
    wrong: Float[Tensor, "*prompt"]
    rest: Float[Tensor, "*prompt"]

    def minus(self, other: "LogitSides") -> "LogitSides":
        """What is gone in the other: clean minus edited."""
        return LogitSides(*(a - b for a, b in zip(self, other, strict=True)))

    def take(self, sets: Sequence[int] | Tensor) -> "LogitSides":
        """Those of some sets of components."""
        return LogitSides(*(side[:, sets] for side in self))


def signed(
    readout: Readout,
    answers: Int[Tensor, "prompt answer"],
    wrongs: Int[Tensor, "prompt wrong"],
    *,
    vocabulary: int,
) -> Readout:
    """A readout whose readings are [row, 4]: its own score, then the logits of right, wrong and the rest at its first
    position. Ids are padded with -1; `vocabulary` counts the logits there are.
    """
    ids, split = torch.cat([answers, wrongs], 1), answers.shape[1]
    own = None if readout.choose is None else readout.choose.shape[1]

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        here = ids.to(logits.device)[prompt]
        first, there = logits[:, 0], here >= 0
        if own is None:
            named, mean = first.gather(1, here.clamp(min=0)), first.mean(1)
        else:
            named, mean = first[:, own:-1], first[:, -1]
        value = readout.score(logits if own is None else logits[:, :, :own], prompt)
        present = named.masked_fill(~there, -torch.inf)
        right, wrong = present[:, :split].logsumexp(1), present[:, split:].logsumexp(1)
        others = (vocabulary - there.sum(1)).clamp(min=1)
        rest = (mean * vocabulary - named.where(there, 0.0).sum(1)) / others
        return torch.stack([value.to(right), right, wrong, rest], 1)

    if own is None or readout.choose is None:
        return replace(readout, score=score)
    return replace(readout, score=score, choose=torch.cat([readout.choose, ids.clamp(min=0)], 1), mean=True)


def lost(clean: Float[Tensor, " *prompt"], edited: Float[Tensor, "prompt set *sides"]) -> Tensor:
    """Clean minus edited readings, each with its sides or without. What differs in the last digits of the largest
    reading is no effect: the same sign on every prompt would give it an interval without 0, and a word.
    """
    change = clean[:, None] - edited
    scale = clean.abs().flatten(1).amax(1) if clean.ndim > 1 else clean.abs()
    rounding = 4 * torch.finfo(change.dtype).eps * scale
    return change.where(change.abs() > rounding.reshape(-1, *[1] * (change.ndim - 1)), 0.0)


def parted(readings: Tensor, axes: int = 1) -> tuple[Tensor, LogitSides | None]:
    """The scores in readings, which have so many `axes`, and the logits of the sides where readings are signed."""
    if readings.ndim == axes:
        return readings, None
    score, *sides = readings.unbind(-1)
    return score, LogitSides(*sides)


def words_of(effects: LogitSides, *, least: float = 0.0, level: float = 0.95, seed: int = 0) -> list[str | None]:
    """The word of each set of components by the rule above, from what it adds on each prompt; None where nothing is
    clear. With `least`, gains and falls of fewer logits do not count.
    """
    right, wrong, rest = (side.flatten(1) for side in effects)
    bounds = {
        name: means_interval(values, level=level, seed=seed)
        for name, values in {
            "right": right,
            "wrong": wrong,
            "rest": rest,
            "right against the rest": right - rest,
            "wrong against the rest": wrong - rest,
        }.items()
    }
    up, down = (
        {name: low > least for name, (low, _) in bounds.items()},
        {name: high < -least for name, (_, high) in bounds.items()},
    )
    candidates = torch.stack(
        [
            way[side] & way[f"{side} against the rest"]
            for way, side in ((up, "right"), (down, "wrong"), (down, "right"), (up, "wrong"))
        ]
    )
    gains = [side.sub(rest).mean(0).abs().cpu() for side in (right, wrong)]
    sizes = torch.stack([gains[0], gains[1], gains[0], gains[1]]).where(candidates, -1.0)
    alike = [up["right"] & up["wrong"] & up["rest"], down["right"] & down["wrong"] & down["rest"]]
    every = zip(sizes.max(0).values.tolist(), sizes.argmax(0).tolist(), (alike[0] | alike[1]).tolist(), strict=True)
    return [_NAMES[best] if size >= 0 else CALIBRATES if moved else None for size, best, moved in every]


def word_of(effects: LogitSides, *, least: float = 0.0, level: float = 0.95, seed: int = 0) -> str | None:
    """The word of one component, from what it adds on each prompt."""
    return words_of(LogitSides(*(side[:, None] for side in effects)), least=least, level=level, seed=seed)[0]
