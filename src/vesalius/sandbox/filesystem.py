"""The files code in the sandbox can see: an allowlist, everything else does not exist there.

On the list: the interpreter and its standard library, the shared libraries of the system, numpy, scipy and torch with
what they import, the packages that the warm process has loaded, of Vesalius and its wings the files of the loaded
modules (and no other file of them), and the toolbox. What is readable is therefore what a program could find in its
memory anyway.

Where mounts are possible (`build_private_root`), the process gets a private root that holds those files read-only, a
few devices, an empty scratch directory, and nothing else: no /proc, no home, no run directories. Where they are not,
`Opened.readable` lists the same files for Landlock. What commands see, which are not ours, is told by
`vesalius.sandbox.command_files`.
"""

import contextlib
import os
import secrets
import site
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, ClassVar

from vesalius.sandbox import kernel

#: This package and its wings, which lie beside it.
PACKAGES = sorted(path.parent for path in Path(__file__).parents[2].glob("vesalius*/__init__.py"))
OWN_NAMES = frozenset(path.name for path in PACKAGES)
#: Modules that hold answers or make them; a warm process that has loaded one of them is refused.
SEALED_MODULES = ("vesalius.circuits", "vesalius_functions", "vesalius_truth")
#: Installed packages that programs may import although the warm process has not: mathematics, and what it imports.
LIBRARIES = frozenset({
    "numpy", "scipy", "torch", "torchgen", "functorch", "triton", "nvidia", "sympy", "mpmath", "networkx", "jinja2",
    "markupsafe", "filelock", "fsspec", "typing_extensions", "tqdm", "opt_einsum", "psutil", "einops", "pandas", "pytz",
    "dateutil", "six", "sklearn", "joblib", "threadpoolctl",
})  # fmt: skip

SCRATCH = "/scratch"
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_LOADER_CACHE = "/etc/ld.so.cache"
#: Where a system keeps its libraries. A library elsewhere, for example in a project, does not open its directory.
_LIBRARY_ROOTS = ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")
_INSTALLED = ("site-packages", "dist-packages")
_NEW_ROOT, _OLD_ROOT = "/tmp", "/.old"
_SKELETON = "mode=0755,size=1m"
#: The kernel's flag of a process that has begun to end.
_PF_EXITING = 0x4


def trees() -> list[str]:
    """Directories that are opened whole: the standard library and those of shared libraries."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    paths += [entry for entry in sys.path if Path(entry).name == "lib-dynload"]
    paths += _library_directories()
    return outermost(os.path.abspath(path) for path in paths if os.path.isdir(path) and not _is_closed(path))


def closed_directories(opened: Iterable[str]) -> list[str]:
    """Directories of installed packages, and of this one with its wings: closed wherever they lie in an opened tree."""
    directories = {*installed_directories(), *map(str, PACKAGES)}
    for tree in opened:
        for name in _INSTALLED:
            directories |= {str(path) for pattern in (name, f"python*/{name}") for path in Path(tree).glob(pattern)}
    return sorted(os.path.abspath(path) for path in directories if os.path.isdir(path))


def open_entries() -> list[str]:
    """What is opened of the closed directories: the allowed packages, and the files of this package's modules."""
    loaded = {name.partition(".")[0] for name in sys.modules}
    allowed = (LIBRARIES | loaded) - OWN_NAMES
    entries = [
        os.path.join(directory, name)
        for directory in installed_directories()
        for name in sorted(os.listdir(directory))
        if _package_of(name) in allowed
    ]
    return entries + loaded_files()


