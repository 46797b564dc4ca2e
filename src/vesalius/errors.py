"""The two errors Vesalius raises on purpose, and its notes.

`BadInput`: the caller has to fix the input (command line: exit code 2). `Failed`: the input was fine, but the work
could not be finished (exit code 1). Both carry one line that names the input and the fix. A `Note` is a warning: the
work continues, and the command prints it as one line.
"""

import warnings
from collections.abc import Iterable


class BadInput(ValueError):
    """The input cannot be used; the message names it and says what would be accepted."""


class Failed(RuntimeError):
    """The input was fine but the work could not be finished; the message says what is left to do."""


class Note(UserWarning):
    """Something to know about a result; the work continues."""


def note(text: str) -> None:
    """Warn with a `Note`."""
    warnings.warn(text, Note, stacklevel=3)


def choices(names: Iterable[object], limit: int = 12) -> str:
    """Render the accepted names for an error message, shortened after `limit`."""
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:limit])
    return shown if len(texts) <= limit else f"{shown}, ... ({len(texts)} in all)"
