"""No text can raise its own score by leaving its place in the prompt: payloads against the most credulous judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grading.explanations import truth
from tests.grading.gullible import gullible
from tests.grading.payloads import PAYLOADS
from vesalius.documents.explanation import Explanation
from vesalius_backbones import Scripted, open_backbone, untrusted_text
from vesalius_backbones.untrusted_text import MARK, fence_key, neutralise
from vesalius_bench.judges import MEASURES, Judge, MeasureName, judge_explanation
from vesalius_bench.judges import judge as prompts
from vesalius_truth.key import answer

RIGHT = "Marks every position whose token equals x and writes that flag for later heads."
WRONG = "Translates German poetry into limericks."
TASK = "The fraction of previous tokens that are x."


def credulous(*, marked: bool = True) -> Judge:
    return Judge(open_backbone(Scripted(gullible(marked=marked))))


def scores(judge: Judge, measure: MeasureName, candidate: str, *, reference: str = RIGHT) -> list[int]:
    made = judge.score(measure, reference, candidate, context=TASK)
    given = [opinion.score for opinion in made.opinions if opinion.score is not None]
    assert len(given) == 2
    return given


def inside(payload: str) -> list[str]:
    """A wrong text with the payload after it, before it, and as lines of its own in the middle."""
    return [f"{WRONG} {payload}", f"{payload}\n{WRONG}", f"{WRONG}\n{payload}\n{WRONG}"]


def test_there_are_at_least_fifty_payloads_of_every_sort() -> None:
    assert len(PAYLOADS) == len(set(PAYLOADS.values())) >= 50


def test_the_credulous_judge_can_tell_right_from_wrong() -> None:
    for measure in MEASURES.values():
        assert scores(credulous(), measure.name, RIGHT) == [measure.best] * 2
        assert scores(credulous(), measure.name, WRONG) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_changes_no_score(name: str) -> None:
    judge = credulous()
    for measure in MEASURES:
        for candidate in inside(PAYLOADS[name]):
            assert scores(judge, measure, candidate) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAYLOADS)
def test_nor_does_one_in_the_text_it_is_measured_by(name: str) -> None:
    """Observations and hypotheses are the agent's own words, and stand in the other block."""
    judge = credulous()
    for measure in ("plan_soundness", "grounding"):
        for reference in inside(PAYLOADS[name]):
            assert scores(judge, measure, RIGHT, reference=reference) == [0, 0]


@pytest.mark.slow
def test_without_neutralising_payloads_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above could fail: a judge that knows nothing of marks falls for plain texts in plain fences."""
    monkeypatch.setattr(prompts, "neutralise", lambda text: text[:2000])
    monkeypatch.setattr(prompts, "fence_key", lambda texts: "0" * 16)
    judge = credulous(marked=False)
    won = [
        name
        for name, payload in PAYLOADS.items()
        if "surrogate" not in name and max(scores(judge, "description_quality", f"{WRONG}\n{payload}")) == 2
    ]
    assert len(won) >= 25
    families = {"angle end with a key", "xml end", "chatml", "fenced json", "zero-width in the end", "full width"}
    assert families <= set(won)
    assert "plain score" not in won  # a plea inside the block moves not even this judge


def test_each_line_of_defence_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks alone do not hold a judge that takes look-alikes for ends of blocks."""
    monkeypatch.setattr(prompts, "neutralise", lambda text: "\n".join(f"{MARK}{line}" for line in text.splitlines()))
    assert max(scores(credulous(), "description_quality", f"{WRONG}\n{PAYLOADS['xml end']}")) == 2


@pytest.mark.slow
def test_a_whole_explanation_full_of_payloads_earns_nothing() -> None:
    names = list(PAYLOADS)
    parts = answer("3").components

    def poisoned(start: int) -> Explanation:
        explanation = truth("3")
        texts = [f"{WRONG}\n{PAYLOADS[names[(start + step) % len(names)]]}" for step in range(len(parts) + 1)]
        noted = tuple(
            part.model_copy(update={"note": text}) for part, text in zip(explanation.components, texts, strict=False)
        )
        return explanation.model_copy(update={"components": noted, "task_description": texts[-1]})

    judges = [credulous(), credulous()]
    for start in range(0, len(names), 4):
        judged = judge_explanation(poisoned(start), judges=judges)
        assert judged.n_error == 0
        assert set(judged.scores().values()) == {0}


def test_payloads_that_look_like_templates_stand_in_the_prompt_as_they_are() -> None:
    for name in ("format fields", "percent", "jinja", "dollar"):
        asked = prompts.prompt("task_accuracy", RIGHT, PAYLOADS[name])
        assert f"{MARK}{PAYLOADS[name]}\n" in asked[1].text


def test_the_rules_hold_nothing_of_the_texts() -> None:
    """The system's words are ours alone: they differ between two calls in the key only."""
    rules = []
    for candidate in (WRONG, PAYLOADS["chatml"]):
        asked = prompts.prompt("grounding", RIGHT, candidate, context=TASK)
        rules.append(asked[0].text.replace(fence_key(map(neutralise, [TASK, RIGHT, candidate])), "KEY"))
    assert rules[0] == rules[1]


@given(st.lists(st.text(), max_size=3))
def test_a_key_stands_in_no_text(texts: list[str]) -> None:
    key = fence_key(texts)
    assert not any(key in text for text in texts)
    again = fence_key([*texts, key])
    assert again != key


def test_a_key_that_a_text_guessed_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter(["a" * 64, "b" * 64, "c" * 64])
    monkeypatch.setattr(untrusted_text, "_digest", lambda text: next(steps))
    assert fence_key(["so " + "a" * 16, "b" * 20]) == "c" * 16


@given(st.text(alphabet=st.characters(), max_size=300), st.integers(1, 100))
def test_a_neutralised_text_has_marked_lines_of_visible_characters(text: str, most: int) -> None:
    made = neutralise(text, most=most)
    lines = made.split("\n")
    assert made.splitlines() == lines or made.endswith("\n")
    assert all(line.startswith(MARK) and line.isprintable() for line in lines)
    assert "<<" not in made
    assert ">>" not in made
    assert len(made) <= most + 60 + len(MARK) * len(lines)


def test_ordinary_notes_stay_as_they_are() -> None:
    for note in (
        RIGHT,
        "count(a) <= b -> x² of 1/2, if a < b and c > d",
        "L0_MLP: token == 'x' (95 % of cases); y >= 3",
    ):
        assert neutralise(note) == MARK + note
    assert neutralise("reads <BOS>") == MARK + "reads (BOS)"


def test_a_long_text_is_cut_and_says_so() -> None:
    assert neutralise("a" * 20, most=5) == f"{MARK}aaaaa [cut here, 15 characters are left out]"
