"""The browser that the tests of a module share, and the command run inside this process."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import vesalius

__all__ = ["browser", "vesalius"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for as long as the module's tests run."""
    from tests.workbench.browsing import running_browser

    with running_browser() as browser:
        yield browser
