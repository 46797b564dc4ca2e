"""Unit tests taken by people: the sheet is blind, answers are counted, and Spearman's correlation takes ties."""

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from tests.functions.needs import needs_facts
from vesalius import api
from vesalius.errors import BadInput
from vesalius.statistics import average_ranks, spearman, spearman_interval, spearman_p
from vesalius_functions.bench.unit_tests import TASKS, TestedRun, sheet


def test_spearman_with_ties_by_hand() -> None:
    a, b = np.array([0.2, 0.5, 0.5, 1.0]), np.array([0.1, 0.4, 0.3, 0.3])
    assert average_ranks(a).tolist() == [1, 2.5, 2.5, 4]
    assert average_ranks(b).tolist() == [1, 4, 2.5, 2.5]
    # Deviations -1.5, 0, 0, 1.5 and -1.5, 1.5, 0, 0: their product is 2.25, each sum of squares 4.5.
    assert spearman(a, b) == pytest.approx(0.5)
    assert math.isnan(spearman(a, np.ones(4)))


def test_spearman_agrees_with_scipy() -> None:
    dice = np.random.default_rng(3)
    a = np.zeros(25)
    for _ in range(20):
        a, b = dice.integers(0, 5, 25) / 10, dice.integers(0, 5, 25) / 10
        rho, p = scipy.stats.spearmanr(a, b)
        assert spearman(a, b) == pytest.approx(rho, abs=1e-12)
        assert spearman_p(spearman(a, b), 25) == pytest.approx(p, abs=1e-9)
    low, high = spearman_interval(a, a + dice.integers(0, 2, 25) / 10, resamples=200)
    assert -1 <= low < high <= 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("people") / "run"
    options = {"category": "relations", "count": 4, "interpreter": "oracle", "jobs": 1, "grading_seed": 7}
    api.bench_functions(**options, out=place, progress=False)  # type: ignore[arg-type]
    return place


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(sheet(TestedRun(run)))))


def filled(path: Path, rows: list[dict[str, str]], answers: list[str], rater: str) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows({**row, "answer": said, "rater": rater} for row, said in zip(rows, answers, strict=True))
    return path


@needs_facts
@pytest.mark.slow
def test_the_sheet_is_blind_and_whole(run: Path, rows: list[dict[str, str]]) -> None:
    tested = TestedRun(run)
    assert len(rows) == 4 * (10 + 10 + 1)
    assert {len(row["item"]) for row in rows} == {12}
    text = sheet(tested)
    assert not any(word in text for word in (*tested.functions, *TASKS[:2]))
    for row in rows:
        item = tested.items[row["item"]]
        test = tested.tests(item.function, item.task)[item.number] if item.number < 2 else None
        if test is not None and item.task == "matching":
            assert row[f"choice_{test.correct + 1}"] == row["description"]  # the oracle's description is the truth


@needs_facts
@pytest.mark.slow
def test_people_beside_the_grader(run: Path, rows: list[dict[str, str]], tmp_path: Path) -> None:
    tested = TestedRun(run)
    keys = [tested.items[row["item"]] for row in rows]
    right = [str(tested.tests(key.function, key.task)[key.number].correct + 1) for key in keys]
    worst = min(tested.functions)
    careless = ["" if key.function == worst else said for key, said in zip(keys, right, strict=True)]
    files = [filled(tmp_path / "a.csv", rows, right, "Ada"), filled(tmp_path / "b.csv", rows, careless, "")]
    study = api.unit_tests(run, files, out=tmp_path / "out")
    accuracy = {(one.name, one.task): one.accuracy.value for one in study.takers}
    for task in TASKS:
        assert accuracy["Ada", task] == 1
        assert accuracy["b", task] == 0.75  # three of four functions; nothing chosen counts as wrong
    assert accuracy["executable grader", "ground-truth"] == accuracy["executable grader", "interpretation"] == 1
    assert {
        (one.name, one.unanswered) for one in study.takers if one.task == "interpretation" and one.kind == "person"
    } == {
        ("Ada", 0),
        ("b", 10),
    }
    assert [(one.evaluator, one.rho, one.n) for one in study.correlations] == [
        ("executable grader", None, 4),  # the grader gives 1 to all: a correlation is not defined
        ("executable grader", None, 4),
    ]
    mine = next(one for one in study.functions if one.function == worst and one.task == "interpretation")
    assert mine.scores == {"Ada": 1.0, "b": 0.0, "executable grader": 1.0}


@needs_facts
@pytest.mark.slow
def test_slips_are_refused_in_one_line(run: Path, rows: list[dict[str, str]], tmp_path: Path) -> None:
    none = [""] * len(rows)
    for change, why in (({"item": "banana"}, "row 2: item 'banana' is not of this run"), ({}, "row 2: answer '4'")):
        file = filled(tmp_path / "x.csv", [{**rows[0], **change}, *rows[1:]], ["4", *none[1:]], "Ada")
        with pytest.raises(BadInput, match=why):
            api.unit_tests(run, file, out=tmp_path / "out")
    file = filled(tmp_path / "x.csv", [rows[0], *rows], ["1", *none], "Ada")
    with pytest.raises(BadInput, match="row 3: Ada has already answered this item"):
        api.unit_tests(run, file, out=tmp_path / "out")
    with pytest.raises(BadInput, match="is there already"):
        api.export_unit_tests(run, file)
