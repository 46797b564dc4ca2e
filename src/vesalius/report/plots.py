"""The pictures that results show of themselves, as matplotlib figures.

A circuit and a specimen are maps of layers and heads; a discovery has its faithfulness curve beside the map; effects
are bars and metrics points with their intervals; an explanation is its diagram.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as OutlinePath

from vesalius.components import Component
from vesalius.documents.checks import Checks, Curve
from vesalius.documents.metric import Metric
from vesalius.report.diagram import BOX_HEIGHT, BOX_WIDTH, OPEN_END, Arrow, Box, Diagram
from vesalius.report.figures import Picture, new_figure
from vesalius.report.heatmap import add_heatmap, heatmap_size

#: Bars and metrics that still fit a picture.
MOST_BARS, MOST_METRICS = 20, 24
#: The least width of a map and the width of a curve, the least height of both, in inches.
PANEL_WIDTH, LEAST_HEIGHT = 4.6, 3.4
BLUE, RED, GREY = "#2166ac", "#b2182b", "#7f7f7f"
VERDICTS = {"supported": "#2e7d4f", "refuted": RED, "untested": GREY}
#: Characters of a line of words in a picture.
WORDS_WIDTH = 60
#: Units of a diagram's geometry in an inch.
PER_INCH = 92.0


def draw_map(
    scores: Mapping[Component, float], *, title: str, label: str | None, n_layers: int, n_heads: int
) -> Picture:
    """Scores by layer and head; without a `label`, a map that only marks components."""
    width, height = heatmap_size(n_layers, n_heads)
    figure = new_figure(max(width, PANEL_WIDTH), height)
    add_heatmap(figure, figure.add_subplot(), scores, title=title, n_layers=n_layers, n_heads=n_heads, label=label)
    return figure


def draw_map_and_curve(
    scores: Mapping[Component, float], checks: Checks, *, title: str, label: str, n_layers: int, n_heads: int
) -> Picture:
    """Scores by layer and head, and how much of the behaviour circuits of each size keep."""
    width, height = heatmap_size(n_layers, n_heads)
    width = max(width, PANEL_WIDTH)
    figure = new_figure(width + PANEL_WIDTH, max(height, LEAST_HEIGHT))
    left, right = figure.subplots(1, 2, width_ratios=[width, PANEL_WIDTH])
    add_heatmap(figure, left, scores, title=title, n_layers=n_layers, n_heads=n_heads, label=label)
    _add_curves(right, checks)
    return figure


def draw_checks(checks: Checks) -> Picture:
    """How much of the behaviour circuits of each size keep."""
    figure = new_figure(PANEL_WIDTH, LEAST_HEIGHT)
    _add_curves(figure.add_subplot(), checks)
    return figure


def _add_curves(axes: Axes, checks: Checks) -> None:
    """Faithfulness by share of the model kept, beside a random order; the axis is the square root of the share."""
    curves: list[tuple[str, Curve | None, dict[str, Any]]] = [
        ("circuit", checks.faithfulness, {"color": BLUE, "marker": "o"}),
        ("random order", checks.faithfulness_random, {"color": GREY, "marker": "s", "linestyle": "--"}),
    ]
    for name, curve, style in curves:
        if curve is not None:
            axes.plot(np.sqrt(curve.shares), curve.faithfulness, label=name, markersize=3.5, linewidth=1.4, **style)
    ticks = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
    axes.set_xticks(np.sqrt(ticks), [f"{100 * share:g}" for share in ticks])
    axes.axhline(1.0, color="black", linewidth=0.6)
    axes.set(xlabel="kept, % of the candidates", ylabel="faithfulness", title=f"{checks.n} held-out prompts")
    axes.spines[["top", "right"]].set_visible(False)
    if checks.faithfulness is not None:
        axes.legend(frameon=False, loc="center right")
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)


def draw_effects(rows: Sequence[Mapping[str, Any]], *, title: str, unit: str) -> Picture:
    """The largest effects with their intervals, most helpful on top; effects of one prompt have none."""
    largest = sorted(rows, key=lambda row: -abs(row["effect"]))[:MOST_BARS]
    shown = sorted(largest, key=lambda row: -row["effect"])[::-1]
    figure = new_figure(6.0, 1.3 + 0.24 * len(shown))
    axes = figure.add_subplot()
    effects = np.array([row["effect"] for row in shown])
    intervals = [(row["low"], row["high"]) for row in shown]
    ends = np.array(
        [(effect, effect) if None in pair else pair for effect, pair in zip(effects, intervals, strict=True)]
    )
    colours = [BLUE if effect >= 0 else RED for effect in effects]
    axes.barh([row["component"] for row in shown], effects, color=colours, height=0.7)
    style: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.9, "capsize": 2}
    axes.errorbar(effects, range(len(shown)), xerr=np.abs(ends.reshape(-1, 2).T - effects), **style)
    axes.axvline(0, color="black", linewidth=0.6)
    left = len(rows) - len(shown)
    more = f"; {left} smaller ones left out" if left else ""
    axes.set(xlabel=f"effect ({unit}): clean minus edited{more}", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_metrics(metrics: Mapping[str, Metric], *, title: str) -> Picture:
    """Metrics from -1 to 1 with their 95 % intervals, and a mark for the baseline; counts and costs, which have other
    scales, are left out.
    """
    figures = {name: (one.low, one.value, one.high) for name, one in metrics.items() if one.n}
    drawn = {name: [float(end or 0.0) for end in ends] for name, ends in figures.items()}
    drawn = {name: ends for name, ends in drawn.items() if ends[0] >= -1.0 and ends[2] <= 1.0}
    names = list(drawn)[:MOST_METRICS][::-1]
    figure = new_figure(7.0, 1.4 + 0.27 * len(names))
    axes = figure.add_subplot()
    for place, name in enumerate(names):
        low, value, high = drawn[name]
        axes.plot([low, high], [place, place], color=BLUE, linewidth=2.0, solid_capstyle="butt")
        axes.plot(value, place, "o", color=BLUE, markersize=5)
        if (baseline := metrics[name].baseline) is not None:
            axes.plot(baseline, place, "|", color=RED, markersize=11, markeredgewidth=1.8)
    axes.set_yticks(range(len(names)), [f"{name} (n {metrics[name].n})" for name in names], fontsize=8)
    axes.set_ylim(-0.7, max(0, len(names) - 1) + 0.7)
    axes.set_xlim(min([0.0, *(ends[0] for ends in drawn.values())]) - 0.02, 1.02)
    left = len(metrics) - len(names)
    more = f"; {left} other metrics left out" if left else ""
    axes.set(xlabel=f"value and 95 % interval; red: baseline{more}", title=title)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def draw_diagram(diagram: Diagram, words: Mapping[str, tuple[str, str]], *, title: str) -> Picture:
    """Boxes by layer and measured edges; `words` gives the second line and the verdict of a component."""
    figure = new_figure(max(4.0, diagram.width / PER_INCH), max(1.6, diagram.height / PER_INCH + 0.4))
    axes = figure.add_subplot()
    axes.set(xlim=(0, diagram.width), ylim=(diagram.height, 0), title=title, aspect="equal")
    axes.set_axis_off()
    for band in diagram.bands:
        axes.axhspan(band.top, band.top + band.height, color="#f2f4f7", zorder=0)
        axes.text(6, band.top + band.height / 2, band.title, va="center", fontsize=7, color="#555555")
    for arrow in diagram.arrows:
        _add_arrow(axes, arrow)
    for end in diagram.open_ends:
        axes.plot([end.x, end.x], [end.top, end.bottom], color="#777777", linewidth=1.2, linestyle=":", zorder=1)
        axes.text(end.x + 5, end.top + OPEN_END / 2, "?", fontsize=6, color="#777777", va="center")
    for box in diagram.boxes:
        _add_box(axes, box, *words.get(box.name, ("", "")))
    return figure


def draw_words(words: str, *, title: str) -> Picture:
    """A title and a sentence, where there is nothing to draw."""
    figure = new_figure(PANEL_WIDTH, 1.6)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()
    text = textwrap.fill(words, WORDS_WIDTH)
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=8, color="#555555", transform=axes.transAxes)
    return figure


def _add_arrow(axes: Axes, arrow: Arrow) -> None:
    """The arrow along its own path, which runs beside the boxes between its ends."""
    start, *curves = [list(map(float, piece.split())) for piece in arrow.path[1:].split("C")]
    corners = [start, *(curve[i : i + 2] for curve in curves for i in (0, 2, 4))]
    codes = [OutlinePath.MOVETO, *[OutlinePath.CURVE4] * (3 * len(curves))]
    colour = RED if arrow.strength < 0 else "#333333"
    width = min(3.0, 0.6 + arrow.width / 3)
    axes.add_patch(PathPatch(OutlinePath(corners, codes), fill=False, edgecolor=colour, linewidth=width, zorder=1))
    head = [tuple(map(float, corner.split(","))) for corner in arrow.head.split()]
    axes.add_patch(Polygon(head, facecolor=colour, edgecolor="none", zorder=1))
    if arrow.port and arrow.label is not None:
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
        axes.text(*arrow.label, arrow.text, fontsize=6, ha="center", va="center", zorder=3, bbox=ground)


def _add_box(axes: Axes, box: Box, line: str, verdict: str) -> None:
    colour = VERDICTS.get(verdict, "#999999")
    axes.add_patch(
        FancyBboxPatch(
            (box.left, box.top),
            BOX_WIDTH,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=6",
            facecolor="white",
            edgecolor=colour,
            linewidth=1.4,
            zorder=2,
        )
    )
    middle = box.top + BOX_HEIGHT / 2
    style: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
    axes.text(box.x, middle - (8 if line else 0), box.name, fontsize=8, weight="bold", **style)
    if line:
        axes.text(box.x, middle + 10, line, fontsize=6, color=colour, **style)
