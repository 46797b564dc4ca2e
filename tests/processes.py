"""Child processes for tests that end them."""

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from vesalius.sandbox.line_program import LineProgram

#: Seconds until a test gives up waiting for another process. Starting one that imports torch takes a second on an idle
#: machine and a minute on a busy one; nothing is measured by it.
PATIENCE = 300


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE} seconds in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody has waited for does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until_gone(*pids: int) -> None:
    """Wait until none of these processes runs."""
    until(lambda: not any(map(alive, pids)))


def heed_interrupts() -> None:
    """For `preexec_fn`: a build that was started in the background ignores Ctrl-C, and its children would with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def told_to_programs(heard: list[dict[str, Any]]) -> Iterator[None]:
    """Keeps what programs are told: they are confined, so they cannot write it down themselves."""
    send = LineProgram.send

    def keeping(program: LineProgram, document: Mapping[str, object]) -> None:
        heard.append(json.loads(json.dumps(document)))
        send(program, document)

    with patch.object(LineProgram, "send", keeping):
        yield
