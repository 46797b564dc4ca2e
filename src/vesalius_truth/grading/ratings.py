"""Ratings: what is asked, the file that holds them, and how far two raters agree beyond chance: Cohen's kappa, plain
or weighted by distance, with an interval.

Kappa is 1 minus the disagreement seen over the disagreement expected if both rated independently, each with the same
shares of scores as before. Plain kappa counts every difference as one; the linear weights count 0 against 2 twice as
much as 0 against 1. Where no disagreement is to be expected (no items, or both raters always give one and the same
score) there is nothing to compare with and kappa is None, however well they agree.
"""

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict

from vesalius.documents.metric import LEVEL
from vesalius.errors import BadInput
from vesalius.statistics import RESAMPLES


class Kappa(BaseModel):
    """Kappa with its 95 % bootstrap interval over items; `agreement` is the plain share of equal scores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | None
    low: float | None
    high: float | None
    n: int
    agreement: float | None
    weighted: bool


def cohen_kappa(
    pairs: Iterable[tuple[int, int]],
    *,
    categories: int,
    weighted: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Kappa:
    """Kappa of two raters from their scores of the same items; scores are whole numbers below `categories`.

    Resamples in which kappa is undefined are left out of the interval.
    """
    table = np.zeros((categories, categories))
    for first, second in pairs:
        if not (0 <= first < categories and 0 <= second < categories):
            raise BadInput(f"scores {first} and {second}: expected whole numbers from 0 to {categories - 1}")
        table[first, second] += 1
    n = int(table.sum())
    if n == 0:
        return Kappa(value=None, low=None, high=None, n=0, agreement=None, weighted=weighted)
    # Items with the same pair of scores are alike, so drawing items is drawing cells of the table.
    drawn = np.random.default_rng(seed).multinomial(n, table.ravel() / n, size=resamples)
    value = float(_kappas(table[None], weighted)[0])
    spread = _kappas(drawn.reshape(resamples, categories, categories), weighted)
    spread = spread[~np.isnan(spread)]
    known = not np.isnan(value)
    low, high = np.quantile(spread, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if known and spread.size else (None, None)
    return Kappa(
        value=value if known else None,
        low=None if low is None else float(low),
        high=None if high is None else float(high),
        n=n,
        agreement=float(np.trace(table)) / n,
        weighted=weighted,
    )


def _kappas(tables: np.ndarray, weighted: bool) -> np.ndarray:
    """Kappa of each table of counts; not a number where no disagreement is to be expected."""
    scores = np.arange(tables.shape[1])
    distance = np.abs(scores[:, None] - scores[None, :]).astype(float)
    if not weighted:
        distance = np.minimum(distance, 1.0)
    rows, columns, n = tables.sum(2), tables.sum(1), tables.sum((1, 2))
    seen = (tables * distance).sum((1, 2)) * n
    expected = np.einsum("bi,bj,ij->b", rows, columns, distance)
    return np.where(expected > 0, 1 - seen / np.where(expected > 0, expected, 1.0), np.nan)


# Ratings as one CSV file that a spreadsheet opens safely and `read_ratings` reads back as they were.
#
# A spreadsheet runs a cell that begins with =, +, - or @. Such a cell is written with an apostrophe before it, and the
# apostrophe is taken away again when the file is read; a cell that begins with apostrophes and one of these characters
# gets one more, so that every text comes back as it was.

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


# What judges and people are asked: four measures, each with its scale and the texts it compares.
#
# A measure has the same name everywhere: in a prompt's template, a ratings file, a judged item and the scorecard.

MeasureName = Literal["description_quality", "task_accuracy", "plan_soundness", "grounding"]


@dataclass(frozen=True)
class Measure:
    """One question. `best` is its highest score, `unit` what one metric of the scorecard is the mean of: scores divided
    by `best` where it is 1, scores as they are where it equals `best`. `given` and `judged` name the two texts.
    """

    name: MeasureName
    best: int
    unit: int
    given: str = "REFERENCE"
    judged: str = "CANDIDATE"

    @property
    def ordinal(self) -> bool:
        """More than right and wrong: agreement is then weighted by how far two scores lie apart."""
        return self.best > 1

    @property
    def per_circuit(self) -> bool:
        """Asked once per circuit, not per component."""
        return self.name == "task_accuracy"


#: The published conventions: descriptions are rescaled to 0-1, the two diagnostics stay on 0-2.
MEASURES: dict[MeasureName, Measure] = {
    measure.name: measure
    for measure in (
        Measure("description_quality", best=2, unit=1),
        Measure("task_accuracy", best=1, unit=1),
        Measure("plan_soundness", best=2, unit=2, given="HYPOTHESIS", judged="PLAN"),
        Measure("grounding", best=2, unit=2, given="OBSERVATION", judged="HYPOTHESIS"),
    )
}
assert tuple(MEASURES) == get_args(MeasureName)


class Item(NamedTuple):
    """What a score is given to. `component` is empty for a whole circuit; `iteration` counts the hypotheses of one
    component from 1, and is 1 where there is only one text to score. `explainer` says whose text it is where several
    are rated in one file.
    """

    measure: MeasureName
    specimen: str
    component: str = ""
    iteration: int = 1
    explainer: str = ""
