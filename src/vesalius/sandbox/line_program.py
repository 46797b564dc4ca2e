"""A program that we start and that speaks JSON lines: one JSON object per line on its stdin and stdout.

    with LineProgram("./mine.sh --fast", timeout=120) as program:
        program.send({"task": "..."})
        line = program.receive()        # a dict

Whatever goes wrong (no JSON, a crash, silence, too much output) is a `Failed` with one line that names the command. The
program is confined (`vesalius.sandbox.command`): it sees its own files and what `grants` names, and on leaving it is
killed with everything that it started.
"""

import json
import os
import selectors
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from vesalius.errors import BadInput, Failed, quoted, shortened
from vesalius.json_lines import LONGEST_CONVERSATION, TIMEOUT, arguments_of
from vesalius.sandbox.command import NOTHING, Confined, Grants, Ran
from vesalius.values import JsonObject

#: Bytes of one line, and of everything that a program writes to stdout.
LONGEST_LINE, MOST_OUTPUT = 8 << 20, 256 << 20
#: How much of stderr is kept for the message.
_KEPT_STDERR = 4096
_CHUNK = 1 << 16
#: Seconds between two looks whether a silent program still runs.
_LOOK = 1.0
#: Seconds in which a program that closed its stdout should end, so that its exit code is known.
_ENDING = 2.0
#: What a program says last that missed a file, a variable, the network or a second process.
_MISSED = ("No such file", "No module named", "not permitted", "denied", "Read-only", "not found", "KeyError")


