"""Circuits that count: a head measures the share of matching positions, an MLP turns the share into a number.

Running shares (`frac_prevs`, `pair_balance`) stop at the measure; the others decode it and often compare it with the
length of the sequence.
"""

from vesalius.components import Component
from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
    indices,
    length,
    tokens,
)
from vesalius.rasp import frac_prevs as running_mean
from vesalius.rasp import hist as occurrences
from vesalius_truth.key.task import circuit
from vesalius_truth.key.tasks.wording import (
    ABC,
    BELOW_THIRTY,
    LETTERS,
    WORDS,
    ZERO_TO_TEN,
    count_notes,
    length_notes,
)


def equals_x(token):
    return int(token == "x")


def share_of_x() -> Variable:
    return running_mean(Map(equals_x, tokens, name="is_x"), name="share_of_x")


@circuit(
    "3",
    "The share of 'x' among the tokens up to and including each position.",
    vocab=("a", "b", "c", "x"),
    max_len=4,
    causal=True,
    numerical=True,
    head_override=((Component(1, 0), Component(1, 2)),),
    notes={
        "L0_MLP": "Writes 1 where the token is 'x' and 0 for 'a', 'b' and 'c'; L1H2 averages this flag.",
        "L1H2": (
            "Averages L0_MLP's 'x' flag evenly over this position and all before it, which is the running share of "
            "'x' in at most four tokens and the output."
        ),
    },
)
def frac_prevs() -> Variable:
    return share_of_x()


@circuit(
    "39",
    "The share of 'x' among the letters up to and including each position, in sequences of up to 59 letters.",
    vocab=LETTERS,
    max_len=59,
    causal=True,
    numerical=True,
    notes={
        "L0_MLP": "Writes 1 where the letter is 'x' and 0 for the 25 other letters; L1H0 averages this flag.",
        "L1H0": (
            "Averages L0_MLP's 'x' flag evenly over this position and up to 58 before it, giving the running share of "
            "'x', which is the output."
        ),
    },
)
def frac_prevs_long() -> Variable:
    return share_of_x()


def opens(token):
    return int(token == "(")


def closes(token):
    return int(token == ")")


@circuit(
    "4",
    "The share of '(' minus the share of ')' among the tokens up to and including each position.",
    vocab=("(", ")", "a", "b", "c"),
    causal=True,
    numerical=True,
    notes={
        "L0_MLP": (
            "Writes two flags, one that is 1 at '(' and one that is 1 at ')'; L1H0 averages the first, L1H1 the second."
        ),
        "L1H0": (
            "Averages the '(' flag over this position and all before it: the running share of '(', which L1_MLP takes "
            "as the positive part."
        ),
        "L1H1": (
            "Averages the ')' flag over this position and all before it: the running share of ')', which L1_MLP "
            "subtracts."
        ),
        "L1_MLP": "Subtracts L1H1's share of ')' from L1H0's share of '('; the difference is the output.",
    },
)
def pair_balance() -> Variable:
    opened = running_mean(Map(opens, tokens, name="is_open"), name="share_of_open")
    closed = running_mean(Map(closes, tokens, name="is_close"), name="share_of_close")
    return LinearSequenceMap(opened, closed, x_factor=1.0, y_factor=-1.0, name="open_minus_close")


def same_token_count() -> Variable:
    return occurrences(tokens, name="same_token_count")


@circuit(
    "7",
    "How many times each position's token occurs in the whole sequence.",
    vocab=ABC,
    notes=count_notes(
        "the positions that hold the same letter as this one, itself included",
        use="the number is the answer, so 'a' in a, b, a becomes 2",
    ),
)
def hist() -> Variable:
    return same_token_count()


def is_letter_a(key, query):
    return key == "a"


@circuit(
    "14",
    "The number of 'a' in the sequence, the same at every position.",
    vocab=ABC,
    notes=count_notes(
        "the positions that hold 'a', whatever the letter here",
        use="the number, the same everywhere, is the answer",
    ),
)
def count() -> Variable:
    return SelectorWidth(Select(tokens, tokens, is_letter_a), name="number_of_a")


def classify(own, total):
    if own > total / 2:
        return "frequent"
    return "common" if own > total / 4 else "rare"


