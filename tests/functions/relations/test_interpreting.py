"""The interpreter's manners and reach, the triplets and what they do not give away, and the figures of a grade."""

import dataclasses
from collections.abc import Iterator, Sequence

import pytest

from tests.functions.needs import needs_facts
from tests.functions.relations.test_functions import capital
from vesalius.errors import BadInput
from vesalius.sandbox import Sandbox
from vesalius_functions import Answer, Box, Reply
from vesalius_functions.box import UnitTest
from vesalius_functions.knowledge.tables import UNDEFINED, Condition, same
from vesalius_functions.relations import RelationFunction, grade, interpret, oracle, sample, unit_tests

pytestmark = needs_facts
ASIA = Condition("is", "Asia", "continent")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as running:
        yield running


@pytest.fixture(scope="module")
def suite() -> list[RelationFunction]:
    return sample(75, seed=5)


def test_triplets_are_true_in_one_place_only(suite: list[RelationFunction]) -> None:
    for function in suite:
        triplets = unit_tests(function, seed=1)
        assert len(triplets) == 10
        assert triplets == unit_tests(function, seed=1)
        for triplet in triplets:
            said = [reply.value for reply in function.replies(triplet.inputs)]
            right = [same(output, value) for output, value in zip(triplet.outputs, said, strict=True)]
            assert right == [place == triplet.correct for place in range(3)]


def test_undefined_and_blanks_give_nothing_away(suite: list[RelationFunction]) -> None:
    """`undefined` is the right answer as often as it is a distractor; no text has blanks around it."""
    right, wrong = [], []
    for triplet in (triplet for function in suite for triplet in unit_tests(function, seed=1)):
        outputs = list(triplet.outputs)
        right.append(outputs.pop(triplet.correct))
        wrong += outputs
    assert all(text == text.strip() for text in right + wrong)
    shares = [sum(text == UNDEFINED for text in texts) / len(texts) for texts in (right, wrong)]
    assert shares[0] == pytest.approx(shares[1], abs=0.03)
    assert shares[0] == pytest.approx(0.2, abs=0.03)


def test_most_inputs_of_tests_were_kept_from_the_interpreter() -> None:
    function = capital(ASIA)
    box = Box(function)
    interpret(box)
    asked = {entry.input for entry in box.log}
    tested = [item for triplet in unit_tests(function) for item in triplet.inputs]
    assert sum(item not in asked for item in tested) >= 0.5 * len(tested)
    right = [triplet.right.input for triplet in unit_tests(function)]
    assert not set(right) & asked


def test_a_rule_and_its_exception_are_found(sandbox: Sandbox) -> None:
    function = capital(ASIA)
    box = Box(function)
    answer = interpret(box, seed=1)
    assert answer.description == "The input is a country, the output is the capital of that country."
    assert answer.domain == (
        "The output is undefined if the input is not a country, and if the input country is in Asia."
    )
    assert answer.queries == box.asked < 600
    metrics = grade(function, answer, sandbox=sandbox).metrics
    assert metrics == {"unit_test": 1.0, "rule_named": 1.0, "exception_found": 1.0, "false_alarm": None}


def test_a_single_excepted_member_is_named() -> None:
    answer = interpret(Box(capital(Condition("member", "Japan"))), seed=1)
    assert answer.structure["exception"] == {"test": "member", "value": "Japan", "attribute": ""}


def test_no_exception_is_seen_where_there_is_none(sandbox: Sandbox) -> None:
    metrics = grade(capital(), interpret(Box(capital()), seed=1), sandbox=sandbox).metrics
    assert metrics == {"unit_test": 1.0, "rule_named": 1.0, "exception_found": None, "false_alarm": 0.0}


class Careless:
    """A mapper that is silent about two countries it should know and wrong about others."""

    name = "careless"

    def map(self, inputs: Sequence[object]) -> list[Reply]:
        slips = {"Peru": UNDEFINED, "Chad": UNDEFINED, "Spain": "Lisbon", "Kenya": "Mombasa"}
        honest = capital(ASIA).replies(inputs)
        return [Reply(slips[str(item)]) if item in slips else reply for item, reply in zip(inputs, honest, strict=True)]


def test_a_few_errors_do_not_hide_an_exception() -> None:
    answer = interpret(Box(dataclasses.replace(capital(ASIA), mapper=Careless())), seed=1)
    assert answer.structure["exception"] == ASIA.data()
    assert "This holds for 9" in answer.description


