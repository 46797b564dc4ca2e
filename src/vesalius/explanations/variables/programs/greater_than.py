"""A span of years ends later than it began. Where only the decade's digit is asked for, the same one may do."""

VARIABLES = ["start", "answer"]


def answer(start, unit, width):
    first = start if width == 1 and unit < 9 else start + 1
    return [str(year).zfill(width) for year in range(first, 10**width)]


def choices(width):
    return [str(year).zfill(width) for year in range(10**width)]
