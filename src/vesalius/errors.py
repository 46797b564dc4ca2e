"""The two ways Vesalius says no.

`BadInput` is the caller's to mend (command line: exit code 2); `Failed` is a job that could not be finished (exit
code 1). Both carry one line that names the input and the mend.
"""

from collections.abc import Iterable


class BadInput(ValueError):
    """The input cannot be used; the message names it and says what would be accepted."""


class Failed(RuntimeError):
    """The input was fine but the work could not be finished; the message says what is left to do."""


def choices(names: Iterable[object], limit: int = 12) -> str:
    """Render the accepted names for an error message, shortened after `limit`."""
    listed = [str(name) for name in names]
    shown = ", ".join(listed[:limit])
    return shown if len(listed) <= limit else f"{shown}, ... ({len(listed)} in all)"
