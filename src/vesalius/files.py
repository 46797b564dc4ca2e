"""JSON and text files: read with one-line errors, written so that readers never see half a file."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, Failed


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one line saying what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path}: not readable as JSON ({error})") from None
    except RecursionError:
        raise BadInput(f"{path}: not readable as JSON (too many brackets inside each other)") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
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
        raise Failed(
            f"{path}: could not be written ({error.strerror}); free some space or choose another place"
        ) from None


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
