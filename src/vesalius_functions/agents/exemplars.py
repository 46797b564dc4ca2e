"""What MILAN is shown: a few inputs chosen in advance.

Published entity and relation functions come with a list of their own: two words that belong, eight that do not. Some of
those words stand in the unit tests as well, as right or as wrong examples, and to see either's output gives an answer
away: they are left out in `fixed` mode and counted in either mode. For functions drawn afresh such a list is put
together here from what defines this function and others of the whole suite, however few of them are interpreted, and
without any input of a unit test. Numeric and string functions have no list: the harness draws inputs by seed.
"""

import random
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from vesalius_functions.box import Category, Function
from vesalius_functions.suite import Suite

#: As published for entities and relations; the same number is drawn for the other two.
COUNT = 10
BELONGING = 2
#: So many further draws of a function's unit tests are searched for inputs that no test has.
DRAWS = 3
_WORDS = ["apple", "Banana", "river", "42nd", "OpenAI", "window", "zebra", "Quiet", "house7", "LEVEL", "Tokyo", "x9"]


@dataclass(frozen=True)
class Exemplars:
    """Inputs to show, and how many of the function's own list are inputs of its unit tests as well."""

    inputs: tuple[Any, ...]
    overlap: int = 0


def exemplars_for(
    function: Function, suite: Suite, *, count: int = COUNT, grading_seed: int | None = None
) -> Exemplars:
    """The exemplars of a function of a suite whose unit tests are drawn with `grading_seed`."""
    if function.category in ("numeric", "strings"):
        return Exemplars(tuple(drawn(function.category, count, seed=f"{function.id}:{suite.seed}")))
    tests = suite.unit_tests(function, grading_seed=grading_seed)
    tested = {value for test in tests for value in test.inputs}
    own: Sequence[Any] = getattr(function, "hints", ())
    if not own:
        return Exemplars(tuple(_put_together(function, suite, tested, count)))
    overlap = [value for value in own if value in tested]
    kept = [value for value in own if suite.mode == "published" or value not in overlap]
    return Exemplars(tuple(kept[:count]), len(overlap))


def _put_together(function: Function, suite: Suite, tested: Collection[Any], count: int) -> list[Any]:
    """Two inputs that belong to the function, the rest from other functions, in a random order."""
    dice = random.Random(f"exemplars:{function.id}:{suite.seed}")
    chosen = _belonging(function, suite, tested, dice)[:BELONGING]
    others = [other for other in suite.pool() if other.id != function.id]
    dice.shuffle(others)
    for other in others:
        if len(chosen) == count:
            break
        strange = [value for value in _belonging(other, suite, tested, dice) if value not in chosen]
        chosen += strange[:1]
    dice.shuffle(chosen)
    return chosen or drawn(function.category, count, seed=f"{function.id}:{suite.seed}")


def _belonging(function: Function, suite: Suite, tested: Collection[Any], dice: random.Random) -> list[Any]:
    """Inputs that belong to a function, none of them tested: its defining words, of each concept in turn, or what
    other draws of its unit tests hold."""
    groups = [list(words) for words in function.truth().get("defining_words", [])]
    if not groups:
        groups = [[test.right.input for draw in range(1, 1 + DRAWS) for test in suite.unit_tests(function, draw=draw)]]
    for words in groups:
        dice.shuffle(words)
    in_turn = [word for together in zip_longest(*groups) for word in together if word is not None]
    return [word for word in dict.fromkeys(in_turn) if word not in tested]


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
