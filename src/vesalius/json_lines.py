"""A program that we start and that speaks JSON lines: one JSON object per line on its stdin and stdout.

    with LineProgram("./mine.sh --fast", timeout=120) as program:
        program.send({"task": "..."})
        line = program.receive()        # a dict

The command is split as a shell would split it, and no shell runs it. Whatever goes wrong (no JSON, a crash, silence,
too much output) is a `Failed` with one line that names the command. On leaving, the program and everything it started
in its process group is killed. It runs with the rights of this process: nothing here is a sandbox.
"""

import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput, Failed, quoted, shortened

#: What names a command where a name is expected: `command:./mine.sh`.
PREFIX = "command:"
#: Seconds of silence after which a program is given up, unless told otherwise, and seconds of one whole conversation.
TIMEOUT, LONGEST_CONVERSATION = 120.0, 3600.0
#: Bytes of one line, and of everything that a program writes to stdout.
LONGEST_LINE, MOST_OUTPUT = 8 << 20, 256 << 20
#: How much of stderr is kept for the message.
_KEPT_STDERR = 4096
_CHUNK = 1 << 16
#: Seconds between two looks whether a silent program still runs.
_LOOK = 1.0
#: Seconds in which a program that closed its stdout should end, so that its exit code is known.
_ENDING = 2.0


def command_of(name: str) -> str | None:
    """The command in `command:...`; None where a name is not of this form."""
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def short_name(name: str) -> str:
    """A name for files: `command:'./mine.sh --fast'` is `command.mine.sh`."""
    command = command_of(name)
    if name.startswith("answers:"):
        return f"answers.{Path(name).name}"
    if command is None:
        return name.replace(":", ".")
    program, *arguments = arguments_of(command)
    scripts = [one for one in arguments if Path(one).is_file()]  # of `python mine.py` the script says more
    return f"command.{Path(scripts[0] if scripts else program).name}"


def arguments_of(command: str) -> list[str]:
    """The program and its arguments, the program by its whole path; refused where there is none that can be started."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"command {quoted(command, 80)}: {error}; quote it as for a shell") from None
    if not arguments:
        raise BadInput(f"command {quoted(command, 80)}: is empty; write {PREFIX}./mine.sh")
    found = shutil.which(os.path.expanduser(arguments[0]))
    if found is None:
        given = Path(arguments[0]).expanduser()
        problem, fix = "there is no such program", "give the path of one that can be run"
        if given.is_file():
            problem, fix = "it may not be executed", f"chmod +x {given}, or name its interpreter: 'python {given}'"
        raise BadInput(f"command {quoted(command, 80)}: {problem}; {fix}")
    return [os.path.abspath(found), *arguments[1:]]


class LineProgram:
    """A running program that speaks JSON lines.

    Args:
        command: the program and its arguments, in one text.
        timeout: seconds that it may be silent while it is waited for.
        longest: seconds that the whole conversation may take.
    """

    def __init__(self, command: str, *, timeout: float = TIMEOUT, longest: float = LONGEST_CONVERSATION) -> None:
        if not timeout > 0:
            raise BadInput(f"`timeout` {timeout:g}: give a positive number of seconds")
        self.command, self.timeout = command, timeout
        self._end = time.monotonic() + longest
        self._longest = longest
        self._buffer, self._stderr, self._received = bytearray(), bytearray(), 0
        self._ended, self._searched = False, 0
        try:
            self._process = subprocess.Popen(
                arguments_of(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise BadInput(f"{self._name}: cannot be started ({error.strerror}); is its first line right?") from None
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            os.set_blocking(stream.fileno(), False)
        self._selector.register(self._stdout, selectors.EVENT_READ, self._read_stdout)
        self._selector.register(self._process.stderr.fileno(), selectors.EVENT_READ, self._read_stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the program and its process group, and wait for it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        self._process.wait()

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

    def receive(self) -> dict[str, Any]:
        """The next line, a JSON object. Empty lines are skipped."""
        end = time.monotonic() + self.timeout
        while True:
            line = self._line()
            if line is None:
                for key, _ in self._wait(end, "is silent"):
                    key.data()
            elif line.strip():
                return self._object(line)

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
        assert self._process.stderr is not None
        data = self._read(self._process.stderr.fileno())
        if data == b"":
            self._selector.unregister(self._process.stderr.fileno())
        self._stderr = (self._stderr + (data or b""))[-_KEPT_STDERR:]

    def _read(self, descriptor: int) -> bytes | None:
        """What is there to read; empty at the end, None for nothing yet."""
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None

    def _object(self, line: bytes) -> dict[str, Any]:
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

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
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
        return Failed(f"{self._name}: {what}" + (f"; its last words: {shortened(lines[-1], 160)}" if lines else ""))

    @property
    def _name(self) -> str:
        return f"command {quoted(self.command, 80)}"