def loaded_files() -> list[str]:
    """The files of the modules of this package that are loaded."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in OWN_NAMES]
    files = {os.path.abspath(file) for module in modules if (file := getattr(module, "__file__", None))}
    return sorted(file for file in files if any(map(Path(file).is_relative_to, PACKAGES)))


class OpenPackages(PathFinder):
    """Finds modules as Python does, except in packages that may not be read: those are not installed.

    Libraries try optional imports and handle a missing package, but not the refused file that Landlock gives them.
    """

    closed: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def install(cls) -> None:
        """Replace Python's own finder in this process."""
        opened = {os.path.basename(entry) for entry in open_entries()}
        names = {name for directory in installed_directories() for name in os.listdir(directory)}
        cls.closed = frozenset({_package_of(name) for name in names - opened} - {_package_of(name) for name in opened})
        sys.meta_path[:] = [cls if finder is PathFinder else finder for finder in sys.meta_path]

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module, or None if there is none that may be read."""
        package, _, rest = fullname.partition(".")
        if package in cls.closed or (package in OWN_NAMES and rest):
            return None
        return super().find_spec(fullname, path, target)


@dataclass(frozen=True)
class Opened:
    """What can be read: whole trees without the closed directories in them, and entries wherever they lie."""

    trees: tuple[str, ...]
    closed: tuple[str, ...]
    entries: tuple[str, ...]
    #: Directories of which the names can be read, and nothing else.
    listed: tuple[str, ...] = ()

    @classmethod
    def for_programs(cls, toolbox: str | None) -> "Opened":
        """What programs of the warm process can read."""
        whole = trees()
        entries = [*open_entries(), _LOADER_CACHE] + ([os.path.abspath(toolbox)] if toolbox else [])
        return cls(tuple(whole), tuple(closed_directories(whole)), tuple(entries))

    def listable(self) -> list[str]:
        """The trees with a closed directory in them. Landlock cannot open them whole, and importing from one takes its
        list of names.
        """
        closed = [os.path.realpath(path) for path in self.closed]
        real = map(os.path.realpath, self.trees)
        return [*self.listed, *(tree for tree in real if any(Path(one).is_relative_to(tree) for one in closed))]

    def readable(self) -> list[str]:
        """Every path that may be read, for Landlock, which can grant but not hide."""
        closed = [os.path.realpath(path) for path in self.closed]
        paths = [*DEVICES, *self.entries]
        for tree in self.trees:
            paths += _without(os.path.realpath(tree), closed)
        return paths


def build_private_root(opened: Opened, directory: str | None = None) -> None:
    """Replace the root of this mount namespace by a private one, where `directory` exists at least as an empty one.
    Needs a separate mount namespace.
    """
    present = {path: os.path.realpath(path) for path in (*opened.trees, *opened.entries)}
    sources = {path: source for path, source in present.items() if os.path.exists(source)}
    whole = [tree for tree in opened.trees if tree in sources]
    hidden = _mounted_paths([os.path.realpath(path) for path in opened.closed], {tree: sources[tree] for tree in whole})
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    safe = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", _NEW_ROOT, kind="tmpfs", flags=safe, options=_SKELETON)
    os.mkdir(_NEW_ROOT + _OLD_ROOT)
    kernel.pivot_root(_NEW_ROOT, _NEW_ROOT + _OLD_ROOT)
    os.chdir("/")
    os.mkdir(SCRATCH)
    _copy_root_links()
    for tree in whole:
        _bind(_OLD_ROOT + sources[tree], tree)
    hidden = [directory for directory in hidden if os.path.isdir(directory)]
    for path in hidden:
        kernel.mount("tmpfs", path, kind="tmpfs", flags=safe | kernel.MS_NOEXEC, options=_SKELETON)
    for entry in outermost(entry for entry in opened.entries if entry in sources):
        _bind(_OLD_ROOT + sources[entry], entry)
    for device in DEVICES:
        _bind_file(_OLD_ROOT + device, device, kernel.MOUNT_ATTR_NOSUID)
    if directory is not None:
        with contextlib.suppress(OSError):  # in a tree that is opened read-only, which does not have it
            os.makedirs(directory, exist_ok=True)
    kernel.detach(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)
    for path in ("/", *hidden):
        kernel.restrict_mount(path, kernel.MOUNT_ATTR_RDONLY, recursive=False)


def installed_directories() -> list[str]:
    """Directories that packages are installed in, of this interpreter and of the one it was made from."""
    paths = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    paths += [entry for entry in sys.path if Path(entry).name in _INSTALLED]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return sorted({os.path.abspath(path) for path in paths if os.path.isdir(path)})


def _package_of(entry: str) -> str:
    """The package that an entry of such a directory belongs to: `numpy`, `numpy.libs`, `numpy-2.0.dist-info`."""
    name = entry.partition("-")[0].lower() if entry.endswith(".dist-info") else entry
    return name.partition(".")[0]


def _is_closed(path: str) -> bool:
    """Whether a directory is one of installed packages, or in this package."""
    where = Path(os.path.realpath(path))
    return where.name in _INSTALLED or any(where.is_relative_to(os.path.realpath(package)) for package in PACKAGES)


def _library_directories() -> set[str]:
    """Directories of the shared libraries that this process has loaded; more of them may be loaded later.

    Those inside installed packages are opened with their package, if at all.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        files = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if line.count("/")}
    directories = {os.path.dirname(file) for file in files if ".so" in os.path.basename(file) and os.path.isfile(file)}
    roots = [os.path.realpath(root) for root in (*_LIBRARY_ROOTS, sys.prefix, sys.base_prefix)]
    return {
        path
        for path in directories
        if any(Path(path).is_relative_to(root) for root in roots) and not set(_INSTALLED) & set(Path(path).parts)
    }


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not inside another one."""
    outermost: list[str] = []
    for path in sorted(set(paths)):
        if not any(Path(path).is_relative_to(outer) for outer in outermost):
            outermost.append(path)
    return outermost


def _without(tree: str, closed: Sequence[str]) -> list[str]:
    """The tree, or its parts without the closed directories it holds."""
    if tree in closed:
        return []
    if not any(Path(directory).is_relative_to(tree) for directory in closed):
        return [tree]
    return [part for name in sorted(os.listdir(tree)) for part in _without(os.path.join(tree, name), closed)]


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
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        if os.path.islink(f"{_OLD_ROOT}/{name}"):
            os.symlink(os.readlink(f"{_OLD_ROOT}/{name}"), f"/{name}")


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        _bind_directory(source, target)
    else:
        attributes = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
        _bind_file(source, target, attributes)


def _bind_directory(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    attributes = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
    kernel.restrict_mount(target, attributes, recursive=True)


def _bind_file(source: str, target: str, attributes: int) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with contextlib.suppress(FileExistsError), open(target, "x"):
        pass
    kernel.mount(source, target, flags=kernel.MS_BIND)
    kernel.restrict_mount(target, attributes, recursive=False)


# The only directory a program may write to: empty when the program starts, removed when it has ended.

MAX_FILES = 4096


def mount(size: int) -> None:
    """An empty directory in memory at `SCRATCH`."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"mode=0777,size={size},nr_inodes={MAX_FILES}"
    kernel.mount("tmpfs", SCRATCH, kind="tmpfs", flags=flags, options=options)


