"""The operations that string functions are made of, one plain Python function each, under their published names.

These are the corrected ones, which work on every string; `faulty.py` holds the published versions of those that
differ. A docstring doubles as the words of a description (parameters in backquotes are filled in), and the source
text of these functions is the code that oracles and the search hand out: keep both short enough to read.
"""

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS = "aeiouAEIOU"
_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
SMALL_NUMBERS, TENS = _SMALL.split(), _TENS.split()


def number_word(n: int) -> str:
    """The number in English words, as in twenty-one; digits from a hundred on."""
    if n < 20:
        return SMALL_NUMBERS[n]
    if n >= 100:
        return str(n)
    return TENS[n // 10 - 2] + (f"-{SMALL_NUMBERS[n % 10]}" if n % 10 else "")


def rotate(s: str, k: int) -> str:
    """Move every ASCII letter k places on in the alphabet, around its end, keeping case."""
    turned = LETTERS[k % 26 :] + LETTERS[: k % 26]
    return s.translate(str.maketrans(LETTERS + LETTERS.upper(), turned + turned.upper()))


def rotate_letter(c: str, k: int) -> str:
    """One character, moved k places on in the alphabet if it is an ASCII letter."""
    for first, last in ("az", "AZ"):
        if first <= c <= last:
            return chr((ord(c) - ord(first) + k) % 26 + ord(first))
    return c


def rotate_at(s: str, i: int, k: int) -> str:
    """Rotate the one character at index i."""
    return s[:i] + rotate_letter(s[i], k) + s[i + 1 :]


def ordinality(c: str) -> str:
    """The place of a letter in the alphabet as a word; zero for anything else."""
    return number_word(LETTERS.find(c.lower()) + 1) if len(c) == 1 else "zero"


def with_vowels(s: str, new: str) -> str:
    """The string with every vowel replaced."""
    return "".join(new if c in VOWELS else c for c in s)


# Case and order.


def convert_to_lowercase(s: str) -> str:
    """put the string in lower case"""
    return s.lower()


def convert_to_uppercase(s: str) -> str:
    """put the string in upper case"""
    return s.upper()


def capitalize_string(s: str) -> str:
    """put the first character in upper case and the rest in lower case"""
    return s.capitalize()


def capitalize_alternating_letters(s: str) -> str:
    """put characters at even indexes in upper case and the others in lower case"""
    return "".join(c.lower() if i % 2 else c.upper() for i, c in enumerate(s))


def reverse_string(s: str) -> str:
    """reverse the string"""
    return s[::-1]


def reverse_string_first_half(s: str) -> str:
    """reverse the first half of the string"""
    return s[: len(s) // 2][::-1] + s[len(s) // 2 :]


def reverse_string_last_half(s: str) -> str:
    """reverse the last half of the string (which has the middle character)"""
    return s[: len(s) // 2] + s[len(s) // 2 :][::-1]


def reverse_words(s: str) -> str:
    """reverse every word and join the words with single blanks"""
    return " ".join(word[::-1] for word in s.split())


def reverse_vowels(s: str) -> str:
    """put the vowels in reverse order, leaving the other characters in place"""
    vowels = [c for c in s if c in VOWELS]
    return "".join(vowels.pop() if c in VOWELS else c for c in s)


def swap_first_last(s: str) -> str:
    """swap the first and the last character"""
    return s if len(s) < 2 else s[-1] + s[1:-1] + s[0]


def swap_rand(s: str, first: int, second: int) -> str:
    """swap the characters at index `first` and index `second`, where the string has both"""
    if len(s) <= max(first, second):
        return s
    characters = list(s)
    characters[first], characters[second] = characters[second], characters[first]
    return "".join(characters)


# What is taken out of a string.


def extract_digits(s: str) -> str:
    """name the digits of the string in words, with blanks between"""
    return " ".join(number_word(int(c)) for c in s if c.isdecimal())


def remove_digits(s: str) -> str:
    """remove all digits"""
    return "".join(c for c in s if not c.isdigit())


def extract_uppers(s: str) -> str:
    """keep only the upper-case letters"""
    return "".join(c for c in s if c.isupper())


def remove_whitespace(s: str) -> str:
    """remove all white space"""
    return "".join(s.split())


def remove_duplicates(s: str) -> str:
    """keep only the first occurrence of every character"""
    return "".join(dict.fromkeys(s))


def remove_substring(s: str, letter: str) -> str:
    """remove every `letter`"""
    return s.replace(letter, "")


def split_string(s: str, letter: str) -> str:
    """replace every `letter` by a blank"""
    return " ".join(s.split(letter))


def string_strip(s: str) -> str:
    """remove white space at both ends"""
    return s.strip()


def string_lstrip(s: str) -> str:
    """remove white space at the start"""
    return s.lstrip()


def string_rstrip(s: str) -> str:
    """remove white space at the end"""
    return s.rstrip()


def get_first_character(s: str) -> str:
    """give the first character"""
    return s[:1]


def get_last_character(s: str) -> str:
    """give the last character"""
    return s[-1:]


def get_mid_character(s: str) -> str:
    """give the middle character, or the middle two"""
    return s[(len(s) - 1) // 2 : len(s) // 2 + 1]


# Counts and places, in words.


def get_string_length(s: str) -> str:
    """give the length of the string in words"""
    return number_word(len(s))


def get_digit_indexes(s: str) -> str:
    """give the indexes of the digits in words"""
    return " ".join(number_word(i) for i, c in enumerate(s) if c.isdigit())


def get_alpha_indexes(s: str) -> str:
    """give the indexes of the letters in words"""
    return " ".join(number_word(i) for i, c in enumerate(s) if c.isalpha())


def count_vowels(s: str) -> str:
    """give the number of vowels in words"""
    return number_word(sum(c in VOWELS for c in s))


def count_consonants(s: str) -> str:
    """give the number of consonants in words"""
    return number_word(sum(c.lower() in LETTERS and c not in VOWELS for c in s))


def count_uppercase(s: str) -> str:
    """give the number of upper-case letters in words"""
    return number_word(sum(c.isupper() for c in s))


def count_lowercase(s: str) -> str:
    """give the number of lower-case letters in words"""
    return number_word(sum(c.islower() for c in s))


def count_character_repetitions(s: str, letter: str) -> str:
    """give in words how often `letter` occurs"""
    return number_word(s.count(letter))


def find_string(s: str, letter: str) -> str:
    """give the index of the first `letter` in words, or none"""
    return number_word(s.index(letter)) if letter in s else "none"


def get_first_character_ordinality(s: str) -> str:
    """give the place of the first character in the alphabet in words, zero if it is not a letter"""
    return ordinality(s[:1])


def get_last_character_ordinality(s: str) -> str:
    """give the place of the last character in the alphabet in words, zero if it is not a letter"""
    return ordinality(s[-1:])


def get_mid_character_ordinality(s: str) -> str:
    """give the place of the middle character in the alphabet in words, zero if it is not a letter"""
    return ordinality(s[len(s) // 2 : len(s) // 2 + 1])


# Replacements.


def replace_substring(s: str, old: str, new: str) -> str:
    """replace every `old` by `new`"""
    return s.replace(old, new)


def replace_vowels_with_character(s: str, letter: str) -> str:
    """replace every vowel by `letter`"""
    return with_vowels(s, letter)


def replace_vowels_with_first(s: str) -> str:
    """replace every vowel by the first character"""
    return with_vowels(s, s[:1])


def replace_vowels_with_last(s: str) -> str:
    """replace every vowel by the last character"""
    return with_vowels(s, s[-1:])


def replace_vowels_with_mid(s: str) -> str:
    """replace every vowel by the middle character"""
    return with_vowels(s, s[len(s) // 2 : len(s) // 2 + 1])


def replace_vowels_with_ind_of_count(s: str) -> str:
    """replace every vowel by the n-th character, where n is the number of vowels"""
    return with_vowels(s, s[sum(c in VOWELS for c in s) - 1]) if s else s


def map_string(s: str, alphabet: str) -> str:
    """put the string in lower case and replace the letters a to z by those of `alphabet`"""
    return s.lower().translate(str.maketrans(LETTERS, alphabet))


# Additions.


def string_concatenate(s: str, suffix: str) -> str:
    """append `suffix`"""
    return s + suffix


def add_letter_if_needed(s: str, letter: str) -> str:
    """append `letter` unless the string ends with it"""
    return s if s.endswith(letter) else s + letter


def insert_letter(s: str, letter: str) -> str:
    """insert `letter` at the middle"""
    return s[: len(s) // 2] + letter + s[len(s) // 2 :]


def insert_number(s: str, number: int) -> str:
    """insert the digit `number` at the middle"""
    return s[: len(s) // 2] + str(number) + s[len(s) // 2 :]


def duplicate_first_letter(s: str) -> str:
    """append the first character"""
    return s + s[:1]


def duplicate_last_letter(s: str) -> str:
    """append the last character"""
    return s + s[-1:]


def duplicate_mid_letter(s: str) -> str:
    """append the middle character"""
    return s + s[len(s) // 2 : len(s) // 2 + 1]


# Shifts along the alphabet.


def add_number_to_string(s: str, number: int) -> str:
    """shift every letter `number` places forward in the alphabet"""
    return rotate(s, number)


def subtract_number_to_string(s: str, number: int) -> str:
    """shift every letter `number` places back in the alphabet"""
    return rotate(s, -number)


def add_len_to_string(s: str) -> str:
    """shift every letter forward in the alphabet by the length of the string"""
    return rotate(s, len(s))


def add_len_to_middle(s: str) -> str:
    """shift the middle letter forward by the length of the string, if that is odd and at least 3"""
    return rotate_at(s, len(s) // 2, len(s)) if len(s) % 2 and len(s) >= 3 else s


def add_number_to_middle(s: str, number: int) -> str:
    """shift the middle letter `number` places forward, if the length is odd and at least 3"""
    return rotate_at(s, len(s) // 2, number) if len(s) % 2 and len(s) >= 3 else s


def subtract_middle_character(s: str, number: int) -> str:
    """shift the middle letter `number` places back, if the length is odd and at least 3"""
    return rotate_at(s, len(s) // 2, -number) if len(s) % 2 and len(s) >= 3 else s


def advance_by_character_order(s: str, index: int) -> str:
    """put the string in lower case and shift it forward by the order (a = 0) of the character at index `index`"""
    return rotate(s.lower(), ord(s[index].lower()[0]) - ord("a")) if len(s) > index else s


def substract_by_character_order(s: str, index: int) -> str:
    """put the string in lower case and shift it back by the order (a = 0) of the character at index `index`"""
    return rotate(s.lower(), ord("a") - ord(s[index].lower()[0])) if len(s) > index else s


def add_order_of_inx1_to_inx2(s: str, first: int, second: int) -> str:
    """shift the letter at index `second` forward by `first` places, where the string has both indexes"""
    return rotate_at(s, second, first) if len(s) > max(first, second) else s


def sub_order_of_inx1_to_inx2(s: str, first: int, second: int) -> str:
    """shift the letter at index `second` back by `first` places, where the string has both indexes"""
    return rotate_at(s, second, -first) if len(s) > max(first, second) else s


def shift_first_letter_rand(s: str, shift: int) -> str:
    """shift the first letter `shift` places forward"""
    return rotate_letter(s[:1], shift) + s[1:]


def shift_last_letter_rand(s: str, shift: int) -> str:
    """shift the last letter `shift` places forward"""
    return s[:-1] + rotate_letter(s[-1:], shift)


def shift_first_letter_predecessor_rand(s: str, shift: int) -> str:
    """shift the first letter `shift` places back"""
    return rotate_letter(s[:1], -shift) + s[1:]


def shift_last_letter_predecessor_rand(s: str, shift: int) -> str:
    """shift the last letter `shift` places back"""
    return s[:-1] + rotate_letter(s[-1:], -shift)
