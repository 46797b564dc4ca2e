"""A span of years ends later than it began: any later year is right."""

VARIABLES = ["start", "answer"]


def answer(start, width):
    return [str(year).zfill(width) for year in range(start + 1, 10**width)]


def choices(width):
    return [str(year).zfill(width) for year in range(10**width)]
