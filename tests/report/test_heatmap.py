"""The head map is a PNG of the expected size; missing components stay blank."""

import struct
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from vesalius.components import Component
from vesalius.documents.view import HeadMap
from vesalius.errors import Failed
from vesalius.report.plots import draw_heatmap

EVERY = {Component(layer, head): 0.1 * layer - 0.3 for layer in range(4) for head in (0, 1, 2, None)}


def draw(effects: dict[Component, float], path: Path, *, n_layers: int = 4, n_heads: int = 3) -> np.ndarray:
    """Draw and read back: [height, width, channel]."""
    heads = HeadMap({str(part): effect for part, effect in effects.items()}, n_layers, n_heads, unit="logits")
    assert draw_heatmap(heads, path, title="t") == path
    return matplotlib.image.imread(path)


def coloured(picture: np.ndarray) -> int:
    """Pixels that are neither white nor grey."""
    return int((np.ptp(picture[..., :3], axis=-1) > 0.1).sum())


@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (4, 3), (30, 9)])
def test_size(tmp_path: Path, n_layers: int, n_heads: int) -> None:
    path = tmp_path / "map.png"
    draw({Component(0, 0): 1.0}, path, n_layers=n_layers, n_heads=n_heads)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == pytest.approx(150 * (1.9 + 0.52 * (n_heads + 1)), abs=1)
    assert height == pytest.approx(150 * (1.8 + 0.27 * n_layers), abs=1)


def test_blank_cells(tmp_path: Path) -> None:
    one = draw({Component(1, 2): 0.5}, tmp_path / "one.png")
    half = draw({c: -0.3 for c in EVERY if c.is_head}, tmp_path / "half.png")
    whole = draw(dict.fromkeys(EVERY, -0.3), tmp_path / "whole.png")
    assert coloured(one) < coloured(half) < coloured(whole)


def test_removing_a_helper_is_blue_and_an_opponent_red(tmp_path: Path) -> None:
    helps, harms = (draw(dict.fromkeys(EVERY, sign * 1.0), tmp_path / "map.png") for sign in (1, -1))
    red, blue = helps[..., 0].sum(), helps[..., 2].sum()
    assert blue > red
    red, blue = harms[..., 0].sum(), harms[..., 2].sum()
    assert red > blue


def test_nothing_matters(tmp_path: Path) -> None:
    assert draw(dict.fromkeys(EVERY, 0.0), tmp_path / "map.png").size


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="the picture could not be written"):
        draw(EVERY, tmp_path / "nowhere" / "map.png")
