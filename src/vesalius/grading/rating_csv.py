"""Ratings as one CSV file that a spreadsheet opens safely and `read_ratings` reads back as they were.

A spreadsheet runs a cell that begins with =, +, - or @. Such a cell is written with an apostrophe before it, and the
apostrophe is taken away again when the file is read; a cell that begins with apostrophes and one of these characters
gets one more, so that every text comes back as it was.
"""

import csv
import io
import re
from collections.abc import Iterable

COLUMNS = ("run", "agent", "rater", "item", "score", "comment")
_RUNS = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = re.compile(r"'+[=+\-@\t\r]")


def safe_cell(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if _RUNS.match(text) else text


def plain_cell(cell: str) -> str:
    """The text of a cell that `safe_cell` made."""
    return cell[1:] if _GUARDED.match(cell) else cell


def ratings_csv(rows: Iterable[tuple[str, str, str, str, int, str]]) -> str:
    """Rows of `COLUMNS` as the text of a CSV file."""
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    for *texts, score, comment in rows:
        writer.writerow([*(safe_cell(str(text)) for text in texts), score, safe_cell(comment)])
    return written.getvalue()
