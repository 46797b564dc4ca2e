"""Circuits that move tokens: a head attends to a computed position and copies its token."""

from vesalius.rasp import (
    Aggregate,
    Comparison,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Variable,
    indices,
    length,
    tokens,
)
from vesalius_truth.key.task import circuit
from vesalius_truth.key.tasks.wording import ABC, BELOW_THIRTY, LETTERS, ZERO_TO_TEN, length_notes


def token_at(place: Variable, name: str) -> Variable:
    """The token at the position that `place` names."""
    return Aggregate(Select(indices, place, Comparison.EQ), tokens, name=name)


def length_by_position() -> Variable:
    """The sequence length, counted over positions instead of tokens."""
    return SelectorWidth(Select(indices, indices, Comparison.TRUE), name="sequence_length")


def difference(x, y):
    return x - y


def one_less(x):
    return x - 1


@circuit(
    "2",
    "The sequence read backwards.",
    vocab=LETTERS,
    notes={
        **length_notes("find each position's mirror image"),
        "L1_MLP": (
            "Subtracts the position from the length: how many letters are left from here on, this one included; "
            "L2_MLP takes one off."
        ),
        "L2_MLP": (
            "Takes one off L1_MLP's remainder, which gives the mirrored position (0 at the last letter); L3H0 looks "
            "there."
        ),
        "L3H0": (
            "Looks at the mirrored position from L2_MLP and copies its letter here, so the sequence is turned round."
        ),
    },
)
def reverse() -> Variable:
    remaining = SequenceMap(difference, length(name="sequence_length"), indices, name="letters_from_here")
    return token_at(Map(one_less, remaining, name="mirrored_position"), "letter_at_mirror")


def is_next(key, query):
    return key == query + 1


def is_previous(key, query):
    return key == query - 1


def trend(current, following):
    if following == current:
        return "constant"
    return "increasing" if following > current else "decreasing"


@circuit(
    "13",
    "'increasing', 'decreasing' or 'constant' by comparing each token with the next; None at the last position.",
    vocab=(0, 1, 2),
    notes={
        "L0H0": (
            "Brings the token of the next position here, and nothing at the last position; L0_MLP compares with it."
        ),
        "L0_MLP": (
            "Compares the token here with the next one from L0H0 and writes 'increasing', 'decreasing' or 'constant', "
            "the answer; without a next token the answer is None."
        ),
    },
)
def token_trend_analysis() -> Variable:
    following = Aggregate(Select(indices, indices, is_next), tokens, name="next_token")
    return SequenceMap(trend, tokens, following, name="trend_to_next")


def unless_repeated(current, previous):
    return current if current != previous else None


@circuit(
    "19",
    "The token where it differs from the one before it; None at repeats and at the first position.",
    vocab=ABC,
    max_len=14,
    causal=True,
    notes={
        "L0H0": (
            "Brings the letter of the position before here, and nothing at the first position; L0_MLP compares with it."
        ),
        "L0_MLP": (
            "Keeps the letter here if it differs from the previous one brought by L0H0; a repeat, or a first letter "
            "with nothing before it, gives None."
        ),
    },
)
def sequential_duplicate_removal() -> Variable:
    previous = Aggregate(Select(indices, indices, is_previous), tokens, name="previous_token")
    return SequenceMap(unless_repeated, tokens, previous, name="token_if_changed")


def paired(x, y):
    return (x, y)


def same_token_not_later(key, query):
    return key[0] == query[0] and key[1] <= query[1]


def place_if_first(count, index):
    return index if count == 1 else -1


@circuit(
    "21",
    "Every token at its first occurrence; None where it occurred before.",
    vocab=ABC,
    causal=True,
    notes={
        "L0_MLP": "Binds the letter and its position into one pair, for instance ('b', 4), that L1H0 can compare.",
        "L1H0": (
            "Attends to the pairs with the same letter at this position or before; L1_MLP reads how many there are, "
            "one meaning a first occurrence."
        ),
        "L1_MLP": (
            "Decodes from L1H0 the how-manieth occurrence of its letter this position is; L2_MLP asks whether it is 1."
        ),
        "L2_MLP": (
            "Writes the position itself where L1_MLP says first occurrence and -1 elsewhere, so that L3H0 finds only "
            "first occurrences."
        ),
        "L3H0": (
            "Filters by L2_MLP's mark: it finds its own position there only at a first occurrence and then copies the "
            "letter; elsewhere it finds nothing and the answer is None."
        ),
    },
)
def unique_token_extractor() -> Variable:
    pair = SequenceMap(paired, tokens, indices, name="token_and_position")
    occurrences = SelectorWidth(Select(pair, pair, same_token_not_later), name="occurrences_so_far")
    mark = SequenceMap(place_if_first, occurrences, indices, name="position_if_first")
    return Aggregate(Select(mark, indices, Comparison.EQ), tokens, name="token_if_first")


