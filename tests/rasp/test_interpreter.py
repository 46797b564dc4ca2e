"""Hand-worked outputs of every primitive, of None, and of interchanges."""

import pytest
import torch

from vesalius.errors import BadInput
from vesalius.rasp import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    frac_prevs,
    hist,
    indices,
    length,
    random_inputs,
    tokens,
)
from vesalius.rasp.language import constant, shift_by

EVERYWHERE = Select(tokens, tokens, Comparison.TRUE)


def outputs(variable, sequences, *, vocab=("a", "b", "c"), max_len=5, causal=False):
    program = compile_program(variable, list(vocab), max_len, causal=causal)
    trace = program.run(*program.encode(sequences))
    return program.decode(trace.output, trace.lengths)


def mask(program, *rows):
    """One row of the patch mask per set of component names."""
    return torch.tensor([[str(placed.component) in row for placed in program.components] for row in rows])


def test_map_and_sequence_map_work_position_by_position():
    assert outputs(Map(str.upper, tokens), [["a", "c"], ["b"]]) == [["A", "C"], ["B"]]
    assert outputs(SequenceMap(lambda t, i: t * (i + 1), tokens, indices), [["a", "b"]]) == [["a", "bb"]]


def test_a_map_of_a_map_is_one_map():
    fused = Map(lambda n: n + 1, Map(ord, tokens, name="inner"), name="outer")
    assert (fused.x, fused.name) == (tokens, "outer")
    assert outputs(fused, [["a", "b"]]) == [[98, 99]]


@pytest.mark.parametrize(("causal", "expected"), [(False, [[2, 1, 2], [1]]), (True, [[1, 1, 2], [1]])])
def test_selector_width_counts_only_real_and_visible_positions(causal, expected):
    assert outputs(hist(tokens), [["a", "b", "a"], ["c"]], causal=causal) == expected


@pytest.mark.parametrize(("causal", "expected"), [(False, [[3, 3, 3], [1]]), (True, [[1, 2, 3], [1]])])
def test_length(causal, expected):
    assert outputs(length(), [["a", "b", "a"], ["c"]], causal=causal) == expected


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (Comparison.EQ, [1, 1, 1]),
        (Comparison.LT, [0, 1, 2]),
        (Comparison.LEQ, [1, 2, 3]),
        (Comparison.GT, [2, 1, 0]),
        (Comparison.GEQ, [3, 2, 1]),
        (Comparison.NEQ, [2, 2, 2]),
        (Comparison.TRUE, [3, 3, 3]),
        (Comparison.FALSE, [0, 0, 0]),
    ],
)
def test_comparisons_are_key_against_query(comparison, expected):
    assert outputs(SelectorWidth(Select(indices, indices, comparison)), [["a", "a", "a"]]) == [expected]


def test_shifts_leave_none_where_nothing_arrives():
    assert outputs(shift_by(1, tokens), [["a", "b", "c"], ["b"]]) == [[None, "a", "b"], [None]]
    assert outputs(shift_by(-1, tokens), [["a", "b", "c"], ["b"]]) == [["b", "c", None], [None]]
    assert outputs(shift_by(-1, tokens), [["a", "b"]], causal=True) == [[None, None]]


def test_aggregate_takes_the_most_frequent_value_and_on_a_tie_the_first_of_the_list():
    most = Aggregate(EVERYWHERE, tokens)
    assert outputs(most, [["c", "c", "a"], ["c", "b"]]) == [["c"] * 3, ["b"] * 2]
    assert outputs(most, [["c", "b", "c", "b"]], causal=True) == [["c", "b", "c", "b"]]
    assert outputs(most, [["c", "b"]], vocab=("c", "b", "a")) == [["c", "c"]]


def test_numerical_aggregate_is_a_mean_and_zero_when_empty():
    is_x = Map(lambda t: t == "x", tokens)
    [[first, second, third]] = outputs(frac_prevs(is_x), [["x", "a", "x"]], vocab=("a", "x"), causal=True)
    assert (first, second, third) == pytest.approx((1, 1 / 2, 2 / 3))
    mean = Aggregate(Select(indices, indices, Comparison.LT), is_x, numerical=True)
    assert outputs(mean, [["x", "a"]], vocab=("a", "x")) == [[0.0, 1.0]]


