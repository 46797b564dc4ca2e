"""Induction: [... A B ... A] -> B on random tokens, where nothing but the earlier occurrence can tell.

A short stretch of random tokens ending in A, with B after it, comes back further on: [x y A B fillers x y A].
Otherwise all tokens of a prompt are different; where the stretch begins and how long it is are drawn at random, so
that no position gives the answer away. The counterfactual replaces the first copy of the stretch by fresh tokens: B
still stands in the context, only the reason to say it is gone. With a distractor from the prompt itself (the
default), being present in the context is no advantage either; `induction-out` compares with a token that is not in
the prompt, as published work does, and so also rewards plain copying.
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
        repeated = rng.randint(SHORTEST_STRETCH, LONGEST_STRETCH)
        drawn = rng.sample(ids, LENGTH + 1)
        body, fresh, outsider = drawn[: LENGTH - repeated], drawn[LENGTH - repeated : LENGTH], drawn[LENGTH]
        start = rng.randrange(len(body) - repeated - LEAST_FILLERS_BETWEEN)
        b = start + repeated
        tokens = [*bos, *body, *body[start:b]]
        counterfactual = [*bos, *body[:start], *fresh, *body[b:], *body[start:b]]
        distractor = rng.choice(body[:start] + body[b + 1 :]) if in_context else outsider
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
