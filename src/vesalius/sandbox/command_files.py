"""What a foreign command can see and call: the system's programs, its own files, and what its caller named.

A command is any program: a shell script, a binary, an interpreter with a script. It sees the directories in which a
system keeps its programs and libraries, the interpreter that it starts with, the files that stand in its command line,
and paths that the caller allowed. It does not see homes, run directories, `/proc`, `/etc` but for the loader's
cache, nor this package, which holds the answer key: the directories of the package and its wings are closed wherever
they lie, and so are those of other copies, in an allowed path too. Archives of copies are not looked for.
"""

import errno
import os
import sys
from collections.abc import Iterable, Sequence
from glob import escape as glob_escape
from glob import glob
from pathlib import Path

from vesalius.errors import BadInput
from vesalius.sandbox.filesystem import OWN_NAMES, PACKAGES, Opened, installed_directories, outermost
from vesalius.sandbox.kernel import ALLOWED, CONDITIONAL, Rules

#: Where a system keeps its programs and libraries.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
#: What finding a server by its name, and trusting it, takes.
_ETC_OF_NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/gai.conf"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/crypto-policies"),
)
#: Where other copies of the package may be installed in a tree that was not allowed but is opened for its programs.
_INSTALLATIONS = ("", "*-packages", "*/*-packages", "*/*/*-packages", "*/lib*/*/*-packages", "src")
#: In an allowed path they are looked for everywhere, in at most this many directories.
MOST_DIRECTORIES = 100_000
#: How deep a script may name an interpreter that is a script.
_SHEBANGS = 4


def opened_for(arguments: Sequence[str], *, read: Iterable[str] = (), own: Sequence[str] = (), network: bool) -> Opened:
    """What a command sees. `read` are paths that the caller allowed, `own` files of this package that it needs."""
    named = [os.path.abspath(one) for one in arguments[1:] if os.path.isfile(one)]
    allowed = [os.path.abspath(os.path.expanduser(path)) for path in read]
    for path in (*named, *allowed):
        if path not in own:
            real = Path(os.path.realpath(path))
            if any(real.is_relative_to(os.path.realpath(package)) for package in PACKAGES) or any(
                _is_copy(str(folder)) for folder in (real, *real.parents)
            ):
                raise BadInput(
                    f"path {path}: is inside vesalius, whose answers commands must not see; copy what it needs"
                )
    # The program, and the interpreters that its first line names.
    programs = [arguments[0]]
    for _ in range(_SHEBANGS):
        with open(programs[-1], "rb") as file:
            first = file.readline(512)
        words = first[2:].split() if first.startswith(b"#!") else []
        if not words or not os.path.isfile(words[0]):
            break
        programs.append(os.path.abspath(os.fsdecode(words[0])))
    trees = [path for path in (*_SYSTEM, *_interpreter_trees(programs), *allowed) if os.path.exists(path)]
    trees = [path for path in trees if os.path.isdir(path) and not (path in _SYSTEM and os.path.islink(path))]
    etc = (*_ETC, *(_ETC_OF_NETWORK if network else ()))
    single = [path for path in (*programs, *_beside(programs), *named, *allowed, *etc, *own) if os.path.exists(path)]
    # A path that was allowed may hold the package: as a tree its closed directories stay closed.
    entries = [path for path in single if path not in allowed or os.path.isfile(path)]
    listed = sorted(
        {folder for path in own for folder in (os.path.dirname(path), os.path.dirname(os.path.dirname(path)))}
    )
    closed = {*_closed(trees), *(copy for path in allowed if os.path.isdir(path) for copy in _copies_in(path))}
    return Opened(tuple(outermost(trees)), tuple(sorted(closed)), tuple(dict.fromkeys(entries)), tuple(listed))


def unreadable(paths: Iterable[str]) -> str | None:
    """The first of these files and directories that user nobody, who commands of root run as, cannot read."""
    for path in map(os.path.abspath, paths):
        wanted = 0o005 if os.path.isdir(path) else 0o004
        if os.path.exists(path) and os.stat(path).st_mode & wanted != wanted:
            return path
    return None


def rules_for(*, processes: bool, signals: bool, network: bool) -> Rules:
    """Which calls a command may make: those of programs, those of a shell, and with `network` those of a client."""
    conditional = {name: rule for name, rule in CONDITIONAL.items() if name not in ("kill", "tgkill")}
    conditional["prlimit64"] = ((302, 261), 0, (0,))
    conditional["prctl"] = ((157, 167), 0, (1, 2, 3, 15, 16, 23, 0x53564D41))
    # pairs of sockets (domain 1) lead nowhere else
    conditional["socketpair"] = ((53, 199), 0, (1,))
    allowed = {**ALLOWED, **_SHELL, **(_SIGNALS if signals else {}), **(_CLIENT if network else {})}
    if network:
        conditional["socket"] = ((41, 198), 0, (2, 10))  # internet only: no unix sockets, no raw kernel interfaces
    return Rules(allowed, conditional, processes=processes, full=errno.EPERM, unsupported=_ATTRIBUTES)


