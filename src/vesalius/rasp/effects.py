"""How much each component matters to the program itself: the share of outputs that an interchange of it changes."""

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.components import Component
from vesalius.rasp.program import Program
from vesalius.rasp.sampling import random_inputs

NUMERICAL_TOLERANCE = 0.05


def outputs_differ(program: Program, first: Tensor, second: Tensor) -> Bool[Tensor, "batch pos"]:
    """Where two outputs of a program are different answers: other codes, or numbers at least 0.05 apart."""
    return (first - second).abs() >= NUMERICAL_TOLERANCE if program.numerical else first != second


def interchange_effects(program: Program, *, pairs: int = 512, seed: int = 0) -> dict[Component, float]:
    """For every component the share of real positions whose output changes when it alone takes a source's values."""
    base = program.run(*random_inputs(program, pairs, seed=seed))
    source = program.run(*random_inputs(program, pairs, seed=seed + 1))
    real = base.tokens >= 0
    effects = {}
    for i, placed in enumerate(program.components):
        patched = torch.zeros(pairs, len(program.components), dtype=torch.bool)
        patched[:, i] = True
        changed = outputs_differ(program, program.interchange(base, source, patched), base.output) & real
        effects[placed.component] = float(changed.sum() / real.sum())
    return effects
