"""Forty-nine circuits of one component: the first MLP maps each token to its answer.

They differ only in vocabulary and function, so each is one row. `VALUES` computes a value of the token (the MLP is a
mapper), `FLAGS` answers yes or no about it (the MLP is an indicator).
"""

import math
from collections.abc import Callable
from typing import Any

from vesalius.model.specimen import Token
from vesalius.rasp import Map, Variable, tokens
from vesalius_truth.key.task import Task
from vesalius_truth.key.tasks.wording import (
    AROUND_ZERO,
    BELOW_THIRTY,
    BELOW_TWENTY,
    QUARTERS,
    TENTHS,
    WORDS,
    ZERO_TO_TEN,
    format_examples,
    format_list,
    format_value,
)

# The functions that single look-ups apply to a token: ordinary arithmetic and spelling.

SENTIMENTS = {"📘": "neutral", "😊": "positive", "😢": "negative"}
SPAM_WORDS = frozenset({"click", "now", "offer"})
VOWELS = frozenset("aeiou")


def copy(token):
    return token


def first_three_letters(word):
    return word[:3]


def vowels_per_consonant(word):
    vowels = sum(letter in VOWELS for letter in word.lower())
    return vowels / (len(word) - vowels)


def alternating_case(word):
    return "".join(letter.lower() if place % 2 else letter.upper() for place, letter in enumerate(word))


def sentiment(emoji):
    return SENTIMENTS[emoji]


def backward_spelling(word):
    return word[::-1]


def fibonacci(n):
    current, following = 0, 1
    for _ in range(n):
        current, following = following, current + following
    return current


def predecessor(x):
    return x - 1


def successor(x):
    return x + 1


def two_less(x):
    return x - 2


def multiple_of_three_below(x):
    return x - x % 3


def multiple_of_three_above(x):
    return x + -x % 3


def nearest_integer(x):
    return math.floor(x + 0.5)


def negative(x):
    return -x


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


def square(x):
    return x**2


def cube(x):
    return x**3


def replacement(word):
    return "-" if word == "findme" else word


def three_or_more(x):
    return x if x >= 3 else 0


def is_prime(x):
    return int(x > 1 and all(x % divisor for divisor in range(2, math.isqrt(x) + 1)))


def number_of_prime_factors(x):
    return sum(1 for divisor in range(2, x + 1) if x % divisor == 0 and is_prime(divisor))


def next_prime(x):
    while not is_prime(x):
        x += 1
    return x


def reflection(x):
    steps_from_two = (x - 2) % 10
    return 2 + min(steps_from_two, 10 - steps_from_two)


def is_spam(word):
    return "spam" if word in SPAM_WORDS else "not spam"


def is_ten_to_twenty(numeral):
    return 10 <= int(numeral) <= 20


def is_anagram_of_listen(word):
    return sorted(word) == sorted("listen")


def is_even_in_length(word):
    return len(word) % 2 == 0


def is_fibonacci(x):
    return int(x in {fibonacci(n) for n in range(x + 2)})


def is_positive(x):
    return int(x > 0)


def is_power_of_two(x):
    return int(x > 1 and x & (x - 1) == 0)


def is_at_least_three(x):
    return int(x >= 3)


def is_square(x):
    return int(math.isqrt(x) ** 2 == x)


def is_divisible_by_three(x):
    return int(x % 3 == 0)


Function = Callable[[Any], Any]

