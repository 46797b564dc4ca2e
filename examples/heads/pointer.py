"""A pointer: every token is a position, and the output is the token that stands there."""

from vesalius.rasp import Aggregate, Comparison, Select, indices, tokens

vocab = [0, 1, 2, 3, 4]
max_len = 5
causal = False


def program():
    return Aggregate(Select(indices, tokens, Comparison.EQ), tokens, default="-", name="pointed_at")
