"""The synergy map is a PNG; backup is blue, series red, pairs that were not tested are blank."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from vesalius.errors import Failed
from vesalius_mechrl.pictures import draw_synergy

HEADS = ("L0H0", "L0H1", "L1H0")


def draw(value: float, path: Path, **options: object) -> np.ndarray:
    """One tested pair of three heads."""
    matrix = np.full((3, 3), np.nan)
    matrix[0, 1] = matrix[1, 0] = value
    assert draw_synergy(matrix, HEADS, path, title="t", unit="logits", **options) == path
    return matplotlib.image.imread(path)[..., :3]


def test_colours(tmp_path: Path) -> None:
    backup, series = (draw(value, tmp_path / "map.png") for value in (1.0, -1.0))
    difference = backup.astype(float) - series
    assert difference[..., 2].sum() > 0 > difference[..., 0].sum()


def test_a_marked_pair_has_a_frame(tmp_path: Path) -> None:
    plain = draw(1.0, tmp_path / "map.png")
    framed = draw(1.0, tmp_path / "map.png", marked=[("L0H0", "L0H1")])
    assert (framed.sum(-1) == 0).sum() > (plain.sum(-1) == 0).sum()


def test_nothing_tested_and_nowhere_to_write(tmp_path: Path) -> None:
    assert draw(np.nan, tmp_path / "map.png").size
    with pytest.raises(Failed, match="the picture could not be written"):
        draw(1.0, tmp_path / "nowhere" / "map.png")
