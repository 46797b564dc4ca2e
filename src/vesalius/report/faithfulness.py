"""The faithfulness curve: how much of the behaviour a circuit of each size keeps, beside a control.

Sizes go over three decades and begin at nothing, so the axis is the square root of the share: small circuits can be
distinguished and no point is at infinity. Templates only print what is computed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

WIDTH, HEIGHT = 560.0, 310.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 118.0, 30.0, 46.0
SHARES = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Curves leave the picture beyond these; a circuit without what hinders can score far above the model.
LOWEST, HIGHEST = -0.5, 2.0
LABEL_GAP = 15.0
#: So little beyond 0 or 1 does not widen the axis.
NEGLIGIBLE = 0.02


class Curve(Protocol):
    """What is drawn: sizes, the same as shares of all candidates, and the faithfulness at each."""

    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def shares(self) -> tuple[float, ...]: ...
    @property
    def faithfulness(self) -> tuple[float, ...]: ...


@dataclass(frozen=True)
class CurveLine:
    """One curve: its name and where that stands, its path, and its points with a sentence each."""

    name: str
    kind: str
    path: str
    points: tuple[tuple[float, float, str], ...]
    label_y: float


@dataclass(frozen=True)
class Chart:
    """Everything the template draws; ticks are (place, text)."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    whole: float
    parts: str
    lines: tuple[CurveLine, ...]
    summary: str


def draw_curve(curves: Mapping[str, Curve], *, parts: str = "components") -> Chart:
    """Draw curves by name; the first is the circuit, others are controls. `parts` are what is kept."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    values = [value for curve in curves.values() for value in curve.faithfulness]
    low = math.floor((max(LOWEST, min(0.0, *values)) + NEGLIGIBLE) * 4) / 4
    high = math.ceil((min(HIGHEST, max(1.0, *values)) - NEGLIGIBLE) * 4) / 4

    def x(share: float) -> float:
        return round(LEFT + (right - LEFT) * math.sqrt(share), 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - TOP) * (min(high, max(low, value)) - low) / (high - low), 1)

    lines, taken = [], []
    for number, (name, curve) in enumerate(curves.items()):
        places = [(x(share), y(value)) for share, value in zip(curve.shares, curve.faithfulness, strict=True)]
        points = tuple(
            (*place, f"{size} kept ({100 * share:.1f} %): {value:.3f}")
            for place, size, share, value in zip(places, curve.sizes, curve.shares, curve.faithfulness, strict=True)
        )
        label = _free(_middle(places), taken)
        taken.append(label)
        path = "M" + "L".join(f"{px:g} {py:g}" for px, py in places)
        lines.append(CurveLine(name, "control" if number else "circuit", path, points, label))
    steps = round((high - low) * 4)
    y_ticks = [low + i / 4 for i in range(steps + 1) if steps <= 6 or i % 2 == 0]
    return Chart(
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=right,
        top=TOP,
        bottom=bottom,
        x_ticks=tuple((x(share), f"{100 * share:g} %") for share in SHARES),
        y_ticks=tuple((y(value), f"{value:g}") for value in y_ticks),
        whole=y(1.0),
        parts=parts,
        lines=tuple(lines),
        summary="; ".join(_sentence(name, curve) for name, curve in curves.items()),
    )


def _middle(places: Sequence[tuple[float, float]]) -> float:
    """The height of a curve where it stands furthest from its ends, which all curves share."""
    inner = places[1:-1] or places
    return inner[-1][1]


def _free(preferred: float, taken: Sequence[float]) -> float:
    """The nearest height at which no other name stands."""
    tried = [preferred, *(preferred + sign * step * LABEL_GAP for step in (1, 2, 3) for sign in (1, -1))]
    return next((height for height in tried if all(abs(height - other) >= LABEL_GAP for other in taken)), preferred)


def _sentence(name: str, curve: Curve) -> str:
    inner = list(zip(curve.sizes, curve.faithfulness, strict=True))[1:-1]
    return f"{name}: " + ", ".join(f"{value:.2f} with {size}" for size, value in inner)
