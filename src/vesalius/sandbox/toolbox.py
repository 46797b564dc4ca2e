"""List and read files of the toolbox directory, and nothing else.

Paths are resolved one name at a time from the open toolbox directory; `..`, symbolic links and special files are
refused.
"""

import os
import stat
from pathlib import Path

from vesalius.errors import BadInput

MAX_ENTRIES = 1_000


def list_directory(toolbox: Path, path: str) -> list[str]:
    """Names in a directory of the toolbox, sorted; directories end in a slash."""
    descriptor = _open(toolbox, path, directory=True)
    try:
        with os.scandir(descriptor) as entries:
            names = [
                entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
                for entry in entries
                if not entry.is_symlink()
            ]
    finally:
        os.close(descriptor)
    if len(names) > MAX_ENTRIES:
        return [*sorted(names)[:MAX_ENTRIES], f"... ({len(names)} in all)"]
    return sorted(names)


def read_file(toolbox: Path, path: str, *, limit: int) -> str:
    """The text of a file of the toolbox, cut after `limit` bytes."""
    descriptor = _open(toolbox, path, directory=False)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    text = data[:limit].decode("utf-8", "replace")
    return text if len(data) <= limit else f"{text}\n... (cut after {limit} bytes)"


def _open(toolbox: Path, path: str, *, directory: bool) -> int:
    relative = Path(path)
    if relative.is_absolute():
        if not relative.is_relative_to(toolbox):
            raise BadInput(f"path {path!r} is outside the toolbox; give one relative to it")
        relative = relative.relative_to(toolbox)
    if ".." in relative.parts or "\0" in path:
        raise BadInput(f"path {path!r} is outside the toolbox; give one relative to it, without '..'")
    kind = "directory" if directory else "file"
    descriptor = os.open(toolbox, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in relative.parts:
            inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        mode = os.fstat(descriptor).st_mode
        is_kind = stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)
    except OSError as error:
        os.close(descriptor)
        raise BadInput(
            f"path {path!r} is not a {kind} of the toolbox ({error.strerror}); list_directory('.')"
        ) from None
    if not is_kind:
        os.close(descriptor)
        raise BadInput(f"path {path!r} is not a {kind} of the toolbox; list_directory('.') shows what there is")
    return descriptor
