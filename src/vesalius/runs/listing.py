"""What lies below a directory: every run and every result, told by its files.

Only plain files are read: links are not followed, so nothing outside the directory is, and no read waits for a pipe. A
result that cannot be read, or is too large to be, is listed with the reason; it does not stop the others.
"""

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.base import Document
from vesalius.documents.kinds import stored_kinds
from vesalius.documents.printed import ResultList, ResultRow
from vesalius.documents.trace import CALLS_FILE
from vesalius.errors import BadInput
from vesalius.files import no_directory, plain_text
from vesalius.runs.directory import CALLS, EVENTS, RUN, SCORECARD, UNDER_WAY, Worker, read_run, worker_of
from vesalius.runs.kinds import kind_of_calls, kind_of_run
from vesalius.values import JsonObject

#: Directories this far below are looked at, and so many results are listed.
DEPTH, MOST = 6, 2_000
#: Bytes of a file that is read for the list.
MOST_BYTES = 128 * 2**20
#: Files that are read for the row of a run beside `run.json`.
BESIDE_RUN = (SCORECARD, EVENTS)
Described = JsonObject


def list_results(directory: Path) -> ResultList:
    """Every result below a directory, the latest first."""
    return ResultIndex(directory).look()


@dataclass(frozen=True)
class ListingChanges:
    """What changed in a directory since a version: rows that are new or other, and the paths of those that are gone."""

    version: int
    rows: tuple[ResultRow, ...]
    gone: tuple[str, ...]
    left_out: int


class ResultIndex:
    """The results below a directory, looked at again and again: only those whose files changed are read again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._rows: dict[str, tuple[Any, ResultRow]] = {}
        self._versions: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._version, self._left_out = 0, 0
        self._lock = threading.Lock()

    def look(self) -> ResultList:
        """Every result, the latest first."""
        with self._lock:
            self._update()
            rows = sorted((row for _, row in self._rows.values()), key=lambda row: -row.modified)
        return ResultList(directory=str(self.directory), results=tuple(rows), left_out=self._left_out)

    def changes(self, since: int) -> ListingChanges:
        """What changed since a version; everything since 0 or since a version of another server."""
        with self._lock:
            self._update()
            since = since if 0 < since <= self._version else 0
            rows = tuple(row for path, (_, row) in self._rows.items() if self._versions[path] > since)
            gone = tuple(path for path, version in self._gone.items() if version > since) if since else ()
            return ListingChanges(self._version, rows, gone, self._left_out)

    def _update(self) -> None:
        if not self.directory.is_dir():
            raise BadInput(
                f"{self.directory}: {no_directory(self.directory)}; name one that holds results, such as vesalius-runs"
            )
        found = sorted(_found(self.directory), key=lambda one: -one.modified)
        self._left_out = max(0, len(found) - MOST)
        version = self._version + 1
        seen = set()
        for one in found[:MOST]:
            seen.add(one.path)
            worker = worker_of(self.directory / one.path) if one.marked else None
            mark = worker, one
            if one.path not in self._rows or self._rows[one.path][0] != mark:
                self._rows[one.path] = mark, _row(self.directory / one.path, one, worker)
                self._versions[one.path] = self._version = version
                self._gone.pop(one.path, None)
        for path in self._rows.keys() - seen:
            del self._rows[path], self._versions[path]
            self._gone[path] = self._version = version


@dataclass(frozen=True)
class _Found:
    """A directory with a result: its path, the file that tells, and what says whether it is still as it was.

    Texts and numbers alone: there are thousands, and they are looked at every few seconds.
    """

    path: str
    file: str
    modified: float
    marked: bool
    stamps: tuple[tuple[int, int, int] | None, ...]


def _found(top: Path) -> Iterator[_Found]:
    """Directories with a result. Inside what owns its directory, such as a run of a benchmark, nothing is sought."""
    kinds = stored_kinds()
    files_of = [str(kind.FILE) for kind in kinds]
    owners = {str(kind.FILE) for kind in kinds if kind.OWNS_DIRECTORY}
    order = [*(name for name in files_of if name in owners), RUN, *files_of, CALLS_FILE, UNDER_WAY]
    for place, directories, files in os.walk(top, followlinks=False):
        path = os.path.relpath(place, top)
        directories[:] = [name for name in directories if plain_text(name) == name]  # others have no address
        deep = path.count(os.sep) + 1 >= DEPTH
        telling = (name for name in order if name in files)
        file = next((name for name in telling if _is_plain(f"{place}/{name}")), None)
        directories[:] = [] if deep or file == RUN or file in owners else sorted(directories)
        if file is not None:
            names = (file, SCORECARD, EVENTS) if file == RUN else (file, CALLS_FILE)
            stamps = tuple(_stamp(f"{place}/{name}") if name in files else None for name in names)
            modified = stamps[0][2] / 1e9 if stamps[0] else 0.0
            yield _Found(path, file, modified, UNDER_WAY in files, stamps)


def _is_plain(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _row(place: Path, found: _Found, worker: Worker | None) -> ResultRow:
    file = found.file
    has_calls = (place / CALLS).is_dir() or (place / CALLS_FILE).is_file()
    common = {"path": found.path, "modified": found.modified, "has_calls": has_calls}
    document = next((one for one in stored_kinds() if file == one.FILE), None)
    kind = document.kind_name() if document is not None else "benchmark" if file == RUN else "explanation"
    try:
        described = _described(place, file, document)
        return ResultRow.model_validate(
            {**common, "kind": kind, "state": "finished", **described, **_at_work(worker, described)}
        )
    except (RuntimeError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        return ResultRow(**common, kind=kind, state="unreadable", problem=" ".join(str(error).split())[:400])


def _described(place: Path, file: str, kind: type[Document] | None) -> Described:
    if file in (CALLS_FILE, UNDER_WAY):
        return _unfinished(place)
    # Refuse files that are links or pipes, or too large.
    for path in (place / name for name in (file, *(BESIDE_RUN if kind is None else kind.BESIDE))):
        if not os.path.lexists(path):
            continue
        if not _is_plain(str(path)):
            raise BadInput(f"{path.name}: is a link or no plain file, which is not read; put the file itself there")
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadInput(f"{path.name}: has {size / 2**20:,.0f} MB; the list reads files of {MOST_BYTES // 2**20} MB")
    return _run(place) if kind is None else vars(kind.read(place / file).listed())


def _at_work(worker: Worker | None, described: Described) -> Described:
    """What is said of a run while a process works on it."""
    if worker is None:
        return {}
    counts = {} if described.get("total") or not worker.total else {"done": worker.done, "total": worker.total}
    return {"state": "running", "figures": worker.step, "started": worker.started, "seconds": None, **counts}


def _unfinished(place: Path) -> Described:
    """An explanation that is not there yet: how many calls were made for it."""
    calls, kind = place / CALLS_FILE, kind_of_calls()
    if kind is None or not _is_plain(str(calls)) or calls.stat().st_size > MOST_BYTES:
        return {"state": "unfinished"}
    return kind.listed(place, {})


def _run(place: Path) -> Described:
    """A run of a benchmark, or of what else keeps a run directory: as its kind describes it."""
    run = read_run(place)
    return kind_of_run(run).listed(place, run["settings"])