# id, name, vocabulary, function of the token, what the token becomes
VALUES: tuple[tuple[str, str, tuple[Token, ...], Function, str], ...] = (
    ("8", "identity", ZERO_TO_TEN, copy, "a copy of itself"),
    ("29", "token_abbreviation", WORDS, first_three_letters, "its first three letters"),
    ("34", "vowel_consonant_ratio", WORDS, vowels_per_consonant, "its number of vowels per consonant"),
    ("35", "token_capitalization_alternator", WORDS, alternating_case, "its letters in alternating case"),
    ("36", "emoji_sentiment_classifier", tuple(SENTIMENTS), sentiment, "the mood the emoji shows"),
    ("37", "token_reversal_with_exclusion", WORDS, backward_spelling, "its spelling backwards, no word excepted"),
    ("41", "absolute", AROUND_ZERO, abs, "its distance from zero"),
    ("43", "nth_fibonacci", BELOW_TWENTY, fibonacci, "the Fibonacci number of that index, counted 0, 1, 1, 2, 3"),
    ("46", "decrement", ZERO_TO_TEN, predecessor, "the number one below"),
    ("49", "decrement_to_multiple_of_three", ZERO_TO_TEN, multiple_of_three_below,
     "the largest multiple of 3 not above it"),
    ("50", "hyperbolic_cosine", ZERO_TO_TEN, math.cosh, "its hyperbolic cosine"),
    ("52", "square_root", ZERO_TO_TEN, math.sqrt, "its square root"),
    ("54", "hyperbolic_tangent", ZERO_TO_TEN, math.tanh, "its hyperbolic tangent"),
    ("55", "hyperbolic_sine", ZERO_TO_TEN, math.sinh, "its hyperbolic sine"),
    ("60", "increment", ZERO_TO_TEN, successor, "the number one above"),
    ("62", "factorial", ZERO_TO_TEN, math.factorial, "its factorial"),
    ("64", "cube_each_element", ZERO_TO_TEN, cube, "its cube"),
    ("65", "cube_root", ZERO_TO_TEN, math.cbrt, "its cube root"),
    ("66", "round", QUARTERS, nearest_integer, "the nearest whole number, halves going up"),
    ("68", "increment_to_multiple_of_three", ZERO_TO_TEN, multiple_of_three_above,
     "the smallest multiple of 3 not below it"),
    ("70", "cosine", ZERO_TO_TEN, math.cos, "its cosine in radians"),
    ("72", "negation", AROUND_ZERO, negative, "itself with the sign turned"),
    ("73", "sine", ZERO_TO_TEN, math.sin, "its sine in radians"),
    ("75", "element_double", ZERO_TO_TEN, double, "twice its value"),
    ("77", "tangent", ZERO_TO_TEN, math.tan, "its tangent in radians"),
    ("80", "element_subtract_constant", ZERO_TO_TEN, two_less, "the number two below"),
    ("83", "triple", ZERO_TO_TEN, triple, "three times its value"),
    ("84", "arctangent", ZERO_TO_TEN, math.atan, "the angle in radians whose tangent it is"),
    ("85", "square_each_element", ZERO_TO_TEN, square, "its square"),
    ("90", "token_replacer", ("-", *WORDS[:5], "findme", *WORDS[5:]), replacement,
     "itself, except that 'findme' becomes '-'"),
    ("91", "apply_threshold", ZERO_TO_TEN, three_or_more, "itself from 3 up and 0 below 3"),
    ("95", "count_prime_factors", BELOW_THIRTY, number_of_prime_factors,
     "how many different primes divide it, 0 for 0"),
    ("102", "reflect", tuple(range(-20, 20)), reflection, "its place after bouncing between the walls 2 and 7"),
    ("104", "exponential", ZERO_TO_TEN, math.exp, "e raised to that power"),
    ("105", "next_prime", BELOW_THIRTY, next_prime, "the smallest prime not below it"),
    ("114", "logarithm", ZERO_TO_TEN[1:], math.log10, "its logarithm to base ten"),
    ("121", "arcsine", TENTHS, math.asin, "the angle in radians whose sine it is"),
    ("123", "arccosine", TENTHS, math.acos, "the angle in radians whose cosine it is"),
)  # fmt: skip

# id, name, vocabulary, yes-or-no function of the token, when the answer is yes
FLAGS: tuple[tuple[str, str, tuple[Token, ...], Function, str], ...] = (
    ("20", "spam_message_detector", (*WORDS, "click", "now", "offer", "spam"), is_spam,
     "on the spam list, which lacks the word 'spam'"),
    ("30", "numeric_range_tagging", tuple(str(number) for number in range(30)), is_ten_to_twenty,
     "a numeral from 10 to 20"),
    ("31", "token_anagram_identifier", (*WORDS, "listen"), is_anagram_of_listen, "an anagram of 'listen'"),
    ("33", "token_length_parity_checker", WORDS, is_even_in_length, "a word with an even number of letters"),
    ("51", "check_fibonacci", tuple(range(100)), is_fibonacci, "a Fibonacci number"),
    ("69", "sign", ZERO_TO_TEN, is_positive, "above zero"),
    ("79", "check_prime", ZERO_TO_TEN, is_prime, "a prime"),
    ("86", "check_power_of_n", ZERO_TO_TEN, is_power_of_two, "a power of two, 1 not counted"),
    ("87", "binarize", ZERO_TO_TEN, is_at_least_three, "3 or more"),
    ("101", "check_square", BELOW_THIRTY, is_square, "a perfect square"),
    ("122", "check_divisibility", BELOW_THIRTY, is_divisible_by_three, "a multiple of 3"),
)  # fmt: skip


def _lookup(function: Function, variable: str) -> Callable[[], Variable]:
    return lambda: Map(function, tokens, name=variable)


def _value_task(id: str, name: str, vocab: tuple[Token, ...], function: Function, becomes: str) -> Task:
    examples = format_examples(function, (vocab[len(vocab) // 4], vocab[len(vocab) // 2], vocab[-1]))
    note = (
        f"Replaces the token at each position by {becomes} ({examples}); it looks at no other position and its output "
        "is the answer."
    )
    return Task(
        id=id,
        name=name,
        description=f"Each token becomes {becomes}.",
        vocab=vocab,
        max_len=9,
        causal=True,
        numerical=False,
        build=_lookup(function, f"{function.__name__}_of_token"),
        notes={"L0_MLP": note},
    )


def _flag_task(id: str, name: str, vocab: tuple[Token, ...], function: Function, when: str) -> Task:
    yes = function(next(token for token in vocab if _is_yes(function(token))))
    no = function(next(token for token in vocab if not _is_yes(function(token))))
    positive = [token for token in vocab if _is_yes(function(token))]
    note = (
        f"Writes {format_value(yes)} where the token is {when}, that is for {format_list(positive)}, "
        f"and {format_value(no)} elsewhere; the flag is the answer."
    )
    return Task(
        id=id,
        name=name,
        description=f"{format_value(yes)} where the token is {when}, {format_value(no)} elsewhere.",
        vocab=vocab,
        max_len=9,
        causal=True,
        numerical=False,
        build=_lookup(function, f"token_{function.__name__}"),
        notes={"L0_MLP": note},
    )


def _is_yes(answer: object) -> bool:
    return answer == "spam" if isinstance(answer, str) else bool(answer)


TASKS = (*(_value_task(*row) for row in VALUES), *(_flag_task(*row) for row in FLAGS))
