"""A backup pair: two heads fetch the previous token, and the output is their larger value, so either one would do."""

from vesalius.rasp import Aggregate, Select, SequenceMap, indices, tokens

vocab = [0, 1, 2, 3]
max_len = 5
causal = True


def program():
    first = Aggregate(Select(indices, indices, lambda key, query: key == query - 1), tokens, default=0, name="first")
    second = Aggregate(Select(indices, indices, lambda key, query: query - key == 1), tokens, default=0, name="second")
    return SequenceMap(max, first, second, name="either")
