"""Training pairs with all their answers, computed once and kept on the device.

A training step then needs no interpreter, only look-ups: it picks a pair and reads both inputs, the answer on the base
and the answer after every interchange. Tasks of different length and circuit size share one table by padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from vesalius.training.pairs import draw_pairs, targets
from vesalius.training.setting import Setting, model_tokens


@dataclass(frozen=True)
class Tables:
    """Pairs of several tasks; positions include BOS, except in `answers`, which start at the first real token.

    `answers[:, :, 0]` is the output on the base, `answers[:, :, 1 + s]` the output after slot s. `reads` is the
    position of the source that a crossed slot reads (the same position where it reads none).
    """

    base: Int[Tensor, "task pair pos"]
    source: Int[Tensor, "task pair pos"]
    base_lengths: Int[Tensor, "task pair"]
    source_lengths: Int[Tensor, "task pair"]
    reads: Int[Tensor, "task pair pos"]
    answers: Float[Tensor, "task pair answer token"]

    @property
    def n_pairs(self) -> int:
        """Pairs per task."""
        return self.base.shape[1]


def tabulate(settings: Sequence[Setting], n: int, *, seed: int, device: torch.device) -> Tables:
    """`n` pairs for every setting."""
    width = max(setting.config.n_ctx for setting in settings)
    n_slots = max(len(setting.slots) for setting in settings)
    parts = [_tabulate(setting, n, width=width, n_slots=n_slots, seed=seed, device=device) for setting in settings]
    return Tables(*(torch.stack(column) for column in zip(*parts, strict=True)))


def _tabulate(
    setting: Setting, n: int, *, width: int, n_slots: int, seed: int, device: torch.device
) -> tuple[Tensor, ...]:
    program = setting.program
    pairs = draw_pairs(setting.draw, n, seed=seed, device=device)
    missing, pad = width - setting.config.n_ctx, setting.config.pad_token
    base, source = (
        F.pad(model_tokens(program, codes), (0, missing), value=pad).short() for codes in (pairs.base, pairs.source)
    )
    positions = torch.arange(width, device=device).expand(n, -1)
    crossed = F.pad(pairs.crossed, (1, missing), value=-1)
    reads = torch.where(crossed >= 0, crossed + 1, positions).short()
    answers = targets(program, pairs, setting.slots)
    answers = F.pad(answers, (0, missing, 0, n_slots - len(setting.slots)))
    return base, source, pairs.base_lengths, pairs.source_lengths, reads, answers
