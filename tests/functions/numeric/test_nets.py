"""Nets: one step against automatic differentiation, company does not matter, what is packaged, what is kept."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from vesalius_functions.box import Mode
from vesalius_functions.numeric import nets, sample
from vesalius_functions.numeric.expressions import Atom, Expression, Pair
from vesalius_functions.numeric.sampling import suite_expressions

EXPRESSIONS = [
    Atom("absolute", (26.8, -8.2)),
    Atom("gaussian", (-9.2, 6.0)),
    Atom("root", (3.0, 1.0, 2)),
    Pair("product", Atom("linear", (-1.2, -9.9)), Atom("step", (-15.8, 0.1, 3.0))),
]


def trained_by_torch(expression: Atom | Pair, *, steps: int, points: int) -> tuple[np.ndarray, float]:
    """The same net by matrix products and torch's own Adam."""
    x, y = (torch.tensor(values) for values in nets.target_points(expression, points))
    start = nets._initial(int(nets._key(expression)[:15], 16))
    inner, biases, outer = (torch.tensor(row, requires_grad=True) for row in start[:3])
    bias = torch.tensor(start[3, 0], requires_grad=True)
    adam = torch.optim.Adam([inner, biases, outer, bias], lr=nets.RATE)
    for _ in range(steps):
        adam.zero_grad()
        ((torch.relu(x[:, None] * inner + biases) @ outer + bias - y) ** 2).mean().backward()
        adam.step()
    return outer.detach().numpy(), float(bias.detach())


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda e: str(e)[:30])
def test_running_sums_train_as_matrix_products_do(expression: Atom | Pair) -> None:
    net = nets.train([expression], steps=40, points=200)[0]
    outer, bias = trained_by_torch(expression, steps=40, points=200)
    np.testing.assert_allclose(net.outer, outer, rtol=1e-6, atol=1e-9)
    assert net.bias == pytest.approx(bias, rel=1e-6, abs=1e-9)


def test_a_net_comes_out_the_same_in_any_company() -> None:
    alone = nets.train(EXPRESSIONS[1:2], steps=30, points=100)[0]
    together = nets.train(EXPRESSIONS, steps=30, points=100)[1]
    np.testing.assert_allclose(alone.slopes, together.slopes, rtol=1e-6, atol=1e-9)
    assert alone.mse == pytest.approx(together.mse, rel=1e-6)


def test_training_lowers_the_error_and_the_error_is_that_of_the_net() -> None:
    before, after = (nets.train(EXPRESSIONS[:1], steps=steps, points=200)[0] for steps in (1, 300))
    assert after.mse < before.mse / 50
    x, y = nets.target_points(EXPRESSIONS[0], 200)
    assert after.mse == pytest.approx(float(((after(x) - y) ** 2).mean()), rel=1e-9)


def test_the_default_suite_is_packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a packaged net was trained again")

    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path))
    monkeypatch.setattr(nets, "train", refuse)
    expressions = suite_expressions(1000, seed=0, kind="mlp")
    trained = nets.trained(expressions)
    assert len(trained) == 150
    variances = [nets.target_points(expression)[1].var() for expression in expressions]
    shares = [net.mse / variance for net, variance in zip(trained, variances, strict=True) if variance > 0]
    # Waves and large powers are beyond such nets; the figures are in benchmarks/results/numeric_nets.json.
    assert np.median(shares) == pytest.approx(0.085, abs=0.005)
    assert np.mean(np.array(shares) < 0.01) == pytest.approx(0.475, abs=0.01)


def test_trained_nets_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path))
    monkeypatch.setattr(nets, "train", partial(nets.train, steps=3, points=50))
    first = nets.trained(EXPRESSIONS[:2])
    monkeypatch.setattr(nets, "train", None)
    again = nets.trained(EXPRESSIONS[:2])
    np.testing.assert_array_equal(first[1].slopes, again[1].slopes)
    assert [path.name for path in tmp_path.iterdir()] == [f"numeric-nets-{nets.PROTOCOL}.safetensors"]


def test_a_spoilt_cache_is_written_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path))
    monkeypatch.setattr(nets, "train", partial(nets.train, steps=3, points=50))
    kept = tmp_path / f"numeric-nets-{nets.PROTOCOL}.safetensors"
    kept.write_bytes(b"not a file of weights")
    first = nets.trained(EXPRESSIONS[:1])[0]
    monkeypatch.setattr(nets, "train", None)
    np.testing.assert_array_equal(nets.trained(EXPRESSIONS[:1])[0].slopes, first.slopes)


def test_mode_published_trains_on_the_published_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nets of 10,000 points are kept apart from those of 1,000."""
    asked: list[int] = []

    def train(expressions: Sequence[Expression], *, points: int) -> list[nets.Net]:
        asked.append(points)
        return first(expressions, steps=1, points=points)

    first = nets.train
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path))
    monkeypatch.setattr(nets, "train", train)
    modes: tuple[Mode, ...] = ("published", "fixed", "published")
    for mode in modes:
        sample(30, seed=77, mode=mode)
    assert asked == [10_000, 1_000]
