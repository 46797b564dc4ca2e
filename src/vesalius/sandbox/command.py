"""Starts a foreign command in confinement, from the caller's side.

    with Confined(["/usr/bin/awk", "-f", "mine.awk"], Grants()) as running:
        running.stdin, running.stdout, running.stderr       # its streams
        running.ran                                         # how it is confined, for a result

A command is any program. It gets an empty environment but for the variables that are passed by name, and sees the
files that `vesalius.sandbox.command_files` tells of; the kernel's isolation is the one of `Sandbox`, but for new
processes, which it may start, and everything it started ends with it. Where the kernel cannot contain it, it is
refused unless `Grants.unsafe`.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self

from vesalius.errors import BadInput, Failed
from vesalius.sandbox.command_files import opened_for, unreadable
from vesalius.sandbox.launcher import UNREADABLE, CommandLimits
from vesalius.sandbox.warm_process import LAYERS, Isolation, clean_environment, not_contained, receive, send
from vesalius.values import JsonObject

#: What every command finds in its environment.
_BASIC = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
#: Seconds in which a command has to be started, and in which what it used is told after its end.
_STARTING, _ENDING = 60.0, 15.0


@dataclass(frozen=True)
class Grants:
    """What a foreign program is given beyond its own files: variables of the environment by name, paths that it may
    read, the network. `unsafe` runs it even where the kernel cannot contain it.
    """

    env: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    network: bool = False
    unsafe: bool = False

    def __post_init__(self) -> None:
        for name in self.env:
            if name not in os.environ:
                raise BadInput(
                    f"`pass_env` {name}: there is no such variable in the environment; set it, or leave it out"
                )
        for path in self.read:
            if not os.path.exists(os.path.expanduser(path)):
                raise BadInput(f"`allow_read` {path}: no such file or directory")


NOTHING = Grants()


@dataclass(frozen=True)
class Ran:
    """How a command ran: whether it was contained, what the kernel enforced, and what it was given, as in `Grants`."""

    contained: bool
    isolation: str
    passed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    network: bool = False


@dataclass(frozen=True)
class Usage:
    """How a command ended and what it used, with everything that it started; measured outside it."""

    #: Its exit status, below 0 for a signal; None where it was stopped.
    status: int | None = None
    #: Which of its limits was used up, where that stopped it.
    stopped: str | None = None
    cpu_seconds: float = 0.0
    #: The most memory and processes that were seen at once.
    memory_bytes: int = 0
    processes: int = 0


class Confined:
    """One running command; entered when the constructor returns. On leaving it is killed with all it started.

    Args:
        arguments: the program by its whole path, and its arguments. Files among them can be read.
        grants: what it is given beyond that.
        own: files of this package that it needs, for commands that are ours around foreign code.
        limits: what it may use.
        layers: which layers of isolation to try; fewer are for tests.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        grants: Grants = NOTHING,
        *,
        own: Sequence[str] = (),
        limits: CommandLimits | None = None,
        layers: Collection[str] = LAYERS,
    ) -> None:
        if sys.platform != "linux":
            raise Failed(not_contained(Isolation(missing=(f"{sys.platform} has none of the layers",))))
        opened = opened_for(arguments, read=grants.read, own=own, network=grants.network)
        given = [*(one for one in arguments if os.path.isfile(one)), *map(os.path.expanduser, grants.read)]
        start = {
            "arguments": list(arguments),
            "environment": {**_BASIC, **{name: os.environ[name] for name in grants.env}},
            "directory": os.getcwd(),
            "opened": dataclasses.asdict(opened),
            "network": grants.network,
            "unsafe": grants.unsafe,
            "limits": dataclasses.asdict(limits or CommandLimits()),
            "layers": sorted(layers),
            # Only in namespaces do commands of root change their user.
            "closed": unreadable(given) if os.geteuid() == 0 else None,
        }
        self._control, theirs = socket.socketpair()
        self._usage: Usage | None = None
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-m", "vesalius.sandbox.launcher", str(theirs.fileno())],
                env=clean_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.stdin: IO[bytes] = self.process.stdin
        self.stdout: IO[bytes] = self.process.stdout
        self.stderr: IO[bytes] = self.process.stderr
        try:
            isolation = self._started(start)
        except BaseException:
            self.close()
            raise
        self.ran = Ran(
            contained=isolation.contained,
            isolation=str(isolation),
            passed=grants.env,
            read=grants.read,
            network=grants.network,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def usage(self, patience: float = _ENDING) -> Usage:
        """What it used, once it has ended; nothing where it has not after `patience` seconds, to be asked again."""
        if self._usage is None:
            try:
                self._control.settimeout(patience)
                report, _ = receive(self._control)
                self._usage = Usage(**report)
            except TimeoutError:
                return Usage()
            except (OSError, EOFError):
                self._usage = Usage()
        return self._usage

    def close(self) -> Usage:
        """Kill it and everything that it started, wait for that, and return what it used."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        usage = self.usage()
        self._control.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        return usage

    def _started(self, start: JsonObject) -> Isolation:
        """Which layers are active, when the command runs; raises why it does not."""
        self._control.settimeout(_STARTING)
        try:
            send(self._control, start)
            reply, _ = receive(self._control)
        except (OSError, EOFError):
            os.killpg(self.process.pid, signal.SIGKILL)
            said = self.stderr.read().decode("utf-8", "replace").strip().splitlines()
            raise Failed(f"the launcher of commands failed: {said[-1] if said else 'it ended silently'}") from None
        if "refused" in reply:
            raise Failed(reply["refused"])
        if reply.get("fault") == UNREADABLE:
            closed = start["closed"]
            raise BadInput(f"{closed}: user nobody, who commands of root run as, cannot read it; run chmod o+rX on it")
        if "fault" in reply:
            raise OSError(None, reply["fault"])
        layers: JsonObject = reply["isolation"]
        return Isolation(**layers | {"missing": tuple(layers["missing"])})
