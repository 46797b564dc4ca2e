"""Heat grids: a small matrix as a few SVG paths, one per shade, so that a page of many heads stays small.

A value becomes one of nine shades; the shades' colours belong to the style sheet, so a grid follows light and dark.
Small grids also print their figures, so that no shade has to be judged by eye.
"""

import math
from dataclasses import dataclass

from vesalius.documents.view import Grid

SHADES = 9
#: Cells of up to this many columns are large; grids of more columns than the last print no figures.
CELLS = {6: 32.0, 10: 26.0}
SMALL_CELL = 13.0
LABEL_CHARACTERS = 9


@dataclass(frozen=True)
class PrintedValue:
    """A printed value; `inverse` where the shade behind it is strong."""

    x: float
    y: float
    text: str
    inverse: bool


@dataclass(frozen=True)
class DrawnGrid:
    """A drawn matrix in its own coordinates; `summary` is the sentence for those who cannot see it."""

    title: str
    summary: str
    width: float
    height: float
    left: float
    top: float
    cell: float
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    upright: bool
    shades: tuple[tuple[int, str], ...]
    figures: tuple[PrintedValue, ...]


def draw_grid(one: Grid) -> DrawnGrid:
    """Draw a matrix between its `low` (no shade) and `high` (full shade); None and NaN stay blank."""
    values, rows, columns, low, high = one.values, one.rows, one.columns, one.low, one.high
    row_labels, column_labels = [label(row) for row in rows], [label(column) for column in columns]
    longest = max(map(len, column_labels), default=1)
    cell = next((size for most, size in CELLS.items() if len(columns) <= most), SMALL_CELL)
    printed = cell > SMALL_CELL
    upright = 6.5 * longest < cell
    left = 12 + 7.2 * max(map(len, row_labels), default=1)
    top = 20.0 if upright else 10 + 7.2 * longest
    paths: dict[int, list[str]] = {}
    figures = []
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is None or not math.isfinite(value):
                continue
            shade = _shade(value, low, high)
            x, y = left + j * cell, top + i * cell
            if shade:
                paths.setdefault(shade, []).append(f"M{x:g} {y:g}h{cell - 1:g}v{cell - 1:g}h-{cell - 1:g}z")
            if printed and (shade or low < 0):
                figures.append(PrintedValue(x + (cell - 1) / 2, y + cell / 2 + 3.5, short(value), shade > SHADES // 2))
    return DrawnGrid(
        title=one.title,
        summary=one.summary,
        width=left + cell * len(columns) + 4,
        height=top + cell * len(row_labels) + 4,
        left=left,
        top=top,
        cell=cell,
        rows=tuple(row_labels),
        columns=tuple(column_labels),
        upright=upright,
        shades=tuple((shade, "".join(parts)) for shade, parts in sorted(paths.items())),
        figures=tuple(figures),
    )


def label(name: object) -> str:
    """A token or position as an axis shows it: blanks made visible, long ones cut."""
    text = str(name).replace(" ", "·").replace("\n", "⏎").replace("\t", "⇥")
    return text if len(text) <= LABEL_CHARACTERS else text[: LABEL_CHARACTERS - 1] + "…"


def short(value: float) -> str:
    """A figure that fits a cell: `.25`, `1`, `-3.1`, `12`."""
    if abs(value) >= 9.95:
        return f"{value:.0f}"
    if abs(value) >= 1:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2f}".replace("0.", ".", 1).replace("-.00", "0").replace(".00", "0")


def _shade(value: float, low: float, high: float) -> int:
    share = (value - low) / (high - low) if high > low else 0.0
    return min(SHADES, max(0, round(share * SHADES + 0.2)))
