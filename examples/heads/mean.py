"""The mean of the tokens so far, leaving out those that equal 0: a mean and a mask together."""

from vesalius.rasp import Aggregate, Select, indices, tokens

vocab = [0, 1, 2, 3, 4]
max_len = 5
causal = True


def program():
    kept = Select(tokens, indices, lambda token, place: token > 0)
    return Aggregate(kept, tokens, numerical=True, name="mean_of_kept")
