"""Country to capital: "The capital of France is" -> Paris.

The counterfactual asks for another country of equally many tokens, and its capital is the wrong answer: what is right
for one prompt is wrong for the other.
"""

import random
from collections import defaultdict

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material, fill
from vesalius.behaviours.prompts import Prompt
from vesalius.behaviours.words import CAPITALS

TEMPLATES = (
    "The capital of {country} is",
    "The capital city of {country} is",
    "The capital of {country} is the city of",
    "Question: What is the capital of {country}? Answer:",
    "Everybody knows that the capital of {country} is",
    "The seat of government of {country} is the city of",
    "I have never been to {country}, but I know that its capital is",
    "Last year we travelled to the capital of {country}, which is",
    "In the geography class we learned that the capital of {country} is",
)


def _prepare(material: Material) -> Draw:
    tokenizer, templates = material.tokenizer, material.share(TEMPLATES)
    by_length: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for country, capital in material.share(CAPITALS):
        if tokenizer.is_single(f" {capital}"):
            by_length[len(tokenizer.encode(f" {country}", bos=False))].append((country, capital))
    partnered = [(pair, group) for group in by_length.values() if len(group) > 1 for pair in group]
    material.require(len(partnered), 4, what="countries with a single-token capital")

    def draw(rng: random.Random, i: int) -> Prompt | None:
        (country, capital), group = rng.choice(partnered)
        other, rival = rng.choice([pair for pair in group if pair[0] != country])
        template = templates[i % len(templates)]
        clean, counterfactual = (fill(template, {"country": name}) for name in (country, other))
        return material.prompt(
            clean, counterfactual, correct=f" {capital}", wrong=f" {rival}", roles={"country": "country"}
        )

    return draw


CAPITAL = Behaviour("capitals", "Complete 'The capital of France is' with the country's capital.", _prepare)
