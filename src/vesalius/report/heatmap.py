"""The head map: one cell per head, a column for the MLPs, blue where removing a component hurts and red where it
helps.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm
from matplotlib.figure import Figure

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.report.figures import new_figure, save_figure

#: So many cells have their figure in them, if it is at least this part of the largest.
LABELLED, WORTH_LABELLING = 6, 0.02


def draw_heatmap(
    effects: Mapping[Component, float],
    path: Path,
    *,
    title: str,
    unit: str,
    n_layers: int,
    n_heads: int,
    label: str | None = None,
) -> Path:
    """Write a layer-by-head picture of mean effects as a PNG; components without an effect stay blank. `label` names
    the colours where they are not effects.
    """
    width, height = heatmap_size(n_layers, n_heads)
    figure = new_figure(width, height)
    label = label or f"effect ({unit}): clean minus edited"
    add_heatmap(figure, figure.add_subplot(), effects, title=title, n_layers=n_layers, n_heads=n_heads, label=label)
    return save_figure(figure, path)


def heatmap_size(n_layers: int, n_heads: int) -> tuple[float, float]:
    """Inches in which the cells of such a model can be read."""
    return 1.9 + 0.52 * (n_heads + 1), 1.8 + 0.27 * n_layers


def add_heatmap(
    figure: Figure,
    axes: Axes,
    effects: Mapping[Component, float],
    *,
    title: str,
    n_layers: int,
    n_heads: int,
    label: str | None,
) -> None:
    """Draw the map into axes, with its colour bar beside them; without a `label`, colours only mark components."""
    if (unit := next((part for part in effects if part.is_unit), None)) is not None:
        raise BadInput(f"a map of the model has cells for heads and MLPs; {unit} is a part of an MLP: use a table")
    cells = np.full((n_layers, n_heads + 1), np.nan)
    for component, effect in effects.items():
        cells[component.layer, n_heads if component.head is None else component.head] = effect
    reach = max(map(abs, effects.values()), default=0.0) or 1.0
    # Linear near zero, logarithmic beyond: one huge early layer must not wash the others out.
    norm = SymLogNorm(linthresh=reach / 30, vmin=-reach, vmax=reach)
    gap = np.full((n_layers, 1), np.nan)
    image = axes.imshow(
        np.hstack([cells[:, :-1], gap, cells[:, -1:]]), cmap="RdBu", norm=norm, aspect="auto", origin="lower"
    )
    axes.set_xticks([*range(n_heads), n_heads + 1], [*map(str, range(n_heads)), "MLP"])
    step = max(1, n_layers // 15)
    axes.set_yticks(range(0, n_layers, step))
    axes.set(xlabel="head", ylabel="layer", title=title)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if label is None:
        return
    _label_strongest(axes, effects, n_heads, reach)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    ticks = [-reach, -reach / 10, 0, reach / 10, reach]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()


def _label_strongest(axes: Axes, effects: Mapping[Component, float], n_heads: int, reach: float) -> None:
    strongest = sorted(effects, key=lambda component: -abs(effects[component]))[:LABELLED]
    for component in (one for one in strongest if abs(effects[one]) >= WORTH_LABELLING * reach):
        x = n_heads + 1 if component.head is None else component.head
        dark = abs(effects[component]) > 0.1 * reach
        axes.text(
            x,
            component.layer,
            f"{effects[component]:.2g}",
            ha="center",
            va="center",
            fontsize=5.5,
            color="white" if dark else "black",
        )
