"""The rank of every token: how many tokens in view are smaller."""

from vesalius.rasp import Comparison, Select, SelectorWidth, tokens

vocab = [0, 1, 2, 3, 4]
max_len = 5
causal = False


def program():
    return SelectorWidth(Select(tokens, tokens, Comparison.LT), name="rank")
