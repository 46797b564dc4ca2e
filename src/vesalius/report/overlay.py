"""A function of one number, what was answered, and where it was asked, as one small drawing.

The vertical range is that of the function, without its most extreme values, so that one pole does not flatten the rest;
what leaves the range is cut at its edge. Lines break where there is no value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 320.0, 170.0
LEFT, RIGHT, TOP, BOTTOM = 54.0, 6.0, 8.0, 20.0
#: Share of the values that may lie outside at either end.
TAIL = 0.02
#: They are cut only if the whole range is this many times theirs.
FAR = 6.0
#: How much the range is widened.
MARGIN = 0.08
MOST_SAMPLES = 400

Values = Sequence[float | None]


@dataclass(frozen=True)
class Label:
    """A figure at an axis."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Curves:
    """A drawing in its own coordinates; `summary` is the sentence for those who cannot see it."""

    summary: str
    width: float
    height: float
    frame: tuple[float, float, float, float]
    truth: str
    answer: str
    samples: str
    labels: tuple[Label, ...]


def draw_curves(
    x: Sequence[float], truth: Values, answer: Values, *, samples: Sequence[tuple[float, float]] = (), summary: str = ""
) -> Curves:
    """Draw the function, the answer and the points that were asked."""
    low, high = _range([*truth, *(value for _, value in samples)])
    first, last = (min(x), max(x)) if x else (0.0, 1.0)

    def place(at: float, value: float) -> tuple[float, float]:
        inside = min(max(value, low), high)
        across = (at - first) / ((last - first) or 1.0)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            TOP + (high - inside) / (high - low) * (HEIGHT - TOP - BOTTOM),
        )

    points = [place(at, value) for at, value in samples if first <= at <= last and low <= value <= high]
    floor = HEIGHT - BOTTOM
    return Curves(
        summary=summary,
        width=WIDTH,
        height=HEIGHT,
        frame=(LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM),
        truth=_path([None if value is None else place(at, value) for at, value in zip(x, truth, strict=True)]),
        answer=_path([None if value is None else place(at, value) for at, value in zip(x, answer, strict=True)]),
        samples="".join(f"M{px:.1f} {py:.1f}h0" for px, py in _thinned(points)),
        labels=(
            Label(LEFT - 5, TOP + 8, _short(high)),
            Label(LEFT - 5, floor, _short(low)),
            Label(LEFT + 18, HEIGHT - 5, _short(first)),
            Label(WIDTH - RIGHT, HEIGHT - 5, _short(last)),
        ),
    )


def _range(values: Values) -> tuple[float, float]:
    """From the smallest to the largest value, unless a few of them lie far from all others."""
    drawn = sorted(value for value in values if value is not None and abs(value) < 1e300) or [0.0]
    cut = int(TAIL * len(drawn))
    low, high = drawn[cut], drawn[len(drawn) - 1 - cut]
    if drawn[-1] - drawn[0] < FAR * (high - low) or low == high:
        low, high = drawn[0], drawn[-1]
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        half = abs(high) * 0.5 or 1.0
        return low - half, high + half
    room = MARGIN * (high - low)
    return low - room, high + room


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    parts, down = [], False
    for point in points:
        if point is None or not all(map(math.isfinite, point)):
            down = False
            continue
        parts.append(f"{'L' if down else 'M'}{point[0]:.1f} {point[1]:.1f}")
        down = True
    return "".join(parts)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    step = max(1, math.ceil(len(points) / MOST_SAMPLES))
    return points[::step]


def _short(value: float) -> str:
    return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
