"""Indirect object identification: "When Mary and John went to the store, John gave a drink to" -> Mary.

Half of the prompts of a batch name the indirect object first (ABBA), half the subject (BABA), and templates are used
in turn, so neither order nor wording can explain the metric. The counterfactual names three other, distinct people, so
no name is the answer (ABC).
"""

import random

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material, fill
from vesalius.behaviours.prompts import Prompt
from vesalius.behaviours.words import NAMES, OBJECTS, PLACES

TEMPLATES = (
    "When {first} and {second} went to the {place}, {subject} gave a {object} to",
    "After {first} and {second} arrived at the {place}, {subject} handed a {object} to",
    "Then, {first} and {second} went to the {place}. {subject} gave a {object} to",
    "While {first} and {second} were working at the {place}, {subject} gave a {object} to",
    "When {first} and {second} got a {object} at the {place}, {subject} decided to give it to",
    "Then, {first} and {second} had a long talk at the {place}, and {subject} passed a {object} to",
    "Yesterday {first} and {second} met at the {place}, and {subject} offered a {object} to",
    "Once {first} and {second} were inside the {place}, {subject} gave a {object} to",
    "Because {first} and {second} found a {object} at the {place}, {subject} handed it to",
    "As {first} and {second} walked through the {place}, {subject} handed a {object} to",
    "Then, {first} and {second} found a {object} at the {place}. {subject} gave it to",
    "After {first} and {second} had lunch at the {place}, {subject} gave a {object} to",
    "Last week {first} and {second} visited the {place}, and {subject} brought a {object} to",
    "Before {first} and {second} left the {place}, {subject} returned a {object} to",
    "Every day {first} and {second} meet at the {place}, and {subject} gives a {object} to",
)


def _prepare(material: Material) -> Draw:
    names = material.words(NAMES, at_least=5)
    places, objects, templates = material.share(PLACES), material.share(OBJECTS), material.share(TEMPLATES)

    def draw(rng: random.Random, i: int) -> Prompt | None:
        indirect, subject, *others = rng.sample(names, 5)
        abba, template = i % 2 == 0, templates[i // 2 % len(templates)]
        first, second = (indirect, subject) if abba else (subject, indirect)
        scene = {"place": rng.choice(places), "object": rng.choice(objects)}
        clean = fill(template, {"first": first, "second": second, "subject": subject, **scene})
        counterfactual = fill(template, {"first": others[0], "second": others[1], "subject": others[2], **scene})
        roles = {"IO": "first" if abba else "second", "S1": "second" if abba else "first", "S2": "subject"}
        return material.prompt(clean, counterfactual, correct=f" {indirect}", wrong=f" {subject}", roles=roles)

    return draw


IOI = Behaviour(
    "ioi", "Name the person who was mentioned once: 'When Mary and John ..., John gave a drink to' Mary.", _prepare
)
