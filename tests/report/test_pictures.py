"""The pictures of components at work, against slow sums over the same inputs."""

import dataclasses
import re
from typing import Literal

import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.models import random_model, small_config
from vesalius.api import load
from vesalius.documents.view import Grid
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.report.maps import draw_grid, label, short
from vesalius.report.pictures import INPUTS, draw_components


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return load("frac_prevs")


def test_mean_attention_is_the_mean_over_full_inputs(specimen: Specimen) -> None:
    picture = draw_components(specimen, ["L1H2"], seed=5)["L1H2"]
    full = [tokens for tokens in specimen.sample(INPUTS["finite"], 5) if len(tokens) == 4]
    total = torch.zeros(5, 5)
    with torch.no_grad():
        for tokens in full:
            _, cache = specimen.model.run_with_cache(specimen.tokenize([tokens]))
            total += cache["blocks.1.attn.hook_pattern"][0, 2]
    mean, first = total / len(full), draw_grid(picture.grids[0])
    assert first.title == f"Mean over {len(full)} inputs, by position"
    assert first.rows == ("BOS", "1", "2", "3", "4")
    printed = {(figure.x, figure.y): figure.text for figure in first.figures}
    for i in range(5):
        for j in range(i + 1):
            x, y = first.left + j * first.cell + (first.cell - 1) / 2, first.top + i * first.cell + first.cell / 2 + 3.5
            assert printed[x, y] == short(float(mean[i, j]))
    assert [draw_grid(grid).rows[1:] for grid in picture.grids[1:]] == [tuple(full[0]), tuple(full[1])]


def test_mlp_marks_x(specimen: Specimen) -> None:
    (grid,) = map(draw_grid, draw_components(specimen, ["L0_MLP"])["L0_MLP"].grids)
    assert (grid.rows, grid.columns) == (("a", "b", "c", "x"), ("1", "2", "3", "4"))
    rows = [[float(figure.text) for figure in grid.figures[i : i + 4]] for i in range(0, 16, 4)]
    assert min(rows[3]) > 0 > max(value for row in rows[:3] for value in row)
    assert "Highest for x" in grid.summary


def test_values_that_are_not_finite(specimen: Specimen) -> None:
    broken = dataclasses.replace(load("frac_prevs"))
    with torch.no_grad():
        broken.model.W_E.fill_(torch.nan)
    pictures = draw_components(broken, ["L0_MLP", "L1H2"])
    assert all("not finite" in picture.caption and picture.grids == () for picture in pictures.values())


def test_constant_mlp() -> None:
    silent = load("frac_prevs")
    with torch.no_grad():
        silent.model.blocks[0].mlp.W_out.zero_()
    assert "nothing to show" in draw_components(silent, ["L0_MLP"])["L0_MLP"].caption


def test_missing_component(specimen: Specimen) -> None:
    with pytest.raises(BadInput, match="component L7H0 is not in this model"):
        draw_components(specimen, ["L7H0"])


@pytest.mark.parametrize("name", ["39", "113", "21"])
def test_long_and_wide_specimens(name: str) -> None:
    other = load(name)
    for picture in draw_components(other, [str(part) for part in other.components]).values():
        assert picture.grids
        for grid in map(draw_grid, picture.grids):
            assert len(grid.columns) <= 24
            assert len(grid.rows) <= 24
            assert all(0 < shade <= 9 for shade, _, _ in grid.shades)


def test_grid_shades() -> None:
    grid = draw_grid(Grid([[0.0, 0.5], [1.0, None]], ["a", "b"], ["c", "d"], "s", title="t"))
    assert [shade for shade, _, _ in grid.shades] == [5, 9]
    corners = [re.match(r"M([\d.]+) ([\d.]+)h", path) for _, _, path in grid.shades]
    assert [(float(m[1]), float(m[2])) for m in corners if m] == [
        (grid.left + grid.cell, grid.top),
        (grid.left, grid.top + grid.cell),
    ]
    assert [figure.text for figure in grid.figures] == [".50", "1"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, ".25"), (1.0, "1"), (-3.14, "-3.1"), (12.4, "12"), (0.001, "0"), (-0.5, "-.50")]
)
def test_short_figures(value: float, text: str) -> None:
    assert short(value) == text


def test_labels_show_blanks_and_stay_short() -> None:
    assert [label(" the"), label("\n"), label("abcdefghijkl")] == ["·the", "⏎", "abcdefgh…"]


@pytest.mark.parametrize("norm_at", ["input", "both"])
def test_a_model_of_texts(norm_at: Literal["input", "both"]) -> None:
    tokenizer = word_tokenizer()
    texts = ["Monday Tuesday", "January February March", "January February March April", "Monday"] * 3
    model = random_model(small_config(d_vocab=tokenizer.size, d_vocab_out=tokenizer.size, norm_at=norm_at))
    specimen = Specimen(
        id="texts",
        name="texts",
        kind="natural",
        model=model,
        vocabulary=TextVocabulary(tokenizer, context=16),
        components=(),
        examples=(),
        draw=lambda n, seed: texts[:n],
    )
    pictures = draw_components(specimen, ["L0H3", "L1_MLP"])
    # Three texts of each length are too few for a mean.
    assert [grid.title for grid in pictures["L0H3"].grids] == ["One input", "One input"]
    assert draw_grid(pictures["L0H3"].grids[0]).rows == ("BOS", "January", "·February", "·March", "·April")
    (grid,) = map(draw_grid, pictures["L1_MLP"].grids)
    assert grid.rows == ("#1", "#2", "#3", "#4", "#5", "#6")
    assert len(grid.figures) == sum(len(text.split()) for text in texts[:6])