@circuit(
    "24",
    "A copy of the sequence: every position looks at itself only.",
    vocab=ABC,
    causal=True,
    notes={
        "L0H0": "Attends from every position to that same position and copies its letter unchanged to the output.",
    },
)
def leading_token_identification() -> Variable:
    return token_at(indices, "token_at_own_position")


def mirrored_if_late(index, total):
    return total - 1 - index if index >= total // 2 else index


@circuit(
    "58",
    "The first half of the sequence followed by its mirror image.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("tell the second half and its mirror positions"),
        "L1_MLP": (
            "Chooses where to look: in the first half the position itself, from the middle on the position equally "
            "far from the other end; L2H0 follows it."
        ),
        "L2H0": (
            "Copies the number at the position chosen by L1_MLP, so the second half repeats the first one backwards."
        ),
    },
)
def mirror_first_half() -> Variable:
    place = SequenceMap(mirrored_if_late, indices, length(name="sequence_length"), name="position_or_mirror")
    return token_at(place, "token_of_first_half")


def partner_from_second(index, total):
    is_alone = index == 0 or (index % 2 == 1 and index == total - 1)
    if is_alone:
        return index
    return index + 1 if index % 2 else index - 1


@circuit(
    "93",
    "Neighbours swapped in pairs from position 1 on: 1 with 2, 3 with 4; position 0 and a last one left over stay.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("see whether the last odd position has a partner after it"),
        "L1_MLP": (
            "Writes each position's partner: the next one for odd positions, the one before for even ones, itself at "
            "position 0 and at an odd last position; L2H0 looks there."
        ),
        "L2H0": (
            "Copies the number from the partner position of L1_MLP, which swaps positions 1 and 2, 3 and 4, 5 and 6, "
            "7 and 8."
        ),
    },
)
def swap_odd_index() -> Variable:
    place = SequenceMap(partner_from_second, indices, length_by_position(), name="partner_position")
    return token_at(place, "token_of_partner")


def partner_from_first(index, total):
    is_alone = index % 2 == 0 and index == total - 1
    if is_alone:
        return index
    return index - 1 if index % 2 else index + 1


@circuit(
    "103",
    "Neighbours swapped in pairs from the start: 0 with 1, 2 with 3; a last position left over stays.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("see whether the last even position has a partner after it"),
        "L1_MLP": (
            "Writes each position's partner: the next one for even positions, the one before for odd ones, itself at "
            "an even last position; L2H0 looks there."
        ),
        "L2H0": (
            "Copies the number from the partner position of L1_MLP, which swaps positions 0 and 1, 2 and 3, 4 and 5, "
            "6 and 7."
        ),
    },
)
def swap_consecutive() -> Variable:
    place = SequenceMap(partner_from_first, indices, length_by_position(), name="partner_position")
    return token_at(place, "token_of_partner")


def is_half_of(key, query):
    return key == query // 2


def at_even_position(x, index):
    return x if index % 2 == 0 else 0


@circuit(
    "110",
    "The first tokens spread over the even positions, with 0 at the odd ones.",
    vocab=ZERO_TO_TEN,
    notes={
        "L0H0": (
            "Looks from each position at the position half as far in, rounded down, and brings its number here: "
            "positions 4 and 5 both get the number of position 2; L0_MLP blanks every second one."
        ),
        "L0_MLP": "Keeps the number brought by L0H0 at even positions and writes 0 at odd ones; that is the answer.",
    },
)
def insert_zeros() -> Variable:
    halfway = Aggregate(Select(indices, indices, is_half_of), tokens, name="token_halfway")
    return SequenceMap(at_even_position, halfway, indices, name="halfway_or_zero")


