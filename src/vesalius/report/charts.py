"""Charts as drawings in their own coordinates; templates and the workbench only print what is computed here.

draw_chart    curves over a common axis: what was found first, its controls beside it. Shares go over three decades
              and begin at nothing, so their axis is the square root: small circuits can be distinguished and no
              point is at infinity
bars_of       values with their intervals as bars on one scale that holds 0 and 1
draw_curves   a function of one number, what was answered, and where it was asked. The vertical range is that of the
              function, without its most extreme values, so that one pole does not flatten the rest; what leaves the
              range is cut at its edge. Lines break where there is no value
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vesalius.documents.view import Bars, Chart

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
        # The height of a curve where it stands furthest from its ends, which all curves share.
        inner = points[1:-1] or points
        label = _free(inner[-1][1] if inner else 0.0, taken)
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


def _free(preferred: float, taken: Sequence[float]) -> float:
    """The nearest height at which no other name stands."""
    tried = [preferred, *(preferred + sign * step * LABEL_GAP for step in (1, 2, 3) for sign in (1, -1))]
    return next((height for height in tried if all(abs(height - other) >= LABEL_GAP for other in taken)), preferred)


def _sentence(curve: Sequence[tuple[float, float, str]]) -> str:
    return ", ".join(words for _, _, words in curve[1:-1])


@dataclass(frozen=True)
class DrawnBar:
    """One value on a scale of 100: the bar runs from `zero` to `value`, the whisker from `low` to `high`."""

    label: str
    figures: tuple[float, ...]
    zero: float
    value: float
    low: float
    high: float

    @property
    def left(self) -> float:
        """Where the bar begins."""
        return min(self.zero, self.value)

    @property
    def width(self) -> float:
        """How long the bar is."""
        return abs(self.value - self.zero)


@dataclass(frozen=True)
class DrawnBars:
    """A titled table of bars on one scale."""

    title: str
    caption: str
    rows: tuple[DrawnBar, ...]


def bars_of(bars: Bars) -> DrawnBars:
    """The bars of values with intervals; those with a figure missing are left out."""
    known: dict[str, tuple[float, ...]] = {}
    for label, *ends in bars.rows:
        figures = [end for end in ends if end is not None]
        if len(figures) == 3:
            known[label] = tuple(round(end, 2) + 0.0 for end in figures)  # + 0.0: no minus in front of zero
    bottom = min([0.0, *(low for _, low, _ in known.values())])
    top = max([1.0, *(high for _, _, high in known.values())])

    def place(value: float) -> float:
        return round(100 * (value - bottom) / (top - bottom), 1)

    rows = [DrawnBar(label, figures, place(0.0), *map(place, figures)) for label, figures in known.items()]
    return DrawnBars(bars.title, bars.caption, tuple(rows))


#: The drawing of a function.
FUNCTION_WIDTH, FUNCTION_HEIGHT = 320.0, 170.0
FUNCTION_LEFT, FUNCTION_RIGHT, FUNCTION_TOP, FUNCTION_BOTTOM = 54.0, 6.0, 8.0, 20.0
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
class DrawnFunction:
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
) -> DrawnFunction:
    """Draw the function, the answer and the points that were asked."""
    low, high = _function_range([*truth, *(value for _, value in samples)])
    first, last = (min(x), max(x)) if x else (0.0, 1.0)

    def place(at: float, value: float) -> tuple[float, float]:
        inside = min(max(value, low), high)
        across = (at - first) / ((last - first) or 1.0)
        return (
            FUNCTION_LEFT + across * (FUNCTION_WIDTH - FUNCTION_LEFT - FUNCTION_RIGHT),
            FUNCTION_TOP + (high - inside) / (high - low) * (FUNCTION_HEIGHT - FUNCTION_TOP - FUNCTION_BOTTOM),
        )

    points = [place(at, value) for at, value in samples if first <= at <= last and low <= value <= high]
    floor = FUNCTION_HEIGHT - FUNCTION_BOTTOM
    return DrawnFunction(
        summary=summary,
        width=FUNCTION_WIDTH,
        height=FUNCTION_HEIGHT,
        frame=(
            FUNCTION_LEFT,
            FUNCTION_TOP,
            FUNCTION_WIDTH - FUNCTION_LEFT - FUNCTION_RIGHT,
            FUNCTION_HEIGHT - FUNCTION_TOP - FUNCTION_BOTTOM,
        ),
        truth=_path([None if value is None else place(at, value) for at, value in zip(x, truth, strict=True)]),
        answer=_path([None if value is None else place(at, value) for at, value in zip(x, answer, strict=True)]),
        samples="".join(f"M{px:.1f} {py:.1f}h0" for px, py in _thinned(points)),
        labels=(
            Label(FUNCTION_LEFT - 5, FUNCTION_TOP + 8, _short(high)),
            Label(FUNCTION_LEFT - 5, floor, _short(low)),
            Label(FUNCTION_LEFT + 18, FUNCTION_HEIGHT - 5, _short(first)),
            Label(FUNCTION_WIDTH - FUNCTION_RIGHT, FUNCTION_HEIGHT - 5, _short(last)),
        ),
    )


def _function_range(values: Values) -> tuple[float, float]:
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
