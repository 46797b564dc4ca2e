"""The head map of a circuit: layers across, heads down, a row for the MLPs; the strongest carry their rank.

The shade grows with the square root of the score's magnitude, so that one huge early component does not wash the
others out. Negative scores have a colour of their own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vesalius.components import Component
from vesalius.report.html import SHARED

SHADES: int = SHARED["headmap"]["shades"]
RANKED = 10
LEFT, TOP, GAP = 40.0, 22.0, 8.0
#: Cell sizes by the number of layers they still suit.
CELLS = {4: 40.0, 16: 32.0, 24: 26.0, 40: 23.0}
SMALLEST_CELL = 14.0


@dataclass(frozen=True)
class HeadMap:
    """Everything the template draws: ticks, one path per shade and sign, and ranks (x, y, rank, on a dark cell)."""

    width: float
    height: float
    cell: float
    columns: tuple[tuple[float, str], ...]
    rows: tuple[tuple[float, str], ...]
    shades: tuple[tuple[int, bool, str], ...]
    grounds: tuple[tuple[float, float, float, float], ...]
    ranks: tuple[tuple[float, float, int, bool], ...]
    summary: str


def shade(score: float, reach: float) -> int:
    """How dark a cell is, from 0 to `SHADES`, where `reach` is the largest magnitude."""
    return min(SHADES, round(math.sqrt(abs(score) / reach) * SHADES))


def draw_headmap(ranked: Sequence[tuple[Component, float]], *, n_layers: int, n_heads: int) -> HeadMap:
    """Draw scores given strongest first; components without a score stay blank; neurons and experts have no cell."""
    ranked = [(part, score) for part, score in ranked if not part.is_unit]
    cell = next((size for most, size in CELLS.items() if n_layers <= most), SMALLEST_CELL)
    reach = max((abs(score) for _, score in ranked), default=0.0) or 1.0

    def place(part: Component) -> tuple[float, float]:
        return LEFT + part.layer * cell, TOP + (n_heads * cell + GAP if part.head is None else part.head * cell)

    paths: dict[tuple[int, bool], list[str]] = {}
    shade_of: Mapping[Component, int] = {part: shade(score, reach) for part, score in ranked}
    for part, score in ranked:
        if shade_of[part]:
            px, py = place(part)
            square = f"M{px:g} {py:g}h{cell - 1:g}v{cell - 1:g}h-{cell - 1:g}z"
            paths.setdefault((shade_of[part], score < 0), []).append(square)
    half = (cell - 1) / 2
    strongest = [part for part, _ in ranked[:RANKED] if shade_of[part]]
    step = 1 if cell > SMALLEST_CELL else 5
    return HeadMap(
        width=LEFT + n_layers * cell + 6,
        height=TOP + (n_heads + 1) * cell + GAP + 4,
        cell=cell,
        columns=tuple((LEFT + layer * cell + half, f"L{layer}") for layer in range(0, n_layers, step)),
        rows=(
            *((TOP + head * cell + half, f"H{head}") for head in range(n_heads)),
            (TOP + n_heads * cell + GAP + half, "MLP"),
        ),
        shades=tuple((shade, negative, "".join(squares)) for (shade, negative), squares in sorted(paths.items())),
        grounds=(
            (LEFT, TOP, n_layers * cell - 1, n_heads * cell - 1),
            (LEFT, TOP + n_heads * cell + GAP, n_layers * cell - 1, cell - 1),
        ),
        ranks=tuple(
            (place(part)[0] + half, place(part)[1] + half, rank, shade_of[part] > SHADES // 2)
            for rank, part in enumerate(strongest, 1)
        ),
        summary="Strongest: " + ", ".join(f"{part} {score:.3g}" for part, score in ranked[:RANKED]),
    )
