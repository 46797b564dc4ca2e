"""A run directory that can be left at any moment and resumed, by the command that made it and no other.

`run.json` is written once, before anything else, and says what was asked. A command that finds it resumes the run if
it asks for the same; otherwise the error says which setting differs. Explanations are whole files, written in one step.
"""

import fcntl
import json
import os
import platform
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from vesalius.documents.base import first_error
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.documents.request import installed_versions
from vesalius.documents.scorecard import SCORECARD_FILE, Scorecard
from vesalius.documents.trace import CALLS_FILE, Trace
from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.files import read_json, write_json
from vesalius.progress import Progress, silent
from vesalius.runs.ledger import REMEDY, Ledger
from vesalius.values import JsonObject

# Which process works on a directory, and what it is doing: `under_way.json`, locked for as long as the work lasts.
#
# The lock is what counts, not the file: a process that is killed leaves the file and loses the lock. Asking who holds
# it (`F_GETLK`) takes no lock, so watching a run never disturbs it. Processes that the worker forks do not inherit it.

UNDER_WAY = "under_way.json"
#: Seconds between two notes of the same step.
EVERY = 0.5
#: Bytes of the file that are read.
NOTE_BYTES = 20_000
#: Characters of a step's name.
LONGEST_STEP = 200
#: The kernel's `struct flock`, and where the type of the lock and the number of its process stand in it.
_LAYOUT, _KIND, _PID = ("qqihh", 3, 2) if sys.platform == "darwin" else ("hhqqi", 0, 4)
#: What this process holds: opening and closing one of these files again would give its lock away.
_held: "dict[Path, _Mark]" = {}


@dataclass(frozen=True)
class Worker:
    """A process at work. `here`: it runs on this machine, and the kernel and the file name the same process."""

    pid: int
    here: bool
    started: float | None = None
    step: str = ""
    done: int = 0
    total: int = 0


@contextmanager
def under_way(directory: Path | None, progress: Progress) -> Iterator[Progress]:
    """Mark a directory as being worked on; the progress that is reported is noted in the mark as well.

    A second process is refused. Where the file system has no locks there is no mark.
    """
    if directory is None:
        yield progress
        return
    path = _path(directory)
    file = _lock(path)
    if file is None:
        yield progress
        return
    mark = _held[path] = _Mark(file, progress)
    try:
        mark.write()
        yield mark
    finally:
        path.unlink(missing_ok=True)
        os.close(file)
        del _held[path]


def worker_of(directory: Path) -> Worker | None:
    """The process that works on a directory; None where there is none."""
    path = _path(directory)
    own = _held.get(path)
    pid = _holder(path) if own is None else os.getpid()
    if pid is None:
        return None
    noted = _noted(path) if own is None else own.noted
    here = pid > 0 and noted.get("pid") == pid and noted.get("host") == platform.node()
    count = {name: value for name in ("done", "total") if isinstance(value := noted.get(name), int) and value >= 0}
    started = noted.get("started")
    return Worker(
        pid,
        here,
        started=started if isinstance(started, float) else None,
        step=" ".join(str(noted.get("step", "")).split())[:LONGEST_STEP],
        **count,
    )


class _Mark:
    """The progress of the work, passed on and written into the locked file."""

    def __init__(self, file: int, progress: Progress) -> None:
        self._file, self._progress = file, progress
        self.noted: JsonObject = {"pid": os.getpid(), "host": platform.node(), "started": time.time()}
        self._last = time.monotonic()

    def __call__(self, step: str, done: int, total: int) -> None:
        self._progress(step, done, total)
        now = time.monotonic()
        if step != self.noted.get("step") or now - self._last >= EVERY:
            self._last = now
            self.noted |= {"step": step[:LONGEST_STEP], "done": done, "total": total}
            self.write()

    def write(self) -> None:
        """Put down what is known; a full disk must not stop the work itself."""
        data = json.dumps(self.noted).encode()
        with suppress(OSError):
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))


def _path(directory: Path) -> Path:
    """The file in a directory; a link in its place is not followed, since the file is overwritten and removed."""
    return directory.resolve() / UNDER_WAY


def _lock(path: Path) -> int | None:
    """The open and locked file; None where files cannot be locked."""
    busy = Failed(f"{path.parent}: another process is working on it; wait for it or choose another `out`")
    if path in _held:
        raise busy
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise Failed(f"{path}: cannot be opened ({error.strerror}); choose another place") from None
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(file)
            raise busy from None
        except OSError:
            os.close(file)
            return None
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # the process before removed it between the two calls


