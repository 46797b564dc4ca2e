"""What the list of a paper's tables and figures consists of, and how an entry becomes a document."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from vesalius_bench.papers.comparison import Sheet
from vesalius_bench.papers.documents import Cell, Paper, PaperEntry, PaperRow, PaperTable
from vesalius_bench.papers.published import NOT_MEASURED, printed
from vesalius_bench.papers.sources import Kind, Sources
from vesalius_functions.knowledge.geography import installed

FROM_CODE = "computed here from the code"
INSTALL = "pip install 'vesalius[functions]'"
#: What fills an entry: a run that `--run` makes, people, or a study of its own.
Filled = Literal[
    "circuits", "agent", "judged", "study", "study agent", "mechrl", "functions", "evaluator", "reliability"
]
Rows = Callable[[Sources], list[PaperRow]]


@dataclass(frozen=True)
class Entry:
    """One table or figure. `reads` are the kinds of results that fill it (none: the code itself); `rows` gives ours;
    `filled_by` is the run that `--run` makes, and without one `by_hand` says what it takes instead. `data` are modules
    of the extra `functions` without which the code has no rows.
    """

    id: str
    title: str
    reads: tuple[Kind, ...]
    command: str
    differs: str
    rows: Rows
    filled_by: Filled | None = None
    by_hand: str = ""
    data: tuple[str, ...] = ()

    @property
    def how(self) -> str:
        """The command that measures it, and what is to be installed before."""
        return self.command if all(map(installed, self.data)) else f"{self.command}, after {INSTALL}"

    @property
    def is_figure(self) -> bool:
        """Whether the paper draws it."""
        return self.id.startswith("Figure")


@dataclass(frozen=True)
class PaperTables:
    """A paper: where it was published, and its tables and figures in order."""

    paper: Paper
    source: str
    entries: tuple[Entry, ...]


def filled(tables: PaperTables, entry: Entry, sources: Sources) -> PaperTable:
    """The document of an entry: the published rows and ours; rows without any figure are left out."""
    theirs = printed(tables.paper, entry.id)
    measured = [row for row in entry.rows(sources) if any(value is not None for value in row.values.values())]
    columns = dict.fromkeys((*theirs.columns, *(column for row in measured for column in row.values)))
    return PaperTable(
        paper=tables.paper,
        id=entry.id,
        title=entry.title,
        columns=tuple(columns),
        published_in=f"{tables.source}, {entry.id}",
        note=theirs.note,
        published=tuple(PaperRow(name=name, source="published", values={**row}) for name, row in theirs.rows.items()),
        measured=tuple(measured),
        command=entry.how,
        differs=entry.differs,
    )


def listed(tables: PaperTables, entry: Entry, sources: Sources) -> PaperEntry:
    """The entry in the list of the paper."""
    table = filled(tables, entry, sources)
    return PaperEntry(
        id=entry.id,
        title=entry.title,
        published=len(table.published),
        measured=len(table.measured),
        command=entry.how,
        differs=entry.differs,
    )


def measured_rows(sheets: Iterable[Sheet], id: str) -> list[PaperRow]:
    """The rows of one sheet that were measured here."""
    return [
        PaperRow(name=name, source=source, values=dict(figures))
        for sheet in sheets
        if sheet.id == id
        for name, source, figures in sheet.rows
        if NOT_MEASURED not in source
    ]


def one_column(name: str, source: str, value: Cell, *, column: str = "value") -> PaperRow:
    """A row with a single figure."""
    return PaperRow(name=name, source=source, values={column: value})


def from_code(rows: Sequence[tuple[str, dict[str, Cell]]]) -> list[PaperRow]:
    """Rows that the code gives without a run."""
    return [PaperRow(name=name, source=FROM_CODE, values=values) for name, values in rows]
