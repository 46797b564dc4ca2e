"""Matplotlib figures without pyplot: nothing is shown, kept or switched in the reader's session.

Choosing a backend (`matplotlib.use`) would end the display of the reader's own figures in a notebook, and figures made
by pyplot stay in memory until they are closed. A `Picture` belongs to its holder alone and shows itself in notebooks.
"""

import io
from pathlib import Path

from matplotlib.figure import Figure

from vesalius.errors import Failed

DPI = 150


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
    """Write a figure; returns its path."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise Failed(f"{path}: the picture could not be written ({error.strerror})") from None
    return path
