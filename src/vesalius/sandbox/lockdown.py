"""The walls, put up: once around the warm process (`enclose`), then tighter around each program (`lock_down`).

`enclose` forks. The child leaves for new namespaces, its parent names the one or two users that exist there, and a
grandchild, the first process of the new PID namespace, swaps its root for the private view and goes on as the warm
process. When that dies the kernel kills everything in its namespace. Where any of this is refused, the parent, which
nothing has touched, goes on without.
"""

import fcntl
import os
import resource
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from vesalius.sandbox import kernel, landlock, scratch, seccomp, view
from vesalius.sandbox.isolation import LAYERS, Isolation
from vesalius.sandbox.limits import Limits
from vesalius.sandbox.program import RESERVE

NOBODY = 65534
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
#: A program finds its job here and reports there; 0 to 2 are the usual three.
_JOB, _REPORT = 3, 4


class Files(NamedTuple):
    """The descriptors of one program: what to do, where it prints, where it reports."""

    job: int
    output: int
    report: int


@dataclass(frozen=True)
class Walls:
    """What the warm process knows of its confinement, and what each program will get."""

    isolation: Isolation
    #: The trees Landlock leaves readable and writable.
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    #: The warm process is root in its namespace and a program can be somebody else.
    change_user: bool = False
    #: Descriptor of the warm process's own PID namespace, to come back to after each fork; -1 without namespaces.
    pid_namespace: int = -1
    #: Descriptor of its `own_figures`.
    figures: int = -1


def own_figures() -> int:
    """A descriptor that goes on telling of this process when /proc is gone; -1 where there is no /proc."""
    return os.open("/proc/self/stat", os.O_RDONLY) if sys.platform == "linux" else -1


def threads_and_bytes(figures: int) -> tuple[int, int]:
    """Threads and address space by such a descriptor; (1, 0) where the system does not say."""
    if figures < 0:
        return 1, 0
    fields = os.pread(figures, 4096, 0).rpartition(b")")[2].split()
    return int(fields[17]), int(fields[20])


def enclose(layers: Collection[str], toolbox: str | None) -> Walls:
    """Put up what this machine offers of `layers`. Returns in the process that is to serve, which may be a new one."""
    if sys.platform != "linux":
        return Walls(Isolation(missing=(f"{sys.platform} has none of the layers",)))
    missing = [f"{name} is switched off" for name in LAYERS if name not in layers]
    has_seccomp = "seccomp" in layers and seccomp.supported()
    if "seccomp" in layers and not has_seccomp:
        missing.append(f"seccomp is not in this kernel, or there is no list of calls for {kernel.MACHINE}")
    version = landlock.version() if "landlock" in layers else 0
    if "landlock" in layers and version < landlock.ENOUGH:
        missing.append(f"Landlock {landlock.ENOUGH} is needed and this kernel has version {version}")
    entered = _enter_namespaces(toolbox) if "namespaces" in layers else ""
    if isinstance(entered, Walls):
        return replace(entered, isolation=Isolation(True, version, has_seccomp, tuple(missing)))
    missing += [f"namespaces are refused: {entered}"] if entered else []
    return Walls(
        Isolation(False, version, has_seccomp, tuple(missing)),
        readable=tuple(view.readable(toolbox)),
        writable=("/dev/null",),
        figures=own_figures(),
    )


def lock_down(walls: Walls, limits: Limits, files: Files, place: str) -> Files:
    """Give up everything a program must not have; what follows cannot get it back. Returns where its files are now."""
    os.setsid()
    _, address_space = threads_and_bytes(walls.figures)
    moved = _keep_only(files)
    os.chdir(place)
    os.environ.clear()
    # LOGNAME: some versions of torch look up the user's name, and there is no password file here.
    os.environ.update({"HOME": place, "TMPDIR": place, "PATH": "", "OMP_NUM_THREADS": "1", "LOGNAME": "nobody"})
    tempfile.tempdir = place
    if walls.change_user:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _limit_resources(limits, address_space)
    if sys.platform != "linux":
        return moved
    kernel.drop_privileges()
    kernel.die_with_parent()
    if walls.isolation.landlock:
        plain = () if walls.isolation.namespaces else (place,)
        landlock.restrict(readable=walls.readable, writable=walls.writable, plain=plain)
    if walls.isolation.seccomp:
        seccomp.install(os.getpid())
    return moved


def _keep_only(files: Files) -> Files:
    """Put the program's files in their places and close every other descriptor."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Copies far above the places, so that filling one place cannot overwrite a file still to be moved.
    job, output, report = (fcntl.fcntl(file, fcntl.F_DUPFD, 16) for file in files)
    for source, place in ((nothing, 0), (output, 1), (output, 2), (job, _JOB), (report, _REPORT)):
        os.dup2(source, place)
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
    for name, (soft, hard) in ceilings.items():
        _, ceiling = resource.getrlimit(name)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(name, (soft, hard))


def _enter_namespaces(toolbox: str | None) -> Walls | str:
    """In the new warm process its walls; in this one, when that failed, why. This one never returns on success."""
    status, tell = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(status)
        os.close(go)
        return _leave(toolbox, tell, wait)
    os.close(tell)
    os.close(wait)
    said = os.read(status, 1024)
    if said == _UNSHARED:
        users = _name_users(child)
        os.write(go, users)
        said = os.read(status, 1024)
    os.close(status)
    os.close(go)
    if said == _DONE:
        _follow(child)
    os.waitpid(child, 0)
    return said.decode() or "the process that tried them ended"


def _leave(toolbox: str | None, tell: int, wait: int) -> Walls:
    """Become, or give up trying to become, the warm process in namespaces of its own."""
    try:
        kernel.die_with_parent()
        kernel.unshare(_NAMESPACES)
        os.write(tell, _UNSHARED)
        users = os.read(wait, 1)
        if users not in (_ONE_USER, _TWO_USERS):
            raise OSError("no user could be named in the new user namespace")
        inner = os.fork()
        if inner:
            os.close(tell)
            _follow(inner)
        kernel.die_with_parent()
        figures = own_figures()
        own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
        view.build(toolbox)
        scratch.mount(1 << 16)
        kernel.detach(view.SCRATCH)
    except OSError as error:
        os.write(tell, f"{error.strerror or error}".encode())
        os._exit(1)
    os.write(tell, _DONE)
    os.close(tell)
    os.close(wait)
    return Walls(
        Isolation(),
        readable=("/",),
        writable=(view.SCRATCH, "/dev/null"),
        change_user=users == _TWO_USERS,
        pid_namespace=own_namespace,
        figures=figures,
    )


def _follow(child: int) -> NoReturn:
    """End as the child ends, holding on to nothing but its exit status."""
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(child, 0)
    os._exit(min(os.waitstatus_to_exitcode(status) % 256, 255))


def _name_users(child: int) -> bytes:
    """Map root and nobody into the child's user namespace, or without the right to do that, ourselves as nobody."""
    both = f"0 0 1\n{NOBODY} {NOBODY} 1"
    two = (("uid_map", both), ("gid_map", both))
    ourselves = (("uid_map", f"{NOBODY} {os.geteuid()} 1"), ("gid_map", f"{NOBODY} {os.getegid()} 1"))
    one = (("setgroups", "deny"), *ourselves)
    for maps, answer in ((two, _TWO_USERS), (one, _ONE_USER)):
        try:
            for name, text in maps:
                with open(f"/proc/{child}/{name}", "w") as file:
                    file.write(text)
        except OSError:
            continue
        return answer
    return b"0"
