"""The synergy map: one cell per pair of heads, blue where they back each other up and red where they work in series."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.patches import Rectangle

from vesalius.report.plots import new_figure, save_figure

LABELLED_HEADS = 40


def draw_synergy(
    matrix: Float[np.ndarray, "head head"],
    heads: Sequence[str],
    path: Path,
    *,
    title: str,
    unit: str,
    marked: Sequence[tuple[str, ...]] = (),
) -> Path:
    """Write the symmetric matrix of pair synergies as a PNG; NaN stays blank, `marked` pairs get a frame."""
    reach = float(np.nanmax(np.abs(matrix))) if np.isfinite(matrix).any() else 0.0
    size = 2.6 + min(len(heads), LABELLED_HEADS) * 0.2
    figure = new_figure(size + 0.9, size)
    axes = figure.add_subplot()
    image = axes.imshow(matrix, cmap="RdBu", vmin=-(reach or 1.0), vmax=reach or 1.0, origin="lower")
    step = -(-len(heads) // LABELLED_HEADS)
    places = range(0, len(heads), step)
    axes.set_xticks(places, [heads[i] for i in places], rotation=90, fontsize=6)
    axes.set_yticks(places, [heads[i] for i in places], fontsize=6)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=9)
    at = {head: i for i, head in enumerate(heads)}
    for pair in marked:
        for one, other in (pair, pair[::-1]):
            corner = (at[one] - 0.5, at[other] - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=1))
    figure.colorbar(image, ax=axes, shrink=0.8, label=f"synergy ({unit}): d(ij) - d(i) - d(j)")
    return save_figure(figure, path)
