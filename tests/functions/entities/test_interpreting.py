"""The interpreter's manners and reach, the triplets, and the figures of a grade."""

import random
from collections.abc import Iterator, Sequence

import pytest

from tests.functions.needs import needs_vectors
from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions import Answer, Box, Reply
from vesalius_functions.box import UnitTest
from vesalius_functions.entities import EntityFunction, all_concepts, grade, interpret, oracle, sample, unit_tests
from vesalius_functions.entities.interpreter import MOST_QUERIES, Sorter, open_notebook
from vesalius_functions.knowledge.scoring import Concept, Scorer, VectorScorer

pytestmark = needs_vectors


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


def drawn(name: str) -> EntityFunction:
    return next(f for f in sample(200, seed=1) if [concept.name for concept in f.concepts] == [name])


def test_triplets_hold_one_related_word() -> None:
    for function in sample(6, seed=2):
        triplets = unit_tests(function, seed=5)
        assert 6 <= len(triplets) <= 10
        assert triplets == unit_tests(function, seed=5)
        for triplet in triplets:
            values = [reply.value for reply in function.replies(triplet.inputs)]
            assert values.pop(triplet.correct) > 0.5
            assert max(values) < 0.2


def test_half_of_a_pairs_triplets_are_from_each_concept() -> None:
    function = next(f for f in sample(10, seed=4) if f.family == "pair")
    right = [triplet.right.input for triplet in unit_tests(function)]
    assert all(2 <= sum(word in words for word in right) <= 5 for words in function.words)


def test_the_interpreter_names_a_plain_concept(sandbox: Sandbox) -> None:
    function = drawn("universities")
    box = Box(function)
    answer = interpret(box, seed=1)
    assert answer.queries == box.asked <= MOST_QUERIES
    assert {"university", "college"} & set(answer.structure["concepts"][0])
    metrics = grade(function, answer, sandbox=sandbox).metrics
    assert metrics["unit_test"] >= 0.8
    assert metrics["concept_named"] == 1
    assert metrics["concepts_counted"] == 1


@pytest.mark.parametrize("budget", [1, 7, 60])
def test_a_small_budget_is_kept(budget: int) -> None:
    box = Box(drawn("cars"), budget=budget)
    answer = interpret(box, seed=1)
    assert box.asked <= budget
    assert answer.description


def test_words_of_tests_and_words_left_out_are_neither_asked_nor_named() -> None:
    box = Box(drawn("universities"))
    answer = interpret(box, seed=1, without=["University", "college"])
    seen = {word for asked in box.log for word in asked.input.split()} | {
        word for words in answer.structure["concepts"] for word in words
    }
    assert not seen & ({word for one in all_concepts() for word in one.tests} | {"university", "college"})


def pair(one: str, other: str, scorer: Scorer) -> EntityFunction:
    known = {concept.concept.name: concept for concept in all_concepts()}
    both = (known[one], known[other])
    return EntityFunction("f1", tuple(x.concept for x in both), scorer, words=tuple(x.tests for x in both))


def test_two_concepts_are_told_apart_and_both_named(sandbox: Sandbox) -> None:
    function = pair("fishing", "kings and queens", VectorScorer("glove"))
    box = Box(function)
    answer = interpret(box, seed=1)
    assert answer.queries == box.asked <= MOST_QUERIES
    assert len(answer.structure["concepts"]) == 2
    fish, kings = sorted(answer.structure["concepts"], key=lambda words: "king" in words)
    assert {"fishing", "boats"} & set(fish)
    assert {"king", "prince", "throne"} & set(kings)
    assert not set(fish) & set(kings)
    assert grade(function, answer, sandbox=sandbox).metrics["concept_named"] == 1


@pytest.mark.parametrize("name", ["cars", "body parts", "cattle and dairy", "piano and orchestra"])
def test_one_concept_is_not_taken_for_two(name: str) -> None:
    assert len(interpret(Box(drawn(name)), seed=1).structure["concepts"]) == 1


class BetterWord(VectorScorer):
    """Scores a text by the better of its words, as a language model may: a stranger beside a word changes nothing."""

    def score(self, words: Sequence[object], concepts: Sequence[Concept]) -> list[Reply]:
        plain = super().score
        return [max(plain(str(text).split(), concepts), key=lambda reply: reply.value or 0.0) for text in words]


def test_a_function_that_strangers_do_not_dilute_is_sorted_by_nearness() -> None:
    notebook = open_notebook(Box(pair("fishing", "numbers", BetterWord())), 400, without=(), space_name="wordllama")
    known = {word: number for number, word in enumerate(notebook.words)}
    fish, numbers = ["fishing", "boats", "fisheries", "waters"], ["seven", "ten", "five", "twelve"]
    notebook.ask_words(known[word] for word in [*fish, *numbers, "parliament", "theory", "poetry", "violence"])
    sorter = Sorter(notebook)
    # Two of a kind and two of different kinds lie above their mean alike, so texts tell nothing.
    assert min(sorter.above_mean(known["fishing"], [known["waters"], known["ten"]])) >= 0
    groups = [{notebook.words[i] for i in group} for group in sorter.groups()]
    assert len(groups) == 2
    assert all(group <= set(fish) or group <= set(numbers) for group in groups)


