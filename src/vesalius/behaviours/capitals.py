"""Country to capital: "The capital of France is" -> Paris.

The counterfactual names another country with the same number of tokens, and that country's capital is the wrong answer:
the right answer of one prompt is the wrong answer of the other.
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
            by_length[len(tokenizer.continuing(f" {country}"))].append((country, capital))
    candidates = [(pair, group) for group in by_length.values() if len(group) > 1 for pair in group]
    material.require(len(candidates), 4, what="countries with a single-token capital")

    def draw(rng: random.Random, i: int) -> Prompt | None:
        (country, capital), group = rng.choice(candidates)
        other_country, other_capital = rng.choice([pair for pair in group if pair[0] != country])
        template = templates[i % len(templates)]
        clean, counterfactual = (fill(template, {"country": name}) for name in (country, other_country))
        return material.prompt(
            clean, counterfactual, correct=f" {capital}", wrong=f" {other_capital}", roles={"country": "country"}
        )

    return draw


CAPITAL = Behaviour("capitals", "Complete 'The capital of France is' with the country's capital.", _prepare)
