"""The files code in the sandbox can see: the interpreter, installed packages, loaded libraries, the toolbox.

Where mounts are possible (`build_private_root`), the process gets a private root that holds those trees read-only, a
few devices, an empty scratch directory, and nothing else: no /proc, no home, no run directories. Where they are not,
`readable` lists the same trees for Landlock. Either way the directories of this package that hold answers are left out.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from vesalius.sandbox import kernel

PACKAGE = Path(__file__).parents[1]
#: Directories of the package that no program may read: the answer key, and the data it was made from.
SEALED = (PACKAGE / "circuits" / "key", PACKAGE / "circuits" / "data")
SEALED_MODULES = ("vesalius.circuits.key", "vesalius.grading")

SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_LOADER_CACHE = "/etc/ld.so.cache"
#: Where a system keeps its libraries. A library elsewhere, for example in a project, does not open its directory.
_LIBRARY_ROOTS = ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")
_NEW_ROOT, _OLD_ROOT = "/tmp", "/.old"
_EMPTY = "mode=0555,size=4k,nr_inodes=2"


def interpreter_trees() -> list[str]:
    """Directories that imports and lazily loaded libraries need."""
    installed = ("site-packages", "dist-packages", "lib-dynload")
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [entry for entry in sys.path if Path(entry).name in installed]
    paths += [str(PACKAGE), *_library_directories()]
    return _outermost(os.path.abspath(path) for path in paths if os.path.isdir(path))


def sealed_directories(trees: Iterable[str]) -> list[str]:
    """The sealed directories of this package, and of any other copy of it installed in one of the trees."""
    copies = [Path(tree, PACKAGE.name, directory.relative_to(PACKAGE)) for tree in trees for directory in SEALED]
    return sorted({os.path.realpath(directory) for directory in [*SEALED, *copies] if directory.is_dir()})


def readable(toolbox: str | None) -> list[str]:
    """Every path that may be read, without the sealed directories: Landlock can grant but not hide."""
    trees = interpreter_trees() + ([toolbox] if toolbox else [])
    sealed = sealed_directories(trees)
    paths = [_LOADER_CACHE, *DEVICES]
    for tree in trees:
        paths += _without(os.path.realpath(tree), sealed)
    return paths


def build_private_root(toolbox: str | None) -> None:
    """Replace the root of this mount namespace by a private one. Needs a separate mount namespace."""
    trees = interpreter_trees() + ([os.path.abspath(toolbox)] if toolbox else [])
    sources = {tree: os.path.realpath(tree) for tree in trees}
    sealed = _mounted_paths(sealed_directories(trees), sources)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    safe = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", _NEW_ROOT, kind="tmpfs", flags=safe, options="mode=0755,size=1m")
    os.mkdir(_NEW_ROOT + _OLD_ROOT)
    kernel.pivot_root(_NEW_ROOT, _NEW_ROOT + _OLD_ROOT)
    os.chdir("/")
    os.mkdir(SCRATCH)
    _copy_root_links()
    for target, source in sources.items():
        _bind_directory(_OLD_ROOT + source, target)
    if os.path.exists(_OLD_ROOT + _LOADER_CACHE):
        _bind_file(_OLD_ROOT + _LOADER_CACHE, _LOADER_CACHE, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NODEV)
    for device in DEVICES:
        _bind_file(_OLD_ROOT + device, device, kernel.MOUNT_ATTR_NOSUID)
    for directory in filter(os.path.isdir, sealed):
        kernel.mount("tmpfs", directory, kind="tmpfs", flags=safe | kernel.MS_NOEXEC, options=_EMPTY)
        kernel.restrict_mount(directory, kernel.MOUNT_ATTR_RDONLY, recursive=False)
    kernel.detach(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)
    kernel.restrict_mount("/", kernel.MOUNT_ATTR_RDONLY, recursive=False)


def _library_directories() -> set[str]:
    """Directories of the shared libraries that this process has loaded; more of them may be loaded later."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    directories = {os.path.dirname(file) for file in files if ".so" in os.path.basename(file) and os.path.isfile(file)}
    roots = [os.path.realpath(root) for root in (*_LIBRARY_ROOTS, sys.prefix, sys.base_prefix)]
    return {path for path in directories if any(Path(path).is_relative_to(root) for root in roots)}


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not inside another one."""
    outermost: list[str] = []
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(outer) for outer in outermost):
            outermost.append(path)
    return outermost


def _without(tree: str, sealed: Sequence[str]) -> list[str]:
    """The tree, or its parts without the sealed directories it holds."""
    if tree in sealed:
        return []
    if not any(Path(directory).is_relative_to(tree) for directory in sealed):
        return [tree]
    return [part for name in sorted(os.listdir(tree)) for part in _without(os.path.join(tree, name), sealed)]


def _mounted_paths(directories: Iterable[str], sources: dict[str, str]) -> list[str]:
    """Every path under the new root at which one of the directories would appear."""
    return [
        os.path.join(target, os.path.relpath(directory, source))
        for directory in directories
        for target, source in sources.items()
        if Path(directory).is_relative_to(source)
    ]


def _copy_root_links() -> None:
    """`/lib -> usr/lib` and similar links, where the distribution has them."""
    for name in ("lib", "lib64", "bin"):
        if os.path.islink(f"{_OLD_ROOT}/{name}"):
            os.symlink(os.readlink(f"{_OLD_ROOT}/{name}"), f"/{name}")


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
