"""A - B + C, with the difference A - B computed on the way."""


def difference(A, B):
    return A - B


def answer(difference, C):
    return difference + C
