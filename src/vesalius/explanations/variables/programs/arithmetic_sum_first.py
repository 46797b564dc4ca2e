"""A - B + C, with the sum A + C computed on the way: a rival of `arithmetic`."""


def total(A, C):
    return A + C


def answer(total, B):
    return total - B