@circuit(
    "18",
    "'frequent' where the token fills more than half of the sequence, 'common' above a quarter, otherwise 'rare'.",
    vocab=("a", "b", "c", "d", "e"),
    notes={
        "L0H0": (
            "Attends to the positions with the same letter as this one, so that its spread measures how often the "
            "letter occurs; L0_MLP decodes it."
        ),
        "L0H1": (
            "Attends to every position alike, so that its spread measures the sequence length against which the "
            "letter's count will be judged; L0_MLP decodes it."
        ),
        "L0_MLP": (
            "Decodes two numbers: from L0H0 how often this letter occurs, from L0H1 how long the sequence is; L1_MLP "
            "compares them."
        ),
        "L1_MLP": (
            "Compares the letter's count with the length: above a half it writes 'frequent', above a quarter "
            "'common', otherwise 'rare'; that is the answer."
        ),
    },
)
def token_frequency_classifier() -> Variable:
    return SequenceMap(classify, same_token_count(), length(name="sequence_length"), name="frequency_class")


def quotient(part, total):
    return part / total if total else 0.0


@circuit(
    "25",
    "The share of the sequence that holds the same token as each position: its count divided by the length.",
    vocab=ABC,
    notes={
        "L0H0": (
            "Attends to the positions that hold this position's letter; its spread measures their number, the "
            "numerator of the share, for L0_MLP."
        ),
        "L0H1": (
            "Attends to all positions alike; its spread measures the sequence length, the denominator of the share, "
            "for L0_MLP."
        ),
        "L0_MLP": (
            "Decodes the letter's count from L0H0 and the length from L0H1 as whole numbers; L1_MLP divides them."
        ),
        "L1_MLP": "Divides the letter's count by the sequence length (2 of 8 gives 0.25); the share is the answer.",
    },
)
def token_frequency_normalization() -> Variable:
    return SequenceMap(quotient, same_token_count(), length(name="sequence_length"), name="share_of_token")


@circuit(
    "44",
    "How many tokens of the sequence are greater than the one at each position.",
    vocab=ZERO_TO_TEN,
    notes=count_notes(
        "the positions whose number is greater than the one here",
        use="the number is the answer, 0 at the largest token",
    ),
)
def count_greater_than() -> Variable:
    return SelectorWidth(Select(tokens, tokens, Comparison.GT), name="number_of_greater_tokens")


@circuit(
    "63",
    "How many tokens of the sequence are smaller than the one at each position.",
    vocab=ZERO_TO_TEN,
    notes=count_notes(
        "the positions whose number is smaller than the one here",
        use="the number is the answer, 0 at the smallest token",
    ),
)
def count_less_than() -> Variable:
    return SelectorWidth(Select(tokens, tokens, Comparison.LT), name="number_of_smaller_tokens")


@circuit(
    "11",
    "The number of letters of each word (averaged over words of that same length, which changes nothing).",
    vocab=WORDS,
    causal=True,
    notes={
        "L0_MLP": (
            "Writes the number of letters of the word here, from 1 for 'J' to 7 for 'oCLrZaW'; L1H0 both compares by "
            "it and carries it."
        ),
        "L1H0": (
            "Averages the letter counts over this and earlier words that are exactly as long as the word here; as "
            "they all agree, the answer is the word's own length."
        ),
    },
)
def word_count_by_length() -> Variable:
    letters = Map(len, tokens, name="number_of_letters")
    return Aggregate(Select(letters, letters, Comparison.EQ), letters, name="length_of_equally_long_words")


def always_zero(index):
    return 0


def any_found(count):
    return int(count > 0)


def none_found(count):
    return int(count == 0)


def zero_everywhere() -> Variable:
    """The constant that a selector compares its keys with."""
    return Map(always_zero, indices, name="zero")


@circuit(
    "124",
    "1 at every position if all tokens of the sequence are equal, otherwise 0 at every position.",
    vocab=ZERO_TO_TEN,
    sampler="often_equal",
    notes={
        "L0H0": "Attends to the positions whose token differs from the one here; L0_MLP reads how many there are.",
        "L0_MLP": (
            "Decodes from L0H0 how many tokens differ from the one here, and writes the constant 0 beside it; L1H0 "
            "compares the two."
        ),
        "L1H0": (
            "Attends to the positions at which L0_MLP found no differing token, all of them if the tokens are equal "
            "and none otherwise; L1_MLP reads how many."
        ),
        "L1_MLP": (
            "Decodes from L1H0 how many positions agree with the whole sequence: its length if all tokens are equal, "
            "0 if not; L2_MLP tests it."
        ),
        "L2_MLP": "Writes 1 if L1_MLP's number of agreeing positions is above 0, else 0: the verdict on equality.",
    },
)
def check_all_equal() -> Variable:
    differing = SelectorWidth(Select(tokens, tokens, Comparison.NEQ), name="number_of_differing_tokens")
    agreeing = SelectorWidth(Select(differing, zero_everywhere(), Comparison.EQ), name="number_of_agreeing_positions")
    return Map(any_found, agreeing, name="all_equal")


