"""The two errors Vesalius raises on purpose, and its notes.

`BadInput`: the caller has to fix the input (command line: exit code 2). `Failed`: the input was fine, but the work
could not be finished (exit code 1). Both carry one line that names the input and the fix. A `Note` is a warning: the
work continues, and the command prints it as one line. All name parameters as in Python, in backticks (`max_cost`);
the command line writes them as its options (--max-cost).
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any

#: A longer message is cut in its middle: its beginning names the input and its end the fix.
LONGEST_MESSAGE = 480
#: The most that a message quotes of an input.
LONGEST_QUOTE = 200
#: Control characters but for tabs and line ends, marks of direction, joiners, tags, and halves of characters.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


class BadInput(ValueError):
    """The input cannot be used; the message names it and says what would be accepted."""

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))


class Failed(RuntimeError):
    """The input was fine but the work could not be finished; the message says what is left to do.

    `result` is what was computed where only writing it failed; the command prints it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(shortened(message))
        self.result: Any = None


@contextmanager
def result_kept(result: object) -> Iterator[None]:
    """Around writing a result: where that fails, the error carries the result."""
    try:
        yield
    except Failed as error:
        error.result = result
        raise
    except OSError as error:
        where = error.filename or "the result"
        failed = Failed(f"{where}: could not be written ({error.strerror or error}); free some space")
        failed.result = result
        raise failed from None


class Note(UserWarning):
    """Something to know about a result; the work continues."""


def require_whole(**numbers: object) -> None:
    """Refuse what is not a whole number, by the name of its option."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise BadInput(f"{name}={quoted(value, 40)} is not a whole number; give one, such as {name}=8")


def require_number(**numbers: object) -> None:
    """Refuse what is not a number, by the name of its option."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise BadInput(f"{name}={quoted(value, 40)} is not a number; give one, such as {name}=0.5")


def require_signature(what: str, function: Callable[..., object], *given: str, **named: str) -> None:
    """Refuse a function of the caller's own that cannot be called with these arguments: positional ones, and keywords
    with what is given for them. One without a signature is taken at its word.
    """
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*given, **named)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        call = ", ".join([*given, *(f"{keyword}={value}" for keyword, value in named.items())])
        raise BadInput(
            f"{what} {name} takes {signature}, and is called as {name}({call}); give it those parameters"
        ) from None


def takes(function: Callable[..., object], keyword: str) -> bool:
    """Whether a function can be called with a keyword; one without a signature can."""
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(
        one.kind is inspect.Parameter.VAR_KEYWORD or (one.name == keyword and one.kind in named) for one in parameters
    )


def raised_where(error: BaseException) -> str:
    """An error with the file and the line that raised it."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    place = f" at {os.path.basename(where.tb_frame.f_code.co_filename)}:{where.tb_lineno}" if where else ""
    return f"{type(error).__name__}{place}: {error}"


def note(text: str) -> None:
    """Warn with a `Note`."""
    warnings.warn(text, Note, stacklevel=3)


def shortened(message: str, limit: int = LONGEST_MESSAGE) -> str:
    """A message that can be shown: one line, no longer than `limit`, without lone surrogates and control characters."""
    if len(message) > limit:
        head = 2 * (limit - 5) // 3
        message = f"{message[:head]} ... {message[head - limit + 5 :]}"
    return visible(re.sub(r"[ \t]*[\r\n]+[ \t]*", " ", message))


def visible(text: str) -> str:
    """A text in which characters that are not seen, or that reorder others, are written as escapes."""

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"

    return _UNSEEN.sub(escape, text)


def quoted(value: object, limit: int = LONGEST_QUOTE) -> str:
    """The repr of an input for a message, cut after `limit` characters."""
    try:
        text = repr(value[:limit] if isinstance(value, (str, bytes)) else value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        text = f"a {type(value).__name__} that cannot be written"
    return text if len(text) <= limit else f"{text[:limit]}..."


def choices(names: Iterable[object], limit: int = 12) -> str:
    """Render the accepted names for an error message, shortened after `limit`."""
    texts = [str(name) for name in names]
    shown = ", ".join(texts[:limit])
    return shown if len(texts) <= limit else f"{shown}, ... ({len(texts)} in all)"
