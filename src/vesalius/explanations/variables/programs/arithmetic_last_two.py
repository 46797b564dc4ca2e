"""B + C, whatever A is: false."""


def answer(B, C):
    return B + C
