"""The published versions of the operations that `operations.py` corrects, faults included.

Number words end at thirty and raise beyond; indexes are looked up by character; single letters are shifted without
going around the alphabet; a set of consonants has the letter a in it; a subtraction adds; two operations draw a random
index at every call (here from the number `chance` in [0, 1), so that a call can be repeated).
"""

from vesalius_functions.strings.operations import SMALL_NUMBERS, VOWELS, rotate_at

WORDS = [*SMALL_NUMBERS, "twenty", *(f"twenty-{word}" for word in SMALL_NUMBERS[1:10]), "thirty"]
NOT_CONSONANTS = "eiouAEIOU"


def word(n: int) -> str:
    """The number in English words; there is none above thirty."""
    if n > 30:
        raise KeyError(n)
    return WORDS[n]


def get_string_length(s: str) -> str:
    """give the length of the string in words, unknown above thirty"""
    return word(len(s)) if len(s) <= 30 else "unknown"


def get_digit_indexes(s: str) -> str:
    """give in words the first index of the last character, if that is a digit"""
    return word(s.index(s[-1])) if s and s[-1].isdigit() else ""


def get_alpha_indexes(s: str) -> str:
    """give in words, for every letter, the first index of that letter"""
    return " ".join(word(s.index(c)) for c in s if c.isalpha())


def count_vowels(s: str) -> str:
    """give the number of vowels in words, up to thirty"""
    return word(sum(c in VOWELS for c in s))


def count_consonants(s: str) -> str:
    """give in words the number of ASCII letters that are a small a or no vowel, up to thirty"""
    return word(sum(c.isascii() and c.isalpha() and c not in NOT_CONSONANTS for c in s))


def count_uppercase(s: str) -> str:
    """give the number of upper-case letters in words, up to thirty"""
    return word(sum(c.isupper() for c in s))


def count_lowercase(s: str) -> str:
    """give the number of lower-case letters in words, up to thirty"""
    return word(sum(c.islower() for c in s))


def count_character_repetitions(s: str, letter: str) -> str:
    """give in words how often `letter` occurs, up to thirty"""
    return word(s.count(letter))


def count_substring(s: str, letter: str) -> str:
    """give in words how often `letter` occurs, up to thirty"""
    return word(s.count(letter))


def find_string(s: str, letter: str) -> str:
    """give the index of the first `letter` in words, up to thirty, or none"""
    return word(s.index(letter)) if letter in s else "none"


def sub_order_of_inx1_to_inx2(s: str, first: int, second: int) -> str:
    """shift the letter at index `second` forward (not back) by `first` places, where the string has both indexes"""
    return rotate_at(s, second, first) if len(s) > max(first, second) else s


def step_on(c: str, shift: int) -> str:
    """A letter `shift` code points on, past the end of the alphabet; z and Z alone go to a and A, always."""
    return {"z": "a", "Z": "A"}.get(c, chr(ord(c) + shift)) if c.isalpha() else c


def step_back(c: str, shift: int) -> str:
    """A letter `shift` code points back, past the start of the alphabet; a and A alone go to z and Z, always."""
    return {"a": "z", "A": "Z"}.get(c, chr(ord(c) - shift)) if c.isalpha() else c


def shift_first_letter_rand(s: str, shift: int) -> str:
    """shift the first letter `shift` code points on (z always to a)"""
    return step_on(s[0], shift) + s[1:] if s else s


def shift_last_letter_rand(s: str, shift: int) -> str:
    """shift the last letter `shift` code points on (z always to a)"""
    return s[:-1] + step_on(s[-1], shift) if s else s


def shift_first_letter_predecessor_rand(s: str, shift: int) -> str:
    """shift the first letter `shift` code points back (a always to z)"""
    return step_back(s[0], shift) + s[1:] if s else s


def shift_last_letter_predecessor_rand(s: str, shift: int) -> str:
    """shift the last letter `shift` code points back (a always to z)"""
    return s[:-1] + step_back(s[-1], shift) if s else s


def add_order_to_inx(s: str, chance: float) -> str:
    """shift the letter at a random index forward by that index"""
    i = int(chance * len(s))
    return rotate_at(s, i, i) if s else s


def sub_order_to_inx(s: str, chance: float) -> str:
    """shift the letter at a random index back by that index"""
    i = int(chance * len(s))
    return rotate_at(s, i, -i) if s else s
