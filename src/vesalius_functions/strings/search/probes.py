"""The strings that the search always asks about first, in this order.

The first two are the keys of the table of compositions: long, with capitals, digits, blanks and marks, one of odd and
one of even length. The others are there for what those two cannot tell apart: ends of the alphabet, ends of the
string, every letter of both cases at some place, strings too short for an operation.
"""

from itertools import islice
from random import Random

from vesalius_functions.strings.inputs import varied

KEYS = ("Jackdaw's 4 big SphinX of quiz", "vEx my PROUD tan flocK, 7 hog")
_BY_HAND = (
    "",
    "abcdefghijklm",
    "nopqrstuvwxyz",
    "ABCDEFGHIJKLM",
    "NOPQRSTUVWXYZ",
    "Zz Zz zZ",
    " lead and trail  ",
    "12345 67890",
    "a",
    "Z",
    "7",
    " ",
    "aeiou AEIOU",
    "abc",
    "5tart and end 9",
    "zyxwvutsrqponml",
    "BQZVJXKWFYHG TPCM",
    "'quoted'",
    "aabbccddeeff",
    "LEVEL level",
    "gO",
    "\tTab and\nline ",
)
_DRAWN = 26

PROBES: tuple[str, ...] = (*KEYS, *_BY_HAND, *islice(varied(Random(20230915), _DRAWN), _DRAWN))
