"""Induction: the token that most often followed earlier occurrences of the token here."""

from vesalius.rasp import Aggregate, Comparison, Select, indices, tokens

vocab = ["a", "b", "c", "d"]
max_len = 6
causal = True


def program():
    before = Aggregate(
        Select(indices, indices, lambda key, query: key == query - 1), tokens, default="-", name="before"
    )
    return Aggregate(Select(before, tokens, Comparison.EQ), tokens, default="-", name="followed_by")
