"""Which components the published rule can tag in two ways, on programs small enough to say it by hand."""

import pytest

from vesalius.components import Component
from vesalius.rasp import Aggregate, Comparison, Map, Select, SequenceMap, compile_program, indices, tokens
from vesalius.rasp.program import Role, roles_of
from vesalius_truth.readings import second_roles

VOCAB = ("a", "b", "c")


def before(name: str = "before") -> Aggregate:
    """The token before the own position; the first one has none."""
    return Aggregate(Select(indices, indices, lambda key, query: key == query - 1), tokens, name=name, default="a")


def second(output) -> dict[Role, Role]:
    """First and second tag of the MLPs and heads that have two."""
    program = compile_program(output, VOCAB, 5, causal=True)
    first = roles_of(program)
    return {first[part]: role for part, role in second_roles(program).items()}


def test_a_table_of_a_token_and_another_one_has_one_reading() -> None:
    assert second(SequenceMap(lambda x, y: (x, y), tokens, before())) == {}


def test_a_table_of_two_tables_of_the_token_may_be_one_table() -> None:
    flag, other = (Map(lambda x, of=of: x == of, tokens, name=f"is_{of}") for of in "ab")
    assert second(SequenceMap(lambda x, y: (x, y), flag, other)) == {Role.COMBINER: Role.MAPPER}


def test_a_position_beside_one_value_may_come_in_at_the_table_below() -> None:
    code = Map(lambda x: VOCAB.index(x), tokens, name="code")
    output = SequenceMap(lambda x, place: x + place, code, indices)
    assert second(output) == {Role.COMBINER: Role.MAPPER, Role.MAPPER: Role.COMBINER}


@pytest.mark.parametrize("predicate", [Comparison.LEQ, Comparison.LT])
def test_a_head_that_moves_values_has_one_reading(predicate: Comparison) -> None:
    flag = Map(lambda x: x == "a", tokens, name="flag")
    assert second(Aggregate(Select(indices, indices, predicate), flag, numerical=True)) == {}


def test_a_component_is_named_once() -> None:
    code = Map(lambda x: VOCAB.index(x), tokens, name="code")
    program = compile_program(SequenceMap(lambda x, place: x + place, code, indices), VOCAB, 5, causal=True)
    assert set(second_roles(program)) == {Component(0), Component(1)}
