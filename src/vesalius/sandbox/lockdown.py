"""Activates the isolation: once for the warm process (`confine`), then more strictly for each program (`lock_down`).

`confine` forks. The child enters new namespaces, its parent maps the one or two users that exist there, and a
grandchild, the first process of the new PID namespace, replaces its root by the private one and continues as the warm
process. When that dies the kernel kills everything in its namespace. Where any of this is refused, the unchanged parent
continues without namespaces.
"""

import dataclasses
import fcntl
import os
import resource
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, NoReturn

from vesalius.errors import BadInput
from vesalius.sandbox import filesystem, kernel
from vesalius.sandbox import filesystem as scratch
from vesalius.sandbox import kernel as landlock
from vesalius.sandbox import kernel as seccomp
from vesalius.sandbox.program import RESERVE
from vesalius.sandbox.warm_process import LAYERS, Isolation

# What one call may use, and what it returns.

#: Why a call did not run to its end, measured from outside. "output": it printed, or wrote to files, far too much.
StoppedBy = Literal["cpu", "wall", "output", "crash"]
#: The refusal that a program's error names. "processes": it asked for a second process or thread.
ReportedLimit = Literal["memory", "processes"]

#: A program that prints this many times `Limits.output_bytes` is stopped.
MAX_OUTPUT_FACTOR = 16


@dataclass(frozen=True)
class Limits:
    """What one call may use. It is always one process with one thread, without a network."""

    #: Whole seconds, the resolution of the kernel's limit.
    cpu_seconds: int = 20
    wall_seconds: float = 60.0
    #: Address space in addition to what the warm process, with its model, already has.
    memory_bytes: int = 1 << 30
    #: What is kept of stdout and stderr together; the rest is dropped, and far more than this stops the program.
    output_bytes: int = 64_000
    #: The largest result that is returned unchanged.
    result_bytes: int = 1_000_000
    file_bytes: int = 16 << 20
    #: All files of the private scratch directory together.
    scratch_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise BadInput(f"sandbox limit {field.name} is {value}; it must be above 0")
        if self.cpu_seconds != int(self.cpu_seconds):
            raise BadInput(f"sandbox limit cpu_seconds is {self.cpu_seconds}; give whole seconds")


@dataclass(frozen=True)
class Outcome:
    """What one program did. `result`, `error` and `reported_limit` come from the program; the other fields are measured
    outside.
    """

    #: JSON values; a large tensor or array becomes its shape and a summary, anything else its bounded repr. Of a
    #: program that failed, what it had assigned by then.
    result: Any = None
    #: What it printed, stdout and stderr together, cut after `Limits.output_bytes`.
    stdout: str = ""
    #: The traceback, trimmed to the lines of the program, or why there is no result. None on success.
    error: str | None = None
    stopped_by: StoppedBy | None = None
    #: Which refusal its error names, in its own words; a program can say so without having met it.
    reported_limit: ReportedLimit | None = None
    #: Wall time from the fork to the end.
    seconds: float = 0.0
    #: CPU time of the program, and of the warm process for it.
    cpu_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself and assigned `result`."""
        return self.error is None and self.stopped_by is None


@dataclass(frozen=True)
class CallResult:
    """What a function returned for one input: a value, or why there is none."""

    value: Any = None
    error: str | None = None
    stopped_by: StoppedBy | None = None
    reported_limit: ReportedLimit | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.error is None


NOBODY_ID = 65534
MAX_OPEN_FILES = 256
_NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_UNSHARED, _TWO_USERS, _ONE_USER, _DONE = b"unshared", b"2", b"1", b"done"
#: Descriptors of a program's job and report; 0 to 2 are the standard streams.
_JOB, _REPORT = 3, 4


class Files(NamedTuple):
    """The descriptors of one program: its job, its output, its report."""

    job: int
    output: int
    report: int


@dataclass(frozen=True)
class Confinement:
    """The isolation of the warm process, and what each program will get."""

    isolation: Isolation
    #: The trees that Landlock leaves readable and writable.
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    #: The trees of which it leaves names readable.
    listable: tuple[str, ...] = ()
    #: The warm process is root in its namespace and a program can run as another user.
    change_user: bool = False
    #: Descriptor of the warm process's own PID namespace, to return to after each fork; -1 without namespaces.
    pid_namespace: int = -1
    #: Descriptor of its `open_own_stat`.
    stat_file: int = -1


def open_own_stat() -> int:
    """A descriptor of this process's statistics that works after /proc is unmounted; -1 where there is no /proc."""
    return os.open("/proc/self/stat", os.O_RDONLY) if sys.platform == "linux" else -1


