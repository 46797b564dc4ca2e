"""Greater-than: "The war lasted from the year 1732 to the year 17" must continue with a later year.

The question depends on how the tokenizer splits a year. Where each digit is a token, the next token is the decade
digit: a digit above 3 is right, one below it wrong. Where two digits are one token (GPT-2), the next token is the rest
of the year. The right and the wrong answer are equally far from the year, so distance decides nothing. The
counterfactual starts so early in the century that both answers would be right.
"""

import random

from vesalius.behaviours.behaviour import Behaviour, Draw
from vesalius.behaviours.material import Material, fill
from vesalius.behaviours.prompts import Prompt
from vesalius.behaviours.words import CENTURIES, PERIODS
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

TEMPLATES = (
    "The {period} lasted from the year {start} to the year {century_again}",
    "The {period} began in the year {start} and ended in the year {century_again}",
    "The {period} went on from the year {start} until the year {century_again}",
    "According to the book, the {period} lasted from the year {start} to the year {century_again}",
    "The {period} started in the year {start} and was over by the year {century_again}",
    "We know that the {period} ran from the year {start} through the year {century_again}",
)
LATEST_EARLY_YEAR = 9


def year_form(tokenizer: Tokenizer) -> str:
    """ "digits" where 1732 ends in the tokens 3 and 2, "pairs" where it ends in the token 32."""
    century, year = (tokenizer.continuing(text) for text in (" 17", " 1732"))
    pieces = [tokenizer.piece(token).strip() for token in year[len(century) :]]
    if year[: len(century)] == century and pieces in (["3", "2"], ["32"]):
        return "digits" if len(pieces) == 2 else "pairs"
    tokens = [tokenizer.piece(token) for token in year]
    raise BadInput(
        f"behaviour greater-than: this tokenizer splits ' 1732' into {tokens}; digits or ' 17' + '32' are needed"
    )


def _prepare(material: Material) -> Draw:
    return _digits(material) if year_form(material.tokenizer) == "digits" else _pairs(material)


def _digits(material: Material) -> Draw:
    scenes = _Scenes(material, "{century}{decade}{unit}")

    def draw(rng: random.Random, _: int) -> Prompt | None:
        decade, unit = rng.randrange(2, 9), str(rng.randrange(10))
        distance = rng.randint(1, min(decade - 1, 9 - decade))
        starts = [{"decade": digit, "unit": unit} for digit in (str(decade), "0")]
        return scenes.prompt(rng, starts, correct=str(decade + distance), wrong=str(decade - distance), role="decade")

    return draw


def _pairs(material: Material) -> Draw:
    scenes = _Scenes(material, "{century}{rest}")

    def draw(rng: random.Random, _: int) -> Prompt | None:
        early, year = rng.randint(1, LATEST_EARLY_YEAR), rng.randint(LATEST_EARLY_YEAR + 2, 97)
        distance = rng.randint(1, min(year - LATEST_EARLY_YEAR - 1, 98 - year))
        starts = [{"rest": f"{number:02}"} for number in (year, early)]
        return scenes.prompt(rng, starts, correct=str(year + distance), wrong=str(year - distance), role="rest")

    return draw


class _Scenes:
    """Templates, centuries and periods of one split; the format string `year` replaces the template's start year."""

    def __init__(self, material: Material, year: str) -> None:
        self.material = material
        self.periods, self.centuries = material.share(PERIODS), material.share(CENTURIES)
        self.templates = [template.replace("{start}", year) for template in material.share(TEMPLATES)]

    def prompt(
        self, rng: random.Random, starts: list[dict[str, str]], *, correct: str, wrong: str, role: str
    ) -> Prompt | None:
        template, century = rng.choice(self.templates), rng.choice(self.centuries)
        shared = {"period": rng.choice(self.periods), "century": century, "century_again": century}
        clean, counterfactual = (fill(template, {**shared, **start}) for start in starts)
        roles = {"period": "period", "century": "century", "start year": role}
        return self.material.prompt(clean, counterfactual, correct=correct, wrong=wrong, roles=roles)


GREATER_THAN = Behaviour(
    "greater-than", "End a span of years later than it began: 'from the year 1732 to the year 17' + 4 to 9.", _prepare
)
