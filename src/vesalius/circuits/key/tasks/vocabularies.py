"""The vocabularies that several tasks share. Numbers stand in ascending order, so a sorted code is a sorted value."""

from string import ascii_lowercase

ABC = ("a", "b", "c")
LETTERS = tuple(ascii_lowercase)
WORDS = ("J", "LB", "TPSI", "V", "b", "no", "oCLrZaW", "poiVg")
ZERO_TO_TEN = tuple(range(11))
BELOW_TWENTY = tuple(range(20))
BELOW_THIRTY = tuple(range(30))
AROUND_ZERO = tuple(range(-10, 10))
# Tenths from -1 up to 0.9, as floating point gives them by this subtraction: 0.1 is 0.10000000000000009 here.
TENTHS = tuple(step / 10 - 1 for step in range(20))
QUARTERS = tuple(step / 4 for step in range(20))