def threads_and_bytes(stat_file: int) -> tuple[int, int]:
    """Threads and address space from such a descriptor; (1, 0) where they are not known."""
    if stat_file < 0:
        return 1, 0
    fields = os.pread(stat_file, 4096, 0).rpartition(b")")[2].split()
    return int(fields[17]), int(fields[20])


def confine(layers: Collection[str], toolbox: str | None) -> Confinement:
    """Activate the `layers` that this machine offers. Returns in the process that is to serve, which may be new."""
    if sys.platform != "linux":
        return Confinement(Isolation(missing=(f"{sys.platform} has none of the layers",)))
    version, has_seccomp, missing = offered(layers)
    opened = filesystem.Opened.for_programs(toolbox)
    result = enter_namespaces(opened, scratch_bytes=1 << 16) if "namespaces" in layers else ""
    if isinstance(result, Confinement):
        kernel.detach(filesystem.SCRATCH)  # every program gets its own
        return replace(result, isolation=Isolation(True, version, has_seccomp, tuple(missing)))
    missing += [f"namespaces are refused: {result}"] if result else []
    if version:
        filesystem.OpenPackages.install()
    return Confinement(
        Isolation(False, version, has_seccomp, tuple(missing)),
        readable=tuple(opened.readable()),
        writable=("/dev/null",),
        stat_file=open_own_stat(),
    )


def offered(layers: Collection[str]) -> tuple[int, bool, list[str]]:
    """The Landlock version and whether calls can be filtered, of these layers, and what is missing of them."""
    missing = [f"{name} is switched off" for name in LAYERS if name not in layers]
    has_seccomp = "seccomp" in layers and seccomp.supported()
    if "seccomp" in layers and not has_seccomp:
        missing.append(f"seccomp is not in this kernel, or there is no list of calls for {kernel.MACHINE}")
    version = landlock.version() if "landlock" in layers else 0
    if "landlock" in layers and version < landlock.SUFFICIENT_VERSION:
        missing.append(f"Landlock {landlock.SUFFICIENT_VERSION} is needed and this kernel has version {version}")
    return version, has_seccomp, missing


def lock_down(confinement: Confinement, limits: Limits, files: Files, directory: str) -> Files:
    """Give up everything a program must not have, for good. Returns its files under their new descriptors."""
    os.setsid()
    _, address_space = threads_and_bytes(confinement.stat_file)
    moved = _move_descriptors(files)
    os.chdir(directory)
    os.environ.clear()
    # LOGNAME: some versions of torch look up the user's name, and there is no password file here.
    os.environ.update({"HOME": directory, "TMPDIR": directory, "PATH": "", "OMP_NUM_THREADS": "1", "LOGNAME": "nobody"})
    tempfile.tempdir = directory
    if confinement.change_user:
        become_nobody()
    _limit_resources(limits, address_space)
    if sys.platform != "linux":
        return moved
    kernel.drop_privileges()
    kernel.die_with_parent()
    if confinement.isolation.landlock:
        no_links = () if confinement.isolation.namespaces else (directory,)
        landlock.restrict(readable=confinement.readable, writable=confinement.writable, no_links=no_links)
    if confinement.isolation.seccomp:
        seccomp.install(os.getpid())
    return moved


def become_nobody() -> None:
    """Continue as user nobody, who owns nothing."""
    os.setgroups([])
    os.setresgid(NOBODY_ID, NOBODY_ID, NOBODY_ID)
    os.setresuid(NOBODY_ID, NOBODY_ID, NOBODY_ID)


def _move_descriptors(files: Files) -> Files:
    """Move the program's files to fixed descriptors and close all others."""
    null = os.open(os.devnull, os.O_RDONLY)
    # Copies far above the targets, so that no file is overwritten before it is moved.
    job, output, report = (fcntl.fcntl(file, fcntl.F_DUPFD, 16) for file in files)
    for source, target in ((null, 0), (output, 1), (output, 2), (job, _JOB), (report, _REPORT)):
        os.dup2(source, target)
    os.closerange(_REPORT + 1, 1 << 16)
    return Files(_JOB, 1, _REPORT)


