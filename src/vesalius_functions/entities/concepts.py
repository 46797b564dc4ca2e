"""Our own list of 140 concepts, each with words that define it and other words to test with."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vesalius_functions.knowledge.scoring import Concept


@dataclass(frozen=True)
class Listed:
    """A concept of the list. `tests` are words related to it, none of which defines it."""

    concept: Concept
    tests: tuple[str, ...]


@lru_cache(maxsize=1)
def all_concepts() -> tuple[Listed, ...]:
    """The list, in the order of its file."""
    lines = Path(__file__).with_name("concepts.txt").read_text(encoding="utf-8").splitlines()
    fields = [[part.strip() for part in line.split(";")] for line in lines if not line.startswith("#")]
    return tuple(Listed(Concept(name, tuple(words.split())), tuple(tests.split())) for name, words, tests in fields)
