"""The warm process from the caller's side: started with a clean environment, controlled over a socket.

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
from vesalius.sandbox import messages
from vesalius.sandbox.isolation import Isolation

#: Variables it inherits: paths and locales, never secrets.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "XDG_CACHE_HOME", "VESALIUS_CACHE")
#: One thread in every library, or a fork hangs; no GPU, which cannot be forked.
_SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_ARENA_MAX"), "1")
_END_SECONDS = 2.0


class WarmProcess:
    """One warm process, ready when the constructor returns."""

    def __init__(self, start: dict[str, Any], *, start_seconds: float) -> None:
        self.control, server_end = socket.socketpair()
        with tempfile.TemporaryFile() as errors:
            command = [sys.executable, "-s", "-P", "-m", "vesalius.sandbox.warm_server", str(server_end.fileno())]
            self._process = subprocess.Popen(
                command,
                env=_environment(),
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

    def _await_ready(self, start: dict[str, Any], start_seconds: float, errors: IO[bytes]) -> Isolation:
        name = f"sandbox preload {start['preload']!r}" if start["preload"] else "the sandbox's process"
        self.control.settimeout(start_seconds)
        try:
            messages.send(self.control, start)
            ready, _ = messages.receive(self.control)
        except TimeoutError:
            self.kill()
            raise Failed(f"{name} was not done after {start_seconds:g} s; give it more with start_seconds") from None
        except (EOFError, ConnectionError):
            self.end()  # not killed: it may still be writing why it failed
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").strip().splitlines()
            raise Failed(f"{name} failed: {lines[-1] if lines else 'it ended without an error message'}") from None
        self.control.settimeout(None)
        layers = ready["isolation"]
        return Isolation(**{**layers, "missing": tuple(layers["missing"])})


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    # A fixed hash seed: the same program prints its sets in the same order every time.
    return {**inherited, **_SINGLE_THREAD, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
