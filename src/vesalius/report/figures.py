"""Writing a matplotlib figure to a file."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from vesalius.errors import Failed


def save_figure(figure: Figure, path: Path) -> Path:
    """Write and close a figure; returns its path."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise Failed(f"{path}: the picture could not be written ({error.strerror})") from None
    finally:
        plt.close(figure)
    return path
