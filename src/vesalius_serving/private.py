"""Places that only their owner can enter: how a server hands a token to the user who started it.

Whatever stands in a command line is shown to every user of the machine by `ps`. So a browser is given the address of a
page on the disk, which leads on to the server.
"""

import html
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
