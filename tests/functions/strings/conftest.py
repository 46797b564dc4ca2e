"""A sandbox for submitted code."""

from collections.abc import Iterator

import pytest

from vesalius.errors import Failed
from vesalius.sandbox import Sandbox


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    opened = Sandbox()
    try:
        opened.__enter__()
    except Failed as refusal:
        pytest.skip(f"programs cannot be contained here: {refusal}")
    with opened:
        yield opened
