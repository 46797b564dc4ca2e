"""Programs built step by step over codes, by hand; random ones are in tests/explanations/test_executable.py."""

import pytest

from vesalius.errors import BadInput
from vesalius.rasp import Select, indices
from vesalius_programs.draft import NOWHERE, OUTPUT, UNDEFINED, Draft

VOCAB = ("a", "b", "nothing")


def outputs(draft: Draft, output, rows: list[list[str]]) -> list[list]:
    program = draft.compile(output, draft.variables, name="drafted")
    codes, lengths = program.encode(rows)
    return program.decode(program.run(codes, lengths).output, lengths)


def test_undefined_is_a_code_of_its_own_that_a_table_can_read() -> None:
    draft = Draft(VOCAB, 4, causal=True)
    previous = Select(indices, indices, lambda key, query: key == query - 1)
    draft.variables["before"] = draft.gathered("before", previous, "tokens")
    assert draft.nothing == "nothing_"  # the vocabulary has the other word
    assert draft.variables["before"].codes == {UNDEFINED, 0, 1, 2}
    output = draft.output_table(("before",), {(UNDEFINED,): "first", (0,): "after a"})
    assert output.name == OUTPUT
    assert outputs(draft, output, [["a", "b", "nothing"]]) == [["first", "after a", None]]


def test_a_table_of_a_table_and_entries_that_were_never_seen() -> None:
    """Nothing is made up: an argument that was never seen gives "unseen", and no output unless one is listed for it."""
    draft = Draft((*VOCAB[:-1], "unseen"), 3, causal=False)
    classes = draft.variables["classes"] = draft.table("classes", ("tokens",), {(0,): 0, (1,): 1}, 2)
    assert [classes.value(code) for code in (0, 1, 2)] == [0, 1, "unseen_"]  # the vocabulary has the other word
    assert not classes.is_flag
    assert not classes.is_ordered
    draft.variables["again"] = draft.table("again", ("classes", "indices"), {(2, 0): 5, (0, 1): 6}, 7)
    assert draft.variables["again"].codes == {5, 6, 7}
    assert draft.variables["again"].seen == {5, 6}
    # Of two classes and three positions (0, 1) is listed; (2, 0) is listed too, but has an unseen argument.
    assert draft.combinations(("classes", "indices")) == 6
    assert draft.unlisted(("classes", "indices"), {(2, 0): 5, (0, 1): 6}) == 5
    output = draft.output_table(("again",), {(5,): 5, (6,): 6})
    assert outputs(draft, output, [["unseen", "a", "a"], ["b", "b"]]) == [[5, 6, None], [None, None]]
    listed = draft.output_table(("again",), {(5,): 5, (6,): 6, (7,): 0})
    assert outputs(draft, listed, [["unseen", "a", "a"], ["b", "b"]]) == [[5, 6, 0], [0, 0]]


def test_classes_are_compared_by_their_codes_where_some_are_unseen() -> None:
    draft = Draft(VOCAB, 3, causal=False)
    draft.variables["classes"] = draft.table("classes", ("tokens",), {(0,): 0, (1,): 1}, 2)
    draft.variables["more"] = draft.count("more", draft.compared("classes", "classes", "GT"))
    output = draft.output_table(("more",), {(n,): n for n in range(4)})
    assert outputs(draft, output, [["a", "b", "nothing"]]) == [[2, 1, 0]]


def test_the_first_match_the_largest_and_a_share() -> None:
    draft = Draft((1, 2, 3), 4, causal=False)
    select = draft.first("match", draft.compared("tokens", "tokens", "GT"))
    draft.variables["match"] = draft.gathered("match", select, "tokens")
    draft.variables["largest"] = draft.extreme("largest", "tokens", largest=True)
    draft.variables["share"] = draft.share("share", "tokens", {0}, "LT", scale=4)
    values = {name: draft.rule(f"{name}_code", (name,), lambda code: code) for name in ("match", "largest", "share")}
    rows = [[1, 3, 2, 2]]
    # The first larger token, as a code: 3 for 1, none for 3, 3 for both 2s.
    assert outputs(draft, values["match"], rows) == [[2, UNDEFINED, 2, 2]]
    assert outputs(draft, values["largest"], rows) == [[2, 2, 2, 2]]
    # Of the positions before here, those with token 1, in quarters: none yet, 1 of 1, 1 of 2, 1 of 3 rounded.
    assert outputs(draft, values["share"], rows) == [[UNDEFINED, 4, 2, 1]]


def test_a_route_can_lead_nowhere_and_idle_variables_stay_in_the_program() -> None:
    draft = Draft(("a", "b"), 3, causal=False)
    ends = draft.route("ends", ("length",), lambda length: length - 1 if length > 1 else NOWHERE)
    draft.variables["last"] = draft.gathered("last", ends, "tokens")
    draft.variables["idle"] = draft.count("idle", draft.one_of("idle", "tokens", {1}))
    output = draft.output_table(("last",), {(0,): "a", (1,): "b"})
    program = draft.compile(output, ("last", "idle"), name="drafted")
    assert {"last", "idle"} <= {program.name_of(node) for node in program.tables.domains}
    codes, lengths = program.encode([["a", "b"], ["a"]])
    assert program.decode(program.run(codes, lengths).output, lengths) == [["b", "b"], [None]]


def test_a_causal_draft_has_no_length_and_too_many_values_are_refused() -> None:
    assert "length" not in Draft(VOCAB, 4, causal=True).variables
    draft = Draft(tuple(range(3000)), 2, causal=True)
    with pytest.raises(BadInput, match="cells"):
        draft.compile(draft.gathered("x", draft.compared("tokens", "tokens", "EQ"), "tokens").variable, (), name="x")
