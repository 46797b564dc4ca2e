"""The capital of the country, looked up in a table."""

VARIABLES = ["country", "answer"]


def answer(country, capitals):
    return capitals[country]


def choices(capitals):
    return list(capitals.values())