def at_first_position(x, index):
    return x if index == 0 else 0


@circuit(
    "111",
    "The last token at position 0 and 0 everywhere else.",
    vocab=ZERO_TO_TEN,
    notes={
        **length_notes("find the last position"),
        "L1_MLP": "Takes one off the length from L0_MLP, which is the number of the last position; L2H0 looks there.",
        "L2H0": "Brings the number at the last position, named by L1_MLP, to every position; L2_MLP keeps one copy.",
        "L2_MLP": (
            "Keeps the last number, brought by L2H0, at position 0 and writes 0 at every other position: the answer."
        ),
    },
)
def last_element() -> Variable:
    last_position = Map(one_less, length(name="sequence_length"), name="last_position")
    return SequenceMap(at_first_position, token_at(last_position, "last_token"), indices, name="last_token_first")


def always_zero(index):
    return 0


def is_before_or_first(key, query):
    return key == max(query - 1, 0)


def in_order(previous, current):
    return int(previous <= current)


def middle_of(total):
    return total / 2 - 0.5


def keep_or_flip(breaks):
    return 1 if breaks > 0 else -1


def product(x, y):
    return x * y


def total(x, y):
    return x + y


@circuit(
    "113",
    "The sequence reversed if it is in ascending order (equal neighbours allowed), otherwise unchanged.",
    vocab=BELOW_THIRTY,
    sampler="often_sorted",
    notes={
        "L0H0": (
            "Attends to every position alike, so its spread measures the sequence length; L0_MLP decodes it, and the "
            "middle to turn around is found from it."
        ),
        "L0H1": (
            "Brings the number of the position before here, and at position 0 the number itself, so that L1_MLP can "
            "see whether the order rises."
        ),
        "L0_MLP": (
            "Decodes the sequence length from L0H0 for L1_MLP, and writes the constant 0 with which L2H0 will compare "
            "the order flags."
        ),
        "L1_MLP": (
            "Does two things: writes 1 where the previous number from L0H1 is not above the one here and 0 at a break "
            "in the order, and computes the middle of the sequence, half the length minus 0.5."
        ),
        "L2H0": "Attends to the positions with a break in the order (L1_MLP's flag equal to 0); L2_MLP reads how many.",
        "L2_MLP": (
            "Decodes from L2H0 the number of breaks in the order, for L3_MLP, and subtracts L1_MLP's middle from the "
            "position, for L4_MLP."
        ),
        "L3_MLP": (
            "Writes +1 if there is a break in the order (keep the sequence) and -1 if there is none (turn it round); "
            "L4_MLP multiplies by it."
        ),
        "L4_MLP": (
            "Multiplies the distance from the middle, from L2_MLP, by the sign of L3_MLP: the distance flips sides "
            "exactly when the input is sorted; L5_MLP adds the middle back."
        ),
        "L5_MLP": (
            "Adds the middle from L1_MLP to the signed distance from L4_MLP: the position at which the number here "
            "must end up; L6H0 matches on it."
        ),
        "L6H0": (
            "Looks for the position whose destination, from L5_MLP, is this one and copies its number: the reversed "
            "sequence for sorted inputs, the same sequence otherwise."
        ),
    },
)
def invert_if_sorted() -> Variable:
    centre = Map(middle_of, length_by_position(), name="middle")
    previous = Aggregate(Select(indices, indices, is_before_or_first), tokens, name="previous_or_own_token")
    rises = SequenceMap(in_order, previous, tokens, name="is_in_order")
    zero = Map(always_zero, indices, name="zero")
    breaks = SelectorWidth(Select(rises, zero, Comparison.EQ), name="number_of_breaks")
    sign = Map(keep_or_flip, breaks, name="sign")
    offset = SequenceMap(difference, indices, centre, name="distance_from_middle")
    signed = SequenceMap(product, sign, offset, name="signed_distance")
    destination = SequenceMap(total, centre, signed, name="destination")
    return Aggregate(Select(destination, indices, Comparison.EQ), tokens, name="token_destined_here")


TASKS = (
    reverse,
    token_trend_analysis,
    sequential_duplicate_removal,
    unique_token_extractor,
    leading_token_identification,
    mirror_first_half,
    swap_odd_index,
    swap_consecutive,
    insert_zeros,
    last_element,
    invert_if_sorted,
)
