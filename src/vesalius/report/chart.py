"""Curves over a common axis: what was found first, its controls beside it.

Shares go over three decades and begin at nothing, so their axis is the square root: small circuits can be
distinguished and no point is at infinity. Templates only print what is computed here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vesalius.documents.view import Chart

WIDTH, HEIGHT = 560.0, 310.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 118.0, 30.0, 46.0
SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Curves leave the picture beyond these; a circuit without what hinders can score far above the model.
LOWEST, HIGHEST = -0.5, 2.0
LABEL_GAP = 15.0
#: So little beyond 0 or 1 does not widen the axis.
NEGLIGIBLE = 0.02
#: Ticks of an axis that is not one of shares.
TICKS = 5


@dataclass(frozen=True)
class CurveLine:
    """One curve: its name and where that stands, its path, and its points with a sentence each."""

    name: str
    kind: str
    path: str
    points: tuple[tuple[float, float, str], ...]
    label_y: float


@dataclass(frozen=True)
class DrawnChart:
    """Everything the template draws; ticks are (place, text)."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    whole: float | None
    x: str
    y: str
    lines: tuple[CurveLine, ...]
    summary: str


def draw_chart(chart: Chart) -> DrawnChart:
    """Lay out the curves of a chart."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    xs = [x for curve in chart.curves.values() for x, _, _ in curve] or [0.0]
    ys = [y for curve in chart.curves.values() for _, y, _ in curve] or [0.0]
    low, high = _range(ys) if chart.root else (min(0.0, *ys), max(ys) or 1.0)
    first, last = (0.0, 1.0) if chart.root else (min(xs), max(xs))

    def x(value: float) -> float:
        share = (value - first) / ((last - first) or 1.0)
        return round(LEFT + (right - LEFT) * (math.sqrt(max(0.0, share)) if chart.root else share), 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - TOP) * (min(high, max(low, value)) - low) / ((high - low) or 1.0), 1)

    lines, taken = [], []
    for number, (name, curve) in enumerate(chart.curves.items()):
        points = tuple((x(along), y(value), words) for along, value, words in curve)
        label = _free(_middle(points), taken)
        taken.append(label)
        path = "M" + "L".join(f"{px:g} {py:g}" for px, py, _ in points)
        lines.append(CurveLine(name, "control" if number else "circuit", path, points, label))
    steps = round((high - low) * 4)
    even = [low + (high - low) * i / TICKS for i in range(TICKS + 1)]
    y_ticks = [low + i / 4 for i in range(steps + 1) if steps <= 6 or i % 2 == 0] if chart.root else even
    x_ticks = SHARES if chart.root else [first + (last - first) * i / TICKS for i in range(TICKS + 1)]
    return DrawnChart(
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=right,
        top=TOP,
        bottom=bottom,
        x_ticks=tuple((x(value), f"{100 * value:g} %" if chart.root else f"{value:.3g}") for value in x_ticks),
        y_ticks=tuple((y(value), f"{value:g}" if chart.root else f"{value:.3g}") for value in y_ticks),
        whole=y(1.0) if chart.root else None,
        x=f"{chart.x} (square-root scale)" if chart.root else chart.x,
        y=chart.y,
        lines=tuple(lines),
        summary="; ".join(f"{name}: {_sentence(curve)}" for name, curve in chart.curves.items()),
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    low = math.floor((max(LOWEST, min(0.0, *values)) + NEGLIGIBLE) * 4) / 4
    return low, math.ceil((min(HIGHEST, max(1.0, *values)) - NEGLIGIBLE) * 4) / 4


def _middle(places: Sequence[tuple[float, float, str]]) -> float:
    """The height of a curve where it stands furthest from its ends, which all curves share."""
    inner = places[1:-1] or places
    return inner[-1][1] if inner else 0.0


def _free(preferred: float, taken: Sequence[float]) -> float:
    """The nearest height at which no other name stands."""
    tried = [preferred, *(preferred + sign * step * LABEL_GAP for step in (1, 2, 3) for sign in (1, -1))]
    return next((height for height in tried if all(abs(height - other) >= LABEL_GAP for other in taken)), preferred)


def _sentence(curve: Sequence[tuple[float, float, str]]) -> str:
    return ", ".join(words for _, _, words in curve[1:-1])