def test_two_words_of_a_concept_lie_above_their_mean_and_two_of_different_ones_below() -> None:
    notebook = open_notebook(
        Box(pair("fishing", "numbers", VectorScorer("glove"))), 400, without=(), space_name="wordllama"
    )
    known = {word: number for number, word in enumerate(notebook.words)}
    notebook.ask_words(known[word] for word in ["fishing", "boats", "seven", "ten"])
    sorter = Sorter(notebook)
    same = sorter.above_mean(known["fishing"], [known["boats"]]) + sorter.above_mean(known["seven"], [known["ten"]])
    different = sorter.above_mean(known["fishing"], [known["seven"], known["ten"]])
    assert min(same) > 0 > max(different)
    before = notebook.box.asked
    assert sorter.above_mean(known["ten"], [known["fishing"]]) == different[1:]
    assert notebook.box.asked == before  # a text is asked once


@pytest.mark.slow
def test_the_search_finds_better_words_than_as_many_drawn_at_random() -> None:
    function = drawn("volcanoes")
    box, chance = Box(function), Box(function)
    interpret(box, seed=1)
    words = open_notebook(chance, 1, without=(), space_name="wordllama").words
    drawn_words = random.Random(1).sample(list(words), box.asked)
    by_chance = sorted(reply.value or 0.0 for reply in chance.ask(drawn_words))
    by_search = sorted(asked.reply.value or 0.0 for asked in box.log if " " not in str(asked.input))
    assert sum(value > 0.5 for value in by_search) > 3 * sum(value > 0.5 for value in by_chance)
    # Of the ten best words of the whole vocabulary most are found.
    best = sorted(words, key=lambda word: -(function.replies([word])[0].value or 0.0))[:10]
    assert len(set(best) & {asked.input for asked in box.log}) >= 6


class Broken(EntityFunction):
    """Answers nothing at all."""

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        return [Reply(error="no")] * len(inputs)


def test_a_function_without_answers_is_survived() -> None:
    function = drawn("cars")
    assert interpret(Box(Broken("f0", function.concepts, function.scorer)), seed=1).description


def test_an_answer_about_something_else_earns_chance_and_the_oracle_more(sandbox: Sandbox) -> None:
    functions = sample(20, seed=1)
    right = [grade(f, oracle(f), sandbox=sandbox).metrics["unit_test"] or 0 for f in functions]
    others = [
        grade(f, oracle(g), sandbox=sandbox).metrics["unit_test"] or 0
        for f, g in zip(functions, [*functions[1:], functions[0]], strict=True)
    ]
    assert sum(right) / 20 > 0.8
    assert 0.15 < sum(others) / 20 < 0.5


BY_HAND = EntityFunction(
    "f0",
    (Concept("dogs"),),
    sample(1, seed=0)[0].scorer,
    triplets=(
        UnitTest.of_inputs(("cloud", "terrier", "ink"), 1),
        UnitTest.of_inputs(("spaniel", "algebra", "rice"), 0),
        UnitTest.of_inputs(("tax", "opera", "poodle"), 2),
    ),
)


def test_answers_are_read_from_structure_then_code_then_description(sandbox: Sandbox) -> None:
    told = grade(BY_HAND, Answer(description="Words related to dogs and puppies."), sandbox=sandbox)
    assert (told.metrics["unit_test"], told.picture["read_from"]) == (1.0, "description")
    assert told.picture["evaluator"] == "wordllama"
    code = "def f(word):\n    return 1.0 if word in ('terrier', 'poodle') else 0.2"
    coded = grade(BY_HAND, Answer(description="?", code=code), sandbox=sandbox)
    # Two right, and a tie of three for the spaniel.
    assert coded.metrics["unit_test"] == pytest.approx((1 + 1 + 1 / 3) / 3)
    assert coded.picture["read_from"] == "code"
    both = Answer(description="?", code=code, structure={"concepts": [["dog", "puppy"]]})
    assert grade(BY_HAND, both, sandbox=sandbox).metrics["unit_test"] == 1.0


@pytest.mark.parametrize(("code", "fault"), [
    (None, ""),
    ("def f(word):\n    return 1 / 0", "ZeroDivisionError"),
    ("def f(word):\n    return 'high'", "returned a str"),
    ("def f(word):\n    return float('nan')", "not a finite number"),
    ("def f(word:", "does not parse"),
])  # fmt: skip
def test_an_empty_answer_and_code_that_fails_earn_nothing(code: str | None, fault: str, sandbox: Sandbox) -> None:
    graded = grade(BY_HAND, Answer(description="", code=code), sandbox=sandbox)
    assert graded.metrics["unit_test"] == graded.metrics["concept_named"] == 0
    assert fault in (graded.fault or "")


def test_a_constant_earns_exactly_chance(sandbox: Sandbox) -> None:
    constant = grade(BY_HAND, Answer(description="", code="def f(word):\n    return 1"), sandbox=sandbox)
    assert constant.metrics["unit_test"] == pytest.approx(1 / 3)


def test_whoever_lists_every_concept_names_none(sandbox: Sandbox) -> None:
    functions = [f for f in sample(40, seed=3) if f.concepts[0] not in [one.concept for one in all_concepts()[:10]]][
        :20
    ]
    names = [one.concept.name for one in all_concepts()]
    for concepts in ([[name] for name in names], [names], [" ".join(names)]):
        answer = Answer(description="", structure={"concepts": concepts})
        named = [grade(f, answer, sandbox=sandbox).metrics["concept_named"] or 0 for f in functions]
        assert sum(named) / len(named) < 0.1
    in_words = Answer(description=" ".join(names))
    named = [grade(f, in_words, sandbox=sandbox).metrics["concept_named"] or 0 for f in functions]
    assert sum(named) / len(named) < 0.25


def test_other_categories_are_refused(sandbox: Sandbox) -> None:

    stranger = type("Stranger", (), {"id": "f9", "category": "numeric"})()
    with pytest.raises(BadInput, match="f9 is of category numeric"):
        grade(stranger, Answer(description=""), sandbox=sandbox)
