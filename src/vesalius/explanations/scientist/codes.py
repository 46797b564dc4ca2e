"""Distinct rows of small whole numbers, several times faster than `unique(dim=0)`: rows are packed into one number."""

import torch
from jaxtyping import Int
from torch import Tensor


def distinct(rows: Int[Tensor, "n column"]) -> tuple[Int[Tensor, "m column"], Int[Tensor, " n"]]:
    """The distinct rows in lexicographic order, and which of them each row is."""
    low = rows.amin(0)
    spans = (rows.amax(0) - low + 1).tolist()
    key = torch.zeros(len(rows), dtype=torch.long)
    for column, span in enumerate(spans):
        key = key * span + (rows[:, column] - low[column])
    keys, inverse = key.unique(return_inverse=True)
    columns = []
    for span in reversed(spans):
        columns.append(keys % span)
        keys = keys // span
    return torch.stack(columns[::-1], 1) + low, inverse