def test_linear_sequence_map_weighs_its_operands():
    opens, closes = (frac_prevs(Map(lambda t, c=c: t == c, tokens)) for c in "()")
    balance = LinearSequenceMap(opens, closes, x_factor=1, y_factor=-1)
    assert outputs(balance, [["(", ")", ")", ")"]], vocab=("(", ")"), causal=True)[0] == pytest.approx(
        [1, 0, -1 / 3, -1 / 2]
    )
    counted = LinearSequenceMap(indices, hist(tokens), x_factor=10, y_factor=0.5)
    assert outputs(counted, [["a", "a", "b"]]) == [[1.0, 11.0, 20.5]]


def test_functions_never_see_none_and_their_errors_are_none():
    only_a = Map({"a": 1}.get, tokens)
    seen = []
    pair = SequenceMap(lambda x, i: seen.append(x) or x + i, only_a, indices)
    assert outputs(pair, [["a", "b", "a"]]) == [[1, None, 3]]
    assert None not in seen
    assert outputs(Map(lambda n: 1 / n, tokens), [[0, 2]], vocab=(0, 2)) == [[None, 0.5]]
    assert outputs(Map(int, tokens), [["a", "7"]], vocab=("a", "7")) == [[None, 7]]
    assert outputs(Map(lambda t: float(t), tokens), [["nan", "2"]], vocab=("nan", "2")) == [[None, 2.0]]
    assert outputs(Map(lambda n: "big" if n > 1 else "small", Map({"a": 2}.get, tokens)), [["a", "b"]]) == [
        ["big", None]
    ]


def test_none_keys_and_queries_select_nothing():
    only_a = Map({"a": 1}.get, tokens)
    assert outputs(SelectorWidth(Select(only_a, only_a, Comparison.EQ)), [["a", "b", "a"]]) == [[2, 0, 2]]
    assert outputs(SelectorWidth(Select(only_a, constant(1), Comparison.EQ)), [["a", "b"]]) == [[1, 1]]
    assert outputs(Aggregate(Select(indices, only_a, Comparison.EQ), tokens), [["b", "a"]]) == [[None, "a"]]
    given = Aggregate(Select(indices, only_a, Comparison.EQ), tokens, default="nothing")
    assert outputs(given, [["b", "a"]]) == [["nothing", "a"]]
    assert outputs(Map(lambda value: f"{value}!", given), [["b", "a"]]) == [["nothing!", "a!"]]


def test_none_values_do_not_vote_and_do_not_count():
    value = Map({"a": 1, "c": 0}.get, tokens)
    assert outputs(Aggregate(EVERYWHERE, value), [["b", "b", "c"], ["b"]]) == [[0, 0, 0], [None]]
    mean = Aggregate(EVERYWHERE, value, numerical=True)
    assert outputs(mean, [["b", "a", "c"], ["b"]]) == [[0.5, 0.5, 0.5], [0.0]]
    plus = LinearSequenceMap(value, value, x_factor=1, y_factor=1)
    assert outputs(plus, [["a", "b"]]) == [[2.0, 0.0]]


