"""The warm process from outside: started with a clean environment, spoken to over a socket, ended with all it holds.

It is executed and not forked, because the caller may have threads, keys and answers in its memory.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from vesalius.errors import Failed
from vesalius.sandbox import wire
from vesalius.sandbox.isolation import Isolation

#: Variables it inherits: where things are, never who we are.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "XDG_CACHE_HOME", "VESALIUS_CACHE")
#: One thread in every library, or a fork hangs; no GPU, which cannot be forked.
_SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
_PATIENCE_SECONDS = 2.0


class WarmProcess:
    """One warm process; ready once it is made."""

    def __init__(self, start: dict[str, Any], *, start_seconds: float) -> None:
        self.control, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as complaints:
            command = [sys.executable, "-s", "-P", "-m", "vesalius.sandbox.zygote", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                env=_environment(),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                start_new_session=True,
            )
            theirs.close()
            self.isolation = self._await_ready(start, start_seconds, complaints)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id; the leader of its process group."""
        return self._process.pid

    def end(self) -> None:
        """Close the connection, upon which it ends; insist where it does not."""
        self.control.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it, and with it the kernel ends all its programs, now."""
        self.control.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _await_ready(self, start: dict[str, Any], start_seconds: float, complaints: IO[bytes]) -> Isolation:
        what = f"sandbox preload {start['preload']!r}" if start["preload"] else "the sandbox's process"
        self.control.settimeout(start_seconds)
        try:
            wire.send(self.control, start)
            ready, _ = wire.receive(self.control)
        except TimeoutError:
            self.kill()
            raise Failed(f"{what} was not done after {start_seconds:g} s; give it more with start_seconds") from None
        except (EOFError, ConnectionError):
            self.kill()
            complaints.seek(0)
            said = complaints.read().decode("utf-8", "replace").strip().splitlines()
            raise Failed(f"{what} failed: {said[-1] if said else 'it ended without a word'}") from None
        self.control.settimeout(None)
        layers = ready["isolation"]
        return Isolation(**{**layers, "missing": tuple(layers["missing"])})


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    # A fixed hash seed: the same program prints its sets in the same order, every time.
    return {**kept, **_SINGLE, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
