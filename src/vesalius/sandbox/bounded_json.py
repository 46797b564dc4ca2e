"""Convert values and errors of a program to bounded JSON, inside the sandbox.

The value may be of a class that lies, loops or raises: everything here runs within the program's time and memory
limits, and the result is only text to the caller.
"""

import sys
import types
from typing import Any

PROGRAM = "<program>"
MAX_DEPTH = 20
MAX_ITEMS = 20_000
MAX_TEXT = 2_000
_SHOWN_FRAMES = 6


def bounded_json(value: object, *, max_text: int) -> Any:
    """`value` as JSON: containers item by item, small tensors and arrays as nested lists.

    `max_text` bounds the length of one string. After `MAX_ITEMS` items or `MAX_DEPTH` levels the rest is cut.
    """
    return _Converter(max_text).value(value, depth=0)


class _Converter:
    def __init__(self, max_text: int) -> None:
        self.left = MAX_ITEMS
        self.max_text = max_text

    def value(self, value: Any, *, depth: int) -> Any:
        self.left -= 1
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            return value if value.bit_length() <= 1024 else f"an integer of {value.bit_length()} bits"
        if kind is str:
            return _clip(value, self.max_text)
        if depth >= MAX_DEPTH or self.left <= 0:
            return "..."
        if issubclass(kind, (list, tuple, set, frozenset)):
            return self._sequence(value, depth)
        if issubclass(kind, dict):
            return self._mapping(value, depth)
        if _is_array(kind):
            return self._array(value, depth)
        return bounded_repr(value)

    def _sequence(self, value: Any, depth: int) -> list[Any]:
        items = []
        for item in value:
            if self.left <= 0:
                items.append("...")
                break
            items.append(self.value(item, depth=depth + 1))
        return items

    def _mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        items = {}
        for key, item in value.items():
            if self.left <= 0:
                items["..."] = "..."
                break
            name = _clip(key, MAX_TEXT) if type(key) is str else bounded_repr(key)
            items[name] = self.value(item, depth=depth + 1)
        return items

    def _array(self, value: Any, depth: int) -> Any:
        array = value.detach() if hasattr(value, "detach") else value
        count = 1
        for length in array.shape:
            count *= int(length)
        if count <= self.left and array.dtype != object:
            return self.value(array.tolist(), depth=depth)
        summary = {"shape": [int(length) for length in array.shape], "dtype": str(array.dtype)}
        first = bounded_repr(array.reshape(-1)[:8].tolist())
        return {**summary, "first": first, "note": f"{count} values, too many to hand over; summarise or slice"}


def _is_array(kind: type) -> bool:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        return True
    return numpy is not None and (kind is numpy.ndarray or issubclass(kind, numpy.generic))


def bounded_repr(value: object) -> str:
    """A bounded repr; the class name if repr fails."""
    try:
        return _clip(str(repr(value)), MAX_TEXT)
    except MemoryError:
        raise
    except BaseException as error:
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"


def format_traceback(error: BaseException, source: str) -> str:
    """The traceback with only the lines of the program, then the error."""
    lines = source.splitlines()
    frames = list(_frames(error.__traceback__))
    if len(frames) > 2 * _SHOWN_FRAMES:
        middle = f"  ... {len(frames) - 2 * _SHOWN_FRAMES} more frames ..."
        rows = [*_render(frames[:_SHOWN_FRAMES], lines), middle, *_render(frames[-_SHOWN_FRAMES:], lines)]
    else:
        rows = _render(frames, lines)
    if isinstance(error, SyntaxError) and error.filename == PROGRAM and error.lineno:
        rows += _render([(error.lineno, "<module>")], lines)
    return "\n".join([*rows, _message(error)])


def _message(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except BaseException as second:
        text = f"(its message raised {type(second).__name__})"
    return _clip(f"{name}: {text}" if text else name, MAX_TEXT)


def _frames(trace: types.TracebackType | None) -> Any:
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == PROGRAM:
            yield trace.tb_lineno, code.co_name
        trace = trace.tb_next


def _render(frames: list[tuple[int, str]], lines: list[str]) -> list[str]:
    def text(number: int) -> str:
        return _clip(lines[number - 1].strip(), 200) if 0 < number <= len(lines) else ""

    return [f"  line {number}, in {name}: {text(number)}" for number, name in frames]


def _clip(text: str, limit: int) -> str:
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
