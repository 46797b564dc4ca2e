"""Texts for blind rating: the order of each rater, names that give nothing away, and the rubric."""

import pytest

from vesalius.circuits.specimens import benchmark_cards
from vesalius.errors import BadInput
from vesalius.grading.ratings import Item
from vesalius_bench.ratings.texts import (
    HUMAN_SUBSET,
    CandidateText,
    chosen_specimens,
    in_order_of,
    mark,
    reference_of,
    rubric,
)

TEXTS = [
    CandidateText(run, agent, item, "text")
    for run, agent in (("one", "a"), ("two", "b"), ("three", "c"))
    for circuit in map(str, range(10))
    for item in (
        Item("task_accuracy", circuit),
        *(Item("description_quality", circuit, part) for part in ("L0_MLP", "L1H0")),
    )
]


def authors(rater: str, secret: str = "s") -> list[str]:
    return [text.agent for _, text in in_order_of(rater, TEXTS, secret)]


def test_an_order_is_the_raters_own_and_stays() -> None:
    assert authors("ann") == authors("ann")
    assert authors("ann") != authors("ben")
    assert authors("ann") != authors("ann", "other secret")
    order = in_order_of("ann", list(reversed(TEXTS)), "s")
    assert [text.key for _, text in order] == [text.key for _, text in in_order_of("ann", TEXTS, "s")]
    assert len({name for name, _ in order}) == len(TEXTS)


def test_no_author_has_a_place_of_their_own() -> None:
    """In 30 groups of three authors the first is not always the same one, for any of 20 raters."""
    for number in range(20):
        assert set(authors(f"rater {number}")[::3]) == {"a", "b", "c"}


def test_texts_of_one_circuit_stay_together_with_the_whole_model_last() -> None:
    order = [text for _, text in in_order_of("ann", TEXTS, "s")]
    for start in range(0, len(order), 9):
        circuit = order[start : start + 9]
        assert len({text.item.specimen for text in circuit}) == 1
        assert [text.item.measure for text in circuit[-3:]] == ["task_accuracy"] * 3
        assert len({text.item.component for text in circuit[:3]}) == 1


def test_texts_that_are_added_do_not_move_the_others() -> None:
    before = [text.key for _, text in in_order_of("ann", TEXTS[:60], "s")]
    after = [text.key for _, text in in_order_of("ann", TEXTS, "s")]
    assert [key for key in after if key in set(before)] == before


def test_names_depend_on_the_secret_and_on_every_word() -> None:
    names = {mark("s", "a", "bc"), mark("s", "ab", "c"), mark("t", "a", "bc"), mark("s", "a", "b", "c")}
    assert len(names) == 4


@pytest.mark.parametrize(
    ("agent", "text", "shown"),
    [
        ("openai:gpt-5.4", "As GPT-5.4 I say: openai:gpt-5.4.", "As [author] I say: [author]."),
        ("hyve", "Hyve adds; behyved stays.", "[author] adds; behyved stays."),
        ("x", "x marks x", "x marks x"),
        ("scripted:a(b.json", "a(b.json wrote", "[author] wrote"),
        ("", "nobody", "nobody"),
    ],
)
def test_an_agents_name_inside_a_text_is_blotted_out(agent: str, text: str, shown: str) -> None:
    assert CandidateText("run", agent, Item("task_accuracy", "3"), text).blind_text == shown


def test_the_subset_has_the_size_of_the_published_one() -> None:
    cards = {card.id: card for card in benchmark_cards()}
    assert len(set(HUMAN_SUBSET)) == 10
    assert sum(len(cards[id].components) for id in HUMAN_SUBSET) == 17
    assert chosen_specimens(["human-subset", "hist"]) == {*HUMAN_SUBSET, "7"}
    assert chosen_specimens(["frac_prevs", " 3 ", "mine"]) == {"3", "mine"}


def test_references_are_those_of_the_key() -> None:
    from vesalius.circuits.key import answer

    assert reference_of("frac_prevs").task == answer("3").description
    assert set(reference_of("arithmetic").notes) > {"L0_MLP"}
    with pytest.raises(BadInput, match="has no reference texts"):
        reference_of("a-model-of-mine")


def test_people_and_judges_have_the_same_levels() -> None:
    description, task = rubric("description_quality"), rubric("task_accuracy")
    assert [(level.score, level.key, level.name) for level in description.levels] == [
        (0, "1", "wrong"),
        (1, "2", "partly correct"),
        (2, "3", "correct"),
    ]
    assert [(level.score, level.key, level.name) for level in task.levels] == [(0, "1", "wrong"), (1, "3", "correct")]
    assert all(len(level.text) > 60 and "\n" not in level.text for level in (*description.levels, *task.levels))
