"""The token that followed the earlier copy of the last token: find its place, copy what is there."""

VARIABLES = ["match", "copied"]


def match(tokens):
    return tokens.index(tokens[-1]) + 1


def copied(tokens, match):
    return tokens[match]


def answer(copied):
    return copied


def choices(tokens):
    return tokens
