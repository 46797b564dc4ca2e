"""What the warm process of a sandbox for plain functions loads: mathematics, and nothing that knows an answer."""

from typing import Any

PRELOAD = f"{__name__}:load"


def load(argument: dict[str, bool]) -> dict[str, Any]:
    """Load what submitted code usually imports; torch only where `argument["torch"]` asks for it."""
    import scipy.signal
    import scipy.special  # noqa: F401

    if argument["torch"]:
        import torch  # noqa: F401
    return {}
