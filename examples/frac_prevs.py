"""The running share of "x" among the tokens seen so far, in ten lines of RASP."""

from vesalius.rasp import Aggregate, Comparison, Map, Select, indices, tokens

vocab = ["a", "b", "c", "x"]
max_len = 4
causal = True


def program():
    is_x = Map(lambda token: token == "x", tokens, name="is_x")
    up_to_here = Select(indices, indices, Comparison.LEQ)
    return Aggregate(up_to_here, is_x, numerical=True, name="share_of_x")