def _holder(path: Path) -> int | None:
    """The process that has locked a file; 0 where its number is not known here."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        asked = [0] * 5
        asked[_KIND] = fcntl.F_WRLCK
        answer = struct.unpack(_LAYOUT, fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_LAYOUT, *asked)))
    except OSError:
        return None
    finally:
        os.close(file)
    return None if answer[_KIND] == fcntl.F_UNLCK else max(0, answer[_PID])


def _noted(path: Path) -> JsonObject:
    try:
        with path.open("rb") as file:
            noted = json.loads(file.read(NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return noted if isinstance(noted, dict) else {}


SCHEMA = 1
RUN, EVENTS, SCORECARD = "run.json", "events.jsonl", SCORECARD_FILE
EXPLANATIONS, TRACES, CALLS, PAGES, INDEX = "explanations", "traces", "calls", "pages", "report.html"
SPENDING, CIRCUITS, EXECUTIONS = "spending.json", "circuits", "executions"
#: What foreign programs used: a folder with one file per case, or one file.
PROGRAMS, PROGRAMS_FILE = "programs", "programs.jsonl"
#: Bytes of a file that is read whole; calls are read piece by piece.
MOST_BYTES = 128 * 2**20
_SHOWN = 60
#: Parts of `run.json` that are tables where they are there, of texts but for the limits, and settings that are texts.
LIMITS = "limits"
TABLES = (LIMITS, "names", "places", "annotations")
TEXTS = ("benchmark", "version", "scientist", "backbone", "protocol", "interpreter", "category", "evaluator")
Document = TypeVar("Document", bound=BaseModel)


class Run:
    """An open run directory, held by this process alone until it is closed.

    `settings` decide the results: they must be the same when a run is resumed. `notes` are only written down.
    `limits`, such as a spending cap, may change; the last ones are kept.
    """

    def __init__(
        self,
        directory: Path,
        *,
        settings: Mapping[str, object],
        notes: Mapping[str, object] | None = None,
        limits: Mapping[str, object] | None = None,
    ) -> None:
        self.directory = directory
        _refuse_other_files(directory)
        self.ledger = Ledger(directory / EVENTS)
        self._mark = ExitStack()
        try:
            self._mark.enter_context(under_way(directory, silent))
            self._resume(dict(settings), {**(notes or {}), "limits": dict(limits or {})})
            # Remove files that a killed process had begun; the open ledger says that no other process writes here.
            for path in directory.rglob("*.partial-*"):
                path.unlink(missing_ok=True)
        except (BadInput, Failed):
            self._mark.close()
            self.ledger.close()
            raise

    def explanation(self, case: str) -> Explanation | None:
        """The explanation of a case, or None where there is no whole one."""
        return document_or_none(Explanation, self.explanation_path(case))

    def explanation_path(self, case: str) -> Path:
        """Where the explanation of a case is kept."""
        return explanation_path(self.directory, case)

    def write_explanation(self, case: str, explanation: Explanation) -> None:
        """Keep the explanation of a case."""
        _make(self.directory / EXPLANATIONS)
        explanation.write(self.explanation_path(case))

    def trace(self, case: str) -> Trace | None:
        """The trace of a case, or None where there is no whole one."""
        return document_or_none(Trace, self.trace_path(case))

    def trace_path(self, case: str) -> Path:
        """Where the trace of a case is kept."""
        return self.directory / TRACES / f"{case}.json"

    def write_trace(self, case: str, trace: Trace) -> None:
        """Keep how the explanation of a case came about."""
        _make(self.directory / TRACES)
        trace.write(self.trace_path(case))

    def write_circuit(self, case: str, circuit: Circuit) -> Path:
        """Keep the circuit that was discovered in a case, and return the path of its file."""
        _make(self.directory / CIRCUITS)
        path = self.directory / CIRCUITS / f"{case}.json"
        circuit.write(path)
        return path

    def calls_path(self, case: str, role: str = "") -> Path:
        """Where the calls of a case are recorded; each judge has its own file."""
        return calls_path(self.directory, case, role)

    def programs_path(self, case: str) -> Path:
        """Where it is kept how foreign programs ran for a case, and what they used."""
        return self.directory / PROGRAMS / f"{case}.jsonl"

    def executions_path(self, case: str) -> Path:
        """Where it is kept what the executed code of a case gave."""
        return self.directory / EXECUTIONS / f"{case}.jsonl"

    def write_scorecard(self, scorecard: Scorecard) -> None:
        """Keep the figures of the run."""
        scorecard.write(self.directory / SCORECARD)

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mark.close()
        self.ledger.close()

    def _resume(self, settings: Mapping[str, object], notes: Mapping[str, object]) -> None:
        path = self.directory / RUN
        if path.exists():
            before = read_run(self.directory)
            _compare(before["settings"], settings, self.directory)
            if before.get("limits", {}) != notes["limits"]:
                write_json(path, {**before, "limits": notes["limits"]})
        elif self.ledger.records:
            raise BadInput(f"{self.directory}: has {EVENTS} but no {RUN}; put it back or choose another `out`")
        else:
            write_json(path, {"schema": SCHEMA, "settings": settings, "versions": installed_versions(), **notes})


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run."""
    return (directory / RUN).is_file()


