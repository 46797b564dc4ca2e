"""Starts one foreign command in confinement and watches it to its end. Runs as a process of its own.

    caller ── control socket ── launcher ── [namespaces: first process] ── command and what it starts

The caller starts it as `python -m vesalius.sandbox.launcher DESCRIPTOR` with a clean environment; standard input,
output and error are the command's. It says over the socket that the command runs, or why not, and at the end how it
ended and what it used. When the socket closes, everything is killed: that is how the caller ends it, and what happens
when the caller dies. The sum over all processes of a command is measured here, since the kernel limits each one alone.
"""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from vesalius.sandbox import filesystem, kernel
from vesalius.sandbox import warm_process as messages
from vesalius.sandbox.command_files import rules_for
from vesalius.sandbox.lockdown import (
    MAX_OPEN_FILES,
    Confinement,
    become_nobody,
    enter_namespaces,
    offered,
    set_ceilings,
)
from vesalius.sandbox.warm_process import Isolation, not_contained

#: Seconds between two looks at what the command uses.
_LOOK = 0.25
#: The first kernel that counts the processes of a user in each user namespace apart.
_COUNTS_APART = (5, 14)
_PR_SET_CHILD_SUBREAPER = 36
#: Seconds in which what a command left behind is killed, where no namespace does it.
_SWEEPING = 10.0
#: The Landlock version from which no signal leaves the confinement.
_SCOPES_SIGNALS = 6
#: The fault of a command that would run as nobody, who cannot read the file in `closed` of its start.
UNREADABLE = "user nobody cannot read it"
#: The descriptor on which the command's process says why it could not be started; it closes when that starts.
_FAULT = 3


@dataclass(frozen=True)
class CommandLimits:
    """What one command, with everything that it starts, may use."""

    cpu_seconds: int = 3600
    memory_bytes: int = 4 << 30
    #: Processes and threads at a time.
    processes: int = 128
    #: The largest file, and all files together.
    file_bytes: int = 64 << 20
    scratch_bytes: int = 256 << 20


@dataclass
class Used:
    """The most that was seen of a command's processes."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    processes: int = 0
    #: The processor time of each process that was seen to have any, by its id and start, in ticks.
    own_ticks: dict[tuple[int, int], int] = field(default_factory=dict)


def main() -> None:
    """Start the command that the caller describes, and watch it."""
    os.umask(0o022)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    start, _ = messages.receive(control)
    opened, limits = filesystem.Opened(**start["opened"]), CommandLimits(**start["limits"])
    version, has_seccomp, missing = offered(start["layers"])
    if not has_seccomp and not start["unsafe"]:  # no other layer makes up for it
        messages.send(control, {"refused": not_contained(Isolation(False, version, False, tuple(missing)))})
        return
    ended, end = os.pipe()
    fault_read, fault = os.pipe()
    result: Confinement | str = ""
    isolation = Isolation(True, version, has_seccomp, tuple(missing))
    if "namespaces" in start["layers"]:
        watching = partial(_watch, control, limits, isolation, (ended, fault_read), (end, fault))
        result = enter_namespaces(
            opened,
            scratch_bytes=limits.scratch_bytes,
            directory=start["directory"],
            network=start["network"],
            parent=watching,
        )
    if isinstance(result, Confinement):
        control.close()
        _first_process(replace(result, isolation=isolation), start, limits, end, fault)
    missing += [f"namespaces are refused: {result}"] if result else []
    isolation = Isolation(False, version, has_seccomp, tuple(missing))
    if not (isolation.contained or start["unsafe"]):
        messages.send(control, {"refused": not_contained(isolation)})
        return
    kernel.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    scratch = tempfile.mkdtemp(prefix="vesalius-scratch-")
    confinement = Confinement(isolation, tuple(opened.readable()), ("/dev/null",), listable=tuple(opened.listable()))
    child = os.fork()
    if child == 0:
        control.close()
        _become(confinement, start, limits, scratch, fault)
    _watch(control, limits, isolation, (ended, fault_read), (end, fault), child, scratch=scratch)


def _first_process(
    confinement: Confinement, start: dict[str, object], limits: CommandLimits, end: int, fault: int
) -> NoReturn:
    """The first process of the namespaces: starts the command, collects what ended, and ends with the command."""
    child = os.fork()
    if child == 0:
        _become(confinement, start, limits, filesystem.SCRATCH, fault)
    os.close(fault)
    _release_streams()
    kernel.drop_privileges()
    while True:
        ended, status = os.wait()
        if ended == child:
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)  # the kernel kills what is left in the namespace


def _become(confinement: Confinement, start: dict[str, Any], limits: CommandLimits, scratch: str, fault: int) -> None:
    """Give up everything that the command must not have, and execute it."""
    try:
        isolation = confinement.isolation
        os.setsid()
        moved = fcntl.fcntl(fault, fcntl.F_DUPFD, 16)
        os.dup2(moved, _FAULT, inheritable=False)
        os.closerange(_FAULT + 1, 1 << 16)
        for number in range(1, signal.NSIG):
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        os.umask(0o077)
        for place in (start["directory"], scratch):
            with suppress(OSError):
                os.chdir(place)
                break
        else:
            os.chdir("/")
        as_root = os.geteuid() == 0 and not isolation.namespaces
        if confinement.change_user:
            if start["closed"] is not None:
                raise PermissionError(errno.EACCES, UNREADABLE)
            become_nobody()
        _limit(limits, apart=isolation.namespaces)
        kernel.drop_privileges()
        kernel.die_with_parent()
        if isolation.landlock:
            no_links = () if isolation.namespaces else (scratch,)
            kernel.restrict(
                readable=confinement.readable,
                writable=confinement.writable,
                no_links=no_links,
                listable=confinement.listable,
                network=start["network"],
            )
        if isolation.seccomp:
            # Root's processes are not counted by the kernel; without a namespace of their own it may start none.
            signals = isolation.namespaces or isolation.landlock >= _SCOPES_SIGNALS
            rules = rules_for(processes=not as_root, signals=signals, network=start["network"])
            kernel.install(os.getpid(), rules)
        places = {"HOME": scratch, "TMPDIR": scratch}
        if as_root:
            places |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        os.execve(start["arguments"][0], start["arguments"], {**places, **start["environment"]})
    except OSError as error:
        os.write(_FAULT, (error.strerror or str(error)).encode())
    finally:
        os._exit(127)


def _limit(limits: CommandLimits, *, apart: bool) -> None:
    kernel_version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    others = 0 if apart and kernel_version >= _COUNTS_APART else _processes_of(os.getuid())
    ceilings = {
        resource.RLIMIT_CPU: (limits.cpu_seconds, limits.cpu_seconds + 1),
        resource.RLIMIT_FSIZE: (limits.file_bytes,) * 2,
        resource.RLIMIT_NOFILE: (MAX_OPEN_FILES,) * 2,
        resource.RLIMIT_NPROC: (others + limits.processes,) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_DATA: (limits.memory_bytes,) * 2,
    }
    set_ceilings(ceilings)  # type: ignore[arg-type]


def _processes_of(user: int) -> int:
    """Processes and threads that a user has; all that there are where that cannot be seen."""
    count = 0
    with suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _release_streams() -> None:
    """Let go of the command's streams, so that their ends are the command's own."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)


