"""Arbitrary programs for property tests: random graphs with random tables, None and errors included."""

import random

from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    indices,
    tokens,
)


def random_program(seed):
    """A compiled program of 1 to 7 operators; BadInput where a function turns out undefined everywhere."""
    rng = random.Random(seed)
    vocab = rng.choice([["a", "b"], ["a", "b", "c"], [3, 1, 2, 7]])
    max_len, causal = rng.randint(1, 6), rng.random() < 0.5
    pool, numbers = [tokens, indices], []
    for _ in range(rng.randint(1, 7)):
        grow(rng, pool, numbers)
    last = numbers[-1] if numbers and rng.random() < 0.5 else pool[-1]
    if last is indices:  # only numerical operators were drawn
        last = numbers[-1]
    return compile_program(last, vocab, max_len, causal=causal)


def random_sequence(rng, program):
    return [rng.choice(program.vocab) for _ in range(rng.randint(1, program.max_len))]


def grow(rng, pool, numbers):
    operator = rng.choice(["map", "pair", "pair", "width", "copy", "copy", "mean", "linear"])
    if operator == "map":
        pool.append(Map(scramble(rng, [0, 1, "u", "v"]), rng.choice(pool)))
    elif operator == "pair":
        pool.append(SequenceMap(scramble(rng, [0, 1, 2, "u"]), rng.choice(pool), rng.choice(pool)))
    elif operator == "width":
        pool.append(SelectorWidth(random_select(rng, pool)))
    elif operator == "copy":
        default = rng.choice([None, None, 1, "u", "nothing", ("v", 2)])
        pool.append(Aggregate(random_select(rng, pool), rng.choice(pool), default=default))
    elif operator == "mean":
        values = rng.choice([*numbers, Map(scramble(rng, [0, 1, 2]), rng.choice(pool))])
        numbers.append(Aggregate(random_select(rng, pool), values, numerical=True))
    else:
        operands = [*numbers, indices, Map(scramble(rng, [0, 1, -1]), rng.choice(pool))]
        x, y = rng.choice(operands), rng.choice(operands)
        numbers.append(LinearSequenceMap(x, y, x_factor=rng.choice([1, -1, 0.5]), y_factor=rng.choice([1, 2])))


def random_select(rng, pool):
    keys, queries = rng.choice(pool), rng.choice(pool)
    if keys is queries and rng.random() < 0.5:
        return Select(keys, queries, rng.choice([Comparison.EQ, Comparison.NEQ, Comparison.TRUE, Comparison.FALSE]))
    if keys is queries is indices:
        return Select(keys, queries, rng.choice([Comparison.LEQ, Comparison.GT]))
    decide = scramble(rng, [True, False, False], undefined=False)
    return Select(keys, queries, decide)


def scramble(rng, results, *, undefined=True):
    """A fixed arbitrary function: the same arguments always give the same result, None or error."""
    salt = rng.random()

    def function(*arguments):
        draw = random.Random(f"{salt}{arguments!r}")
        kind = draw.random() if undefined else 0
        if kind > 0.95:
            raise ZeroDivisionError
        if kind > 0.9:
            raise ValueError("undefined here")
        return None if kind > 0.85 else draw.choice(results)

    return function