#: name: (number on x86_64, number on aarch64), as in `kernel.ALLOWED`.
_SHELL: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221), "wait4": (61, 260), "waitid": (247, 95), "setpgid": (109, 154), "setsid": (112, 157),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210),
    "getsockname": (51, 204), "getpeername": (52, 205), "setsockopt": (54, 208), "getsockopt": (55, 209),
    "setrlimit": (160, 164), "epoll_pwait2": (441, 441), "sched_setaffinity": (203, 122),
}  # fmt: skip
#: Extended attributes, which `ls -l` asks for: there are none.
_ATTRIBUTES = ((191, 8), (192, 9), (193, 10), (194, 11), (195, 12), (196, 13))
_SIGNALS: dict[str, tuple[int | None, int | None]] = {"kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131)}
_CLIENT: dict[str, tuple[int | None, int | None]] = {
    "connect": (42, 203), "bind": (49, 200), "sendmmsg": (307, 269), "recvmmsg": (299, 243),
}  # fmt: skip


def _is_copy(directory: str) -> bool:
    """Whether a directory is this package or a wing of it, wherever it was installed."""
    return os.path.basename(directory) in OWN_NAMES and os.path.isfile(os.path.join(directory, "__init__.py"))


def _copies_in(path: str) -> list[str]:
    """The copies of this package and its wings that lie anywhere in an allowed directory."""
    found: list[str] = []
    for number, (folder, names, _) in enumerate(os.walk(path)):
        if number >= MOST_DIRECTORIES:
            raise BadInput(
                f"`allow_read` {path}: holds more than {MOST_DIRECTORIES} directories, too many to look for copies of "
                "vesalius in; name those that are needed"
            )
        copies = {name for name in names if _is_copy(os.path.join(folder, name))}
        found += [os.path.join(folder, name) for name in copies]
        names[:] = [name for name in names if name not in copies]
    return found


def _prefixes(programs: Iterable[str]) -> list[str]:
    """The folders that interpreters outside the system are installed in, and those that a virtual one builds on."""
    places = dict.fromkeys(place for one in programs for place in (one, os.path.realpath(one)))
    prefixes = [os.path.dirname(os.path.dirname(place)) for place in places]
    for prefix in list(prefixes):
        try:
            lines = Path(prefix, "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            continue
        prefixes += [os.path.dirname(line.partition("=")[2].strip()) for line in lines if line.startswith("home")]
    real = [os.path.realpath(prefix) for prefix in prefixes]
    outside = [one for one in dict.fromkeys((*prefixes, *real)) if one not in ("/", "") and one not in _SYSTEM]
    return [one for one in outside if not any(Path(one).is_relative_to(system) for system in _SYSTEM)]


def _interpreter_trees(programs: Sequence[str]) -> list[str]:
    """Of interpreters outside the system, their libraries; of this one, also those that its path files name."""
    trees: list[str] = []
    for prefix in _prefixes(programs):
        whole = os.path.isdir(os.path.join(prefix, "conda-meta"))
        trees += [os.path.join(prefix, "lib")] if whole else glob(os.path.join(glob_escape(prefix), "lib", "python*"))
    if os.path.realpath(sys.executable) in map(os.path.realpath, programs):
        trees += installed_directories()
    return trees


def _beside(programs: Sequence[str]) -> list[str]:
    """Single files that interpreters outside the system need."""
    files: list[str] = []
    for prefix in _prefixes(programs):
        files += [os.path.join(prefix, "pyvenv.cfg"), *glob(os.path.join(glob_escape(prefix), "lib", "libpython*"))]
        files += [path for path in glob(os.path.join(glob_escape(prefix), "bin", "python*")) if os.path.isfile(path)]
    return files


def _closed(trees: Iterable[str]) -> list[str]:
    """The directories of this package and its wings, and of other copies in folders of installed packages."""
    places = {str(path) for path in PACKAGES}
    for tree in trees:
        for pattern in _INSTALLATIONS:
            folders = glob(os.path.join(glob_escape(tree), pattern))
            places |= {os.path.join(folder, name) for folder in folders for name in OWN_NAMES}
    return sorted({os.path.abspath(path) for path in places if os.path.isdir(path)})
