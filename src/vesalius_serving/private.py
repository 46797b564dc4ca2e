"""Files that only their owner can read: how a server hands a token or a secret to the user who started it.

Whatever stands in a command line is shown to every user of the machine by `ps`. So a browser is given the address of a
page on the disk, which leads on to the server, and programs read their secrets from a file.
"""

import html
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vesalius.errors import BadInput, Failed

#: Bytes of a private file at most.
MOST_BYTES = 1_000_000


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, whole or not at all; what was there is replaced, links included."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)
    except OSError as error:
        raise Failed(f"{path}: cannot be written ({error.strerror}); choose another place") from None


def read_private(path: Path) -> str:
    """The text of a private file; refused where others could have read or written it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            about = os.fstat(handle)
            text = file.read(MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); remove it, and the server makes it again") from None
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        raise BadInput(f"{path}: is not a file of this user; remove it, and the server makes it again")
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise BadInput(f"{path}: other users can read it; remove it, so that new secrets are made")
    return text


@contextmanager
def private_directory() -> Iterator[Path]:
    """A directory that its owner alone can enter, removed at the end; below the user's runtime directory if any."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    above = runtime if runtime and _is_ours(Path(runtime)) else None
    place = Path(tempfile.mkdtemp(prefix="vesalius-", dir=above))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def redirect_page(address: str) -> str:
    """A page that leads on to an address, which stands nowhere else."""
    quoted = html.escape(address, quote=True)
    return (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={quoted}">'
        f'<title>Vesalius</title><a href="{quoted}">Open the workbench</a>\n'
    )


def _is_ours(place: Path) -> bool:
    try:
        about = place.lstat()
    except OSError:
        return False
    private = not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and private
