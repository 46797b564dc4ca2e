"""The tiny natural model of the command's tests."""

from tests.cli.conftest import _tiny, tiny

__all__ = ["_tiny", "tiny"]
