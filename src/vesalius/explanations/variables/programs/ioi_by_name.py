"""The person who was mentioned once, by names alone: whichever of the two names is not the repeated one."""

VARIABLES = ["repeated_name", "answer"]


def repeated_name(subject):
    return subject


def answer(first, second, repeated_name):
    return {first: second, second: first}[repeated_name]


def choices(first, second):
    return [first, second]
