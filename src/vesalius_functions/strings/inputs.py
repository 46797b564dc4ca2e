"""Strings to ask about: words of every shape, with digits, blanks, capitals, apostrophes and punctuation.

All are at most thirty characters long, because published number words end there.
"""

from collections.abc import Iterator
from random import Random

from vesalius_functions.strings.parameters import BOTH_CASES

LONGEST = 30
_WORDS = """apple river stone quick jump zebra velvet xylophone mango kettle window frost lizard budget whisper galaxy
    question puzzle hazel jacket vivid oxygen quartz rhythm banana committee letter tomato umbrella yellow zero island
    echo octopus eagle harbor copper violin maple thunder walnut pepper bubble coffee sunset garden python circle
    kiwi jigsaw exit fuzzy equal vow box sky yes hymn a I so"""
_CONTRACTIONS = "it's don't o'clock we're can't Anna's y'all 'tis he'd rock'n'roll"
WORDS, CONTRACTIONS = _WORDS.split(), _CONTRACTIONS.split()
MARKS = "!?.,-_:;#@&"


def strings(rng: Random, *, letters: str = "") -> Iterator[str]:
    """Strings without end; every other one has some of `letters` put in, so that a rule about them shows."""
    while True:
        made = rng.choice(_SHAPES)(rng)
        if letters and rng.random() < 0.5:
            for _ in range(rng.randint(1, 2)):
                place = rng.randint(0, len(made))
                made = made[:place] + rng.choice(letters) + made[place:]
        if len(made) <= LONGEST:
            yield made


def varied(rng: Random, count: int, *, letters: str = "") -> Iterator[str]:
    """Strings without end and without repeats; the first `count` hold digits, blanks, capitals and an apostrophe."""
    needed = [str.isdigit, str.isspace, str.isupper, "'".__eq__]
    if count < len(needed):
        needed = []
    seen: set[str] = set()
    source = strings(rng, letters=letters)
    while True:
        test = needed.pop() if needed else None
        made = next(s for s in source if s not in seen and (test is None or any(map(test, s))))
        seen.add(made)
        yield made


def _word(rng: Random) -> str:
    word = rng.choice(WORDS)
    return rng.choice([word, word, word.capitalize(), word.upper(), _mixed(rng, word)])


def _mixed(rng: Random, word: str) -> str:
    return "".join(rng.choice([c.lower(), c.upper()]) for c in word)


def _words(rng: Random) -> str:
    return " ".join(_word(rng) for _ in range(rng.randint(2, 4)))


def _numbered(rng: Random) -> str:
    number = str(rng.randint(0, 9999))
    return rng.choice([_word(rng) + number, number + _word(rng), f"{_word(rng)} {number}", f"{number} {_words(rng)}"])


def _contracted(rng: Random) -> str:
    return " ".join(rng.sample([rng.choice(CONTRACTIONS), _word(rng)], 2))


def _marked(rng: Random) -> str:
    return rng.choice([_word(rng) + rng.choice(MARKS), f"{_word(rng)}{rng.choice(MARKS)} {_words(rng)}"])


def _padded(rng: Random) -> str:
    return " " * rng.randint(0, 2) + _words(rng) + " " * rng.randint(1, 2)


def _letters(rng: Random) -> str:
    return "".join(rng.choices(BOTH_CASES, k=rng.randint(1, 16)))


def _anything(rng: Random) -> str:
    return "".join(rng.choices(BOTH_CASES + "0123456789 '" + MARKS, k=rng.randint(1, 24)))


_SHAPES = (_word, _words, _words, _numbered, _numbered, _contracted, _marked, _padded, _letters, _anything)
