"""Texts for blind rating: the order of each rater, names that give nothing away, and the rubric."""

import re
from pathlib import Path

import pytest

from vesalius.circuits.specimens import benchmark_cards
from vesalius.documents.explanation import Tag
from vesalius.errors import BadInput
from vesalius.runs.directory import read_explanation
from vesalius_bench.ratings.texts import (
    HUMAN_SUBSET,
    CandidateText,
    chosen_specimens,
    in_order_of,
    mark,
    reference_of,
    rubric,
    unsigned,
)
from vesalius_programs.classify import Reading
from vesalius_programs.writing import _both_readings
from vesalius_truth.grading.ratings import Item, MeasureName

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
        ("m", "The built-in scientist of HyVE says so.", "The [author] of [author] says so."),
        ("x", "x marks x", "x marks x"),
        ("scripted:a(b.json", "a(b.json wrote", "[author] wrote"),
        ("", "nobody", "nobody"),
    ],
)
def test_an_agents_name_inside_a_text_is_blotted_out(agent: str, text: str, shown: str) -> None:
    assert CandidateText("run", agent, Item("task_accuracy", "3"), text).blind(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Established: It copies. In the model's words: a copy head", "It copies. a copy head"),
        ("A guess (Tentative: no hypothesis was supported.)", "A guess"),
        ("A guess (Tentative: no experiment supported it.)", "A guess"),
        ("It moves\nthe words of others.", "It moves\nthe words of others."),
        ("Copies 12.5% of tokens. By the rule it is refuted.", "Copies 12.5% of tokens. By the rule it is refuted."),
        (
            "Steps: L0_MLP is x (claim refuted). The program is not right: it gives all outputs of the model for only "
            "3.0% of fresh inputs.",
            "Steps: L0_MLP is x .",
        ),
        ("It is y. The rule of the convention: of the chain of tables, L1_MLP is the last.", "It is y."),
        (
            "It reads L0_MLP. Of the chain of tables, L1_MLP is the last: by that convention it would be a MAPPER, "
            "which its own claims contradict.",
            "It reads L0_MLP.",
        ),
        (
            "It counts. It reads L1_MLP; in the program it reads L2_MLP. In the program it is read by L3H0.",
            "It counts. It reads L1_MLP . it is read by L3H0.",
        ),
        ("It counts. No exchange of its inputs shows; in the program it reads L0_MLP.", "It counts. it reads L0_MLP."),
        ("It counts. What it reads is not decided: L1H0 or L2_MLP fit. It is y.", "It counts. It is y."),
        ("It counts. Outputs change when it is replaced, but what reads it was not found.", "It counts."),
        ("It counts. What makes the program fail: L0_MLP and L1H2.", "It counts."),
        ("It counts. Refuted where the program fails: L0_MLP and L1H2.", "It counts."),
        (
            "It counts. The program could not be written so that it runs (L0_MLP reads 2.5 of a (b)), so its claims "
            "are untested.",
            "It counts.",
        ),
        (
            "It counts. Nothing was established: no claim about what a component computes was supported. The "
            "vocabulary of 900 tokens was sampled, not enumerated: tokens not drawn are not covered.",
            "It counts.",
        ),
        ("It counts. By the rule of the claim that is undecided (outputs 3.1% (n 5); right 2.0%).", "It counts."),
        ("Steps: L0_MLP is x (claim undecided).", "Steps: L0_MLP is x ."),
        ("By experiment alone it is a MAPPER; its supported claims make it a COMBINER.", ""),
        (
            "A table. Of the 12 combinations of its arguments 3 were never seen; the program leaves them open.",
            "A table.",
        ),
    ],
)
def test_a_text_is_shown_without_the_words_that_sign_it(text: str, shown: str) -> None:
    assert unsigned(text) == shown


def test_notes_of_the_built_in_scientist_are_shown_without_figures_or_verdicts() -> None:
    """Every sentence that quotes an experiment goes; what the component computes and reads stays."""
    explanation = read_explanation(Path("examples/recorded/hybrid/explanation.json"))
    for part in explanation.components:
        shown = unsigned(part.note)
        assert shown.startswith(f"{part.id} computes ")
        assert "It reads" in shown
        assert not re.search(r"%|In the model's words|pairs of inputs|[Rr]eplacing", shown)
    assert "fresh inputs" not in unsigned(explanation.task_description)


@pytest.mark.parametrize("tag", ["MAPPER", "COMBINER"])
def test_what_conventions_say_is_not_shown(tag: Tag) -> None:
    """As the built-in scientist writes it, where its tag is that of the convention and where it is another."""
    of_the_length = "of the chain of tables after the length, L1_MLP takes the position in"
    written = _both_readings(Reading("COMBINER", of_the_length), (tag, "MAPPER"))
    assert "convention" in written
    assert (
        unsigned(f"L1_MLP computes a table. It reads L0_MLP.{written}") == "L1_MLP computes a table. It reads L0_MLP."
    )


def test_plans_of_a_component_come_before_its_notes_and_hypotheses() -> None:
    """A rater of plans has not yet seen the reference, which stands beside the others."""
    measures: tuple[MeasureName, ...] = ("description_quality", "grounding", "plan_soundness")
    texts = [
        CandidateText(run, run, Item(measure, "3", "L0_MLP"), "text") for run in ("a", "b", "c") for measure in measures
    ]
    order = [text.item.measure for _, text in in_order_of("ann", texts, "s")]
    assert order == ["plan_soundness"] * 3 + ["description_quality"] * 3 + ["grounding"] * 3


def test_the_subset_has_the_size_of_the_published_one() -> None:
    cards = {card.id: card for card in benchmark_cards()}
    assert len(set(HUMAN_SUBSET)) == 10
    assert sum(len(cards[id].components) for id in HUMAN_SUBSET) == 17
    assert chosen_specimens(["human-subset", "hist"]) == {*HUMAN_SUBSET, "7"}
    assert chosen_specimens(["frac_prevs", " 3 ", "mine"]) == {"3", "mine"}


def test_references_are_those_of_the_key() -> None:
    from vesalius_truth.key import answer

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
