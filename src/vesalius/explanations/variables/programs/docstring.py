"""The parameter of the definition that follows the one described last; any, where that is not in the definition."""

VARIABLES = ["defined_4"]


def answer(described_3, defined_1, defined_2, defined_3, defined_4, defined_5, defined_6):
    defined = [defined_1, defined_2, defined_3, defined_4, defined_5, defined_6]
    return defined[defined.index(described_3) + 1] if described_3 in defined else defined


def choices(defined_1, defined_2, defined_3, defined_4, defined_5, defined_6):
    return [defined_1, defined_2, defined_3, defined_4, defined_5, defined_6]
