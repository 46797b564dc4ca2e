"""Processes for tests, forked from one that has imported the package already.

Importing torch and the package takes seconds of CPU time, and dozens of tests start a command as a process. `forked`
gives the words that start one: a small program that hands its arguments, folder, environment and streams to a server,
which forks, and that ends as the fork ends. One server serves all processes of a run of pytest and ends with the run.

A fork has the hash seed and the imported modules of the server. So tests of what is imported, of Ctrl-C from a terminal
and of two processes that agree start the real thing: `[sys.executable, "-m", "vesalius"]`. One that is killed takes its
fork with it at once; what the fork holds, such as a lock or a pipe, is free when `until_gone` or the end of the pipe
says so.
"""

import atexit
import fcntl
import functools
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

#: The variable that holds where the servers of this run of pytest are and the process that they end with.
PLACE = "VESALIUS_TEST_SERVERS"
#: Descriptors that a fork gets beside its three streams start with this number.
FIRST_PASSED = 64
#: The program of the asking side; with -I and -S it starts in a few hundredths of a second.
ASK = """
import json, os, signal, socket, sys
ours = socket.socket(socket.AF_UNIX)
ours.connect(sys.argv[1])
request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(ours, [len(request).to_bytes(8, "big")], [0, 1, 2])
ours.sendall(request)
answers = ours.makefile()
child = int(answers.readline())
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(child, number))
status = int(answers.readline() or 1)
if status < 0:
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def forked(*arguments: object) -> list[str]:
    """The words of a process that does what `python ARGUMENTS` does: `-m MODULE ...` or `-c CODE ...`."""
    return [sys.executable, "-I", "-S", "-c", ASK, _server(), *map(str, arguments)]


def vesalius(*arguments: object) -> list[str]:
    """The words of the command."""
    return forked("-m", "vesalius", *arguments)


def prepare_servers() -> None:
    """Make the place of this run's servers, in the first process of pytest; those that it starts find it."""
    if PLACE not in os.environ:
        directory = tempfile.mkdtemp(prefix="forked-")
        os.environ[PLACE] = f"{os.getpid()}:{directory}"
        atexit.register(shutil.rmtree, directory, ignore_errors=True)


@functools.cache
def _server() -> str:
    return server("tests.preloaded")


def server(*modules: str, environment: Mapping[str, str] | None = None) -> str:
    """The address of the run's server that has imported these modules, started when it is first asked for."""
    owner, _, directory = os.environ[PLACE].partition(":")
    address = str(Path(directory) / modules[0])
    with open(f"{address}.lock", "w") as lock, open(f"{address}.errors", "a") as errors:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(address):
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", address, owner, *modules],
                cwd=Path(__file__).parents[1],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,  # never that of whoever asks first, who may wait for its end
                start_new_session=True,
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", Path(errors.name).read_text()
            process.stdout.close()
            process.returncode = 0  # nobody waits for it: it ends with the run
    return address


def ask(
    address: str, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
) -> tuple[int, socket.socket]:
    """Let a server fork from here: the process, and the connection on which it sends how that ended."""
    ours = socket.socket(socket.AF_UNIX)
    ours.connect(address)
    request = json.dumps([arguments, os.getcwd(), dict(environment)]).encode()
    socket.send_fds(ours, [len(request).to_bytes(8, "big")], list(streams))
    ours.sendall(request)
    line = b""
    while not line.endswith(b"\n"):
        line += ours.recv(1) or b"\n"
    return int(line), ours


def serve(address: str, owner: int, modules: Sequence[str]) -> None:
    """Fork a process for each connection, and send back its number and how it ended, until the owner is gone."""
    for module in modules:
        importlib.import_module(module)
    selector = selectors.DefaultSelector()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(100)
    selector.register(listening, selectors.EVENT_READ, None)
    ended = os.pidfd_open(owner)
    selector.register(ended, selectors.EVENT_READ, None)
    print("ready", flush=True)
    os.dup2(0, 1)
    while True:
        for key, _ in selector.select():
            if key.fileobj == ended:
                return
            if key.data is None:
                _accept(listening, selector)
            elif key.fileobj is key.data[1]:
                _gone(key.data, selector)
            else:
                _ended(key.data, selector)


def _accept(listening: socket.socket, selector: selectors.BaseSelector) -> None:
    connection, _ = listening.accept()
    streams: list[int] = []
    try:
        length, streams, _, _ = socket.recv_fds(connection, 8, 8)
        with connection.makefile("rb") as file:
            arguments, directory, environment = json.loads(file.read(int.from_bytes(length, "big")))
    except (OSError, ValueError):  # killed while it asked
        for stream in streams:
            os.close(stream)
        return connection.close()
    child = os.fork()
    if child == 0:
        for key in list(selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
            else:
                key.fileobj.close()
        connection.close()
        selector.close()
        _become(arguments, directory, environment, streams)
    for stream in streams:
        os.close(stream)
    with suppress(OSError):
        connection.sendall(b"%d\n" % child)
    data = (child, connection, os.pidfd_open(child))
    selector.register(connection, selectors.EVENT_READ, data)
    selector.register(data[2], selectors.EVENT_READ, data)


def _gone(data: tuple[int, socket.socket, int], selector: selectors.BaseSelector) -> None:
    """Whoever asked was killed: the process goes with it, where it has not ended at the same moment."""
    with suppress(KeyError, ValueError):
        selector.unregister(data[1])
        os.kill(data[0], signal.SIGKILL)


def _ended(data: tuple[int, socket.socket, int], selector: selectors.BaseSelector) -> None:
    child, connection, descriptor = data
    _, status = os.waitpid(child, 0)
    selector.unregister(descriptor)
    os.close(descriptor)
    if connection in selector.get_map():
        selector.unregister(connection)
        with suppress(OSError):  # killed, and not looked at yet
            connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    connection.close()


def _become(arguments: list[str], directory: str, environment: dict[str, str], streams: list[int]) -> None:
    """Run what was asked for in this fork, as the interpreter would, and leave."""
    status = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number if number < 3 else FIRST_PASSED + number - 3)
            os.close(stream)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        at_once = bool(environment.get("PYTHONUNBUFFERED"))
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", 1 if at_once or os.isatty(1) else -1, encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if "OMP_NUM_THREADS" in environment:
            import torch

            torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
        engine = sys.modules.get("vesalius.runs.engine")
        if engine is not None and environment.get("OMP_NUM_THREADS") == "1":  # a fork of several threads could hang
            vars(engine)["START_METHOD"] = "fork"  # its workers have the modules as well
        _run(*arguments)
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        if isinstance(left.code, str):
            print(left.code, file=sys.stderr)
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)


def _run(*words: str) -> None:
    option, what, *arguments = words
    if option == "-P":  # a process of its own group, and no folder on the path but those of the environment
        os.setsid()
        sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        option, what, *arguments = what, *arguments
    else:
        sys.path.insert(0, os.getcwd() if option == "-m" else "")
    sys.argv = [option, *arguments]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(what, vars(main))


def _leave(status: int) -> None:
    """End as an interpreter ends: what was registered runs, what was printed is written."""
    try:
        import threading

        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
