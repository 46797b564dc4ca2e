"""The worst cell of an experiment: the argument value, or the position, where a claim fares worst.

An average hides one value that always fails. So an experiment is also read cell by cell, and the cell counts whose
accuracy is lowest for certain: its interval has the lowest upper end. A cell that fails in a few of a dozen cases is
not bad yet, and one with fewer cases is left out and counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.documents.explanation import Evidence
from vesalius.explanations.claims.base import rounded, share_interval_at

#: A cell needs so many cases.
CELL_CASES = 12
#: A claim fails where the upper end of a cell's interval lies below this.
MIN_WORST_CELL = 0.8
#: Intervals of single cells have this level, however many claims were tried.
CELL_LEVEL = 0.95
_WORST_IS = "; worst: "


@dataclass(frozen=True)
class Cell:
    """One cell: how often the claim was right in its cases, with an interval."""

    label: str
    value: float
    low: float
    high: float
    n: int


def worst_cell(shares: Mapping[str, tuple[float, int]]) -> tuple[Cell | None, dict[str, float | None]]:
    """The worst of cells given as their share of right answers and their number of cases, and how many were looked at
    and left out.
    """
    cells = [
        Cell(label, share, *share_interval_at(share * n, n, CELL_LEVEL), n)
        for label, (share, n) in shares.items()
        if n >= CELL_CASES
    ]
    counted: dict[str, float | None] = {
        "cells": float(len(cells)),
        "with_too_few_cases": float(len(shares) - len(cells)),
    }
    return min(cells, key=lambda cell: (cell.high, cell.label), default=None), counted


def cells_by(
    label: Int[Tensor, " row"], right: Bool[Tensor, "row pos"], cases: Bool[Tensor, "row pos"]
) -> dict[int, tuple[float, int]]:
    """For each label of rows the share of their cases that are right, and the number of rows with a case: answers of
    one input are not independent. Rows labelled -1 are left out.
    """
    cells = {}
    for value in label[label >= 0].unique().tolist():
        here = label == value
        n = int(cases[here].sum())
        if n:
            cells[value] = float((right & cases)[here].sum() / n), int(cases[here].any(1).sum())
    return cells


def worst_evidence(
    experiment: str,
    *,
    measure: str,
    cell: Cell | None,
    controls: dict[str, float | None],
    seed: int,
    bar: float = MIN_WORST_CELL,
) -> Evidence:
    """The worst cell by name, with its interval; marked by whether its upper end reaches the bar."""
    return Evidence(
        experiment=experiment if cell is None else f"{experiment}{_WORST_IS}{cell.label}",
        measure=measure,
        value=None if cell is None else rounded(cell.value),
        low=None if cell is None else rounded(cell.low),
        high=None if cell is None else rounded(cell.high),
        n=0 if cell is None else cell.n,
        controls=controls,
        rule=f"no upper end below {bar}, for each with >= {CELL_CASES} cases",
        seed=seed,
        passed=None if cell is None else cell.high >= bar,
    )


def worst_of(evidence: Evidence) -> str:
    """The argument value or position that evidence of this kind is about."""
    return evidence.experiment.partition(_WORST_IS)[2]
