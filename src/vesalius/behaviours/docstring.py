"""Docstring completion: the next parameter to document is the next one in the definition.

The definition has six parameters, the docstring describes the first three in order, and the text stops where the fourth
must be named. The wrong answer is another parameter of the same definition, described or not, so being present in the
prompt decides nothing. The counterfactual has unrelated words both in the definition and in the description: there is
no order to follow, and it contains neither answer.
"""

import random

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material, fill
from vesalius.behaviours.prompts import Prompt
from vesalius.behaviours.words import DESCRIPTIONS, FUNCTIONS, PARAMETERS

DEFINED, DESCRIBED = 6, 3
STYLES = tuple((owner, tag) for tag in (":param", "@param") for owner in ("self", "cls", "ctx"))


def _template(owner: str, tag: str) -> str:
    defined = ", ".join(f"{{defined{i}}}" for i in range(DEFINED))
    described = "".join(f"    {tag} {{described{i}}}: {{noun{i}}} {{other_noun{i}}}\n" for i in range(DESCRIBED))
    return f'def {{function}}({owner}, {defined}):\n    """{{noun}} {{other_noun}}\n\n{described}    {tag}'


def _prepare(material: Material) -> Draw:
    words = material.words(PARAMETERS, at_least=2 * DEFINED + DESCRIBED)
    nouns, functions = material.share(DESCRIPTIONS), material.share(FUNCTIONS)
    templates = [_template(*style) for style in material.share(STYLES)]
    roles = {f"defined {i + 1}": f"defined{i}" for i in range(DEFINED)}
    roles |= {f"described {i + 1}": f"described{i}" for i in range(DESCRIBED)}

    def draw(rng: random.Random, i: int) -> Prompt | None:
        sample = rng.sample(words, 2 * DEFINED + DESCRIBED)
        names, other_defined, other_described = (
            sample[:DEFINED],
            sample[DEFINED : 2 * DEFINED],
            sample[2 * DEFINED :],
        )
        filler = {"function": rng.choice(functions), "noun": rng.choice(nouns), "other_noun": rng.choice(nouns)}
        for k in range(DESCRIBED):
            filler |= {f"noun{k}": rng.choice(nouns), f"other_noun{k}": rng.choice(nouns)}
        template = templates[i % len(templates)]
        clean = fill(template, {**_numbered("defined", names), **_numbered("described", names[:DESCRIBED]), **filler})
        counterfactual = fill(
            template, {**_numbered("defined", other_defined), **_numbered("described", other_described), **filler}
        )
        correct = names[DESCRIBED]
        wrong = rng.choice([name for name in names if name != correct])
        return material.prompt(clean, counterfactual, correct=f" {correct}", wrong=f" {wrong}", roles=roles)

    return draw


def _numbered(field: str, words: list[str]) -> dict[str, str]:
    return {f"{field}{i}": word for i, word in enumerate(words)}


DOCSTRING = Behaviour("docstring", "Continue a Python docstring with the next parameter of the definition.", _prepare)
