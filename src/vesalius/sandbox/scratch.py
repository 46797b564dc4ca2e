"""The one place a program may write: empty when it starts, gone when it has ended.

In memory where mounts are possible, and then the kernel bounds it. Else a temporary directory on disk that the warm
process looks at every few milliseconds. Both the looking and the clearing away expect the worst of what lies there.
"""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator

from vesalius.sandbox import kernel, view

MAX_FILES = 4096


def mount(size: int) -> None:
    """An empty directory in memory at `view.SCRATCH`."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"mode=0777,size={size},nr_inodes={MAX_FILES}"
    kernel.mount("tmpfs", view.SCRATCH, kind="tmpfs", flags=flags, options=options)


@contextlib.contextmanager
def directory(size: int, *, mounted: bool) -> Iterator[str]:
    """A scratch directory for one call."""
    if mounted:
        mount(size)
        yield view.SCRATCH
        kernel.detach(view.SCRATCH)
    else:
        path = tempfile.mkdtemp(prefix="vesalius-scratch-")
        yield path
        clear(path)


def overfull(path: str, size: int) -> bool:
    """Whether a directory holds more than it may, or something that cannot be looked at."""
    taken, count, pending = 0, 0, [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    taken += entry.stat(follow_symlinks=False).st_blocks * 512
                    if taken > size or count > MAX_FILES:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except FileNotFoundError:
            continue  # removed while we looked
        except OSError:
            return True
    return False


def clear(path: str) -> None:
    """Remove a directory nested as deeply as you like: what lies two levels down is moved up, until nothing does."""
    token, moved = secrets.token_hex(8), 0
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        while names := os.listdir(root):
            for name in names:
                if not _is_directory(name, root):
                    os.unlink(name, dir_fd=root)
                    continue
                os.chmod(name, 0o700, dir_fd=root)
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
                for child in os.listdir(inner):
                    moved += 1
                    if _is_directory(child, inner):
                        os.chmod(child, 0o700, dir_fd=inner)  # moving a directory writes to it
                    os.rename(child, f"{token}-{moved}", src_dir_fd=inner, dst_dir_fd=root)
                os.close(inner)
                os.rmdir(name, dir_fd=root)
    finally:
        os.close(root)
    os.rmdir(path)


def _is_directory(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
