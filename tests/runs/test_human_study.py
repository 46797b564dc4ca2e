"""The human study whole: 34 texts of one agent, all four measures, rated by two scripted raters; kappas by hand."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vesalius as ves
from tests.runs.annotated import write_runs, write_traced
from vesalius_bench.ratings.agreement import rating_sheets
from vesalius_bench.ratings.annotation import Annotating, annotate
from vesalius_bench.ratings.documents import RatingCard

#: What the two give: score of ann, score of ben, how many texts; 9 of each kind about components, 7 tasks.
GIVEN = {
    # Distance 1 + 2 = 3. Ann 3, 3, 3; ben 2, 3, 4. Expected (3*3*1 + 3*4*2 + 3*2*1 + 3*4*1 + 3*2*2 + 3*3*1) / 9 = 72/9.
    "description_quality": [(0, 0, 2), (0, 1, 1), (1, 1, 2), (1, 2, 1), (2, 2, 3)],
    # Distance 4 * 1 = 4. Ann 2, 4, 3; ben 2, 2, 5. Expected (2*2*1 + 2*5*2 + 4*2*1 + 4*5*1 + 3*2*2 + 3*2*1) / 9 = 70/9.
    "plan_soundness": [(0, 0, 1), (0, 1, 1), (1, 0, 1), (1, 2, 2), (1, 1, 1), (2, 2, 3)],
    # Distance 2. Ann 0, 2, 7; ben 1, 0, 8. Expected (2*1*1 + 2*8*1 + 7*1*2 + 7*0*1) / 9 = 32/9.
    "grounding": [(1, 0, 1), (1, 2, 1), (2, 2, 7)],
    # They agree on 6 of 7; ann gives 1 to 5, ben to 4. By chance (5*4 + 2*3) / 49 = 26/49.
    "task_accuracy": [(1, 1, 4), (1, 0, 1), (0, 0, 2)],
}
KAPPAS = {
    "description_quality": 1 - 2 / (72 / 9),
    "plan_soundness": 1 - 4 / (70 / 9),
    "grounding": 1 - 2 / (32 / 9),
    "task_accuracy": (6 / 7 - 26 / 49) / (1 - 26 / 49),
}


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Annotating]:
    with annotate(write_traced(tmp_path / "runs"), out=tmp_path / "ratings") as opened:
        yield opened


def cards(texts: Annotating, rater: str) -> list[RatingCard]:
    return [texts.card(rater, number) for number in range(1, len(texts.texts) + 1)]


def test_two_raters_over_all_four_measures(texts: Annotating, tmp_path: Path) -> None:
    for place, rater in enumerate(("ann", "ben")):
        left = {name: [pair[place] for pair in given for _ in range(pair[2])] for name, given in GIVEN.items()}
        seen = cards(texts, rater)
        assert len(seen) == 34
        for card in sorted(seen, key=lambda card: (card.measure, card.specimen, card.component)):
            texts.rate(rater, card.id, left[card.measure].pop(0))
        assert left == {name: [] for name in GIVEN}
    report = ves.ratings(tmp_path / "ratings", out=tmp_path / "report")
    assert {pair.measure: pair.n for pair in report.pairs} == dict.fromkeys(KAPPAS, 9) | {"task_accuracy": 7}
    assert {pair.measure: pair.kappa for pair in report.pairs} == pytest.approx(KAPPAS)
    (six, *_, nine, _) = rating_sheets(report)
    ((_, _, row),) = six.measured()
    assert row["plan_soundness"] == pytest.approx(KAPPAS["plan_soundness"])
    assert (row["description_quality_n"], row["plan_soundness_n"], row["task_accuracy_n"]) == (9, 9, 7)
    ((agent, _, lowest),) = nine.measured()
    # The lower scores are 0 once, 1 once, 2 seven times.
    assert agent == "openai:model-a, run-one"
    assert lowest == pytest.approx({"grounding": 15 / 9, "fully": 7 / 9, "partial": 1 / 9, "grounding_n": 9})


def test_the_papers_tables_fill_from_the_study(texts: Annotating, tmp_path: Path) -> None:
    for rater in ("ann", "ben"):
        for number, card in enumerate(cards(texts, rater)):
            texts.rate(rater, card.id, number % 2 if card.measure == "task_accuracy" else number % 3)
    ves.ratings(tmp_path / "ratings", out=tmp_path / "report")
    for table in (6, 7, 9):
        entry = ves.paper_table("hyve", table, runs=[tmp_path / "report"])
        assert entry.measured
        assert all(value is not None for row in entry.measured for value in row.values.values())
        assert set(entry.columns) <= set(entry.measured[0].values)


def test_a_plan_stands_beside_its_hypothesis_with_what_came_of_it(texts: Annotating) -> None:
    plan = next(card for card in cards(texts, "ann") if card.measure == "plan_soundness")
    assert plan.text == f"Plan 2: exchange {plan.component}."
    assert plan.given == f"Hypothesis 2 about {plan.component}."
    assert plan.outcome == ("Program 1 gave 0.97\nThe hypothesis was supported: [author] finds the effect large.")
    assert plan.reference is None
    assert plan.task is not None
    assert dict(plan.parts)[plan.component] in ("INDICATOR", "AGGREGATOR", "ROUTER", "MAPPER", "COMBINER")
    first = next(card for card in cards(texts, "ann") if card.measure == "grounding")
    assert first.text == f"Hypothesis 1 about {first.component}."
    assert first.given == f"[author] saw {first.component} of {first.specimen} differ by token."
    assert first.reference
    assert len(first.examples) == 5


def test_references_are_shown_under_the_published_protocol_alone(texts: Annotating, tmp_path: Path) -> None:
    assert texts.reference
    assert all(re.search("[a-z]", card.task or "") for card in cards(texts, "ann"))
    note = next(card for card in cards(texts, "ann") if card.measure == "description_quality")
    assert note.reference_tag == dict(note.parts)[note.component]
    with annotate(write_runs(tmp_path / "others", ("3",)), out=tmp_path / "o") as plain:
        assert not plain.reference
        assert all(card.reference_tag is None and card.parts == () for card in cards(plain, "ann"))
    with annotate(tmp_path / "runs" / "run-one", reference=False, out=tmp_path / "p") as hidden:
        assert all(card.task is None and card.reference is None for card in cards(hidden, "ann"))
