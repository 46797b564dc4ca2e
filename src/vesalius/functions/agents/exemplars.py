"""What MILAN is shown: a few inputs chosen beforehand.

Entity and relation functions come with a list of their own (two words that belong, the rest do not; see the published
benchmark). Numeric and string functions have none, so the harness draws them by seed. In the published lists some words
are also test items, which gives answers away: they are left out in `fixed` mode and counted in either mode.
"""

import random
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from vesalius.functions.answer import Mode
from vesalius.functions.box import Category, Function

#: As published for entities and relations; the same number is drawn for the other two.
COUNT = 10
_WORDS = ["apple", "Banana", "river", "42nd", "OpenAI", "window", "zebra", "Quiet", "house7", "LEVEL", "Tokyo", "x9"]


@dataclass(frozen=True)
class Exemplars:
    """Inputs to show, and how many of the function's own list are test items as well."""

    inputs: tuple[Any, ...]
    overlap: int = 0


def exemplars_for(
    function: Function, *, tested: Collection[Any] = (), mode: Mode = "fixed", seed: int = 0, count: int = COUNT
) -> Exemplars:
    """The exemplars of a function; `tested` are the inputs that its tests use as correct answers."""
    own: Sequence[Any] | None = getattr(function, "initial", None)
    if not own:
        return Exemplars(tuple(drawn(function.category, count, seed=f"{function.id}:{seed}")))
    overlap = [value for value in own if value in set(tested)]
    kept = [value for value in own if mode == "published" or value not in overlap]
    return Exemplars(tuple(kept[:count]), len(overlap))


def drawn(category: Category, count: int, *, seed: str) -> list[Any]:
    """Inputs by seed: numbers over the whole domain, more of them near zero; words and made-up texts."""
    dice = random.Random(seed)
    if category == "numeric":
        near = [round(dice.uniform(-8, 8), 1) for _ in range(count // 3)]
        return near + [round(dice.uniform(-128, 128), 1) for _ in range(count - len(near))]
    words = dice.sample(_WORDS, min(count, len(_WORDS)))
    if category != "strings":
        return words
    return [_text(dice, word) if number % 2 else word for number, word in enumerate(words)]


def _text(dice: random.Random, word: str) -> str:
    letters = "".join(dice.choice(string.ascii_letters + string.digits) for _ in range(dice.randint(3, 8)))
    return f"{word} {letters}"
