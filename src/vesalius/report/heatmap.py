"""The head map as a PNG: one cell per head, a column for the MLPs, blue where removing a component hurts and red where
it helps. Its scale is that of every head map (`headmap`): square root, grey where an interval holds 0.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm
from matplotlib.figure import Figure

from vesalius.components import Component
from vesalius.documents.view import HeadMap
from vesalius.errors import BadInput
from vesalius.report.figures import new_figure, save_figure
from vesalius.report.headmap import largest

#: So many cells have their figure in them, if it is at least this part of the largest.
LABELLED, WORTH_LABELLING = 6, 0.02


def draw_heatmap(one: HeadMap, path: Path, *, title: str) -> Path:
    """Write a layer-by-head picture as a PNG; components without a value stay blank."""
    figure = new_figure(*heatmap_size(one.layers, one.heads))
    add_heatmap(figure, figure.add_subplot(), one, title=title)
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
    norm = FuncNorm(
        (lambda x: np.sign(x) * np.sqrt(np.abs(x)), lambda x: np.sign(x) * np.square(x)), vmin=-reach, vmax=reach
    )
    axes.imshow(np.where(np.isnan(unclear), np.nan, 1.0), cmap="Greys", vmin=0, vmax=4.5, aspect="auto", origin="lower")
    image = axes.imshow(clear, cmap="RdBu", norm=norm, aspect="auto", origin="lower")
    axes.set_xticks([*range(one.heads), one.heads + 1], [*map(str, range(one.heads)), "MLP"])
    step = max(1, one.layers // 15)
    axes.set_yticks(range(0, one.layers, step))
    axes.set(xlabel="head", ylabel="layer", title=title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if not one.values:
        return
    _label_strongest(axes, one, reach)
    grey = "; grey: its interval holds 0" if one.intervals else ""
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label=f"{one.unit}{grey}")
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
