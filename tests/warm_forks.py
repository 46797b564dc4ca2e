"""Warm processes of HyVE's sandboxes, forked from one that has imported torch already.

Each would import torch and the laboratory for itself, for seconds. The process that they are forked from knows no more
than they do: it starts with the same clean environment and imports what their preloads import. What tests/sandbox
starts has other preloads and is the real thing.
"""

import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any

from tests.forked import FIRST_PASSED, PLACE, ask, server
from vesalius.sandbox import sandbox, warm_process

PRELOADS = "vesalius_session."
MODULES = (
    "vesalius_session.scope",
    "vesalius_session.natural_scope",
    "vesalius.sandbox.lockdown",
    "vesalius.sandbox.program",
)


class Fork:
    """What `WarmProcess` asks of a `Popen`."""

    def __init__(self, environment: Mapping[str, str], control: int, errors: int) -> None:
        words = ["-P", "-m", "vesalius.sandbox.warm_server", str(FIRST_PASSED)]
        null = os.open(os.devnull, os.O_RDWR)
        try:
            address = server(*MODULES, environment=environment)
            self.pid, self._connection = ask(address, words, environment, [null, null, errors, control])
        finally:
            os.close(null)
        self._ended = False

    def poll(self) -> int | None:
        """Whether it has ended: 0, or None while it runs."""
        return 0 if self._waited(0) else None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if not self._waited(timeout):
            raise subprocess.TimeoutExpired("warm process", timeout or 0)
        return 0

    def _waited(self, timeout: float | None) -> bool:
        if not self._ended:
            ready = select.poll()  # `select.select` takes no descriptor beyond 1,023, and a run of the tests has more
            ready.register(self._connection, select.POLLIN)
            if ready.poll(None if timeout is None else 1000 * timeout):
                self._ended = True
                self._connection.close()
        return self._ended


class ForkedWarmProcess(warm_process.WarmProcess):
    """A warm process that a server forks."""

    def __init__(self, start: Mapping[str, object], *, start_seconds: float) -> None:
        self.control, server_end = socket.socketpair()
        with tempfile.TemporaryFile() as errors:
            self._process: Any = Fork(warm_process.clean_environment(), server_end.fileno(), errors.fileno())
            server_end.close()
            self.isolation = self._await_ready(start, start_seconds, errors)


def started(start: Mapping[str, object], *, start_seconds: float) -> warm_process.WarmProcess:
    """Takes the place of `WarmProcess`."""
    of_hyve = str(start["preload"]).startswith(PRELOADS) and PLACE in os.environ
    kind = ForkedWarmProcess if of_hyve else warm_process.WarmProcess
    return kind(start, start_seconds=start_seconds)


def install() -> None:
    """Let sandboxes of this process, and of those that are forked from it, start so."""
    sandbox.WarmProcess = started  # pyrefly: ignore[bad-assignment]