def _watch(
    control: socket.socket,
    limits: CommandLimits,
    isolation: Isolation,
    ours: tuple[int, int],
    theirs: tuple[int, int],
    child: int,
    *,
    scratch: str | None = None,
) -> NoReturn:
    """Say that the command runs, wait for its end or for the caller's, and say what it used.

    `ours` and `theirs` are the two ends of two pipes: of the command's exit status, where a namespace is between, and
    of the fault that it met instead of starting. `scratch` is its directory where there are no namespaces.
    """
    for descriptor in theirs:
        os.close(descriptor)
    status_pipe, fault_pipe = ours
    fault = os.read(fault_pipe, 1024).decode("utf-8", "replace")
    with suppress(OSError):
        messages.send(control, {"fault": fault} if fault else {"isolation": vars(isolation)})
    _release_streams()
    used = Used()
    status, stopped = _wait(control, limits, child, used, scratch)
    if scratch is None and status is not None:
        status = int(os.read(status_pipe, 64) or status)
    _end(child, scratch, reaped=status is not None)
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = max(used.cpu_seconds, own.ru_utime + own.ru_stime)
    report = {"status": status, "stopped": stopped, "cpu_seconds": round(cpu, 3)}
    with suppress(OSError):
        messages.send(control, {**report, "memory_bytes": used.memory_bytes, "processes": used.processes})
    os._exit(0)


def _wait(
    control: socket.socket, limits: CommandLimits, child: int, used: Used, scratch: str | None
) -> tuple[int | None, str | None]:
    """The child's exit status once it ended, or why it has to be stopped: None where the caller wants that."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    with suppress(OSError, AttributeError):
        poll.register(os.pidfd_open(child), select.POLLIN)
    while True:
        done, raw = os.waitpid(-1, os.WNOHANG)
        if done == child:
            return os.waitstatus_to_exitcode(raw), None
        if done:
            continue
        _measure(child if scratch is None else os.getpid(), used)
        if used.memory_bytes > limits.memory_bytes:
            return None, "memory"
        if used.cpu_seconds > limits.cpu_seconds:
            return None, "CPU time"
        if scratch is not None and filesystem.overfull(
            scratch, limits.scratch_bytes, processes=_descendants(os.getpid())[1:]
        ):
            return None, "disk space"
        if control.fileno() in dict(poll.poll(_LOOK * 1000)):
            return None, None


def _measure(child: int, used: Used) -> None:
    """Add up what the child and all its descendants use now.

    Processor time is known in two ways: what living processes have used with the children that they waited for, and
    what each process has used that was ever seen, whether or not somebody waited for it. Each misses some; none counts
    anything twice, so the larger holds.
    """
    page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
    living, memory, count = 0, 0, 0
    for process in _descendants(child):
        with suppress(OSError, IndexError, ValueError):
            with open(f"/proc/{process}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            living += sum(map(int, fields[11:15]))
            if ticks := int(fields[11]) + int(fields[12]):
                used.own_ticks[process, int(fields[19])] = ticks
            memory += int(fields[21]) * page
            count += 1
    cpu = max(living, sum(used.own_ticks.values())) / tick
    used.cpu_seconds, used.memory_bytes = max(used.cpu_seconds, cpu), max(used.memory_bytes, memory)
    used.processes = max(used.processes, count)


def _descendants(process: int) -> list[int]:
    """A process and everything that descends from it."""
    found, pending = [], [process]
    while pending:
        found.append(one := pending.pop())
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError), open(f"/proc/{one}/task/{task}/children") as file:
                    pending += map(int, file.read().split())
    return found


def _end(child: int, scratch: str | None, *, reaped: bool) -> None:
    """Kill everything that is left, and wait for it.

    In namespaces the end of their first process is that of all; `child`, its parent, then ends by itself. Without them
    orphans become children of this process, so none is missed.
    """
    if scratch is None:
        if not reaped:
            _kill(_descendants(child)[1:] or [child])
            os.waitpid(child, 0)
        return
    deadline = time.monotonic() + _SWEEPING
    while time.monotonic() < deadline:
        _kill(_descendants(os.getpid())[1:])
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    filesystem.clear(scratch)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
