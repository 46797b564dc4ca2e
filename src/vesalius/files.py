"""JSON and text files: read with one-line errors, written so that readers never see half a file."""

import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, Failed, quoted
from vesalius.values import JsonObject

#: Brackets inside each other that a JSON document may have.
MAX_DEPTH = 100
#: Bytes of the largest file that is read as JSON; a pipe or a device may have no end.
MOST_BYTES = 1 << 30
_CHUNK = 1 << 20
#: Bytes of a file's name, and characters of a path.
MOST_NAME, MOST_PATH = 255, 4_000
#: Levels that are kept of what another program sent.
MAX_SENT_DEPTH = 20
#: A whole number that another program sent has fewer digits than this; Python writes no more than 4,300.
MAX_SENT_DIGITS = 300
_LARGEST_SENT = 10**MAX_SENT_DIGITS
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def why_not_text(error: Exception) -> str:
    """Why bytes cannot be read as UTF-8; files in UTF-16 begin with a mark that says so."""
    if isinstance(error, UnicodeDecodeError) and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "it is in UTF-16; save it as UTF-8"
    return str(error)


def parse_json(text: str | bytes, *, source: object, finite: bool = True, unique: bool = False) -> Any:
    """A JSON document that can be written back: finite numbers, whole characters, at most `MAX_DEPTH` levels.

    Anything else is refused in one line that names `source`. Files that Python wrote may hold NaN and infinities;
    `finite=False` reads them. `unique` refuses an object that names a field twice, of which only the last would count.
    """
    rules: dict[str, Any] = {"parse_constant": _refuse_constant, "parse_float": _finite} if finite else {}
    rules |= {"object_pairs_hook": _refuse_repeated} if unique else {}
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        data = json.loads(decoded, **rules)
    except RecursionError:
        raise BadInput(f"{source}: not readable as JSON (too many brackets inside each other)") from None
    except ValueError as error:  # also text that is not UTF-8, and integers of thousands of digits
        if "integer string conversion" in str(error):
            raise BadInput(f"{source}: not readable as JSON (a number has thousands of digits)") from None
        raise BadInput(f"{source}: not readable as JSON ({why_not_text(error)})") from None
    if _is_too_deep(data):
        raise BadInput(f"{source}: not readable as JSON (more than {MAX_DEPTH} brackets inside each other)")
    if _SURROGATE.search(decoded):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise BadInput(f"{source}: not readable as JSON (a text holds half a character, \\ud800 or such)") from None
    return data


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_repeated(pairs: list[tuple[str, object]]) -> JsonObject:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} occurs more than once")
    return data


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _is_too_deep(data: object) -> bool:
    level = [data]
    for _ in range(MAX_DEPTH):
        containers = [node for node in level if isinstance(node, (dict, list))]
        level = [child for node in containers for child in (node.values() if isinstance(node, dict) else node)]
        if not level:
            return False
    return True


def require_possible(name: str, *, what: str) -> None:
    """Refuse a name that no file can have, before a file is looked for."""
    longest = max((len(os.fsencode(part)) for part in name.split("/")), default=0)
    if longest > MOST_NAME or len(name) > MOST_PATH or "\0" in name:
        raise BadInput(
            f"{what} {quoted(name, 80)}: no file can have this name; names have at most {MOST_NAME} characters"
        )


def no_directory(path: Path) -> str:
    """What is wrong with a path that should be a directory."""
    return "is a file, not a directory" if path.exists() else "no such directory"


def plain_text(text: str) -> str:
    """A text that any file can hold: half characters, which UTF-8 does not have, become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain_json(given: object, depth: int = 0) -> Any:
    """What another program sent as JSON that any file can hold: no half characters, no infinities, no numbers of
    thousands of digits, no bottomless nesting.
    """
    if isinstance(given, str):
        return plain_text(given)
    if isinstance(given, float):
        return given if math.isfinite(given) else str(given)
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) >= _LARGEST_SENT:
        return f"a whole number of more than {MAX_SENT_DIGITS} digits"
    if isinstance(given, list | tuple | dict) and depth >= MAX_SENT_DEPTH:
        return "..."
    if isinstance(given, list | tuple):
        return [plain_json(part, depth + 1) for part in given]
    if isinstance(given, dict):
        return {plain_text(str(name)): plain_json(part, depth + 1) for name, part in given.items()}
    return given


def read_json(path: Path, *, unique: bool = False) -> JsonObject:
    """A JSON object from a file, or one line saying what is wrong with it; `unique` as in `parse_json`."""
    data = parse_json(content_of(path), source=path, unique=unique)
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def read_text(path: Path) -> str:
    """The text of a file, or one line saying what is wrong with it."""
    try:
        return content_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not readable as text ({why_not_text(error)})") from None


def content_of(path: Path) -> bytes:
    """The bytes of a file, up to `MOST_BYTES`."""
    content = bytearray()
    try:
        with path.open("rb") as file:
            while len(content) <= MOST_BYTES and (chunk := file.read(_CHUNK)):
                content += chunk
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise BadInput(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(content) > MOST_BYTES:
        raise BadInput(
            f"{path}: has more than {MOST_BYTES >> 20:,} MB, the most that is read as JSON; give another file"
        )
    return bytes(content)


def write_json(path: Path, data: Mapping[str, object]) -> None:
    """Write a JSON object in one step: readers see the old file or the new one."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step; halves of characters, which UTF-8 cannot hold, become `?`."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        fix = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "allow it or choose another place"
        raise Failed(f"{path}: could not be written ({error.strerror}); {fix}") from None


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mark_of(checksums: Mapping[str, str]) -> str:
    """A few digits that stand for several files, by their names and checksums."""
    text = "".join(f"{name} {checksum}\n" for name, checksum in sorted(checksums.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
