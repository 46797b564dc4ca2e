"""Values with their intervals as bars on one scale that holds 0 and 1."""

from dataclasses import dataclass

from vesalius.documents.view import Bars


@dataclass(frozen=True)
class Bar:
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
    rows: tuple[Bar, ...]


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

    rows = [Bar(label, figures, place(0.0), *map(place, figures)) for label, figures in known.items()]
    return DrawnBars(bars.title, bars.caption, tuple(rows))
