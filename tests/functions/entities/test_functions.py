"""Entity functions: the list, the draw, the scores, and language models in place of vectors."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius_backbones import Scripted, ScriptedReply, open_backbone
from vesalius_backbones.messages import ModelRequest, TokenOptions
from vesalius_bench.papers.published import printed
from vesalius_functions import Box
from vesalius_functions.entities import all_concepts, sample
from vesalius_functions.entities.functions import EntityFunction, published_concepts, unit_tests
from vesalius_functions.knowledge.scoring import NO_ANSWER, Concept, VectorScorer
from vesalius_functions.suite import SUITE

DOGS = EntityFunction("f0", (Concept("dogs", ("dog", "puppy", "terrier")),), VectorScorer("glove"))


def test_the_list_has_140_concepts_whose_tests_do_not_define_them() -> None:
    assert len({one.concept.name for one in all_concepts()}) == len(all_concepts()) == 140
    for one in all_concepts():
        assert len(one.concept.words) == 5
        assert len(set(one.tests)) == 10, one.concept.name
        assert not set(one.tests) & set(one.concept.words), one.concept.name


def test_the_suite_has_140_concepts_and_60_pairs() -> None:
    functions = sample(SUITE["entities"], seed=3)
    singles = [function.concepts[0].name for function in functions if function.family == "concept"]
    pairs = [function.concepts for function in functions if function.family == "pair"]
    assert len(set(singles)) == len(singles) == 140
    assert len(pairs) == 60
    assert all(len({concept.name for concept in pair}) == 2 for pair in pairs)
    assert len({function.id for function in functions}) == 200


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 10**6))
def test_a_shorter_draw_is_the_start_of_a_longer_one(one: int, other: int, seed: int) -> None:
    short, long = sorted((one, other))
    assert [f.truth() for f in sample(short, seed=seed)] == [f.truth() for f in sample(long, seed=seed)][:short]


def test_more_than_the_list_starts_it_again() -> None:
    assert len(sample(250, seed=0)) == 250
    with pytest.raises(BadInput, match="count -1"):
        sample(-1, seed=0)


@needs_vectors
def test_related_words_score_high_and_others_low() -> None:
    values = [reply.value for reply in DOGS.replies(["spaniel", "kennel", "parliament", "algebra"])]
    assert min(values[:2]) > 0.8
    assert max(values[2:]) < 0.1


@needs_vectors
def test_a_bad_input_costs_only_its_own_reply() -> None:
    inputs = ["spaniel", "", "   ", "xqzzkw", 7, None, "dog " * 100, "Dog!"]
    first, *bad, last = Box(DOGS).ask(inputs)
    assert [reply.error is None for reply in bad] == [False] * 6
    assert "not in the vocabulary" in (bad[2].error or "")
    assert "not a text" in (bad[3].error or "")
    assert "400 characters" in (bad[5].error or "")
    assert first.value > 0.8
    assert last.value > 0.8


@needs_vectors
def test_a_pair_is_the_larger_of_its_concepts() -> None:
    words = ["spaniel", "algebra", "parliament", "theorem"]
    numbers = EntityFunction("f1", (Concept("mathematics"),), DOGS.scorer)
    either = EntityFunction("f2", (*DOGS.concepts, *numbers.concepts), DOGS.scorer)
    together = zip(either.replies(words), DOGS.replies(words), numbers.replies(words), strict=True)
    assert all(pair.value == pytest.approx(max(one.value, other.value)) for pair, one, other in together)
    assert either.family == "pair"


@needs_vectors
def test_published_values_have_four_decimals() -> None:
    words = ["spaniel", "wolf", "parliament"]
    exact = [reply.value for reply in DOGS.replies(words)]
    published = EntityFunction("f0", DOGS.concepts, DOGS.scorer, "published")
    assert [reply.value for reply in published.replies(words)] == [round(value, 4) for value in exact]
    assert published.truth()["backbone"] == "glove"


def digits(request: ModelRequest) -> ScriptedReply:
    """Sure about puppies, in doubt about wolves, evasive about the rest."""
    word = request.messages[-1].text.splitlines()[-1].removeprefix("Input: ")
    odds = {"puppy": (-0.1, -3.0), "wolf": (-1.0, -1.0)}.get(word)
    if odds is None:
        return ScriptedReply(text="Well", logprobs=(TokenOptions(token="Well", options=(("Well", -0.1),)),))
    yes, no = odds
    return ScriptedReply(text="1", logprobs=(TokenOptions(token="1", options=(("1", yes), ("0", no))),))


@pytest.mark.parametrize("mode", ["fixed", "published"])
def test_a_language_model_scores_by_its_log_probabilities(mode) -> None:
    script = Scripted(digits)
    function = sample(1, seed=0, mode=mode, backbone=open_backbone(script))[0]
    puppy, vague, wolf, empty = function.replies(["puppy", "cloud", "wolf", ""])
    share = math.exp(-0.1) / (math.exp(-0.1) + math.exp(-3.0))
    assert puppy.value == (round(share, 4) if mode == "published" else pytest.approx(share))
    assert wolf.value == pytest.approx(0.5)
    assert vague.error == NO_ANSWER  # not what the model said, which may tell the concept
    assert empty.error == "the input is empty"
    assert len(script.requests) == 3
    asked = script.requests[0].messages[-1].text
    assert function.concepts[0].name in asked
    assert ("Return only 1" in asked) == (mode == "published")
    assert function.truth()["backbone"] == "scripted:script"


@needs_vectors
def test_mode_published_draws_the_names_of_the_paper() -> None:
    """The names of Table A1 as far as they can be read, with words that belong to them by GloVe to test with."""
    names = {one.concept.name for one in published_concepts()}
    assert names == set(printed("find", "Table A1").rows) - {"average"}
    drawn = sample(200, seed=3, mode="published")
    assert {concept.name for function in drawn for concept in function.concepts} <= names
    assert len({function.concepts for function in drawn if len(function.concepts) == 1}) == len(names)
    climate = next(one for one in published_concepts() if one.concept.name == "climate")
    assert {"warming", "environment"} <= set(climate.tests)
    assert len(unit_tests(drawn[0])) == 10
