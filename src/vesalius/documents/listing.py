"""The results below a directory, one row each: what it is, how far it is, its main figures, what it cost."""

from datetime import datetime
from typing import Literal

from pydantic import ConfigDict

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, duration, join_first, shortened
from vesalius.errors import BadInput, choices

#: Results that a terminal lists.
SHOWN = 40
#: `running`: a process works on it now; `unfinished`: there is work left and no process does it.
State = Literal["running", "finished", "unfinished", "unreadable"]


class ResultRow(Record):
    """One result. `path` is relative to the directory listed; `figures` are one to three numbers in words.

    `done` of `total` cases are there where a run has cases; `problem` says why a result cannot be read; `started` is
    when the process that works on it began; `has_calls` says that calls of a language model are on record.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    path: str
    kind: str
    title: str = ""
    state: State
    figures: str = ""
    done: int | None = None
    total: int | None = None
    cost: float | None = None
    seconds: float | None = None
    modified: float
    started: float | None = None
    has_calls: bool = False
    problem: str = ""


class ResultList(ResultDocument, kind="results"):
    """Every result below a directory, the latest first. `left_out` counts directories beyond the limit."""

    REMEDY = "run `vesalius runs` again"

    directory: str
    results: tuple[ResultRow, ...]
    left_out: int = 0

    def of_kind(self, kind: str) -> "ResultList":
        """Only the results of one kind."""
        kinds = sorted({row.kind for row in self.results})
        if kind not in kinds:
            raise BadInput(f"kind {kind!r}: no such result in {self.directory}; there are {choices(kinds) or 'none'}")
        return self.model_copy(update={"results": tuple(row for row in self.results if row.kind == kind)})

    def view(self) -> View:
        """One line for each result, the latest first."""
        names = [f"{row.path} ({row.kind}, {row.state})" for row in self.results]
        columns = ("path", "kind", "title", "state", "figures", "cost", "seconds")
        lines = [
            (
                row.path,
                row.kind,
                _state(row),
                shortened(row.problem or row.figures or row.title, 70),
                "" if row.seconds is None else duration(row.seconds),
                datetime.fromtimestamp(row.modified).strftime("%Y-%m-%d %H:%M"),
            )
            for row in self.results
        ]
        if not self.results:
            return View(f"Results in {self.directory}", Answer(f"no results in {self.directory}"))
        rest = [f"{self.left_out} more directories were not looked at"] if self.left_out else []
        return View(
            f"Results in {self.directory}",
            Answer(f"{len(names)} results in {self.directory}"),
            [
                Facts([("", join_first(names, 5))], pages_only=True),
                Sheet.of([{name: getattr(row, name) for name in columns} for row in self.results], terminal=0),
                Sheet(
                    ("result", "kind", "state", "figures", "took", "changed"), lines, terminal=SHOWN, terminal_only=True
                ),
                *([Text(rest)] if rest else []),
            ],
        )


def _state(row: ResultRow) -> str:
    if row.state in ("running", "unfinished") and row.done is not None and row.total:
        return f"{row.state}, {row.done} of {row.total}"
    return row.state
