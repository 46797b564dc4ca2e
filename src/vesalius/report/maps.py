"""Matrices as drawings in their own coordinates: the map of a model's heads and MLPs, and small grids.

Every head map, on a page, in a PNG and in the workbench, has one scale: the colour grows with the square root of a
value's size, up to the largest, so that one huge early component does not wash the others out. Negative values have a
colour of their own. A component whose interval holds 0 is grey, however large its mean: nothing says that it matters.
The strongest carry their rank, and a bar the scale.

A grid is a few SVG paths, one per shade, so that a page of many heads stays small. The shades' colours belong to the
style sheet, so a grid follows light and dark. Small grids also print their figures, so that no shade has to be judged
by eye.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vesalius.components import Component
from vesalius.documents.view import Grid, HeadMap, figure
from vesalius.report.html import SHARED

SHADES: int = SHARED["headmap"]["shades"]
RANKED = 10
LEFT, TOP, GAP = 40.0, 22.0, 8.0
#: Cell sizes by the number of layers they still suit.
CELLS = {4: 40.0, 16: 32.0, 24: 26.0, 40: 23.0}
SMALLEST_CELL = 14.0
#: The colour bar: below the map, and its steps.
BAR_TOP, BAR_STEP, BAR_ROOM = 22.0, 15.0, 58.0


#: The width of a letter of a tick.
LETTER = 6.5


@dataclass(frozen=True)
class ColourBar:
    """The scale: where it stands, its steps (x, shade, negative), its ticks (x, text), and what it measures."""

    top: float
    steps: tuple[tuple[float, int, bool], ...]
    ticks: tuple[tuple[float, str], ...]
    unit: str

    @property
    def width(self) -> float:
        """Room for the steps and for the unit above them."""
        return LEFT + max((2 * SHADES + 1) * BAR_STEP + 30, len(self.unit) * LETTER)


@dataclass(frozen=True)
class DrawnMap:
    """Everything the template draws: ticks, one path per shade and sign, the grey cells, frames, ranks (x, y, rank, on
    a strong colour), cells that lead somewhere (x, y, name, what they say), and the colour bar.
    """

    width: float
    height: float
    cell: float
    columns: tuple[tuple[float, str], ...]
    rows: tuple[tuple[float, str], ...]
    shades: tuple[tuple[int, bool, str], ...]
    unclear: str
    marked: str
    grounds: tuple[tuple[float, float, float, float], ...]
    ranks: tuple[tuple[float, float, int, bool], ...]
    leads: tuple[tuple[float, float, str, str], ...]
    bar: ColourBar | None
    summary: str


def share(value: float, reach: float) -> float:
    """Where a value stands on the scale, from -1 to 1, where `reach` is the largest size."""
    return math.copysign(math.sqrt(min(1.0, abs(value) / reach)), value) if reach > 0 else 0.0


def shade(value: float, reach: float) -> int:
    """How strong the colour of a cell is, from 0 to `SHADES`."""
    return round(abs(share(value, reach)) * SHADES)


def largest(values: Mapping[str, float]) -> float:
    """The size at the ends of the scale."""
    return max(map(abs, values.values()), default=0.0) or 1.0


def key_of(one: HeadMap, *, ranks: bool = True) -> str:
    """What a reader of the map must know; `ranks`: whether the strongest carry theirs."""
    values = [value for name, value in one.values.items() if not one.unclear(name)]
    words = [f"Layers across, heads down{'; figures are ranks' if ranks and one.values else ''}."]
    if any(value < 0 for value in values):
        words.append(f"Red: {one.negative}.")
    if one.intervals:
        words.append("Grey: its 95 % interval holds 0.")
    if one.values:
        words.append("The colour grows with the square root of the size. Blank: zero, or no value.")
    if one.marked:
        words.append("Framed: the circuit.")
    if one.lines:
        words.append("A cell leads to its head.")
    return " ".join(words)


def draw_headmap(one: HeadMap) -> DrawnMap:
    """Lay the map out."""
    values = _cells(one)
    ranked = sorted(values, key=lambda name: -abs(values[name]))
    cell = next((size for most, size in CELLS.items() if one.layers <= most), SMALLEST_CELL)
    reach = largest(values)

    def place(name: str) -> tuple[float, float]:
        part = Component.parse(name)
        row = one.heads * cell + GAP if part.head is None else part.head * cell
        return LEFT + part.layer * cell, TOP + row

    def square(name: str) -> str:
        x, y = place(name)
        return f"M{x:g} {y:g}h{cell - 1:g}v{cell - 1:g}h-{cell - 1:g}z"

    shades = {name: shade(value, reach) for name, value in values.items()}
    clear = [name for name in ranked if shades[name] and not one.unclear(name)]
    paths: dict[tuple[int, bool], list[str]] = {}
    for name in clear:
        paths.setdefault((shades[name], values[name] < 0), []).append(square(name))
    half, step = (cell - 1) / 2, 1 if cell > SMALLEST_CELL else 5
    bottom = TOP + (one.heads + 1) * cell + GAP
    bar = colour_bar(one, bottom + BAR_TOP) if values else None
    return DrawnMap(
        width=max(LEFT + one.layers * cell + 6, bar.width if bar else 0.0),
        height=bottom + (BAR_ROOM if bar else 4),
        cell=cell,
        columns=tuple((LEFT + layer * cell + half, f"L{layer}") for layer in range(0, one.layers, step)),
        rows=(
            *((TOP + head * cell + half, f"H{head}") for head in range(one.heads)),
            (TOP + one.heads * cell + GAP + half, "MLP"),
        ),
        shades=tuple((shade, negative, "".join(squares)) for (shade, negative), squares in sorted(paths.items())),
        unclear="".join(square(name) for name in ranked if one.unclear(name)),
        marked="".join(map(square, one.marked)),
        grounds=(
            (LEFT, TOP, one.layers * cell - 1, one.heads * cell - 1),
            (LEFT, TOP + one.heads * cell + GAP, one.layers * cell - 1, cell - 1),
        ),
        ranks=tuple(
            (place(name)[0] + half, place(name)[1] + half, rank, shades[name] > SHADES // 2)
            for rank, name in enumerate(clear[:RANKED], 1)
        ),
        leads=tuple((*place(name), name, line) for name, line in one.lines.items()),
        bar=bar,
        summary="Strongest: " + ", ".join(f"{name} {values[name]:.3g}" for name in clear[:RANKED]),
    )


def _cells(one: HeadMap) -> dict[str, float]:
    """The values that have a cell; neurons and experts have none."""
    return {name: value for name, value in one.values.items() if not Component.parse(name).is_unit}


def colour_bar(one: HeadMap, top: float = BAR_TOP) -> ColourBar:
    """Every shade, from the largest negative value, or from 0 where there is none, to the largest positive one; ticks
    say their values.
    """
    values = _cells(one)
    reach, below = largest(values), SHADES if any(value < 0 for value in values.values()) else 0
    middle = LEFT + (below + 0.5) * BAR_STEP
    steps = tuple((LEFT + (place + below) * BAR_STEP, abs(place), place < 0) for place in range(-below, SHADES + 1))
    ticks = tuple(
        (middle + part * SHADES * BAR_STEP, figure(math.copysign(part * part, part) * reach if part else 0.0))
        for part in (-1.0, -0.5, 0.0, 0.5, 1.0)
        if part >= 0 or below
    )
    return ColourBar(top, steps, ticks, one.unit)


#: Shades of a grid.
GRID_SHADES = 9
#: Cells of up to this many columns are large; grids of more columns than the last print no figures.
GRID_CELLS = {6: 32.0, 10: 26.0}
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
    shades: tuple[tuple[int, bool, str], ...]
    unclear: str
    figures: tuple[PrintedValue, ...]


def draw_grid(one: Grid) -> DrawnGrid:
    """Draw a matrix between its `low` (no shade) and `high` (full shade); None and NaN stay blank."""
    values, rows, columns, low, high = one.values, one.rows, one.columns, one.low, one.high
    row_labels, column_labels = [label(row) for row in rows], [label(column) for column in columns]
    longest = max(map(len, column_labels), default=1)
    cell = next((size for most, size in GRID_CELLS.items() if len(columns) <= most), SMALL_CELL)
    printed = cell > SMALL_CELL
    upright = 6.5 * longest < cell
    left = 12 + 7.2 * max(map(len, row_labels), default=1)
    top = 20.0 if upright else 10 + 7.2 * longest
    paths: dict[tuple[int, bool], list[str]] = {}
    figures, unclear, reach = [], "", one.reach
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if value is None or not math.isfinite(value):
                continue
            shade = round(abs(share(value, reach)) * GRID_SHADES) if one.signed else _shade(value, low, high)
            x, y = left + j * cell, top + i * cell
            square = f"M{x:g} {y:g}h{cell - 1:g}v{cell - 1:g}h-{cell - 1:g}z"
            if (i, j) in one.unclear:
                unclear += square
                continue
            if shade:
                paths.setdefault((shade, one.signed and value < 0), []).append(square)
            if printed and (shade or low < 0):
                figures.append(
                    PrintedValue(x + (cell - 1) / 2, y + cell / 2 + 3.5, short(value), shade > GRID_SHADES // 2)
                )
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
        shades=tuple((shade, negative, "".join(parts)) for (shade, negative), parts in sorted(paths.items())),
        unclear=unclear,
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
    return min(GRID_SHADES, max(0, round(share * GRID_SHADES + 0.2)))
