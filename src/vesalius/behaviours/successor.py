"""Successor: "In order: Tuesday, Wednesday," -> Thursday; days, months, numbers in words and letters.

The splits have different answers (and templates). The counterfactual shows another stretch of the same series, whose
successor is the wrong answer; the two stretches never contain each other's answer, so a model cannot succeed by
avoiding what it has just seen.
"""

import random
from dataclasses import dataclass

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material, fill
from vesalius.behaviours.prompts import Prompt
from vesalius.behaviours.words import DAYS, LETTERS, MONTHS, NUMBERS

TEMPLATES = (
    "In order: {before}, {last},",
    "The list goes like this: {before}, {last},",
    "Here they are in the right order: {before}, {last},",
    "The sequence goes {before}, {last},",
    "Please continue the list: {before}, {last},",
    "They come one after the other: {before}, {last},",
    "Let us say them in order: {before}, {last},",
    "The order is {before}, {last},",
    "The children learned to say {before}, {last},",
)
CYCLES, LINES = (DAYS, MONTHS), (NUMBERS, LETTERS)


@dataclass(frozen=True)
class Stretch:
    """Two consecutive items and the one that follows."""

    before: str
    last: str
    answer: str

    def clashes(self, other: "Stretch") -> bool:
        """Whether one stretch contains the other's answer."""
        return self.answer in (other.before, other.last, other.answer) or other.answer in (self.before, self.last)


def stretches(series: tuple[str, ...]) -> list[Stretch]:
    """Every stretch of a series in order of its answer; days and months are cyclic."""
    starts = range(len(series)) if series in CYCLES else range(2, len(series))
    return [Stretch(series[i - 2], series[i - 1], series[i]) for i in starts]


def _prepare(material: Material) -> Draw:
    single = material.tokenizer.is_single
    choices: list[list[tuple[Stretch, Stretch]]] = []
    for series in (*CYCLES, *LINES):
        usable = [
            s for s in material.share(stretches(series)) if all(single(f" {x}") for x in (s.before, s.last, s.answer))
        ]
        choices.append([(one, other) for one in usable for other in usable if not one.clashes(other)])
    choices = [pairs for pairs in choices if pairs]
    material.require(sum(map(len, choices)), 6, what="pairs of single-token stretches")
    templates = material.share(TEMPLATES)

    def draw(rng: random.Random, i: int) -> Prompt | None:
        one, other = rng.choice(rng.choice(choices))
        clean, counterfactual = (
            fill(templates[i % len(templates)], {"before": s.before, "last": s.last}) for s in (one, other)
        )
        roles = {"before": "before", "last": "last"}
        return material.prompt(clean, counterfactual, correct=f" {one.answer}", wrong=f" {other.answer}", roles=roles)

    return draw


SUCCESSOR = Behaviour("successor", "Say what comes next among days, months, numbers in words or letters.", _prepare)