def test_none_is_the_last_output_only_where_it_can_occur():
    def listed(variable, *, causal=False):
        return compile_program(variable, ["a", "b"], 3, causal=causal).outputs

    assert listed(shift_by(1, tokens)) == ("a", "b", None)
    assert listed(Aggregate(Select(tokens, tokens, Comparison.EQ), tokens)) == ("a", "b")
    assert listed(Aggregate(Select(indices, indices, lambda k, q: k == q // 2), tokens)) == ("a", "b")
    assert listed(SequenceMap(lambda m, n: m / n, hist(tokens), length()))[-1] is not None  # length is never 0
    opposite = SequenceMap(lambda n, i: n - 1 - i, length(), indices)  # an interchange of the length can point outside
    assert listed(Aggregate(Select(indices, opposite, Comparison.EQ), tokens)) == ("a", "b", None)


def test_a_trace_holds_every_variable_padded():
    is_x = Map(lambda t: t == "x", tokens, name="is_x")
    program = compile_program(frac_prevs(is_x), ["a", "x"], 4, causal=True)
    trace = program.run(*program.encode([["x", "a", "x"], ["a"]]))
    assert {"tokens", "indices", "is_x", "frac_prevs"} == set(trace.values)
    assert trace.values["is_x"].tolist() == [[1, 0, 1], [0, -1, -1]]
    assert trace.output[1].tolist() == [0, 0, 0]


def frac_prevs_program():
    is_x = Map(lambda t: t == "x", tokens, name="is_x")
    return compile_program(frac_prevs(is_x), ["a", "b", "c", "x"], 4, causal=True)


def test_interchange_on_frac_prevs_by_hand():
    program = frac_prevs_program()
    base, source = program.encode([["a"] * 4] * 4), program.encode([["x", "x"]] * 4)
    patched = mask(program, {"L0_MLP"}, {"L1H0"}, {"L0_MLP", "L1H0"}, set())
    output = program.interchange(base, source, patched)
    assert output[0].tolist() == pytest.approx([1, 1, 2 / 3, 1 / 2])  # is_x = 1 1 0 0, averaged in the base
    assert output[1].tolist() == [1, 1, 0, 0]  # past the source's end the base value stays
    assert output[2].tolist() == pytest.approx([1, 1, 2 / 3, 1 / 2])
    assert output[3].tolist() == [0, 0, 0, 0]


def test_interchange_with_a_longer_source_stays_inside_the_base():
    program = frac_prevs_program()
    base, source = program.encode([["a", "x"]]), program.encode([["x", "a", "x", "x"]])
    assert program.interchange(base, source, mask(program, {"L0_MLP"})).tolist() == [[1.0, 0.5]]


def test_interchange_across_positions():
    program = frac_prevs_program()
    base, source = program.encode([["a"] * 4]), program.encode([["a", "x"]])
    positions = torch.tensor([[1, -1, 0, 3]])  # is_x = 1 (from 1), kept, 0 (from 0), kept (3 is past the source's end)
    output = program.interchange(base, source, mask(program, {"L0_MLP"}), positions=positions)
    assert output[0].tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])


def test_interchange_of_a_selector_width_flows_from_its_head_through_its_mlp():
    shouted = Map(str.upper, tokens, name="shouted")
    program = compile_program(SequenceMap(lambda t, n: f"{t}{n}", shouted, length()), ["a", "b"], 4, causal=False)
    assert [(str(p.component), p.variables) for p in program.components] == [
        ("L0H0", ("length_head",)),
        ("L0_MLP", ("shouted", "length")),
        ("L1_MLP", ("sequence_map_1",)),
    ]
    base, source = program.encode([["a", "b", "a"]] * 3), program.encode([["b", "b"]] * 3)
    output = program.interchange(base, source, mask(program, {"L0H0"}, {"L0_MLP"}, {"L1_MLP"}))
    assert program.decode(output, base[1]) == [["A2", "B2", "A3"], ["B2", "B2", "A3"], ["B2", "B2", "A3"]]


def test_interchange_takes_traces_and_batches_alike():
    program = frac_prevs_program()
    base, source = random_inputs(program, 20, seed=0), random_inputs(program, 20, seed=1)
    patched = torch.rand(20, 2) < 0.5
    once = program.interchange(base, source, patched)
    assert torch.equal(once, program.interchange(program.run(*base), program.run(*source), patched))


def test_bad_batches_are_refused_in_one_line():
    program = frac_prevs_program()
    for sequences, message in [
        ([["a", "z"]], "token 'z' in sequence 0 is not in the vocabulary: a, b, c, x"),
        ([["a"], []], "sequence 1 has 0 tokens; 1 to 4 are allowed"),
        ([["a"] * 5], "sequence 0 has 5 tokens; 1 to 4 are allowed"),
        (["ab"], "sequence 0 is 'ab'; give each sequence as a list of tokens"),
        ([[["a"]]], "token ['a'] in sequence 0 is not in the vocabulary: a, b, c, x"),
        ([], "no sequences given; give a list with at least one list of tokens"),
    ]:
        with pytest.raises(BadInput) as caught:
            program.encode(sequences)
        assert str(caught.value) == message
    base = program.encode([["a"]])
    with pytest.raises(BadInput, match="expected \\(1, 2\\)"):
        program.interchange(base, base, torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(BadInput, match="do not fit"):
        program.run(torch.zeros(1, 9, dtype=torch.long), torch.tensor([9]))
    with pytest.raises(BadInput, match="L5H0 is not in the circuit"):
        program.index("L5H0")
    assert program.index("L1H0") == 1


def test_random_inputs_are_seeded_and_of_every_allowed_length():
    program = compile_program(hist(tokens), ["a", "b"], 5, causal=False)
    codes, lengths = random_inputs(program, 300, seed=7)
    again = random_inputs(program, 300, seed=7)
    assert torch.equal(codes, again[0])
    assert torch.equal(lengths, again[1])
    assert set(lengths.tolist()) == {3, 4, 5}
    assert torch.equal((codes >= 0).sum(1), lengths)
    short = compile_program(hist(tokens), ["a", "b"], 2, causal=False)
    assert set(random_inputs(short, 20, seed=0)[1].tolist()) == {2}
