"""How many CPU threads a small computation gets: one.

Distributing work this small costs more than doing it, and on a busy machine threads that spin while waiting for each
other made training ten times slower.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MIN_SHARED = 2**20


@contextmanager
def few_threads(numbers: int) -> Iterator[None]:
    """One thread inside the block if its largest activation holds fewer than about a million numbers."""
    before = torch.get_num_threads()
    if numbers < _MIN_SHARED:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
