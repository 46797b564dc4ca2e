"""The batches of MechRL as published: induction, indirect objects and docstrings.

Every draw takes its words from all of a pool, whatever the split: the paper has no splits, its batches differ by seed.
The lists of words are the published ones; the sentences around them are ours where the paper prints none.

| behaviour          | a row                                                                                           |
|--------------------|-------------------------------------------------------------------------------------------------|
| `mechrl-induction` | the first token, A, B, 57 tokens and A again, all uniform; B against a token other than A and B |
| `mechrl-ioi`       | four templates in turn, either name first in every other row; the indirect object, the subject  |
| `mechrl-docstring` | five parameters of which four are described; the fifth against one of the four                  |

A counterfactual, which the published experiment does not need, breaks what the answer follows from: another B where
the first one was, three other names, five other parameters.
"""

import random

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.builtin import DOCSTRING, INDUCTION, IOI, ioi_draw, words_of
from vesalius.behaviours.prompts import Material, Prompt, fill

#: Tokens below this one (in GPT-2: punctuation) are not drawn.
FIRST_TOKEN = 10
FILLERS = 57

NAMES = words_of(
    """
    John Mary Tom James Sarah Michael Robert Jennifer David Linda William Patricia Richard Susan Joseph Karen Charles
    Nancy Daniel Lisa Anna Mark Paul Emily Andrew George
    """
)
OBJECTS = words_of("ring kiss bone basketball computer necklace drink snack book letter ball guitar pen shirt watch")
PLACES = words_of("store garden restaurant school park hospital library office station market cafe gym")
IOI_TEMPLATES = (
    "When {first} and {second} went to the {place}, {subject} gave a {object} to",
    "When {first} and {second} were at the {place}, {subject} gave a {object} to",
    "After {first} and {second} arrived at the {place}, {subject} handed a {object} to",
    "While {first} and {second} were talking, {subject} passed a {object} to",
)
PARAMETERS = words_of(
    """
    files data size shape state option value name items config path mode flag key token user color type index label
    limit scale rate weight depth count offset result target source
    """
)
DEFINED = 5
DESCRIBED = DEFINED - 1
DESCRIPTIONS = (
    "what is read first",
    "where it begins",
    "how it is written",
    "a number above zero",
    "the part to keep",
    "left out if empty",
    "one of several",
    "the usual choice",
    "taken as it is",
    "used at the end",
)


def _induction(material: Material) -> Draw:
    bos = material.tokenizer.bos
    ids = range(FIRST_TOKEN, min(material.tokenizer.size, material.d_vocab))
    material.require(len(ids), FILLERS, what="tokens")
    start = [] if bos is None else [bos]

    def draw(rng: random.Random, _: int) -> Prompt:
        a, b, *fillers = rng.choices(ids, k=2 + FILLERS)
        wrong, other = (rng.choice(ids) for _ in range(2))
        while wrong in (a, b):
            wrong = rng.choice(ids)
        while other == b:
            other = rng.choice(ids)
        tokens, counterfactual = ((*start, a, second, *fillers, a) for second in (b, other))
        end = len(tokens) - 1
        roles = {"first A": len(start), "B": len(start) + 1, "second A": end, "end": end}
        return Prompt(tokens, counterfactual, b, wrong, roles, material.tokenizer.decode(tokens[len(start) :]))

    return draw


def _ioi(material: Material) -> Draw:
    names = [name for name in NAMES if material.tokenizer.is_single(f" {name}")]
    material.require(len(names), 5, what="single-token names")
    return ioi_draw(material, names, PLACES, OBJECTS, IOI_TEMPLATES)


def docstring_template(defined: int, described: int) -> str:
    """A definition of some parameters and a docstring that describes the first of them, up to the next one's name."""
    signature = ", ".join(f"{{defined{i}}}" for i in range(defined))
    lines = "".join(f"    :param {{described{i}}}: {{description{i}}}\n" for i in range(described))
    return f'def fn(self, {signature}):\n    """\n{lines}    :param'


def _docstring(material: Material) -> Draw:
    words = [word for word in PARAMETERS if material.tokenizer.is_single(f" {word}")]
    material.require(len(words), 2 * DEFINED, what="single-token parameters")
    template = docstring_template(DEFINED, DESCRIBED)
    roles = {f"defined {i + 1}": f"defined{i}" for i in range(DEFINED)}
    roles |= {f"described {i + 1}": f"described{i}" for i in range(DESCRIBED)}

    def draw(rng: random.Random, _: int) -> Prompt | None:
        sample = rng.sample(words, 2 * DEFINED)
        told = {f"description{i}": rng.choice(DESCRIPTIONS) for i in range(DESCRIBED)}
        texts = []
        for names in (sample[:DEFINED], sample[DEFINED:]):
            fields = {f"defined{i}": name for i, name in enumerate(names)}
            fields |= {f"described{i}": name for i, name in enumerate(names[:DESCRIBED])}
            texts.append(fill(template, {**fields, **told}))
        wrong = rng.choice(sample[:DESCRIBED])
        correct = sample[DESCRIBED]
        return material.prompt(*texts, correct=f" {correct}", wrong=f" {wrong}", roles=roles)

    return draw


MECHRL_INDUCTION = Behaviour(
    "mechrl-induction",
    "MechRL's batch: [A B ... A] of uniform tokens, B against a token that is neither A nor B.",
    _induction,
    variant_of=INDUCTION.name,
)
MECHRL_IOI = Behaviour(
    "mechrl-ioi",
    "MechRL's batch: four templates, the indirect object named first in every other prompt.",
    _ioi,
    variant_of=IOI.name,
)
MECHRL_DOCSTRING = Behaviour(
    "mechrl-docstring",
    "MechRL's batch: all parameters but the last are described, the last one against one of them.",
    _docstring,
    variant_of=DOCSTRING.name,
)
