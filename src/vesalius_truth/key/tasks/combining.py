"""Circuits that change tokens by a second signal: the position, a digit, a bound or the half of the sequence."""

from vesalius.rasp import Map, SequenceMap, Variable, indices, length, tokens
from vesalius_truth.key.task import circuit
from vesalius_truth.key.tasks.wording import ABC, ZERO_TO_TEN, length_notes


def paired(x, y):
    return (x, y)


def extended(pair, index):
    return (*pair, index)


def first_two_minus_third(triple):
    a, b, c = triple
    return a + b - c


@circuit(
    "15",
    "Twice the token minus its position.",
    vocab=(0, 1, 2, 3, 4),
    max_len=4,
    causal=True,
    notes={
        "L0_MLP": "Writes the token twice over as a pair, 3 as (3, 3); L1_MLP makes a triple of it.",
        "L1_MLP": (
            "Appends the position to L0_MLP's pair, so that 3 at position 2 is (3, 3, 2); L2_MLP reads the triple."
        ),
        "L2_MLP": (
            "Adds the first two entries of L1_MLP's triple and subtracts the third: (3, 3, 2) gives 4, the answer."
        ),
    },
)
def nary_sequencemap() -> Variable:
    pair = SequenceMap(paired, tokens, tokens, name="token_twice")
    triple = SequenceMap(extended, pair, indices, name="token_twice_and_position")
    return Map(first_two_minus_third, triple, name="twice_token_minus_position")


def repeated(letter, index):
    return letter * (index + 1)


@circuit(
    "26",
    "Each letter repeated as many times as its position counted from 1.",
    vocab=ABC,
    causal=True,
    notes={
        "L0_MLP": (
            "Writes the letter here repeated once more than the position's number, so 'b' at position 2 gives 'bbb'."
        ),
    },
)
def token_cascade() -> Variable:
    return SequenceMap(repeated, tokens, indices, name="letter_repeated")


def tens(x):
    return x // 10


def ones(x):
    return x % 10


def total(x, y):
    return x + y


@circuit(
    "40",
    "The sum of the two decimal digits of each token.",
    vocab=tuple(range(29)),
    causal=True,
    notes={
        "L0_MLP": "Splits the number into its tens digit and its ones digit, 27 into 2 and 7; L1_MLP adds them.",
        "L1_MLP": "Adds the two digits written by L0_MLP, 2 and 7 to 9; the digit sum is the answer.",
    },
)
def sum_digits() -> Variable:
    return SequenceMap(
        total, Map(tens, tokens, name="tens_digit"), Map(ones, tokens, name="ones_digit"), name="digit_sum"
    )


def is_before_middle(index, total):
    return int(index < total / 2)


def doubled_if(x, flag):
    return x * (1 + flag)


@circuit(
    "45",
    "The tokens of the first half doubled, the middle one included; the rest unchanged.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("tell which positions lie in the first half"),
        "L1_MLP": (
            "Writes 1 where the position is below half the length and 0 from there on; L2_MLP doubles by this flag."
        ),
        "L2_MLP": (
            "Doubles the number here where L1_MLP's first-half flag is 1 and copies it where it is 0: the answer."
        ),
    },
)
def double_first_half() -> Variable:
    flag = SequenceMap(is_before_middle, indices, length(name="sequence_length"), name="in_first_half")
    return SequenceMap(doubled_if, tokens, flag, name="first_half_doubled")


def half_rounded_down(total):
    return total // 2


def is_not_before(index, start):
    return int(index >= start)


def halved_if(x, flag):
    if not flag:
        return x
    return x // 2 if x % 2 == 0 else x / 2


@circuit(
    "82",
    "The tokens of the second half halved, the middle one included; the rest unchanged.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("find where the second half begins"),
        "L1_MLP": "Halves the length from L0_MLP and rounds down: the first position of the second half, for L2_MLP.",
        "L2_MLP": (
            "Writes 1 where the position is at or after the start from L1_MLP and 0 before it; L3_MLP halves by it."
        ),
        "L3_MLP": "Halves the number here where L2_MLP's second-half flag is 1 (5 to 2.5), else copies it: the answer.",
    },
)
def halve_second_half() -> Variable:
    start = Map(half_rounded_down, length(name="sequence_length"), name="start_of_second_half")
    flag = SequenceMap(is_not_before, indices, start, name="in_second_half")
    return SequenceMap(halved_if, tokens, flag, name="second_half_halved")


def parity(index):
    return index % 2


@circuit(
    "53",
    "The tokens at odd positions plus 1; the rest unchanged. Positions count from 0.",
    vocab=ZERO_TO_TEN,
    causal=True,
    notes={
        "L0_MLP": (
            "Writes 1 at the odd positions 1, 3, 5 and 7 and 0 at the even ones; L1_MLP adds it to the token. It "
            "depends on the position alone, so swapping it between two inputs shows nothing."
        ),
        "L1_MLP": (
            "Adds L0_MLP's odd-position flag to the number here: 5 stays 5 at position 0 and becomes 6 at position 1."
        ),
    },
)
def increment_odd_indices() -> Variable:
    return SequenceMap(total, tokens, Map(parity, indices, name="is_odd_position"), name="token_plus_parity")


def ends_a_group_of_three(index):
    return int(index % 3 == 2)


def zero_if(x, flag):
    return 0 if flag else x


@circuit(
    "56",
    "Every third token (positions 2, 5 and 8) set to 0; the rest unchanged.",
    vocab=ZERO_TO_TEN,
    causal=True,
    notes={
        "L0_MLP": (
            "Writes 1 at positions 2, 5 and 8 and 0 at the others; L1_MLP blanks the token by this flag. It depends on "
            "the position alone, so swapping it between two inputs shows nothing."
        ),
        "L1_MLP": "Writes 0 where L0_MLP marks a third position and copies the number elsewhere: the answer.",
    },
)
def zero_every_third() -> Variable:
    flag = Map(ends_a_group_of_three, indices, name="is_third_position")
    return SequenceMap(zero_if, tokens, flag, name="token_or_zero")


def at_second_position(x, index):
    return x if index == 1 else 0


@circuit(
    "106",
    "The token kept at position 1 and 0 everywhere else. Positions count from 0.",
    vocab=ZERO_TO_TEN,
    causal=True,
    notes={
        "L0_MLP": (
            "Combines number and position: copies the number at position 1 and writes 0 at every other: the answer."
        ),
    },
)
def mask_sequence() -> Variable:
    return SequenceMap(at_second_position, tokens, indices, name="second_token_only")


def seven(token):
    return 7


def two(token):
    return 2


@circuit(
    "130",
    "Each token limited to the range from 2 to 7.",
    vocab=tuple(range(-15, 15)),
    causal=True,
    notes={
        "L0_MLP": (
            "Writes the two bounds, 2 for L1_MLP and 7 for L2_MLP. They are constants, so swapping them between two "
            "inputs shows nothing."
        ),
        "L1_MLP": "Takes the greater of the number here and the lower bound 2; L2_MLP limits the result from above.",
        "L2_MLP": (
            "Takes the smaller of L1_MLP's value and the upper bound 7; the number is now within 2 to 7, the answer."
        ),
    },
)
def clip() -> Variable:
    raised = SequenceMap(max, tokens, Map(two, tokens, name="lower_bound"), name="at_least_two")
    return SequenceMap(min, raised, Map(seven, tokens, name="upper_bound"), name="within_bounds")


TASKS = (
    nary_sequencemap,
    token_cascade,
    sum_digits,
    double_first_half,
    increment_odd_indices,
    zero_every_third,
    halve_second_half,
    mask_sequence,
    clip,
)