@contextlib.contextmanager
def directory(size: int, *, mounted: bool) -> Iterator[str]:
    """A scratch directory for one call."""
    if mounted:
        mount(size)
        yield SCRATCH
        kernel.detach(SCRATCH)
    else:
        path = tempfile.mkdtemp(prefix="vesalius-scratch-")
        yield path
        clear(path)


def overfull(path: str, size: int, *, processes: Iterable[int] = ()) -> bool:
    """Whether a directory, with the nameless files of these processes, holds more than `size` bytes or `MAX_FILES`
    files, or cannot be read.
    """
    nameless = nameless_bytes(processes)
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


def nameless_bytes(processes: Iterable[int]) -> int | None:
    """Bytes of files without a name that processes have open or mapped, each file once; None where a living process
    cannot be looked at.
    """
    sizes: dict[int, int] = {}
    for process in processes:
        for task in _tasks(process):  # a thread may have files of its own, and outlive the first one
            files = _nameless_files(task)
            if files is None:
                return None
            for inode, length in files.items():
                sizes[inode] = max(length, sizes.get(inode, 0))
    return sum(sizes.values())


def _tasks(process: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{process}/task")]
    return [process]


def _nameless_files(task: int) -> dict[int, int] | None:
    """The sizes of such files of one thread."""
    try:
        opened = {}
        for name in os.listdir(f"/proc/{task}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                status = os.stat(f"/proc/{task}/fd/{name}")
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    opened[status.st_ino] = status.st_blocks * 512
        with open(f"/proc/{task}/maps", "rb") as maps:
            mapped = [line.split(maxsplit=5) for line in maps if line.rstrip().endswith(b"(deleted)")]
    except OSError:
        return {} if _has_ended(task) else None
    sizes = dict.fromkeys((int(fields[4]) for fields in mapped if len(fields) == 6), 0)
    for fields in mapped:
        if len(fields) == 6 and not fields[5].startswith(b"/dev/zero"):
            first, _, last = fields[0].partition(b"-")
            sizes[int(fields[4])] += int(last, 16) - int(first, 16)
    return sizes | opened


def _has_ended(process: int) -> bool:
    """Whether a process or thread is gone, or ending: nobody may look at one that has begun to end."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)


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