class LineProgram:
    """A running program that speaks JSON lines.

    Args:
        command: the program and its arguments, in one text.
        timeout: seconds that it may be silent while it is waited for.
        longest: seconds that the whole conversation may take.
        grants: what it is given beyond its own files.
        own: files of this package that it needs, for programs of ours around foreign code.
        log: a file that gets one line about this run, with what it used.
    """

    def __init__(
        self,
        command: str,
        *,
        timeout: float = TIMEOUT,
        longest: float = LONGEST_CONVERSATION,
        grants: Grants = NOTHING,
        own: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        if not timeout > 0:
            raise BadInput(f"`timeout` {timeout:g}: give a positive number of seconds")
        self.command, self.timeout = command, timeout
        self._end = time.monotonic() + longest
        self._longest = longest
        self._buffer, self._stderr, self._received = bytearray(), bytearray(), 0
        self._ended, self._searched = False, 0
        self._log, self._began, self._fault = log, time.monotonic(), ""
        try:
            self._confined = Confined(arguments_of(command), grants, own=own)
        except OSError as error:
            raise BadInput(f"{self._name}: cannot be started ({error.strerror}); is its first line right?") from None
        self._process = self._confined.process
        #: How the program is confined, for the result.
        self.ran: Ran = self._confined.ran
        self._stdin, self._stdout = self._confined.stdin.fileno(), self._confined.stdout.fileno()
        self._stderr_file = self._confined.stderr.fileno()
        self._selector = selectors.DefaultSelector()
        for descriptor in (self._stdin, self._stdout, self._stderr_file):
            os.set_blocking(descriptor, False)
        self._selector.register(self._stdout, selectors.EVENT_READ, self._read_stdout)
        self._selector.register(self._stderr_file, selectors.EVENT_READ, self._read_stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the program with everything that it started, wait for that, and write down what it used."""
        self._selector.close()
        used = self._confined.close()
        if self._log is not None:
            line = {
                "command": self.command,
                "ended": self._fault or "it gave its answer",
                "seconds": round(time.monotonic() - self._began, 3),
                **vars(used),
                "stdout_bytes": self._received,
                **vars(self.ran),
            }
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def send(self, document: Mapping[str, object]) -> None:
        """Write one line. A program that ended is found out by `receive`, which knows what it last said."""
        data = memoryview(json.dumps(document, allow_nan=False).encode() + b"\n")
        end = time.monotonic() + self.timeout
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        try:
            while data and not self._ended:
                for key, _ in self._wait(end, "does not read its stdin"):
                    if key.fd != self._stdin:
                        key.data()
                        continue
                    try:
                        data = data[os.write(self._stdin, data[:_CHUNK]) :]
                    except BlockingIOError:
                        pass
                    except OSError:  # it closed its stdin; what it wrote before is still read
                        return
        finally:
            self._selector.unregister(self._stdin)

    def receive(self) -> JsonObject:
        """The next line, a JSON object. Empty lines are skipped."""
        end = time.monotonic() + self.timeout
        while True:
            line = self._line()
            if line is None:
                for key, _ in self._wait(end, "is silent"):
                    key.data()
            elif line.strip():
                try:
                    value = json.loads(line.decode("utf-8"))
                except UnicodeDecodeError:
                    raise self.failed("wrote a line that is not UTF-8") from None
                except (ValueError, RecursionError):
                    shown = line[:60].decode("utf-8", "replace")
                    raise self.failed(f"wrote a line that is not JSON, {quoted(shown, 60)}") from None
                if not isinstance(value, dict):
                    raise self.failed(f"wrote {quoted(value, 60)}, which is not a JSON object")
                return value

    def _wait(self, end: float, fault: str) -> list[tuple[selectors.SelectorKey, int]]:
        """Streams that are ready; raises where a limit is reached first."""
        now = time.monotonic()
        if now >= self._end:
            raise self.failed(f"took more than {self._longest:g} seconds in all")
        events = self._selector.select(max(0.0, min(end, self._end, now + _LOOK) - now))
        if not events and self._process.poll() is not None:
            self._ended = True  # something that it started may still hold its stdout
        elif not events and time.monotonic() >= end:
            raise self.failed(f"{fault} for {self.timeout:g} seconds")
        return events

    def _line(self) -> bytes | None:
        """The next whole line, if it is there."""
        end = self._buffer.find(b"\n", self._searched)
        if end >= 0:
            line, self._searched = bytes(self._buffer[:end]), 0
            del self._buffer[: end + 1]
            return line
        self._searched = len(self._buffer)
        if len(self._buffer) > LONGEST_LINE:
            raise self.failed(f"wrote a line of more than {LONGEST_LINE >> 20} MiB")
        if self._ended:
            if not self._buffer.strip():
                raise self.failed(self._how_it_ended())
            line, self._buffer, self._searched = bytes(self._buffer), bytearray(), 0
            return line  # the last line, without its end
        return None

    def _read_stdout(self) -> None:
        data = self._read(self._stdout)
        if data is None:
            return
        self._ended = not data
        self._buffer += data
        self._received += len(data)
        if self._received > MOST_OUTPUT:
            raise self.failed(f"wrote more than {MOST_OUTPUT >> 20} MiB to stdout")
        if self._ended:
            self._selector.unregister(self._stdout)

    def _read_stderr(self) -> None:
        data = self._read(self._stderr_file)
        if data == b"":
            self._selector.unregister(self._stderr_file)
        self._stderr = (self._stderr + (data or b""))[-_KEPT_STDERR:]

    def _read(self, descriptor: int) -> bytes | None:
        """What is there to read; empty at the end, None for nothing yet."""
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None

    def _how_it_ended(self) -> str:
        used = self._confined.usage(_ENDING)
        if used.stopped is not None:
            return f"used more {used.stopped} than a command may, and was stopped"
        if (code := used.status) is None:
            return "closed its stdout before it gave its answer"
        said = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"ended before it gave its answer ({said})"

    def failed(self, what: str) -> Failed:
        """The error for something that the program did: one line, with the last line of its stderr."""
        with suppress(OSError, ValueError, KeyError):
            for key, _ in self._selector.select(0):
                if key.data is not None and key.fd != self._stdout:
                    key.data()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        said = f"; its last words: {shortened(lines[-1], 160)}" if lines else ""
        missed = lines and any(word in lines[-1] for word in _MISSED)
        fix = "; it is confined: `allow_read`, `pass_env` and `allow_network` give it more" if missed else ""
        self._fault = what
        return Failed(f"{self._name}: {what}{said}{fix}")

    @property
    def _name(self) -> str:
        return f"command {quoted(self.command, 80)}"
