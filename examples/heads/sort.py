"""Sorting: each token counts the smaller ones (ties by position), and every position fetches the token of its rank."""

from vesalius.rasp import Aggregate, Comparison, Select, SelectorWidth, SequenceMap, indices, tokens

vocab = [0, 1, 2, 3]
max_len = 5
causal = False


def program():
    key = SequenceMap(lambda token, place: max_len * token + place, tokens, indices, name="key")
    rank = SelectorWidth(Select(key, key, Comparison.LT), name="rank")
    return Aggregate(Select(rank, indices, Comparison.EQ), tokens, default="-", name="sorted")
