"""The picture of a view, as a matplotlib figure.

What a view can draw is drawn, and of several drawings the one whose section says so (`pictured`): a map of layers and
heads (with the first curve beside it), the graph of a circuit, a curve, a matrix, or else the figures of its table that
have intervals. A graph of no components has the answer in words.

Figures are made without pyplot: nothing is shown, kept or switched in the reader's session. Choosing a backend
(`matplotlib.use`) would end the display of the reader's own figures in a notebook, and figures made by pyplot stay in
memory until they are closed. A `Picture` belongs to its holder alone and shows itself in notebooks.
"""

import io
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, PathPatch, Polygon
from matplotlib.path import Path as OutlinePath

from vesalius.components import Component
from vesalius.documents.view import Chart, Graph, Grid, HeadMap, Section, Sheet, View
from vesalius.errors import BadInput, Failed
from vesalius.report.diagram import BOX_HEIGHT, BOX_WIDTH, OPEN_END, Arrow, Box, draw_circuit
from vesalius.report.html import short_role
from vesalius.report.maps import largest

DPI = 150
#: So many cells have their figure in them, if it is at least this part of the largest.
LABELLED, WORTH_LABELLING = 6, 0.02
Kind = TypeVar("Kind", bound=Section)
#: Characters that one inch has room for: along a colour bar, and in a title.
LABEL_WIDTH, TITLE_WIDTH = 11, 9
#: Bars and metrics that still fit a picture.
MOST_BARS, MOST_METRICS = 20, 24
#: The least width of a map and the width of a curve, the least height of both, in inches.
PANEL_WIDTH, LEAST_HEIGHT = 4.6, 3.4
BLUE, RED, GREY = "#2166ac", "#b2182b", "#7f7f7f"
VERDICTS = {"supported": "#2e7d4f", "refuted": RED, "undecided": GREY, "untested": GREY}
#: Characters of a line of words in a picture.
WORDS_WIDTH = 60
#: Units of a diagram's geometry in an inch.
PER_INCH = 92.0


