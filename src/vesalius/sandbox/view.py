"""What code in the sandbox can see: the interpreter, its installed packages, the libraries it has loaded, the toolbox.

Where mounts are possible (`build`), the process gets a root of its own that holds those trees read-only, a few
devices, an empty scratch directory, and nothing else: no /proc, no home, no run directories. Where they are not,
`readable` lists the same trees for Landlock. Either way the rooms of this package that hold answers are left out.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from vesalius.sandbox import kernel

PACKAGE = Path(__file__).parents[1]
#: Rooms of the package that no program may read: the answer key, and the data it was made from.
SEALED = (PACKAGE / "circuits" / "key", PACKAGE / "circuits" / "data")
SEALED_MODULES = ("vesalius.circuits.key", "vesalius.grading")

SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_LOADER_CACHE = "/etc/ld.so.cache"
#: Where a system keeps its libraries. One that lies elsewhere, say beside somebody's project, opens no directory.
_LIBRARY_HOMES = ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")
_STAGE, _OLD = "/tmp", "/.old"
_EMPTY = "mode=0555,size=4k,nr_inodes=2"


def interpreter_trees() -> list[str]:
    """Directories that imports and lazily loaded libraries need."""
    installed = ("site-packages", "dist-packages", "lib-dynload")
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [entry for entry in sys.path if Path(entry).name in installed]
    paths += [str(PACKAGE), *_library_directories()]
    return _outermost(os.path.abspath(path) for path in paths if os.path.isdir(path))


def sealed_rooms(trees: Iterable[str]) -> list[str]:
    """The sealed rooms of this package, and of any other copy of it that is installed in one of the trees."""
    copies = [Path(tree, PACKAGE.name, room.relative_to(PACKAGE)) for tree in trees for room in SEALED]
    return sorted({os.path.realpath(room) for room in [*SEALED, *copies] if room.is_dir()})


def readable(toolbox: str | None) -> list[str]:
    """Everything that may be read, around the sealed rooms: the form Landlock needs, which can grant but not hide."""
    trees = interpreter_trees() + ([toolbox] if toolbox else [])
    sealed = sealed_rooms(trees)
    found = [_LOADER_CACHE, *DEVICES]
    for tree in trees:
        found += _around(os.path.realpath(tree), sealed)
    return found


def build(toolbox: str | None) -> None:
    """Swap the root of this mount namespace for the private view. Needs a mount namespace of one's own."""
    trees = interpreter_trees() + ([os.path.abspath(toolbox)] if toolbox else [])
    sources = {tree: os.path.realpath(tree) for tree in trees}
    sealed = _in_view(sealed_rooms(trees), sources)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    safe = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", _STAGE, kind="tmpfs", flags=safe, options="mode=0755,size=1m")
    os.mkdir(_STAGE + _OLD)
    kernel.pivot_root(_STAGE, _STAGE + _OLD)
    os.chdir("/")
    os.mkdir(SCRATCH)
    _copy_root_links()
    for target, source in sources.items():
        _bind_directory(_OLD + source, target)
    if os.path.exists(_OLD + _LOADER_CACHE):
        _bind_file(_OLD + _LOADER_CACHE, _LOADER_CACHE, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NODEV)
    for device in DEVICES:
        _bind_file(_OLD + device, device, kernel.MOUNT_ATTR_NOSUID)
    for room in filter(os.path.isdir, sealed):
        kernel.mount("tmpfs", room, kind="tmpfs", flags=safe | kernel.MS_NOEXEC, options=_EMPTY)
        kernel.restrict_mount(room, kernel.MOUNT_ATTR_RDONLY, recursive=False)
    kernel.detach(_OLD)
    os.rmdir(_OLD)
    kernel.restrict_mount("/", kernel.MOUNT_ATTR_RDONLY, recursive=False)


def _library_directories() -> set[str]:
    """Where the shared libraries lie that this process has loaded; others of theirs may be loaded later."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    found = {os.path.dirname(file) for file in files if ".so" in os.path.basename(file) and os.path.isfile(file)}
    homes = [os.path.realpath(home) for home in (*_LIBRARY_HOMES, sys.prefix, sys.base_prefix)]
    return {path for path in found if any(Path(path).is_relative_to(home) for home in homes)}


def _outermost(paths: Iterable[str]) -> list[str]:
    """Without the ones that lie inside another."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def _around(tree: str, sealed: Sequence[str]) -> list[str]:
    """The tree, or where it holds a sealed room, its parts without that room."""
    if tree in sealed:
        return []
    if not any(Path(room).is_relative_to(tree) for room in sealed):
        return [tree]
    return [part for name in sorted(os.listdir(tree)) for part in _around(os.path.join(tree, name), sealed)]


def _in_view(rooms: Iterable[str], sources: dict[str, str]) -> list[str]:
    """Every place in the view where one of the rooms would be seen."""
    return [
        os.path.join(target, os.path.relpath(room, source))
        for room in rooms
        for target, source in sources.items()
        if Path(room).is_relative_to(source)
    ]


def _copy_root_links() -> None:
    """`/lib -> usr/lib` and its like, where the distribution has them."""
    for name in ("lib", "lib64", "bin"):
        if os.path.islink(f"{_OLD}/{name}"):
            os.symlink(os.readlink(f"{_OLD}/{name}"), f"/{name}")


def _bind_directory(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    attributes = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
    kernel.restrict_mount(target, attributes, recursive=True)


def _bind_file(source: str, target: str, attributes: int) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "x"):
        pass
    kernel.mount(source, target, flags=kernel.MS_BIND)
    kernel.restrict_mount(target, attributes, recursive=False)