def test_a_relation_left_out_is_not_named_but_its_kind_and_exception_are(sandbox: Sandbox) -> None:
    function = capital(ASIA)
    answer = interpret(Box(function), seed=1, without=["country -> capital"])
    assert answer.structure["rule"] is None
    assert answer.structure["kind"] == "country"
    assert "no known relation" in answer.description
    metrics = grade(function, answer, sandbox=sandbox).metrics
    assert metrics["rule_named"] == 0
    assert metrics["exception_found"] == 1
    assert 1 / 3 < (metrics["unit_test"] or 0) < 0.9


@pytest.mark.parametrize("budget", [1, 5, 90])
def test_a_small_budget_is_kept(budget: int) -> None:
    box = Box(capital(ASIA), budget=budget)
    assert interpret(box, seed=1).description
    assert box.asked <= budget


def test_the_oracle_is_always_right(sandbox: Sandbox, suite: list[RelationFunction]) -> None:
    for function in suite[:30]:
        metrics = grade(function, oracle(function), sandbox=sandbox).metrics
        assert metrics["unit_test"] == metrics["rule_named"] == 1
        assert metrics["exception_found"] == (1 if function.exception else None)


@pytest.fixture
def by_hand() -> RelationFunction:
    triplets = (
        UnitTest.of_pairs((("Peru", "Lima"), ("Peru", "Sol"), ("Japan", "Tokyo")), 0),
        UnitTest.of_pairs((("Chile", "Lima"), ("Japan", "undefined"), ("Spain", "undefined")), 1),
    )
    return dataclasses.replace(capital(ASIA), triplets=triplets)


def test_credits_by_hand(sandbox: Sandbox, by_hand: RelationFunction) -> None:
    def earned(**structure: object) -> float | None:
        return grade(by_hand, Answer(description="", structure=structure), sandbox=sandbox).metrics["unit_test"]

    assert earned(rule="country -> capital", exception=ASIA.data()) == 1
    # Without the exception Tokyo looks as right as Lima, and nothing in the second triplet does.
    assert earned(rule="country -> capital") == pytest.approx((1 / 2 + 1 / 3) / 2)
    # Who knows only kind and exception cannot tell Lima from Sol, but knows that Japan is undefined and Chile is not.
    assert earned(kind="country", exception=ASIA.data()) == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert earned(rule="country -> anthem") is None


def test_code_predicts_too(sandbox: Sandbox, by_hand: RelationFunction) -> None:
    code = "def f(item):\n    return {'Peru': 'lima.', 'Japan': 'Undefined'}.get(item)"
    graded = grade(by_hand, Answer(description="", code=code), sandbox=sandbox)
    assert graded.metrics["unit_test"] == 1
    assert graded.metrics["rule_named"] is None
    assert graded.metrics["exception_found"] == 0
    broken = grade(by_hand, Answer(description="", code="def f(item):\n    return item.no"), sandbox=sandbox)
    assert broken.metrics["unit_test"] == 0
    assert "AttributeError" in (broken.fault or "")


def test_what_the_code_fails_on_is_never_chosen(sandbox: Sandbox, by_hand: RelationFunction) -> None:
    def earned(code: str) -> float | None:
        return grade(by_hand, Answer(description="", code=code), sandbox=sandbox).metrics["unit_test"]

    # Japan fails: of the first triplet Lima and Sol are left and neither agrees, of the second the right one is lost.
    assert earned("def f(item):\n    return {'Peru': '', 'Chile': '', 'Spain': ''}[item]") == pytest.approx(1 / 4)
    assert earned("def f(item):\n    return None") == earned("def f(item:") == earned("x = 1") == 0
    assert earned("def f(item):\n    return ''") == pytest.approx(1 / 3)


def test_an_answer_in_words_alone_is_left_to_a_judge(sandbox: Sandbox) -> None:
    graded = grade(capital(), Answer(description="Capitals."), sandbox=sandbox)
    assert graded.metrics["unit_test"] is None
    assert graded.picture["read_from"] == "nothing"


def test_other_categories_are_refused(sandbox: Sandbox) -> None:
    stranger = type("Stranger", (), {"id": "f9", "category": "strings"})()
    with pytest.raises(BadInput, match="f9 is of category strings"):
        grade(stranger, Answer(description=""), sandbox=sandbox)
