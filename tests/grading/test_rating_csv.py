"""Ratings as CSV: no cell is a formula, and every text comes back as it was."""

import csv
import io

import pytest

from vesalius_bench.ratings.reading import placed_ratings
from vesalius_truth.grading.ratings import COLUMNS, plain_cell, ratings_csv, safe_cell

FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", "'=1", "''+1"]
PLAIN = ["", "well, yes", "a = b", "'quoted'", 'say "no"', "two\nlines", "é ✓", "''"]


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN])
def test_a_cell_comes_back_and_is_no_formula(text: str) -> None:
    assert plain_cell(safe_cell(text)) == text
    assert not safe_cell(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@pytest.mark.parametrize("text", PLAIN)
def test_other_cells_stay_as_they_are(text: str) -> None:
    assert safe_cell(text) == text


@pytest.mark.parametrize("comment", [*FORMULAS, *PLAIN])
def test_a_file_is_read_as_it_was_written(comment: str) -> None:
    text = ratings_csv([("=run", "@agent", "-ann", "task_accuracy:3", 1, comment)])
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert tuple(header) == COLUMNS
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)
    ((where, rating),) = placed_ratings(text, "r.csv")
    assert where.startswith("ratings r.csv, row ")
    assert (rating.run, rating.explainer, rating.rater, rating.score) == ("=run", "@agent", "-ann", 1)
    assert rating.comment == comment
