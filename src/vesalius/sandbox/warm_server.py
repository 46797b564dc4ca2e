"""The code of the warm process: prepares the names once, then forks one locked-down process per program.

It never sees a program, its values or its output: those are in files that it passes to the fork and closes, so that
nothing of one call is in the memory of the next. It has one thread, which it checks before every fork.

Started by the caller as `python -m vesalius.sandbox.warm_server DESCRIPTOR` with a clean environment.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from vesalius.sandbox import filesystem, kernel
from vesalius.sandbox import filesystem as scratch
from vesalius.sandbox import warm_process as messages
from vesalius.sandbox.lockdown import Confinement, Files, Limits, confine, lock_down, open_own_stat, threads_and_bytes
from vesalius.sandbox.program import perform

#: Exit status of a program's process when it could not be locked down, and when reporting failed.
NOT_LOCKED_DOWN, NO_REPORT = 71, 70
_POLL_SECONDS = 0.02


def main() -> None:
    """Prepare, confine, serve until the caller closes the connection."""
    control = socket.socket(fileno=int(sys.argv[1]))
    start, _ = messages.receive(control)
    scope = prepare(start["preload"], start["argument"])
    stat_file = open_own_stat()
    require_one_thread(stat_file)
    if stat_file >= 0:
        os.close(stat_file)
    confinement = confine(start["layers"], start["toolbox"])
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise touch, and so copy, every page of the model
    gc.disable()
    messages.send(control, {"isolation": vars(confinement.isolation)})
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # the caller no longer reads it
    os.close(null)
    while True:
        try:
            job, files = messages.receive(control)
        except (EOFError, ConnectionError):
            return
        if "limits" not in job:  # a stop message that arrived too late
            continue
        reply = call(control, Limits(**job["limits"]), Files(*files), confinement, scope)
        try:
            messages.send(control, reply)
        except ConnectionError:
            return


def prepare(preload: str | None, argument: object) -> dict[str, Any]:
    """Import `module:function` and call it for the names every program starts with."""
    if preload is None:
        return {}
    module, _, function = preload.partition(":")
    scope = getattr(importlib.import_module(module), function)(argument)
    sealed = [
        name for name in sys.modules if (name + ".").startswith(tuple(f"{x}." for x in filesystem.SEALED_MODULES))
    ]
    if sealed:
        raise SystemExit(f"it imported {sealed[0]}, which holds answers; programs could read them from memory")
    return dict(scope)


def require_one_thread(stat_file: int) -> None:
    """Refuse more than one thread: a fork could hang on a lock whose owner does not exist in it."""
    threads, _ = threads_and_bytes(stat_file)
    if threads != 1:
        raise SystemExit(f"it left {threads - 1} threads running; a process with threads cannot be forked safely")


def call(
    control: socket.socket, limits: Limits, files: Files, confinement: Confinement, scope: dict[str, object]
) -> dict[str, Any]:
    """Fork, wait for the program, and return how it ended."""
    require_one_thread(confinement.stat_file)
    began, own_cpu = time.monotonic(), time.process_time()
    isolated = confinement.isolation.namespaces
    with scratch.directory(limits.scratch_bytes, mounted=isolated) as directory:
        if isolated:
            kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child == 0:
            run_program(confinement, limits, files, scope, directory)
        if isolated:
            kernel.enter_pid_namespace(confinement.pid_namespace)
        for file in files:
            os.close(file)
        full = None if isolated else partial(scratch.overfull, directory, limits.scratch_bytes, processes=(child,))
        reply = wait(control, child, began + limits.wall_seconds, full)
        if not confinement.isolation.seccomp:  # it may have children, which are still in its group
            stop_group(child)
    reply["seconds"] = time.monotonic() - began
    reply["warm_cpu"] = time.process_time() - own_cpu
    return reply


def run_program(
    confinement: Confinement, limits: Limits, files: Files, scope: dict[str, object], directory: str
) -> None:
    """In the fork: lock down, run, exit. Nothing of the program runs after that."""
    exit_now, status = os._exit, NOT_LOCKED_DOWN
    try:
        moved = lock_down(confinement, limits, files, directory)
        status = NO_REPORT
        perform(moved.job, moved.report, scope)
        status = 0
    finally:
        exit_now(status)


def wait(control: socket.socket, child: int, deadline: float, full: Callable[[], bool] | None = None) -> dict[str, Any]:
    """Wait until the program ends; stop it when its time or scratch space is used up or the caller stops or
    disconnects.
    """
    poll = select.poll()
    poll.register(control, select.POLLIN)
    exit_event = _exit_event(child)
    if exit_event >= 0:
        poll.register(exit_event, select.POLLIN)
    killed = None
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        left = deadline - time.monotonic()
        if left <= 0 and killed is None:
            killed = stop(child, "wall")
        if full is not None and killed is None and full():
            killed = stop(child, "scratch")
        timeout = max(left, _POLL_SECONDS) if exit_event >= 0 and full is None else _POLL_SECONDS
        ready = dict(poll.poll(timeout * 1000))
        if control.fileno() in ready and killed is None:
            killed = stop(child, "caller")
            poll.unregister(control)
    if exit_event >= 0:
        os.close(exit_event)
    return {"killed": killed, "status": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime}


def _exit_event(child: int) -> int:
    """A descriptor that becomes readable when the child ends; -1 where the system has none or refuses it."""
    if not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(child)
    except OSError:
        return -1


def stop(child: int, reason: str) -> str:
    """Kill the program and what shares its process group."""
    stop_group(child)
    os.kill(child, signal.SIGKILL)  # not yet reaped, so the process id is still valid
    return reason


def stop_group(leader: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main()
