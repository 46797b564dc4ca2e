"""ReLU nets with one hidden layer that approximate an expression, trained many at a time.

The protocol is the published one: 1-64-1, inputs unscaled, mean squared error on equispaced points of the domain, full
batch, Adam at 0.01 for 10,000 steps. Mode `published` has the published 10,000 points; the default takes 1,000 of them.
On a line it needs no matrix products: every hidden unit is active on one side of its kink, so outputs are running sums
of slopes from kink to kink, and gradients are sums of the errors on one side. A step costs as much as the points plus
the units, instead of their product. Every net starts from a seed of its own and meets no other net in any sum, so it
comes out the same in whatever company it is trained.

Trained nets are looked up first in the package (those of seed 0 and of the reported suite), then in the user's cache.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from vesalius_functions.box import Layer
from vesalius_functions.numeric.expressions import Expression, domain, evaluate, operands

HIDDEN = 64
STEPS = 10_000
POINTS, PUBLISHED_POINTS = 1_000, 10_000
RATE = 0.01
#: Raise it when training changes: kept nets of another protocol are then not found.
PROTOCOL = 1
PACKAGED = Path(__file__).parent / "nets.safetensors"
#: Adam's second step is divided by this much at least.
_EPSILON = 1e-8


@dataclass(frozen=True, eq=False)
class Net:
    """A trained net: `outer @ relu(slopes * x + biases) + bias`."""

    slopes: Float[ndarray, " hidden"]
    biases: Float[ndarray, " hidden"]
    outer: Float[ndarray, " hidden"]
    bias: float
    #: Mean squared error on the training points.
    mse: float

    def __call__(self, x: Float[ndarray, " points"]) -> Float[ndarray, " points"]:
        return np.maximum(x[:, None] * self.slopes + self.biases, 0.0) @ self.outer + self.bias

    def layers(self) -> list[Layer]:
        """The two layers as data: all there is to know of the net, and nothing of the expression."""
        return [
            Layer(weights=self.slopes[:, None].tolist(), biases=self.biases.tolist(), activation="relu"),
            Layer(weights=self.outer[None].tolist(), biases=[float(self.bias)], activation="identity"),
        ]


def target_points(expression: Expression, count: int = POINTS) -> tuple[ndarray, ndarray]:
    """The equispaced training points of an expression's domain, and its values there; what is infinite becomes 0."""
    x = np.linspace(*domain(expression), count)
    values = evaluate(expression, x)
    return x, np.where(np.isfinite(values), values, 0.0)


def trained(expressions: Sequence[Expression], *, points: int = POINTS) -> list[Net]:
    """A net for each expression: from the package or the cache where there is one, else trained now and kept."""
    keys = [_key(expression, points) for expression in expressions]
    known = {**_read(_cache_file()), **_packaged()}
    missing = {key: expression for key, expression in zip(keys, expressions, strict=True) if key not in known}
    if missing:
        fresh = dict(zip(missing, train(list(missing.values()), points=points), strict=True))
        known.update({key: _pack(net) for key, net in fresh.items()})
        _keep(fresh)
    return [_unpack(known[key], expression, points) for key, expression in zip(keys, expressions, strict=True)]


def train(expressions: Sequence[Expression], *, steps: int = STEPS, points: int = POINTS) -> list[Net]:
    """Train a net for each expression, all at once."""
    targets = [target_points(expression, points) for expression in expressions]
    batch = _Batch(
        np.stack([x for x, _ in targets]),
        np.stack([y for _, y in targets]),
        seeds=[int(_key(expression)[:15], 16) for expression in expressions],
    )
    for step in range(1, steps + 1):
        batch.step(step)
    return batch.nets()


