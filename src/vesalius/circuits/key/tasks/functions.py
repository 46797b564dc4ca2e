"""The functions that single look-ups apply to a token: ordinary arithmetic and spelling."""

import math

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
