"""Triplets: one input with the function's own output among two with outputs it would not give.

The published triplets can be told by their looks: distractors come from other functions, `undefined` is never one, and
blanks give the right pair away. Here distractors share the input's kind: an answer of another member, another
attribute, `undefined` where the function answers, or an answer where its exception holds. `undefined` is as frequent
among distractors (four of 20) as among right pairs (two of ten). Inputs are members that the built-in interpreter never
asks, as far as there are any.
"""

import random
from collections.abc import Iterator, Sequence

from vesalius.errors import BadInput
from vesalius_functions.knowledge.inventory import inventory
from vesalius_functions.knowledge.tables import UNDEFINED, Relation, same
from vesalius_functions.relations.functions import Pair, RelationFunction
from vesalius_functions.unit_tests import UnitTest

TRIPLETS, UNDEFINED_RIGHT, UNDEFINED_WRONG, MISSED = 10, 2, 4, 4


def unit_tests(function: RelationFunction, seed: int = 0) -> list[UnitTest]:
    """Ten triplets; a published function keeps its own, without blanks around the outputs unless in published mode."""
    if function.triplets:
        return list(function.triplets)
    relation = function.relation
    if relation is None:
        raise BadInput(f"function {function.id}: no fact table covers it and no tests came with it")
    rng = random.Random(f"relations/tests/{seed}/{function.truth()}")
    ordinary, special = _inputs(function, relation, rng)
    right = _right(function, ordinary, special)
    wrong = _wrong(function, relation, ordinary, special, rng)
    rng.shuffle(right)
    return [_unit_test(pair, [next(wrong), next(wrong)], rng) for pair in right]


def _inputs(function: RelationFunction, relation: Relation, rng: random.Random) -> tuple[list[str], list[str]]:
    """Members that the function answers for, and inputs it does not: exceptions, or things of another kind."""
    table, exception = relation.table, function.exception
    members = rng.sample(list(relation.values), len(relation.values))
    # Kept members first: `sorted` is stable, so the random order stays within each half.
    members = sorted(members, key=lambda member: member not in table.kept)
    if exception is None:
        strangers = [item for other in inventory() for item in list(other.values)[:6] if table.member(item) is None]
        return members, rng.sample(strangers, len(strangers))
    excepted = [member for member in members if exception.holds(table, member)]
    return [member for member in members if member not in set(excepted)], excepted


def _right(function: RelationFunction, ordinary: Sequence[str], special: Sequence[str]) -> list[Pair]:
    answered = _asked(function, ordinary[: 2 * TRIPLETS])
    silent = _asked(function, special[: 2 * TRIPLETS])
    undefined = [pair for pair in silent if same(pair[1], UNDEFINED)][:UNDEFINED_RIGHT]
    defined = [pair for pair in answered if not same(pair[1], UNDEFINED)][: TRIPLETS - len(undefined)]
    return [*defined, *undefined]


def _asked(function: RelationFunction, inputs: Sequence[str]) -> list[Pair]:
    replies = zip(inputs, function.replies(inputs), strict=True)
    return [(item, str(reply.value)) for item, reply in replies if reply.error is None]


def _wrong(
    function: RelationFunction, relation: Relation, ordinary: Sequence[str], special: Sequence[str], rng: random.Random
) -> Iterator[Pair]:
    """Pairs the function would not give, shuffled; they are members' and attributes' own, so they look right."""
    rivals = [other for other in inventory() if other.table is relation.table and other.name != relation.name]
    pairs = [(item, UNDEFINED) for item in rng.sample(ordinary, min(UNDEFINED_WRONG, len(ordinary)))]
    if function.exception is not None:
        missed = [(item, relation.values[item]) for item in special]
        pairs += (missed * MISSED)[:MISSED]
    while len(pairs) < 2 * TRIPLETS:
        item = rng.choice(ordinary)
        other = relation.values[rng.choice(ordinary)]
        rival = rng.choice(rivals).values.get(item) if rivals and len(pairs) % 2 else None
        if not same(rival or other, relation.values[item]):
            pairs.append((item, rival or other))
    rng.shuffle(pairs)
    return iter(pairs)


def _unit_test(right: Pair, wrong: Sequence[Pair], rng: random.Random) -> UnitTest:
    place = rng.randrange(3)
    return UnitTest.of_pairs([*wrong[:place], right, *wrong[place:]], place)
