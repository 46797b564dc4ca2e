"""The person who was mentioned once: find the place of the repeated name, take the name at the other place."""

VARIABLES = ["repeated_name", "repeated_place", "answer"]


def repeated_name(subject):
    return subject


def repeated_place(first, second, repeated_name):
    return {first: 1, second: 2}[repeated_name]


def answer(first, second, repeated_place):
    return second if repeated_place == 1 else first


def choices(first, second):
    return [first, second]
