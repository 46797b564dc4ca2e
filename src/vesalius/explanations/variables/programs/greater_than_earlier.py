"""A span of years ends earlier than it began: false."""

VARIABLES = ["start", "answer"]


def answer(start, width):
    return [str(year).zfill(width) for year in range(start)]


def choices(width):
    return [str(year).zfill(width) for year in range(10**width)]