def read_run(directory: Path) -> JsonObject:
    """What a run was asked, checked."""
    try:
        data = read_json(directory / RUN)
    except BadInput as error:
        raise BadInput(f"{error}; {REMEDY}") from None
    if data.get("schema") != SCHEMA:
        made = f"schema {quoted(data.get('schema'), 40)}; this version reads schema {SCHEMA}"
        raise BadInput(f"{directory / RUN}: {made}; use the version that made it, or another directory")
    if not isinstance(data.get("settings"), dict):
        raise BadInput(f"{directory / RUN}: says nothing about the settings; {REMEDY}")
    parts = {**{name: data.get(name) for name in TABLES}, "specimens": data["settings"].get("specimens")}
    for name, part in parts.items():
        if not isinstance(part, dict | None) or (
            name != LIMITS and not all(isinstance(value, str) for value in (part or {}).values())
        ):
            raise BadInput(f"{directory / RUN}: {name} is not a table{'' if name == LIMITS else ' of texts'}; {REMEDY}")
    if wrong := next((name for name in TEXTS if not isinstance(data["settings"].get(name), str | None)), None):
        raise BadInput(f"{directory / RUN}: the setting {wrong} is not a text; {REMEDY}")
    return data


def read_own_run(directory: Path) -> JsonObject | None:
    """The same of a directory that may come from elsewhere: a `run.json` that lies outside or is too large is refused.
    None where there is no run.
    """
    return read_run(directory) if is_run(directory) and inside(directory, RUN) else None


def inside(directory: Path, *parts: str) -> Path:
    """A file of a run; a link that leads out of it is refused, and a file that is too large to be read whole."""
    path = directory.joinpath(*parts)
    if path.exists() and not (path.is_file() and path.resolve().is_relative_to(directory.resolve())):
        raise BadInput(f"{'/'.join(parts)}: is not a file of this run")
    if parts[0] not in (CALLS, CALLS_FILE) and path.is_file() and (size := path.stat().st_size) > MOST_BYTES:
        raise BadInput(f"{'/'.join(parts)}: has {size / 2**20:,.0f} MB; files of {MOST_BYTES // 2**20} MB are read")
    return path


def require_benchmark(directory: Path, name: str) -> JsonObject:
    """What a run was asked, if it is one of that benchmark."""
    asked = read_run(directory)
    if (benchmark := asked["settings"].get("benchmark")) != name:
        raise BadInput(f"{directory}: a run of `bench {benchmark}`; this is for runs of `bench {name}`")
    return asked


def read_scorecard(directory: Path) -> Scorecard:
    """The figures of a finished run."""
    if not (directory / SCORECARD).exists():
        raise BadInput(f"{directory}: the run is not finished; the `vesalius bench` command that began it continues it")
    return Scorecard.read(directory / SCORECARD)


def explanation_path(directory: Path, case: str) -> Path:
    """Where the explanation of a case is kept."""
    return directory / EXPLANATIONS / f"{case}.json"


def calls_path(directory: Path, case: str, role: str = "") -> Path:
    """Where the calls of a case are recorded."""
    return directory / CALLS / f"{case}{role and '.'}{role}.jsonl"


def read_explanation(path: Path) -> Explanation:
    """An explanation from its file, or one line saying what is wrong with it."""
    return read_document(Explanation, path)


def read_trace(path: Path) -> Trace:
    """A trace from its file, or one line saying what is wrong with it."""
    return read_document(Trace, path)


def document_or_none(kind: type[Document], path: Path) -> Document | None:
    """A document from its file, or None where there is no whole one."""
    try:
        return read_document(kind, path)
    except BadInput:
        return None


def read_document(kind: type[Document], path: Path) -> Document:
    """A document from its file, or one line saying what is wrong with it."""
    data = read_json(path)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"{path}: {first_error(error)}") from None


def _make(directory: Path) -> None:
    try:
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise Failed(f"{directory}: cannot be made ({error.strerror})") from None


def _refuse_other_files(directory: Path) -> None:
    """A directory with files of something else is not a place for a run."""
    if is_run(directory):
        return
    ours = (EVENTS, UNDER_WAY, f"{RUN}.partial-")  # what a run killed at its very beginning leaves
    others = sorted(path.name for path in directory.iterdir() if not path.name.startswith(ours))
    if others:
        raise BadInput(f"{directory}: holds {choices(others, 2)} and no run; choose another directory")


def _compare(before: Mapping[str, object], now: Mapping[str, object], directory: Path) -> None:
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old != new:
            difference = _difference(old, new)
            raise BadInput(
                f"{directory}: holds a run with {name} {difference}; repeat its command or choose another `out`"
            )


def _difference(old: object, new: object) -> str:
    """Two settings side by side; of two tables only the first entry that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                return f"{key!r}: {old.get(key)!r:.{_SHOWN}}, not {new.get(key)!r:.{_SHOWN}}"
    return f"{old!r:.{_SHOWN}}, not {new!r:.{_SHOWN}}"
