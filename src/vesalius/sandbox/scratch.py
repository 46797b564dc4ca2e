"""The only directory a program may write to: empty when the program starts, removed when it has ended.

In memory where mounts are possible, and then the kernel bounds its size. Otherwise a temporary directory on disk that
the warm process checks every few milliseconds, together with the files that the program holds open or mapped under no
name (unlinked, or made with O_TMPFILE). Checking and removing must cope with hostile contents.
"""

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator

from vesalius.sandbox import filesystem, kernel

MAX_FILES = 4096


def mount(size: int) -> None:
    """An empty directory in memory at `filesystem.SCRATCH`."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"mode=0777,size={size},nr_inodes={MAX_FILES}"
    kernel.mount("tmpfs", filesystem.SCRATCH, kind="tmpfs", flags=flags, options=options)


@contextlib.contextmanager
def directory(size: int, *, mounted: bool) -> Iterator[str]:
    """A scratch directory for one call."""
    if mounted:
        mount(size)
        yield filesystem.SCRATCH
        kernel.detach(filesystem.SCRATCH)
    else:
        path = tempfile.mkdtemp(prefix="vesalius-scratch-")
        yield path
        clear(path)


def overfull(path: str, size: int, *, process: int | None = None) -> bool:
    """Whether a directory, with the nameless files of `process`, holds more than `size` bytes or `MAX_FILES` files, or
    cannot be read.
    """
    nameless = 0 if process is None else nameless_bytes(process)
    if nameless is None or nameless > size:
        return True
    used, count, pending = nameless, 0, [path]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    count += 1
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if used > size or count > MAX_FILES:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except FileNotFoundError:
            continue  # removed in the meantime
        except OSError:
            return True
    return False


def nameless_bytes(process: int) -> int | None:
    """Bytes of files without a name that a process has open or mapped; None where a living one cannot be looked at."""
    try:
        opened = {}
        for name in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                status = os.stat(f"/proc/{process}/fd/{name}")
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    opened[status.st_ino] = status.st_blocks * 512
        with open(f"/proc/{process}/maps", "rb") as maps:
            mapped = [line.split(maxsplit=5) for line in maps if line.rstrip().endswith(b"(deleted)")]
    except OSError:
        return 0 if _has_ended(process) else None
    sizes = dict.fromkeys((int(fields[4]) for fields in mapped if len(fields) == 6), 0)
    for fields in mapped:
        if len(fields) == 6 and not fields[5].startswith(b"/dev/zero"):
            first, _, last = fields[0].partition(b"-")
            sizes[int(fields[4])] += int(last, 16) - int(first, 16)
    return sum(opened.values()) + sum(length for inode, length in sizes.items() if inode not in opened)


def _has_ended(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


def clear(path: str) -> None:
    """Remove a directory of any depth: entries two levels down are moved up until there are none."""
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
