"""Placement and widths against published figures and hand-worked cases; roles by rule."""

import pytest

from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Role,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    frac_prevs,
    hist,
    indices,
    length,
    roles_of,
    tokens,
)
from vesalius.rasp.language import constant, shift_by

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]


def placed(variable, vocab=("a", "b", "c"), max_len=9, *, causal=False):
    program = compile_program(variable, list(vocab), max_len, causal=causal)
    return program, [str(part.component) for part in program.components]


def sizes(program):
    return program.n_layers, program.n_heads, program.d_head, program.d_model


def reverse():
    opposite = SequenceMap(lambda n, i: n - i, length(), indices)
    return Aggregate(Select(indices, Map(lambda v: v - 1, opposite), Comparison.EQ), tokens)


def invert_if_sorted():
    total = SelectorWidth(Select(indices, indices, Comparison.TRUE))
    previous = Aggregate(Select(indices, indices, lambda k, q: k == max(q - 1, 0)), tokens)
    middle = Map(lambda n: n / 2 - 0.5, total)
    rising = SequenceMap(lambda before, now: int(before <= now), previous, tokens)
    violations = SelectorWidth(Select(rising, constant(0), Comparison.EQ))
    sign = Map(lambda n: 1 if n > 0 else -1, violations)
    turned = SequenceMap(lambda s, o: s * o, sign, SequenceMap(lambda i, m: i - m, indices, middle))
    return Aggregate(Select(SequenceMap(lambda m, o: m + o, middle, turned), indices, Comparison.EQ), tokens)


def scale_by_max():
    distinct = SequenceMap(lambda t, i: t + i / 100, tokens, indices)
    rank = SelectorWidth(Select(distinct, distinct, Comparison.LEQ))
    largest = Aggregate(Select(rank, length(), Comparison.EQ), tokens)
    return SequenceMap(lambda t, m: t / m if m else 0, tokens, largest)


def pair_balance():
    opens, closes = (frac_prevs(Map(lambda t, c=c: t == c, tokens)) for c in "()")
    return LinearSequenceMap(opens, closes, x_factor=1, y_factor=-1)


def test_reverse_as_published():
    program, names = placed(reverse(), LETTERS)
    assert names == ["L0H0", "L0_MLP", "L1_MLP", "L2_MLP", "L3H0"]
    assert sizes(program) == (4, 1, 28, 111)


def test_invert_if_sorted_as_published():
    program, names = placed(invert_if_sorted(), range(30))
    assert names == [
        "L0H0", "L0H1", "L0_MLP", "L1_MLP", "L2H0", "L2_MLP", "L3_MLP", "L4_MLP", "L5_MLP", "L6H0",
    ]  # fmt: skip
    assert sizes(program) == (7, 2, 45, 244)
    assert [len(part.variables) for part in program.components] == [1, 1, 2, 2, 1, 2, 1, 1, 1, 1]
    assert isinstance(
        program.components[0].expressions[0], SelectorWidth
    )  # heads in graph order: the count, then the copy


@pytest.mark.parametrize(
    ("variable", "vocab", "max_len", "expected"),
    [
        (frac_prevs(Map(lambda t: t == "x", tokens)), "abcx", 4, (2, 1, 6, 13)),
        (pair_balance(), "()abc", 9, (2, 2, 11, 22)),
        (hist(tokens), "abc", 9, (1, 1, 5, 26)),
        (scale_by_max(), range(11), 9, (3, 1, 101, 219)),
        (Map(lambda t: t + 1, tokens), range(11), 9, (1, 1, 1, 33)),
        (SequenceMap(lambda t, i: t * (i + 1), tokens, indices), "abc", 9, (1, 1, 1, 42)),
    ],
)
def test_widths_as_published(variable, vocab, max_len, expected):
    assert sizes(placed(variable, vocab, max_len)[0]) == expected


def test_a_pair_of_one_variable_is_enumerated_freely_but_placed_as_a_map():
    pair = SequenceMap(lambda x, y: (x, y), tokens, tokens)
    triple = SequenceMap(lambda p, i: (*p, i), pair, indices)
    program, names = placed(Map(lambda t: t[0] + t[1] - t[2], triple), range(5), 4)
    assert names == ["L0_MLP", "L1_MLP", "L2_MLP"]
    assert sizes(program) == (3, 1, 1, 149)
    assert [*roles_of(program).values()] == [Role.MAPPER, Role.COMBINER, Role.MAPPER]


