"""Tables and figures of the three papers, filled from runs: what `vesalius paper` prints.

Published rows hold texts, as the paper prints them; measured rows hold numbers, or words where the table has words. A
table without measured rows says so, and names the command that would measure it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from vesalius.documents.base import FrozenMap, Record, ResultDocument
from vesalius.documents.view import Answer, Code, Facts, Sheet, Text, View, made

Paper = Literal["hyve", "mechrl", "find"]
Cell = int | float | str | None
#: The source of a row that the paper prints.
PUBLISHED = "published"


class PaperRow(Record):
    """One row: figures by column. `source` says where they come from: the paper, a run, or the code itself.

    Of a measured row `run` is the run or recorded file that gave it, and `model` the model that it was made with: the
    one that was studied or the language model that was asked.
    """

    ABSENT_IF_DEFAULT = ("run", "model")

    name: str
    source: str
    run: str = ""
    model: str = ""
    values: FrozenMap[str, Cell]


class PaperTable(ResultDocument, kind="paper_table"):
    """One table or figure of a paper. `published` are its rows, `measured` ours.

    `command` measures it; `differs` says how ours differs from the published measurement; `note` is about the published
    rows. `recorded` says that our rows come from results kept with the code, because no run of yours fills the table.
    `pictures` are files that were drawn.
    """

    FILE = "PAPER-TABLE.json"
    RANK = None
    REMEDY = "run `vesalius paper` again"

    paper: Paper
    id: str
    title: str
    columns: tuple[str, ...]
    published_in: str
    note: str = ""
    published: tuple[PaperRow, ...]
    measured: tuple[PaperRow, ...]
    command: str
    differs: str
    recorded: bool = False
    pictures: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """Its name as that of a file: `hyve-table-2`."""
        return f"{self.paper}-{self.id.lower().replace(' ', '-')}"

    def save(self, directory: Path | str) -> Path:
        """Write it into a directory and return its path."""
        path = made(directory) / f"{self.file_name}.json"
        self.write(path)
        return path

    def view(self) -> View:
        """Each published row, then the measured ones of its name. Ours of several sources have a number each, by which
        the source is told below.
        """
        measured = f"{len(self.measured)} {'recorded' if self.recorded else 'measured'} rows"
        measured = measured if self.measured else f"not measured here: {self.command}"
        sources = list(dict.fromkeys(row.source for row in self.measured))
        marks = dict(zip(sources, ("ours",) if len(sources) == 1 else _numbered(len(sources)), strict=True))
        rows = [
            (row.name, marks.get(row.source, row.source), *figure_cells(self.columns, row.values))
            for row in self._side_by_side()
        ]
        note = f" ({self.note})" if self.note else ""
        remarks = [
            *([] if self.published or self.note else ["published as a picture without numbers"]),
            *(source if mark == "ours" else f"{mark}: {source}" for source, mark in marks.items()),
            *([] if self.measured else [f"not measured here; to measure: {self.command}"]),
            *([f"recorded with the code; to measure yours: {self.command}"] if self.recorded else []),
            f"differs: {self.differs}",
        ]
        return View(
            f"{self.paper}, {self.id}",
            Answer(f"{self.paper}, {self.id}: {self.title}"),
            [
                Facts([("", f"{len(self.published)} published rows, {measured}")]),
                Facts([("published", f"{self.published_in}{note}")]),
                *([Sheet(("name", "source", *self.columns), rows, terminal=500)] if self.columns else []),
                Text(remarks),
            ],
            command=self.command,
            files=[("picture", str(one)) for one in self.pictures],
        )

    def _side_by_side(self) -> Iterator[PaperRow]:
        names = {row.name for row in self.published}
        for row in self.published:
            yield row
            yield from (own for own in self.measured if own.name == row.name)
        yield from (own for own in self.measured if own.name not in names)


def _numbered(count: int) -> list[str]:
    return [f"ours {number}" for number in range(1, count + 1)]


class PaperEntry(Record):
    """A table or figure in the list of a paper: how many rows are published and measured, and what measures it.
    `recorded` as in the table itself; `models` are those that our rows were made with. Where none is measured, `needs`
    says what that takes beside the command: a language model, judges or people.
    """

    ABSENT_IF_DEFAULT = ("needs",)

    id: str
    title: str
    published: int
    measured: int
    command: str
    differs: str
    recorded: bool = False
    models: tuple[str, ...] = ()
    needs: str = ""

    @property
    def shown(self) -> str:
        """How many rows are measured, or why none is."""
        if self.measured:
            return f"{self.measured} rows{', recorded' * self.recorded}"
        return f"not here: {self.needs}" if self.needs else "not here"


class PaperContents(ResultDocument, kind="paper_contents"):
    """Every table and figure of a paper. `results` are the runs that were read."""

    REMEDY = "run `vesalius paper` again"

    paper: Paper
    published_in: str
    results: tuple[str, ...]
    entries: tuple[PaperEntry, ...]

    def view(self) -> View:
        """Every table and figure, whether it is measured, and the command that measures it."""
        measured = sum(entry.measured > 0 for entry in self.entries)
        recorded = sum(entry.recorded for entry in self.entries)
        kept = f", {recorded} of these in results kept with the code" if recorded else ""
        rows = [
            (
                entry.id,
                entry.title,
                f"{entry.published} rows" if entry.published else "no numbers",
                entry.shown,
                entry.command,
            )
            for entry in self.entries
        ]
        return View(
            self.paper,
            Answer(f"{self.paper}: {len(self.entries)} tables and figures, {measured} of them measured here{kept}"),
            [
                Facts([("published in", f"{self.published_in}; {len(self.results)} results read")]),
                Sheet(("id", "title", "published", "measured", "command"), rows, terminal=200),
            ],
        )


class PaperStep(Record):
    """One run that `vesalius paper --run` makes: its command with options, what it fills, how much work it is in words,
    the language models it asks, and dollars (0 without a model, None where they cannot be estimated).
    """

    command: str
    options: FrozenMap[str, JsonValue]
    fills: tuple[str, ...]
    work: str
    models: tuple[str, ...] = ()
    cost: float | None = 0.0

    @property
    def command_line(self) -> str:
        """What a user types to make the run alone."""
        words = ["vesalius", self.command, *([str(self.options["specimen"])] if "specimen" in self.options else [])]
        for name, value in self.options.items():
            if name == "specimen":
                continue
            values = value if isinstance(value, list) else [value]
            for one in values:
                flag = f"--{name.replace('_', '-')}"
                words += [flag] if one is True else [flag, str(one)]
        return " ".join(words)

    @property
    def lines(self) -> tuple[str, str]:
        """The run as a plan says it: its command, and what it fills at which cost."""
        asked = f"asks {' and '.join(dict.fromkeys(self.models))}"
        if not self.models:
            cost = "asks no language model, costs nothing"
        elif self.cost is None:
            cost = f"{asked}, cost not known before the run; at most the spending cap"
        else:
            cost = f"{asked}, about ${self.cost:.2f} by the tokens of the paper's agent"
        return f"run: {self.command_line}", f"  fills {', '.join(self.fills)}; {self.work}; {cost}"


class PaperPlan(ResultDocument, kind="paper_plan"):
    """What is run to fill tables that nothing fills by now; `cost` is None where a step's is not known."""

    paper: Paper
    steps: tuple[PaperStep, ...]
    cost: float | None
    left_out: FrozenMap[str, str]

    def lines(self) -> list[str]:
        """What is run, and what is left out and why."""
        steps = [line for step in self.steps for line in step.lines]
        return [*steps, *(f"left out: {id}: {reason}" for id, reason in self.left_out.items())] or ["nothing is run"]

    def view(self) -> View:
        """What would be run, and what is left out."""
        cost = "unknown" if self.cost is None else f"${self.cost:.2f}"
        return View(
            f"Plan for {self.paper}",
            Answer(f"Plan for {self.paper}: {len(self.steps)} runs, estimated cost {cost}"),
            [
                Sheet.of([step.as_data() for step in self.steps], terminal=0),
                Code("\n".join(self.lines())),
            ],
        )


def figure_cell(column: str, value: Cell) -> Cell:
    """A figure as its column prints it: tokens in millions, dollars, counts; others as they are."""
    if value is None or isinstance(value, str):
        return value
    if column.endswith("tokens"):
        return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value:.0f}"
    if column in ("calls", "seconds"):
        return f"{value:.0f}" if isinstance(value, int) else f"{value:.1f}"
    if column.startswith("cost"):
        return f"${value:.4f}" if 0 < value < 0.1 else f"${value:.2f}"
    return value


def figure_cells(columns: Sequence[str], values: Mapping[str, Cell]) -> list[Cell]:
    """The figures of a row as its columns print them."""
    return [figure_cell(column, values.get(column)) for column in columns]