class Picture(Figure):
    """A figure that notebooks show as a PNG, whichever backend is chosen."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def new_figure(width: float, height: float) -> Picture:
    """An empty figure of so many inches, laid out so that labels do not overlap."""
    return Picture(figsize=(width, height), dpi=DPI, layout="constrained")


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in one step; returns its path."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        figure.savefig(partial, format=path.suffix[1:] or None)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Failed(f"{path}: the picture could not be written ({error.strerror}); free some space") from None
    return path


def draw_heatmap(one: HeadMap, path: Path, *, title: str) -> Path:
    """Write a layer-by-head picture as a PNG; components without a value stay blank."""
    figure = new_figure(*heatmap_size(one.layers, one.heads))
    figure.suptitle(textwrap.fill(title, int(TITLE_WIDTH * figure.get_figwidth())))
    add_heatmap(figure, figure.add_subplot(), one, title="")
    return save_figure(figure, path)


def heatmap_size(n_layers: int, n_heads: int) -> tuple[float, float]:
    """Inches in which the cells of such a model can be read."""
    return 1.9 + 0.52 * (n_heads + 1), 1.8 + 0.27 * n_layers


def add_heatmap(figure: Figure, axes: Axes, one: HeadMap, *, title: str) -> None:
    """Draw the map into axes, with its colour bar beside them; a map without values only marks components."""
    parts = {name: Component.parse(name) for name in (*one.values, *one.marked)}
    if (unit := next((part for part in parts.values() if part.is_unit), None)) is not None:
        raise BadInput(f"a map of the model has cells for heads and MLPs; {unit} is a part of an MLP: use a table")
    clear, unclear = (np.full((one.layers, one.heads + 2), np.nan) for _ in range(2))
    for name, value in one.values.items() if one.values else ((name, 1.0) for name in one.marked):
        place = parts[name].layer, one.heads + 1 if parts[name].head is None else parts[name].head
        (unclear if one.unclear(name) else clear)[place] = value
    reach = largest(one.values)
    axes.imshow(np.where(np.isnan(unclear), np.nan, 1.0), cmap="Greys", vmin=0, vmax=4.5, aspect="auto", origin="lower")
    image = axes.imshow(clear, cmap="RdBu", norm=_signed_norm(reach), aspect="auto", origin="lower")
    axes.set_xticks([*range(one.heads), one.heads + 1], [*map(str, range(one.heads)), "MLP"])
    step = max(1, one.layers // 15)
    axes.set_yticks(range(0, one.layers, step))
    axes.set(xlabel="head", ylabel="layer", title=title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if not one.values:
        return
    _label_strongest(axes, one, reach)
    grey = ["grey: its interval holds 0"] if one.intervals else []
    lines = [
        line for part in (one.unit, *grey) for line in textwrap.wrap(part, int(LABEL_WIDTH * figure.get_figheight()))
    ]
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("\n".join(lines), fontsize="small")
    ticks = [-reach, -reach / 4, 0, reach / 4, reach]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()


def _label_strongest(axes: Axes, one: HeadMap, reach: float) -> None:
    clear = [name for name in one.values if not one.unclear(name)]
    strongest = sorted(clear, key=lambda name: -abs(one.values[name]))[:LABELLED]
    for name in (name for name in strongest if abs(one.values[name]) >= WORTH_LABELLING * reach):
        part, value = Component.parse(name), one.values[name]
        x = one.heads + 1 if part.head is None else part.head
        colour = "white" if abs(value) > 0.3 * reach else "black"
        axes.text(x, part.layer, f"{value:.2g}", ha="center", va="center", fontsize=5.5, color=colour)


def draw_view(view: View, *, kind: str) -> Picture:
    """The picture of a view; `kind` names the result where there is none."""
    sections = list(view.all_sections())
    sections = [one for one in sections if one.pictured] or sections
    heads, graph = _first(sections, HeadMap), _first(sections, Graph)
    chart, grid = _first(sections, Chart), _first(sections, Grid)
    if heads is not None:
        return _map(heads, chart, view.title)
    if graph is not None:
        return _diagram(graph, view.title) if graph.nodes else draw_words(view.answer.text, title=view.title)
    if chart is not None:
        figure = new_figure(PANEL_WIDTH, LEAST_HEIGHT)
        _add_curves(figure.add_subplot(), chart)
        return figure
    if grid is not None:
        return _matrix(grid, view.title)
    sheet = next((one for one in sections if isinstance(one, Sheet) and {"low", "high"} <= set(one.columns)), None)
    if sheet is None or not len(sheet.rows):
        raise BadInput(f"a {kind} has no picture; use .table()")
    if "baseline" in sheet.columns:
        return draw_metrics(sheet, title=view.title)
    return draw_effects(sheet, title=view.title)


def _first(sections: Sequence[Section], kind: type[Kind]) -> Kind | None:
    return next((one for one in sections if isinstance(one, kind)), None)


def _map(heads: HeadMap, chart: Chart | None, title: str) -> Picture:
    """Values by layer and head, and the curve that goes with them."""
    width, height = heatmap_size(heads.layers, heads.heads)
    width = max(width, PANEL_WIDTH)
    if chart is None:
        figure = new_figure(width, height)
        add_heatmap(figure, figure.add_subplot(), heads, title=title)
        return figure
    figure = new_figure(width + PANEL_WIDTH, max(height, LEAST_HEIGHT))
    left, right = figure.subplots(1, 2, width_ratios=[width, PANEL_WIDTH])
    add_heatmap(figure, left, heads, title=title)
    _add_curves(right, chart)
    return figure


def _add_curves(axes: Axes, chart: Chart) -> None:
    """The curves of a chart; shares are on the axis of their square roots."""
    for number, (name, points) in enumerate(chart.curves.items()):
        xs, ys = np.array([x for x, _, _ in points]), [y for _, y, _ in points]
        style: dict[str, Any] = (
            {"color": GREY, "marker": "s", "linestyle": "--"} if number else {"color": BLUE, "marker": "o"}
        )
        axes.plot(np.sqrt(xs) if chart.root else xs, ys, label=name, markersize=3.5, linewidth=1.4, **style)
    if chart.root:
        ticks = (0.0, 0.01, 0.05, 0.2, 0.5, 1.0)
        axes.set_xticks(np.sqrt(ticks), [f"{100 * share:g} %" for share in ticks])
        axes.axhline(1.0, color="black", linewidth=0.6)
    axes.set(xlabel=chart.x, ylabel=chart.y.split(":")[0], title=chart.title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center right")


def draw_effects(sheet: Sheet, *, title: str) -> Picture:
    """The largest figures of a table with their intervals, most helpful on top; those of one prompt have none."""
    value = next(name for name in sheet.columns if name not in ("low", "high") and _is_number(sheet, name))
    rows = [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]
    largest = sorted((row for row in rows if row[value] is not None), key=lambda row: -abs(row[value]))[:MOST_BARS]
    shown = sorted(largest, key=lambda row: -row[value])[::-1]
    figure = new_figure(6.0, 1.3 + 0.24 * len(shown))
    axes = figure.add_subplot()
    effects = np.array([row[value] for row in shown])
    ends = np.array(
        [(row[value],) * 2 if row["low"] is None or row["high"] is None else (row["low"], row["high"]) for row in shown]
    )
    colours = [BLUE if effect >= 0 else RED for effect in effects]
    axes.barh([str(row[sheet.columns[0]]) for row in shown], effects, color=colours, height=0.7)
    style: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.9, "capsize": 2}
    axes.errorbar(effects, range(len(shown)), xerr=np.abs(ends.reshape(-1, 2).T - effects), **style)
    axes.axvline(0, color="black", linewidth=0.6)
    left = len(rows) - len(shown)
    more = f"; {left} smaller ones left out" if left else ""
    axes.set(xlabel=f"{sheet.title or value}{more}", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _is_number(sheet: Sheet, name: str) -> bool:
    place = list(sheet.columns).index(name)
    return any(isinstance(row[place], float) for row in sheet.rows[:20])


def draw_metrics(sheet: Sheet, *, title: str) -> Picture:
    """Metrics from -1 to 1 with their 95 % intervals, and a mark for the baseline; counts and costs, which have other
    scales, are left out.
    """
    rows = {row["metric"]: row for row in sheet.records() if row["n"]}
    drawn = {name: [float(row[end] or 0.0) for end in ("low", "value", "high")] for name, row in rows.items()}
    drawn = {name: ends for name, ends in drawn.items() if ends[0] >= -1.0 and ends[2] <= 1.0}
    names = list(drawn)[:MOST_METRICS][::-1]
    figure = new_figure(7.0, 1.4 + 0.27 * len(names))
    axes = figure.add_subplot()
    for place, name in enumerate(names):
        low, value, high = drawn[name]
        axes.plot([low, high], [place, place], color=BLUE, linewidth=2.0, solid_capstyle="butt")
        axes.plot(value, place, "o", color=BLUE, markersize=5)
        if (baseline := rows[name]["baseline"]) is not None:
            axes.plot(baseline, place, "|", color=RED, markersize=11, markeredgewidth=1.8)
    axes.set_yticks(range(len(names)), [f"{name} (n {rows[name]['n']})" for name in names], fontsize=8)
    axes.set_ylim(-0.7, max(0, len(names) - 1) + 0.7)
    axes.set_xlim(min([0.0, *(ends[0] for ends in drawn.values())]) - 0.02, 1.02)
    left = len(sheet.rows) - len(names)
    more = f"; {left} other metrics left out" if left else ""
    axes.set(xlabel=f"value and 95 % interval; red: baseline{more}", title=title)
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def draw_matrix(grid: Grid, path: Path, *, title: str) -> Path:
    """Write a matrix as a PNG."""
    return save_figure(_matrix(grid, title), path)


def _signed_matrix(grid: Grid, title: str) -> Picture:
    """A matrix of values about 0: colours as in a head map, unclear cells grey."""
    rows, columns = len(grid.rows), len(grid.columns)
    figure = new_figure(2.4 + 0.32 * columns, 1.6 + 0.24 * rows)
    axes, reach = figure.add_subplot(), grid.reach
    table = np.array([[np.nan if value is None else value for value in row] for row in grid.values])
    grey = np.full(table.shape, np.nan)
    for place in grid.unclear:
        grey[place], table[place] = 1.0, np.nan
    axes.imshow(grey, cmap="Greys", vmin=0, vmax=4.5, aspect="auto")
    image = axes.imshow(table, cmap="RdBu", norm=_signed_norm(reach), aspect="auto")
    axes.set_xticks(range(columns), grid.columns, fontsize=7, rotation=90)
    axes.set_yticks(range(rows), grid.rows, fontsize=7)
    axes.set_title(textwrap.fill(title, max(20, int(TITLE_WIDTH * figure.get_figwidth()))), fontsize=9)
    axes.tick_params(length=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label(grid.title, fontsize="small")
    ticks = [-reach, -reach / 4, 0, reach / 4, reach]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()
    return figure


def _signed_norm(reach: float) -> FuncNorm:
    """Colours that grow with the square root of a value's size."""
    return FuncNorm(
        (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * np.square(x)), vmin=-reach, vmax=reach
    )