def test_an_mlp_level_moves_up_beside_a_pure_head_level():
    moved = shift_by(1, tokens)
    assert placed(SequenceMap(lambda a, b: a == b, tokens, moved))[1] == ["L0H0", "L0_MLP"]
    deep = Map(
        lambda n: n > 1, SelectorWidth(Select(SequenceMap(lambda a, b: a == b, tokens, moved), tokens, Comparison.TRUE))
    )
    assert placed(deep)[1] == ["L0H0", "L0_MLP", "L1H0", "L1_MLP", "L2_MLP"]


def test_a_level_with_a_count_or_an_mlp_does_not_take_the_next_one():
    assert placed(Map(lambda n: n > 1, hist(tokens)))[1] == ["L0H0", "L0_MLP", "L1_MLP"]
    beside = SequenceMap(lambda a, b: (a, b), Map(ord, tokens), shift_by(1, tokens))
    assert placed(beside)[1] == ["L0H0", "L0_MLP", "L1_MLP"]


def test_depth_looks_through_selects():
    flag = Map(lambda t: t == "a", tokens)
    copied = Aggregate(Select(flag, flag, Comparison.EQ), tokens)
    assert placed(copied)[1] == ["L0_MLP", "L1H0"]


def test_names_are_given_or_numbered_and_always_unique():
    first, second = Map(ord, tokens, name="code"), Map(str.upper, tokens, name="code")
    plain = SequenceMap(lambda a, b: (a, b), first, second)
    program, _ = placed(SequenceMap(lambda p, n: (p, n), plain, hist(first)))
    assert [program.name_of(part) for part in (first, second, plain, program.output)] == [
        "code", "code_2", "sequence_map_1", "sequence_map_2",
    ]  # fmt: skip
    written = [name for part in program.components for name in part.variables]
    assert len(set(written)) == len(written)


def test_a_head_never_shares_its_name_with_a_variable():
    program, _ = placed(SequenceMap(lambda a, b: (a, b), length(), Map(ord, tokens, name="length_head")))
    assert [part.variables for part in program.components] == [
        ("length_2_head",),
        ("length_2", "length_head"),
        ("sequence_map_1",),
    ]


def role_list(variable, vocab=("a", "b", "c")):
    return [str(role) for role in roles_of(placed(variable, vocab)[0]).values()]


def test_roles_of_heads():
    assert role_list(hist(tokens)) == ["AGGREGATOR", "MAPPER"]
    assert role_list(frac_prevs(Map(lambda t: t == "a", tokens))) == ["INDICATOR", "AGGREGATOR"]
    assert role_list(shift_by(1, tokens)) == ["ROUTER"]
    code = Map(ord, tokens)
    assert role_list(Aggregate(Select(code, code, Comparison.EQ), code)) == ["MAPPER", "AGGREGATOR"]
    assert role_list(Aggregate(Select(indices, code, lambda k, q: k == q % 2), tokens)) == ["MAPPER", "ROUTER"]


def test_roles_of_mlps():
    assert role_list(Map(lambda t: t == "a", tokens)) == ["INDICATOR"]
    assert role_list(Map({"a": 1}.get, tokens)) == ["INDICATOR"]  # 1 or None
    assert role_list(Map(ord, tokens)) == ["MAPPER"]
    assert role_list(Map(lambda i: i % 2, indices)) == ["MAPPER"]
    assert role_list(Map(lambda n: n > 1, hist(tokens)))[-1] == "MAPPER"
    assert role_list(SequenceMap(lambda x, y: x == y, tokens, tokens)) == ["MAPPER"]
    assert role_list(SequenceMap(lambda x, i: x, tokens, indices)) == ["COMBINER"]


def test_roles_of_merged_mlps():
    is_a, is_b = (Map(lambda t, c=c: t == c, tokens) for c in "ab")
    both = SequenceMap(lambda x, y: x or y, is_a, is_b)
    assert role_list(both) == ["INDICATOR", "COMBINER"]
    with_constant = SequenceMap(lambda x, y: x == y, is_a, constant(True))
    assert role_list(with_constant) == ["INDICATOR", "COMBINER"]
    assert role_list(SequenceMap(max, constant("b", of=tokens), constant("a"))) == ["MAPPER", "COMBINER"]
    assert role_list(SequenceMap(lambda x, y: (x, y), is_a, Map(ord, tokens))) == ["MAPPER", "COMBINER"]
    width_beside_pair = SequenceMap(lambda x, y: (x, y), hist(tokens), SequenceMap(lambda t, i: i, tokens, indices))
    assert role_list(width_beside_pair) == ["AGGREGATOR", "COMBINER", "COMBINER"]
