"""The results below a directory, one row each: what it is, how far it is, its main figures, what it cost."""

from typing import Literal

from pydantic import ConfigDict

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.views import Row, join_first
from vesalius.errors import BadInput, choices

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

    def _summary(self) -> str:
        names = [f"{row.path} ({row.kind}, {row.state})" for row in self.results]
        return f"{len(names)} results in {self.directory}\n{join_first(names, 5) or 'none'}"

    def _rows(self) -> list[Row]:
        names = ("path", "kind", "title", "state", "figures", "cost", "seconds")
        return [{name: getattr(row, name) for name in names} for row in self.results]
