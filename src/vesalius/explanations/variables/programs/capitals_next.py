"""The capital that follows in the table: false."""

VARIABLES = ["country", "answer"]


def answer(country, capitals):
    names = list(capitals)
    return capitals[names[(names.index(country) + 1) % len(names)]]


def choices(capitals):
    return list(capitals.values())