def _matrix(grid: Grid, title: str) -> Picture:
    """A small matrix with its figures."""
    if grid.signed:
        return _signed_matrix(grid, title)
    figure = new_figure(2.4 + 1.25 * len(grid.columns), 1.3 + 0.55 * len(grid.rows))
    axes = figure.add_subplot()
    table = np.array([[np.nan if value is None else value for value in row] for row in grid.values])
    image = axes.imshow(table, cmap="Blues", vmin=grid.low, vmax=grid.high, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        figure_text = f"{value:.2f}" if np.isfinite(value) else ""
        words = str(grid.words[row][column]) if grid.words else figure_text
        if words:
            colour = "white" if value > (grid.low + 0.6 * (grid.high - grid.low)) else "black"
            axes.text(column, row, words, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(grid.columns)), grid.columns, fontsize=8, rotation=20)
    axes.set_yticks(range(len(grid.rows)), grid.rows, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label=grid.title, shrink=0.8)
    return figure


def _diagram(graph: Graph, title: str) -> Picture:
    """Boxes by layer and measured edges."""
    diagram = draw_circuit([node.name for node in graph.nodes], graph.edges, ports=graph.ports, show_gaps=graph.gaps)
    words = {node.name: (short_role(node.line), node.verdict) for node in graph.nodes}
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
