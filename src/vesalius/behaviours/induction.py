"""Induction: [... A B ... A] -> B on random tokens, where only the earlier occurrence gives the answer.

A short stretch of random tokens that ends in A and is followed by B is repeated later: [x y A B fillers x y A].
All other tokens of a prompt are distinct; the start and the length of the stretch are random, so no position gives the
answer away. The counterfactual replaces the first copy of the stretch by other tokens: B is still in the context, but
nothing predicts it. With a distractor from the prompt itself (the default), being present in the context is no
advantage; `induction-out` compares with a token that is not in the prompt, as published work does, and so also rewards
plain copying.
"""

import random
from functools import partial

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material
from vesalius.behaviours.prompts import Prompt

LENGTH = 31
SHORTEST_STRETCH, LONGEST_STRETCH = 4, 8
LEAST_FILLERS_BETWEEN = 2


def _prepare(material: Material, *, in_context: bool) -> Draw:
    ids = material.ids(at_least=LENGTH + 1)
    bos = [] if material.tokenizer.bos is None else [material.tokenizer.bos]

    def draw(rng: random.Random, _: int) -> Prompt:
        n_stretch = rng.randint(SHORTEST_STRETCH, LONGEST_STRETCH)
        sample = rng.sample(ids, LENGTH + 1)
        body, replacement, absent = sample[: LENGTH - n_stretch], sample[LENGTH - n_stretch : LENGTH], sample[LENGTH]
        start = rng.randrange(len(body) - n_stretch - LEAST_FILLERS_BETWEEN)
        b = start + n_stretch
        tokens = [*bos, *body, *body[start:b]]
        counterfactual = [*bos, *body[:start], *replacement, *body[b:], *body[start:b]]
        distractor = rng.choice(body[:start] + body[b + 1 :]) if in_context else absent
        end = len(tokens) - 1
        roles = {"first A": len(bos) + b - 1, "B": len(bos) + b, "second A": end, "end": end}
        return Prompt(
            tuple(tokens),
            tuple(counterfactual),
            body[b],
            distractor,
            roles,
            material.tokenizer.decode(tokens[len(bos) :]),
        )

    return draw


INDUCTION = Behaviour(
    "induction",
    "After [A B ... A] say B, on random tokens; the wrong answer is another token of the prompt.",
    partial(_prepare, in_context=True),
)
INDUCTION_OUT = Behaviour(
    "induction-out",
    "After [A B ... A] say B, on random tokens; the wrong answer is a token that is not in the prompt.",
    partial(_prepare, in_context=False),
    variant_of=INDUCTION.name,
)
