"""Every test of this directory uses the shared sandboxes."""

import pytest


@pytest.fixture(autouse=True)
def _share(shared_sandboxes: None) -> None:
    """What programs do is tested here, not how their process starts."""
