"""The warm process: prepares the names once, then forks one locked-down process per program.

It never sees a program, its values or its output: those travel in files that it hands to the fork and closes, so that
nothing of one call can be found in the memory of the next. It has one thread, always, and asserts it before a fork.

Started by the caller as `python -m vesalius.sandbox.zygote DESCRIPTOR` with a clean environment.
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
from typing import Any, NoReturn

from vesalius.sandbox import kernel, scratch, view, wire
from vesalius.sandbox.limits import Limits
from vesalius.sandbox.lockdown import Files, Walls, enclose, lock_down, own_figures, threads_and_bytes
from vesalius.sandbox.program import perform

#: Exit status of a program's process when a wall could not be put up, and when reporting failed.
NO_WALL, NO_REPORT = 71, 70
_POLL_SECONDS = 0.02


def main() -> None:
    """Prepare, confine, serve until the caller is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    start, _ = wire.receive(control)
    scope = prepare(start["preload"], start["argument"])
    figures = own_figures()
    require_one_thread(figures)
    if figures >= 0:
        os.close(figures)
    walls = enclose(start["layers"], start["toolbox"])
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise touch, and so copy, every page of the model
    gc.disable()
    wire.send(control, {"isolation": vars(walls.isolation)})
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # from here on there is nobody to read it
    os.close(quiet)
    while True:
        try:
            job, files = wire.receive(control)
        except (EOFError, ConnectionError):
            return
        if "limits" not in job:  # a stop that came too late
            continue
        reply = call(control, Limits(**job["limits"]), Files(*files), walls, scope)
        try:
            wire.send(control, reply)
        except ConnectionError:
            return


def prepare(preload: str | None, argument: Any) -> dict[str, Any]:
    """Import `module:function` and let it make the names every program starts with."""
    if preload is None:
        return {}
    module, _, function = preload.partition(":")
    scope = getattr(importlib.import_module(module), function)(argument)
    opened = [name for name in sys.modules if (name + ".").startswith(tuple(f"{x}." for x in view.SEALED_MODULES))]
    if opened:
        raise SystemExit(f"it imported {opened[0]}, which holds answers; programs could read them from memory")
    return dict(scope)


def require_one_thread(figures: int) -> None:
    """A fork of a process with more threads can hang on a lock nobody holds any more."""
    threads, _ = threads_and_bytes(figures)
    if threads != 1:
        raise SystemExit(f"it left {threads - 1} threads running; a process with threads cannot be forked safely")


def call(control: socket.socket, limits: Limits, files: Files, walls: Walls, scope: dict[str, Any]) -> dict[str, Any]:
    """Fork, let the program run, and say how it ended."""
    require_one_thread(walls.figures)
    began, own_cpu = time.monotonic(), time.process_time()
    isolated = walls.isolation.namespaces
    with scratch.directory(limits.scratch_bytes, mounted=isolated) as place:
        if isolated:
            kernel.unshare(kernel.CLONE_NEWPID)
        child = os.fork()
        if child == 0:
            run_program(walls, limits, files, scope, place)
        if isolated:
            kernel.enter_pid_namespace(walls.pid_namespace)
        for file in files:
            os.close(file)
        full = None if isolated else partial(scratch.overfull, place, limits.scratch_bytes)
        reply = wait(control, child, began + limits.wall_seconds, full)
        if not walls.isolation.seccomp:  # it may have had children, which are still a group
            stop_group(child)
    reply["seconds"] = time.monotonic() - began
    reply["warm_cpu"] = time.process_time() - own_cpu
    return reply


def run_program(walls: Walls, limits: Limits, files: Files, scope: dict[str, Any], place: str) -> NoReturn:
    """In the fork: lock down, run, end. Nothing the program left behind runs after that."""
    leave, status = os._exit, NO_WALL
    try:
        own = lock_down(walls, limits, files, place)
        status = NO_REPORT
        perform(own.job, own.report, scope)
        status = 0
    finally:
        leave(status)


def wait(control: socket.socket, child: int, deadline: float, full: Callable[[], bool] | None = None) -> dict[str, Any]:
    """Until the program ends, time or scratch is used up, or the caller says stop or is gone."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    ending = os.pidfd_open(child) if hasattr(os, "pidfd_open") else -1
    if ending >= 0:
        poll.register(ending, select.POLLIN)
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
        patience = max(left, _POLL_SECONDS) if ending >= 0 and full is None else _POLL_SECONDS
        ready = dict(poll.poll(patience * 1000))
        if control.fileno() in ready and killed is None:
            killed = stop(child, "caller")
            poll.unregister(control)
    if ending >= 0:
        os.close(ending)
    return {"killed": killed, "status": os.waitstatus_to_exitcode(status), "cpu": usage.ru_utime + usage.ru_stime}


def stop(child: int, reason: str) -> str:
    """Kill the program and what shares its process group."""
    stop_group(child)
    os.kill(child, signal.SIGKILL)  # not yet reaped, so the number is still its own
    return reason


def stop_group(leader: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    main()
