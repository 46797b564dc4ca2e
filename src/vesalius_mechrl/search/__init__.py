"""Search for the head that a behaviour needs most, under a budget of queries.

`budget` counts the queries of one episode, `strategies` are the ways to spend them, `comparison` measures the regret of
all strategies on the same episodes, and `model_search` runs a strategy on a model itself.
"""
