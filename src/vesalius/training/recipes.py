"""Default recipes: steps, batch size and learning rate, by the size of the model and the device.

On a GPU these are the recipes with which all 84 benchmark circuits passed the gate. On a CPU one model is trained at a
time, for fewer steps at a smaller batch, and usually stops early.
"""

from collections.abc import Sequence

import torch

from vesalius.training.setting import Setting
from vesalius.training.stepper import Recipe

_LONG = 30  # tokens; from here on attention dominates and fewer rows are enough
_DEEP = 5  # layers


def default_recipe(settings: Sequence[Setting], *, device: torch.device) -> Recipe:
    """The recipe for the largest of the settings."""
    width = max(setting.size.d_model for setting in settings)
    depth = max(setting.size.n_layers for setting in settings)
    long = max(setting.program.max_len for setting in settings) >= _LONG
    if device.type == "cpu":
        steps = 1500 if width <= 8 and depth <= 2 else 2500
        return Recipe(steps, 32 if long else 48, pairs=8_192, checks=steps // 50, validation=128 if long else 256)
    pairs = 32_768 if long else 262_144
    if long:
        return Recipe(2500, 48, pairs=pairs)
    if depth >= _DEEP:
        return Recipe(30_000, 256, pairs=pairs, validation=512)
    if width <= 8 and depth <= 2:
        return Recipe(2500, 64, pairs=pairs, validation=512)
    return Recipe(8000, 128, pairs=pairs, validation=512)


def default_copies(settings: Sequence[Setting], *, seed: int, device: torch.device) -> list[tuple[int, float]]:
    """Two learning rates with two seeds each on a GPU, one of each on a CPU."""
    width = max(setting.size.d_model for setting in settings)
    depth = max(setting.size.n_layers for setting in settings)
    rates = (1e-2, 5e-3) if width <= 8 else (5e-3, 4e-3) if width <= 40 and depth < _DEEP else (3e-3, 2e-3)
    if device.type == "cpu":
        return [(seed, rates[0])]
    return [(seed + i, rate) for i in range(2) for rate in rates]