def _limit_resources(limits: Limits, address_space: int) -> None:
    ceilings = {
        resource.RLIMIT_CPU: (limits.cpu_seconds, limits.cpu_seconds),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_NOFILE: (MAX_OPEN_FILES, MAX_OPEN_FILES),
        resource.RLIMIT_NPROC: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
    }
    if address_space:  # unknown where there is no /proc
        memory = address_space + limits.memory_bytes
        ceilings[resource.RLIMIT_AS] = (memory, memory + RESERVE)
    set_ceilings(ceilings)


def set_ceilings(ceilings: Mapping[int, tuple[int, int]]) -> None:
    """Set limits, soft and hard, none above what this process may."""
    for name, (soft, hard) in ceilings.items():
        _, ceiling = resource.getrlimit(name)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(name, (soft, hard))


def enter_namespaces(
    opened: filesystem.Opened,
    *,
    scratch_bytes: int,
    directory: str | None = None,
    network: bool = False,
    parent: Callable[[int], NoReturn] | None = None,
) -> Confinement | str:
    """In the first process of new namespaces its confinement; in this one the reason it failed.

    The new process sees `opened`, an empty scratch directory, and `directory`, if only as an empty one. With `network`
    it keeps that of this process. On success this one never returns: it continues with `parent` and the id of its
    child, or waits for that and exits like it.
    """
    status, report = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(status)
        os.close(go)
        flags = _NAMESPACES & ~kernel.CLONE_NEWNET if network else _NAMESPACES
        return _become_first_process(flags, opened, scratch_bytes, directory, report, wait)
    os.close(report)
    os.close(wait)
    state = os.read(status, 1024)
    if state == _UNSHARED:
        users = _map_users(child)
        os.write(go, users)
        state = os.read(status, 1024)
    os.close(status)
    os.close(go)
    if state == _DONE:
        (parent or _exit_with)(child)
    os.waitpid(child, 0)
    return state.decode() or "the process that tried them ended"


def _become_first_process(
    flags: int, opened: filesystem.Opened, scratch_bytes: int, directory: str | None, report: int, wait: int
) -> Confinement:
    """Enter new namespaces and return as the first process there; exit where that fails."""
    try:
        kernel.die_with_parent()
        kernel.unshare(flags)
        os.write(report, _UNSHARED)
        users = os.read(wait, 1)
        if users not in (_ONE_USER, _TWO_USERS):
            raise OSError("no user could be mapped in the new user namespace")
        inner = os.fork()
        if inner:
            os.close(report)
            _exit_with(inner)
        kernel.die_with_parent()
        stat_file = open_own_stat()
        own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        filesystem.build_private_root(opened, directory)
        scratch.mount(scratch_bytes)
    except OSError as error:
        os.write(report, f"{error.strerror or error}".encode())
        os._exit(1)
    os.write(report, _DONE)
    os.close(report)
    os.close(wait)
    return Confinement(
        Isolation(),
        readable=("/",),
        writable=(filesystem.SCRATCH, "/dev/null"),
        change_user=users == _TWO_USERS,
        pid_namespace=own_namespace,
        stat_file=stat_file,
    )


def _exit_with(child: int) -> NoReturn:
    """Close all descriptors, wait for the child and exit with its status."""
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(child, 0)
    os._exit(min(os.waitstatus_to_exitcode(status) % 256, 255))


def _map_users(child: int) -> bytes:
    """Map root and nobody into the child's user namespace, or without the right to do that, this user as nobody."""
    both = f"0 0 1\n{NOBODY_ID} {NOBODY_ID} 1"
    two = (("uid_map", both), ("gid_map", both))
    this_user = (("uid_map", f"{NOBODY_ID} {os.geteuid()} 1"), ("gid_map", f"{NOBODY_ID} {os.getegid()} 1"))
    one = (("setgroups", "deny"), *this_user)
    for maps, answer in ((two, _TWO_USERS), (one, _ONE_USER)):
        try:
            for name, text in maps:
                with open(f"/proc/{child}/{name}", "w") as file:
                    file.write(text)
        except OSError:
            continue
        return answer
    return b"0"
