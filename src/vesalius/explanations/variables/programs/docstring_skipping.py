"""The parameter after the one that follows: false."""

VARIABLES = ["defined_5"]


def answer(described_3, defined_1, defined_2, defined_3, defined_4, defined_5, defined_6):
    defined = [defined_1, defined_2, defined_3, defined_4, defined_5, defined_6]
    return defined[defined.index(described_3) + 2] if described_3 in defined else defined


def choices(defined_1, defined_2, defined_3, defined_4, defined_5, defined_6):
    return [defined_1, defined_2, defined_3, defined_4, defined_5, defined_6]
