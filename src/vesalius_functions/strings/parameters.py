"""What the parameters of an operation can be: how they are drawn, and all of them where they can be listed."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from random import Random

from vesalius_functions.strings.operations import LETTERS

BOTH_CASES = LETTERS + LETTERS.upper()
LONGEST_SUFFIX = 5

Parameters = tuple[int | str, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of parameters. Where they are too many to list, `values` holds some, and the others are solved for."""

    name: str
    draw: Callable[[Random], Parameters]
    values: tuple[Parameters, ...]
    complete: bool = True


def _listed(name: str, every: list[Parameters]) -> Kind:
    return Kind(name, lambda rng: rng.choice(every), tuple(every))


def _suffix(rng: Random) -> Parameters:
    return ("".join(rng.choices(BOTH_CASES, k=rng.randint(1, LONGEST_SUFFIX))),)


def _replacement(rng: Random) -> Parameters:
    return tuple(rng.sample(BOTH_CASES, 2))


def _alphabet(rng: Random) -> Parameters:
    return ("".join(rng.sample(LETTERS, 26)),)


NOTHING = _listed("nothing", [()])
DIGIT = _listed("digit", [(number,) for number in range(1, 10)])
LETTER = _listed("letter", [(letter,) for letter in BOTH_CASES])
INDEXES = _listed("two indexes", list(permutations(range(10), 2)))
SHIFT = _listed("shift", [(shift,) for shift in range(26)])
#: A shift by zero changes nothing: the corrected suite leaves it out.
REAL_SHIFT = _listed("shift", [(shift,) for shift in range(1, 26)])
SUFFIX = Kind("suffix", _suffix, LETTER.values, complete=False)
REPLACEMENT = Kind("replacement", _replacement, (), complete=False)
ALPHABET = Kind("alphabet", _alphabet, (), complete=False)