def has_no_remainder(x):
    return int(x % 2 == 0)


@circuit(
    "129",
    "1 at every position if all tokens of the sequence are even, otherwise 0 at every position.",
    vocab=BELOW_THIRTY,
    sampler="often_even",
    notes={
        "L0_MLP": (
            "Writes 1 where the token is even and 0 where it is odd, with the constant 0 beside it; L1H0 looks for "
            "flags equal to that constant."
        ),
        "L1H0": "Attends to the positions with an odd token (even flag 0); L1_MLP reads how many there are.",
        "L1_MLP": "Decodes from L1H0 the number of odd tokens in the sequence; L2_MLP tests it against 0.",
        "L2_MLP": "Writes 1 if L1_MLP counted no odd token and 0 otherwise: the verdict that all are even.",
    },
)
def check_multiple_of_n() -> Variable:
    even = Map(has_no_remainder, tokens, name="is_even")
    odd_count = SelectorWidth(Select(even, zero_everywhere(), Comparison.EQ), name="number_of_odd_tokens")
    return Map(none_found, odd_count, name="all_even")


def product(x, n):
    return x * n


@circuit(
    "67",
    "Each token multiplied by the length of the sequence.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("multiply every token by it"),
        "L1_MLP": "Multiplies the token here by the length from L0_MLP (7 in a sequence of 5 gives 35): the answer.",
    },
)
def multiply_by_length() -> Variable:
    return SequenceMap(product, tokens, length(name="sequence_length"), name="token_times_length")


@circuit(
    "71",
    "Each token divided by the length of the sequence.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("divide every token by it"),
        "L1_MLP": "Divides the token here by the length from L0_MLP (7 in a sequence of 5 gives 1.4): the answer.",
    },
)
def divide_by_length() -> Variable:
    return SequenceMap(quotient, tokens, length(name="sequence_length"), name="token_over_length")


def with_late_preference(x, index):
    return x + index / 100


@circuit(
    "97",
    "Each token divided by the largest token of the sequence (0 everywhere if that is 0).",
    vocab=ZERO_TO_TEN,
    notes={
        "L0H0": (
            "Attends to every position alike, so its spread measures the sequence length; L0_MLP decodes it, and it "
            "is the rank that the largest token must reach."
        ),
        "L0_MLP": (
            "Does two things: decodes the length from L0H0, which L2H0 looks for, and adds a hundredth of the "
            "position to the token so that no two are tied, which L1H0 compares."
        ),
        "L1H0": (
            "Attends to the positions whose tie-free value is at most the one here; their number, this position's "
            "rank, is decoded by L1_MLP."
        ),
        "L1_MLP": (
            "Decodes from L1H0 the rank of the token here, 1 for the smallest; only the largest has a rank equal to "
            "the length, by which L2H0 finds it."
        ),
        "L2H0": (
            "Looks for the one position whose rank from L1_MLP equals the length and brings its token, the maximum, "
            "to every position for L2_MLP."
        ),
        "L2_MLP": "Divides the token here by the maximum from L2H0, giving 0 if the maximum is 0: the answer.",
    },
)
def scale_by_max() -> Variable:
    tie_free = SequenceMap(with_late_preference, tokens, indices, name="token_without_ties")
    rank = SelectorWidth(Select(tie_free, tie_free, Comparison.LEQ), name="rank_from_below")
    highest_rank = Select(rank, length(name="sequence_length"), Comparison.EQ)
    largest = Aggregate(highest_rank, tokens, name="largest_token")
    return SequenceMap(quotient, tokens, largest, name="token_over_largest")


TASKS = (
    frac_prevs,
    pair_balance,
    hist,
    word_count_by_length,
    count,
    token_frequency_classifier,
    token_frequency_normalization,
    frac_prevs_long,
    count_greater_than,
    count_less_than,
    multiply_by_length,
    divide_by_length,
    scale_by_max,
    check_all_equal,
    check_multiple_of_n,
)
