"""The warm process from the caller's side: started with a clean environment, controlled over a socket.

It is executed and not forked, because the caller may have threads, keys and answers in its memory.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vesalius.errors import Failed

# Which layers of isolation are active, and whether they are enough.

LAYERS = ("namespaces", "landlock", "seccomp")


@dataclass(frozen=True)
class Isolation:
    """The active layers. A program cannot undo any of them."""

    #: Separate user, PID, network, IPC, host-name and mount namespaces with a private root.
    namespaces: bool = False
    #: The Landlock version in use; 0 where it is absent.
    landlock: int = 0
    #: The list of allowed kernel calls.
    seccomp: bool = False
    #: Why a layer is absent, one line each.
    missing: tuple[str, ...] = ()

    @property
    def contained(self) -> bool:
        """Whether reads, writes, the network and processes are all restricted.

        The list of calls restricts the network and processes; files need the private root, or Landlock from the version
        that governs truncation.
        """
        return self.seccomp and (self.namespaces or self.landlock >= 3)

    def __str__(self) -> str:
        active = ["namespaces"] if self.namespaces else []
        active += [f"landlock {self.landlock}"] if self.landlock else []
        active += ["seccomp"] if self.seccomp else []
        text = "contained by " if self.contained else "NOT contained; active: "
        text += " + ".join(active) or "none"
        return text + (f"; missing: {'; '.join(self.missing)}" if self.missing else "")


def not_contained(isolation: Isolation) -> str:
    """The error message for a machine that cannot contain a program."""
    reasons = "; ".join(isolation.missing) or f"{sys.platform} has no isolation the sandbox can use"
    return (
        f"the sandbox cannot contain code on this machine ({reasons}); use Linux 6.2 or newer on x86_64 or aarch64 "
        "(5.12 where namespaces are allowed), or accept the risk with unsafe=True (`unsafe_sandbox`)"
    )


# Messages between the caller and the warm process: a length, then JSON, with open files attached where needed.

_HEADER = struct.Struct(">I")
MAX_BYTES = 1 << 28
MAX_FILES = 4


def send(sock: socket.socket, document: object, files: Sequence[int] = ()) -> None:
    """Send one document; the other side gets its own copies of the descriptors `files`."""
    body = json.dumps(document).encode()
    if len(body) > MAX_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is over the limit of {MAX_BYTES}")
    header = _HEADER.pack(len(body))
    if files:
        socket.send_fds(sock, [header], list(files))
    else:
        sock.sendall(header)
    sock.sendall(body)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """The next document and the descriptors that came with it; `EOFError` when the other side has ended."""
    header, files, _, _ = socket.recv_fds(sock, _HEADER.size, MAX_FILES)
    header += _exactly(sock, _HEADER.size - len(header))
    (length,) = _HEADER.unpack(header)
    if length > MAX_BYTES:
        raise EOFError(f"a message of {length} bytes was announced; the limit is {MAX_BYTES}")
    return json.loads(_exactly(sock, length)), list(files)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = sock.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other side closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


#: Variables it inherits: paths and locales, never secrets.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "XDG_CACHE_HOME", "VESALIUS_CACHE")
#: One thread in every library, or a fork hangs; no GPU, which cannot be forked.
_SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
_END_SECONDS = 2.0


class WarmProcess:
    """One warm process, ready when the constructor returns."""

    def __init__(self, start: Mapping[str, object], *, start_seconds: float) -> None:
        self.control, server_end = socket.socketpair()
        with tempfile.TemporaryFile() as errors:
            command = [sys.executable, "-s", "-P", "-m", "vesalius.sandbox.warm_server", str(server_end.fileno())]
            self._process = subprocess.Popen(
                command,
                env=clean_environment(),
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
            server_end.close()
            self.isolation = self._await_ready(start, start_seconds, errors)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; the leader of its process group."""
        return self._process.pid

    def end(self) -> None:
        """Close the connection, which ends the process; kill it if it does not end."""
        self.control.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it at once; the kernel kills all its programs with it."""
        self.control.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _await_ready(self, start: Mapping[str, object], start_seconds: float, errors: IO[bytes]) -> Isolation:
        name = f"sandbox preload {start['preload']!r}" if start["preload"] else "the sandbox's process"
        self.control.settimeout(start_seconds)
        try:
            send(self.control, start)
            ready, _ = receive(self.control)
        except TimeoutError:
            self.kill()
            raise Failed(f"{name} was not done after {start_seconds:g} s; give it more with start_seconds") from None
        except (EOFError, ConnectionError):
            self.end()  # not killed: it may still be writing why it failed
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise Failed(f"{name} failed: {lines[-1] if lines else 'it ended without an error message'}") from None
        self.control.settimeout(None)
        layers: dict[str, Any] = ready["isolation"]
        return Isolation(**layers | {"missing": tuple(layers["missing"])})


def clean_environment() -> dict[str, str]:
    """The environment of our own processes around untrusted code: paths and locales, no secrets."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    # A fixed hash seed: the same program prints its sets in the same order every time.
    return {**inherited, **_SINGLE_THREAD, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
