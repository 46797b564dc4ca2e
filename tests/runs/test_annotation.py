"""Ratings on the disk: nothing that was confirmed is lost, the last one counts, and a CSV goes out and in again."""

import csv
import io
import os
from collections import Counter
from pathlib import Path

import pytest

import vesalius as ves
from tests.report.explanations import frac_prevs
from tests.runs.annotated import RUNS, write_runs
from tests.runs.models import perform, settings
from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, write_json
from vesalius_bench.ratings.annotation import (
    MOST_COMMENT,
    MOST_SHOWN,
    Annotating,
    annotate,
    clean_comment,
    rater_name,
    read_annotation,
)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return write_runs(tmp_path, ("3", "8"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ratings"


def scores(texts: Annotating, rater: str) -> dict[tuple[str, str], int]:
    return {(one.run, one.specimen + one.component): one.score for one in texts.ratings() if one.rater == rater}


def test_what_is_rated(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        assert len(texts.texts) == 2 * (2 + 1 + 2)
        assert {(text.run, text.agent) for text in texts.texts} == set(RUNS.items())
        cards = [texts.card("ann", number) for number in range(1, 11)]
        assert sorted(int(card.text.split()[1].rstrip(".")) for card in cards) == list(range(10))
        assert all(card.reference is None and card.task is None for card in cards)
        assert all(len(card.examples) == 5 for card in cards)
        with pytest.raises(BadInput, match="there are 10"):
            texts.card("ann", 11)


def test_references_are_shown_when_asked_for(runs: list[Path], place: Path) -> None:
    with annotate(runs, reference=True, out=place) as texts:
        first = next(card for n in range(1, 11) if (card := texts.card("ann", n)).component == "L1H2")
        assert first.reference is not None
        assert "Averages" in first.reference
        assert first.task is not None
    with pytest.raises(BadInput, match="was rated with reference texts"):
        annotate(runs, out=place)


def test_explanations_by_themselves_are_rated_too(runs: list[Path], tmp_path: Path) -> None:
    frac_prevs().save(tmp_path / "alone")
    with annotate([tmp_path / "alone", *runs], ids=["frac_prevs"], out=tmp_path / "r") as texts:
        assert [text.agent for text in texts.texts].count("builtin") == 3
        assert len(texts.texts) == 3 * 3


def test_ratings_survive_and_the_last_one_counts(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        first, second = (texts.card("ann", number) for number in (1, 2))
        texts.rate("ann", first.id, 0)
        texts.rate("ann", second.id, 1, "=formula")
        texts.rate("ann", first.id, 1, "changed")
        assert [(one.rater, one.rated, one.next) for one in texts.raters()] == [("ann", 2, 3)]
    with annotate(runs, out=place) as texts:
        again = texts.card("ann", 1)
        assert (again.id, again.text, again.score, again.comment) == (first.id, first.text, 1, "changed")
        assert texts.progress("ann").rated == 2
        assert texts.progress("ben").rated == 0
        assert texts.card("ben", 1).id != first.id
    assert sorted(one.comment for one in read_annotation(place)) == ["=formula", "changed"]


def test_a_torn_last_line_is_dropped_and_rating_goes_on(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        texts.rate("ann", texts.card("ann", 1).id, 1)
    with (place / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "rating", "rater": "ann", "ru')
    with annotate(runs, out=place) as texts:
        assert texts.progress("ann").rated == 1
        texts.rate("ann", texts.card("ann", 2).id, 0)
    assert len(read_annotation(place)) == 2


def test_undo_goes_back_step_by_step_and_after_a_restart(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        one, two = (texts.card("ann", number).id for number in (1, 2))
        texts.rate("ann", one, 0)
        texts.rate("ben", texts.card("ben", 1).id, 1)
        texts.rate("ann", one, 1, "better")
        texts.rate("ann", two, 1)
        assert (undone := texts.undo("ann")) is not None
        assert (undone.id, undone.score) == (two, None)
    with annotate(runs, out=place) as texts:
        assert (undone := texts.undo("ann")) is not None
        assert (undone.id, undone.score, undone.comment) == (one, 0, "")
        assert (undone := texts.undo("ann")) is not None
        assert undone.score is None
        assert texts.undo("ann") is None
        assert texts.progress("ben").rated == 1


def test_a_comment_alone_is_kept_and_is_no_rating(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        texts.rate("ann", texts.card("ann", 1).id, None, "unsure")
        assert texts.progress("ann").rated == 0
        assert texts.card("ann", 1).comment == "unsure"
        assert texts.ratings() == []


def test_one_process_holds_the_ratings(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place), pytest.raises(Failed, match="another process"):
        annotate(runs, out=place)


def test_a_failed_write_is_told_and_nothing_is_damaged(
    runs: list[Path], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with annotate(runs, out=place) as texts:
        id = texts.card("ann", 1).id
        monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
        with pytest.raises(Failed, match="only part of a record fitted"):
            texts.rate("ann", id, 1)
        monkeypatch.undo()
        assert texts.progress("ann").rated == 0
        texts.rate("ann", id, 0)
    assert [one.score for one in read_annotation(place)] == [0]


def test_a_text_that_has_changed_is_refused(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        texts.rate("ann", texts.card("ann", 1).id, 1)
    file = runs[0] / "explanations" / "8.json"
    write_json(file, {**read_json(file), "task_description": "another"})
    with pytest.raises(BadInput, match="task_accuracy:8 has changed since; choose another"):
        annotate(runs, out=place)


def test_ratings_of_a_run_that_is_left_out_are_refused(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        for number in range(1, 11):
            texts.rate("ann", texts.card("ann", number).id, 1)
    with pytest.raises(BadInput, match="which is not among these texts; give the same runs"):
        annotate(runs[:1], out=place)


def test_the_csv_goes_out_and_in_again(runs: list[Path], tmp_path: Path) -> None:
    with annotate(runs, out=tmp_path / "a") as texts:
        for number in range(1, 11):
            card = texts.card("ann", number)
            texts.rate("ann", card.id, number % 2, f"@{number}, {card.text}\n'two lines'")
        exported, before = texts.csv(), texts.ratings()
        assert texts.import_ratings(exported).as_data() == {"added": 0, "replaced": 0, "unchanged": 10}
    header, *rows = csv.reader(io.StringIO(exported, newline=""))
    assert header == ["run", "agent", "rater", "item", "score", "comment"]
    assert len(rows) == 10
    (tmp_path / "r.csv").write_text(exported, encoding="utf-8")
    with annotate(runs, ratings=[tmp_path / "r.csv"], out=tmp_path / "b") as texts:
        assert texts.ratings() == before
        assert texts.undo("ann") is None


def test_a_conflict_is_told_and_the_file_may_win(runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        first, second = texts.card("ann", 1), texts.card("ann", 2)
        texts.rate("ann", first.id, 1)
        texts.rate("ann", second.id, 1)
        file = texts.csv()
        texts.rate("ann", first.id, 0, "no")
        texts.rate("ann", second.id, 0)
        with pytest.raises(BadInput, match=r"row \d: ann has given \S+ 0.* here and 1 in the file; 2 rows conflict"):
            texts.import_ratings(file)
        assert set(scores(texts, "ann").values()) == {0}
        assert texts.import_ratings(file, replace=True).replaced == 2
        assert set(scores(texts, "ann").values()) == {1}


HEADER = "run,agent,rater,item,score,comment\n"
GOOD = "run-one,openai:model-a,ann,description_quality:3:L1H2,2,\n"
ROW = "run-one,openai:model-a,ann,description_quality:3:L0_MLP,2,\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header: lacks"),
        ("item,agent\n", "header: lacks rater, score"),
        (HEADER, "holds no ratings"),
        (HEADER + GOOD + ROW + ROW, "row 4: ann has already scored"),
        (HEADER + GOOD + ROW.replace(",2,", ",3,"), "row 3: score '3' is not a whole number from 0 to 2"),
        (HEADER + GOOD + ROW.replace(",2,", ",,"), "row 3: score ''"),
        (HEADER + GOOD + ROW.replace("run-one", "run-six"), "row 3: run, agent and item are not of a text"),
        (HEADER + GOOD + ROW.replace("model-a", "model-b"), "row 3: run, agent and item are not of a text"),
        (HEADER + GOOD + ROW.replace("L0_MLP", "L9H9"), "row 3: run, agent and item are not of a text"),
        (HEADER + GOOD + ROW.replace("L0_MLP", "banana"), "row 3: component 'banana'"),
        (HEADER + GOOD + ROW.replace("description_quality", "beauty"), "row 3: measure 'beauty' is not known"),
        (HEADER + GOOD + ROW.replace(":L0_MLP", ""), "row 3: item 'description_quality:3' is not"),
        (HEADER + GOOD + ROW.replace("ann", "a" * 100), "row 3: rater"),
        (HEADER + GOOD + ROW.replace("ann", ""), "row 3: rater is empty"),
        (HEADER + GOOD + "run-one,openai\n", "row 3: has more or fewer fields"),
        (HEADER + GOOD + ROW + 'run-one,"open', "is not CSV"),
    ],
)
def test_bad_files_are_refused_whole_in_one_line(text: str, message: str, runs: list[Path], place: Path) -> None:
    with annotate(runs, out=place) as texts:
        with pytest.raises(BadInput) as refused:
            texts.import_ratings(text)
        assert texts.ratings() == []
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bad_requests_are_refused(runs: list[Path], place: Path, tmp_path: Path) -> None:
    with annotate(runs, out=place) as texts:
        task = next(card for n in range(1, 11) if (card := texts.card("ann", n)).measure == "task_accuracy")
        with pytest.raises(BadInput, match="from 0 to 1"):
            texts.rate("ann", task.id, 2)
        with pytest.raises(BadInput, match="not one that is rated here"):
            texts.rate("ben", task.id, 1)
        with pytest.raises(BadInput, match="give a name"):
            texts.rate(" \n ", task.id, 1)
        with pytest.raises(BadInput, match="at most"):
            texts.rate("ann", task.id, 1, "x" * (MOST_COMMENT + 1))
    with pytest.raises(BadInput, match="no run is named"):
        annotate([], out=place)
    with pytest.raises(BadInput, match="no run there"):
        annotate([tmp_path / "none"], out=place)
    with pytest.raises(BadInput, match="two runs have this name"):
        annotate([runs[0], runs[0]], out=place)
    with pytest.raises(BadInput, match="no explanation of these"):
        annotate(runs, ids=["hist"], out=place)


def test_names_and_comments_are_made_safe() -> None:
    assert rater_name("  Ann \t B\x00\n") == "Ann B"
    assert clean_comment(" a\r\nb\rc\x00 ") == "a\nb\nc"


def test_a_long_text_is_cut_and_says_so(runs: list[Path], place: Path) -> None:
    file = runs[0] / "explanations" / "8.json"
    write_json(file, {**read_json(file), "task_description": "x" * (MOST_SHOWN + 7)})
    with annotate(runs, ids=["8"], out=place) as texts:
        long = [card for n in range(1, 5) if (card := texts.card("ann", n)).cut]
        assert [(len(card.text), card.cut) for card in long] == [(MOST_SHOWN, 7)]


def test_the_same_choice_finds_its_directory_again(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with annotate(runs) as texts:
        place = texts.directory
        texts.rate("ann", texts.card("ann", 1).id, 1)
    with annotate(list(reversed(runs))) as texts:
        assert texts.directory == place
        assert texts.progress("ann").rated == 1
    with annotate(runs, reference=True) as texts:
        assert texts.directory != place


def test_ratings_and_compare_read_an_annotation(runs: list[Path], place: Path, tmp_path: Path) -> None:
    with annotate(runs, out=place) as texts:
        for rater in ("ann", "ben"):
            for number in range(1, 11):
                card = texts.card(rater, number)
                texts.rate(rater, card.id, int(card.text.split()[1].rstrip(".")) % 2)
    report = ves.ratings(place, csv=tmp_path / "all.csv")
    assert {(pair.measure, pair.kappa, pair.n) for pair in report.pairs} == {
        ("description_quality", 1.0, 6),
        ("task_accuracy", 1.0, 4),
    }
    assert ves.ratings(tmp_path / "all.csv").pairs == report.pairs
    assert {item.item.split(":")[1] for item in ves.ratings(place, ids=["frac_prevs"]).items} == {"3"}
    with pytest.raises(BadInput, match="no rating is of hist"):
        ves.ratings(place, ids=["hist"])


def test_people_are_held_against_the_judges_of_the_run(tmp_path: Path) -> None:
    """The judge of this run gives 1 to everything, so whoever gives 1 to all notes but one agrees on all but one."""
    run = tmp_path / "judged"
    perform(run, settings(tmp_path, cases=2, judges=2))
    with annotate(run, out=tmp_path / "rated") as texts:
        cards = [texts.card("ann", number) for number in range(1, len(texts.texts) + 1)]
        notes = [card for card in cards if card.measure == "description_quality"]
        for card in cards:
            texts.rate("ann", card.id, 2 if card == notes[0] else 1)
    report = ves.ratings(tmp_path / "rated", runs=[run])
    pairs = {pair.measure: pair for pair in report.pairs if pair.kind == "human-judge"}
    counts = Counter(card.measure for card in cards)
    assert {name: pair.n for name, pair in pairs.items()} == counts
    assert counts["task_accuracy"] == 2
    assert counts["grounding"] == counts["plan_soundness"] == len(notes)
    assert len(notes) > 1
    assert pairs["description_quality"].agreement == pytest.approx(1 - 1 / len(notes))
    assert pairs["description_quality"].kappa == pytest.approx(0.0)  # one of the two does not tell texts apart
    assert pairs["task_accuracy"].agreement == pytest.approx(1.0)
    assert any(pair.kind == "lowest human-lowest judge" for pair in report.pairs)
