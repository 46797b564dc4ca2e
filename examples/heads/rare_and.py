"""A rare condition: the token here and the two before it are all "x", which under 1 input in 50 shows at a place."""

from vesalius.rasp import Aggregate, Map, Select, SequenceMap, indices, tokens

vocab = ["a", "b", "c", "x"]
max_len = 5
causal = True


def program():
    is_x = Map(lambda token: int(token == "x"), tokens, name="is_x")
    before = Aggregate(Select(indices, indices, lambda key, query: key == query - 1), is_x, default=0, name="x_before")
    both = SequenceMap(lambda here, earlier: int(here and earlier), is_x, before, name="pair")
    earlier = Aggregate(
        Select(indices, indices, lambda key, query: key == query - 1), both, default=0, name="pair_before"
    )
    return SequenceMap(lambda here, pair: int(here and pair), is_x, earlier, name="three")
