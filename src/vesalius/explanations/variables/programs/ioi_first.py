"""The person who was mentioned first: false, and right half of the time."""

VARIABLES = ["answer"]


def answer(first):
    return first


def choices(first, second):
    return [first, second]