class _Batch:
    """Nets in training. Parameters lie in one array [4, nets, hidden]: slopes, biases, outer weights, outer bias."""

    def __init__(self, x: Float[ndarray, "nets points"], y: Float[ndarray, "nets points"], *, seeds: list[int]) -> None:
        self.x, self.y = x, y
        self.count, self.points = x.shape
        self.start, self.gap = x[:, :1], x[:, 1:2] - x[:, :1]
        self.parameters = np.stack([_initial(seed) for seed in seeds], axis=1)
        self.moment = np.zeros_like(self.parameters)
        self.square = np.zeros_like(self.parameters)
        self.rows = (np.arange(self.count) * (self.points + 1))[:, None]

    def step(self, number: int) -> None:
        """One step of Adam."""
        gradient = self._gradient()
        self.moment += (1 - 0.9) * (gradient - self.moment)
        self.square += (1 - 0.999) * (gradient * gradient - self.square)
        size = np.sqrt(self.square / (1 - 0.999**number)) + _EPSILON
        self.parameters -= RATE / (1 - 0.9**number) * self.moment / size

    def nets(self) -> list[Net]:
        """What has been learned."""
        error = self._outputs(self._kinks()) - self.y
        losses = (error * error).mean(axis=1)
        return [
            Net(*(self.parameters[:3, i].copy()), bias=float(self.parameters[3, i, 0]), mse=float(losses[i]))
            for i in range(self.count)
        ]

    def _kinks(self) -> Int[ndarray, "nets hidden"]:
        """The first point after each unit's kink; the number of points where there is none."""
        slopes, biases = self.parameters[0], self.parameters[1]
        safe = np.where(slopes == 0, 1e-300, slopes)
        with np.errstate(over="ignore"):
            place = (-biases / safe - self.start) / self.gap
        return np.clip(np.floor(place) + 1, 0, self.points).astype(np.int64)

    def _outputs(self, kinks: Int[ndarray, "nets hidden"]) -> Float[ndarray, "nets points"]:
        slopes, biases, outer, bias = self.parameters
        rising = slopes > 0
        # A rising unit begins at its kink; a falling one is there from the start and ends at its kink.
        sign = np.where(rising, outer, -outer)
        always = np.where(rising, 0.0, outer)
        lines = []
        for part in (slopes, biases):
            changes = np.bincount(
                (self.rows + kinks).ravel(), (sign * part).ravel(), minlength=self.count * (self.points + 1)
            )
            changes = changes.reshape(self.count, -1)[:, :-1]
            changes[:, 0] += (always * part).sum(axis=1)
            lines.append(np.cumsum(changes, axis=1))
        lines[0] *= self.x
        lines[0] += lines[1]
        lines[0] += bias[:, :1]
        return lines[0]

    def _gradient(self) -> Float[ndarray, "4 nets hidden"]:
        slopes, biases, outer, _ = self.parameters
        kinks = self._kinks()
        error = (self._outputs(kinks) - self.y) * (2 / self.points)
        plain = self._active_sums(error, kinks, slopes)
        error_total = error.sum(axis=1, keepdims=True)
        weighted = self._active_sums(error * self.x, kinks, slopes)
        return np.stack(
            [
                outer * weighted,
                outer * plain,
                slopes * weighted + biases * plain,
                np.broadcast_to(error_total, kinks.shape),
            ]
        )

    def _active_sums(
        self,
        values: Float[ndarray, "nets points"],
        kinks: Int[ndarray, "nets hidden"],
        slopes: Float[ndarray, "nets hidden"],
    ) -> Float[ndarray, "nets hidden"]:
        """For every unit, the sum of the values over the points where it is active."""
        running = np.zeros((self.count, self.points + 1))
        np.cumsum(values, axis=1, out=running[:, 1:])
        before = running.ravel()[self.rows + kinks]
        return np.where(slopes > 0, running[:, -1:] - before, before)


def _initial(seed: int) -> Float[ndarray, "4 hidden"]:
    """PyTorch's start for linear layers of width 1 and 64."""
    rng = np.random.default_rng(seed)
    inner, outer = 1.0, 1 / np.sqrt(HIDDEN)
    return np.stack(
        [
            rng.uniform(-inner, inner, HIDDEN),
            rng.uniform(-inner, inner, HIDDEN),
            rng.uniform(-outer, outer, HIDDEN),
            np.full(HIDDEN, rng.uniform(-outer, outer)),
        ]
    )


def _key(expression: Expression, points: int = POINTS) -> str:
    """What a trained net is kept under: the expression, the protocol, and the points where they are not as usual."""
    parts = [type(expression).__name__, getattr(expression, "operation", ""), PROTOCOL]
    parts += [(atom.family, atom.params) for atom in operands(expression)]
    parts += [] if points == POINTS else [points]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _pack(net: Net) -> Float[ndarray, "4 hidden"]:
    return np.stack([net.slopes, net.biases, net.outer, np.full(HIDDEN, net.bias)]).astype(np.float32)


def _unpack(weights: Float[ndarray, "4 hidden"], expression: Expression, points: int) -> Net:
    slopes, biases, outer, bias = weights.astype(np.float64)
    net = Net(slopes, biases, outer, bias=float(bias[0]), mse=0.0)
    x, y = target_points(expression, points)
    return Net(slopes, biases, outer, bias=float(bias[0]), mse=float(((net(x) - y) ** 2).mean()))


@cache
def _packaged() -> dict[str, ndarray]:
    return _read(PACKAGED)


def _read(path: Path) -> dict[str, ndarray]:
    """The kept nets of a file, by key; empty where the file is missing or damaged."""
    try:
        return load_file(path) if path.exists() else {}
    except (SafetensorError, OSError):
        return {}


def save(path: Path, expressions: Sequence[Expression], nets: Sequence[Net]) -> None:
    """Write nets under the keys of their expressions."""
    save_file({_key(expression): _pack(net) for expression, net in zip(expressions, nets, strict=True)}, path)


def _cache_file() -> Path:
    chosen = os.environ.get("VESALIUS_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vesalius"
    return (Path(chosen) if chosen else home) / f"numeric-nets-{PROTOCOL}.safetensors"


def _keep(fresh: dict[str, Net]) -> None:
    """Add nets to the cache; where it cannot be written they are simply trained again next time."""
    path = _cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {**_read(path), **{key: _pack(net) for key, net in fresh.items()}}
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".partial", delete=False) as file:
            partial = Path(file.name)
        save_file(kept, partial)
        partial.replace(path)
    except OSError:
        return
