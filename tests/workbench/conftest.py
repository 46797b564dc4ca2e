"""The browser that the tests of a module share."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for as long as the module's tests run."""
    from tests.workbench.browsing import running_browser

    with running_browser() as browser:
        yield browser
