"""Prompts with counterfactuals for tests of edges."""

import torch

from vesalius.intervene import Batch, Readout, logit_difference
from vesalius.model import Config


def prompt_pairs(config: Config, seed: int = 0) -> tuple[Batch, Batch, Readout]:
    """Three prompts of five tokens, one of them shorter, with counterfactuals and a logit difference."""
    generator = torch.Generator().manual_seed(seed)
    tokens, other = torch.randint(0, config.d_vocab, (2, 3, 5), generator=generator)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1, 3:] = False
    position, correct, wrong = torch.tensor([[4, 2, 1], [0, 1, 2], [1, 2, 0]])
    return Batch(tokens, mask), Batch(other, mask), logit_difference(position, correct, wrong)
