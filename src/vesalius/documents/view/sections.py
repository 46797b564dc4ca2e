"""What a view is made of: an answer and a list of sections, which every face lays out.

    View      title, answer (the first line), sections, the command that repeats it, where its page is
    Facts     labels with texts              Sheet    a table             Claims   claims with evidence (`claims`)
    Text      paragraphs or a list           Chart    curves              Bars     values with intervals
    Code      a program or a command         HeadMap  layers by heads     Graph    components and edges
    Tokens    texts shaded by a value        Grid     a small matrix      Group    sections under one title
    Curves    a function and an answer to it

Nothing here draws: the terminal (`cli.terminal`), the page and the notebook (`report`), and the workbench do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, overload

from vesalius.documents.view.cells import (
    LONGEST_REPR,
    SHOWN_ROWS,
    Row,
    cell,
    columns_of,
    cut_text,
    html_table,
    interval,
)
from vesalius.values import JsonObject

#: Two neighbouring columns of these names are shown as one interval.
INTERVAL = ("low", "high")
INTERVAL_NAME = "95 % interval"


@dataclass(frozen=True)
class Answer:
    """The first line of a result: what it says, and where a rule decides it, Yes, Partly or No; `then` is the command
    to run next, or what to change.
    """

    text: str
    verdict: Literal["yes", "partly", "no"] | None = None
    then: str | None = None

    def __str__(self) -> str:
        return self.text if self.verdict is None else f"{self.verdict.capitalize()}: {self.text}"

    def as_data(self) -> dict[str, str] | None:
        """The verdict, its reason and what to do next; None where no rule decided."""
        if self.verdict is None:
            return None
        return {"verdict": self.verdict, "text": self.text} | ({} if self.then is None else {"next": self.then})


@dataclass(frozen=True)
class Section:
    """A part of a view. `pages_only`: terminals leave it out; `terminal_only`: all others do. A page opens what is
    `folded` on request. `pictured`: where a view could be drawn in several ways, `.plot()` draws this section.
    """

    title: str = field(default="", kw_only=True)
    caption: str = field(default="", kw_only=True)
    pages_only: bool = field(default=False, kw_only=True)
    terminal_only: bool = field(default=False, kw_only=True)
    folded: bool = field(default=False, kw_only=True)
    pictured: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Facts(Section):
    """Labels and texts. Without a title and as the first section they are also part of the repr."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Text(Section):
    """Paragraphs, or with `bullets` a list; `quiet` is small print. A terminal shows the first `terminal` of them."""

    words: Sequence[str]
    bullets: bool = False
    quiet: bool = False
    terminal: int | None = None


@dataclass(frozen=True)
class Code(Section):
    """A program, or commands. A terminal shows the first `terminal` lines."""

    text: str
    terminal: int | None = None


@dataclass(frozen=True)
class Sheet(Section):
    """A table; a figure is a float, so that it can be sorted and formatted. Columns `low` and `high` are shown as one.

    `terminal` is the number of rows that a terminal shows (0: none; None: as many as the command asks for). Figures of
    the columns in `signed` are printed with their sign. `ranked_by`: where not all rows are shown, those with the
    largest figures in this column are. `sorted_by` names the column that they are sorted by. `more` says where the rows
    are that a terminal does not show, `notebook` which columns a notebook shows (all, where it names none).
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    terminal: int | None = None
    signed: Sequence[str] = ()
    ranked_by: str = ""
    sorted_by: str = ""
    more: str = "--json has them all"
    notebook: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.rows, LateRows):
            return
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                name = f"table {self.title!r}" if self.title else "a table"
                raise ValueError(f"{name} has {len(self.columns)} columns and {len(row)} cells in row {number}")

    @classmethod
    def of(cls, records: Sequence[Row], **options: Any) -> "Sheet":
        """A table of records; a column for each field that some record has."""
        columns = columns_of(records)
        return cls(columns, [[record.get(name) for name in columns] for record in records], **options)

    def records(self) -> list[JsonObject]:
        """Every row by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def html(self) -> str:
        """The first rows as a small HTML table for notebooks."""
        names = self.notebook or self.columns
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows[:SHOWN_ROWS]]
        return html_table([{name: row[name] for name in names} for row in rows], total=len(self.rows))

    def printed(self, most: int | None = None) -> tuple[list[str], list[list[str]]]:
        """Headers and the first rows as text, intervals joined."""
        joined = [
            place
            for place, pair in enumerate(zip(self.columns, self.columns[1:], strict=False))
            if tuple(pair) == INTERVAL
        ]
        head = [
            INTERVAL_NAME if place in joined else name
            for place, name in enumerate(self.columns)
            if place - 1 not in joined
        ]
        return head, [self._printed_row(row, joined) for row in self.shown(most)]

    def shown(self, most: int | None) -> Sequence[Sequence[Any]]:
        """The rows that are shown where there is room for `most`, in their order."""
        if not self.ranked_by or most is None or most >= len(self.rows):
            return self.rows[:most]
        column = list(self.columns).index(self.ranked_by)
        order = sorted(range(len(self.rows)), key=lambda place: -abs(self.rows[place][column] or 0.0))
        return [self.rows[place] for place in sorted(order[:most])]

    def _printed_row(self, row: Sequence[Any], joined: Sequence[int]) -> list[str]:
        cells = []
        for place, value in enumerate(row):
            if place - 1 in joined:
                continue
            sign = self.columns[place] in self.signed
            if place in joined:
                cells.append(interval(value, row[place + 1], signed=bool(self.signed)))
            else:
                cells.append(cell(value, signed=sign))
        return cells


@dataclass(frozen=True)
class Chart(Section):
    """Curves by name; the first is what was found, the others are its controls. A point is its x, its y and what is
    said about it. `root`: x are shares, on a square-root scale.
    """

    curves: Mapping[str, Sequence[tuple[float, float, str]]]
    x: str
    y: str
    root: bool = True


@dataclass(frozen=True)
class Curves(Section):
    """A function of one number, what was answered in its place, and the points that were asked; `summary` is the
    sentence for those who cannot see it, `legend` says whether the lines are explained.
    """

    x: Sequence[float]
    truth: Sequence[float | None]
    answer: Sequence[float | None]
    samples: Sequence[tuple[float, float]] = ()
    summary: str = ""
    legend: bool = False


@dataclass(frozen=True)
class Bars(Section):
    """Values with their intervals on one scale; those with a figure missing are left out."""

    rows: Sequence[tuple[str, float | None, float | None, float | None]]
    unit: str = ""


@dataclass(frozen=True)
class HeadMap(Section):
    """Values of heads and MLPs by layer, all on one scale, in `unit`.

    A component whose interval holds 0 is grey: nothing says that it matters. `marked` components are framed. `ask` is
    what a face that can run the model asks when a cell is chosen: the options of `what-if`. `lines` are what cells say;
    a cell that says something leads to the group that is named after its component. `negative` is what a value below 0
    means.
    """

    values: Mapping[str, float]
    layers: int
    heads: int
    unit: str = ""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    marked: Sequence[str] = ()
    ask: Mapping[str, str] | None = None
    lines: Mapping[str, str] = field(default_factory=dict)
    negative: str = "without it the behaviour gets stronger"

    def unclear(self, name: str) -> bool:
        """Whether the interval of a component holds 0."""
        low, high = self.intervals.get(name, (1.0, 1.0))
        return low <= 0.0 <= high


@dataclass(frozen=True)
class Node:
    """A component of a graph: what stands under its name, its tag, its verdict, and where it leads."""

    name: str
    line: str = ""
    tag: str | None = None
    verdict: str = ""
    address: str = ""


@dataclass(frozen=True)
class Graph(Section):
    """A circuit: components, and edges (sender, receiver, strength) with the inputs that they enter by (`ports`).
    `gaps`: components that nothing is known to read, or to reach, are drawn with an open end.
    """

    nodes: Sequence[Node]
    edges: Sequence[tuple[str, str, float]]
    ports: Mapping[tuple[str, str], str] = field(default_factory=dict)
    gaps: bool = False

    @property
    def leads(self) -> bool:
        """Whether boxes lead somewhere."""
        return any(node.address for node in self.nodes)


@dataclass(frozen=True)
class Tokens(Section):
    """Texts by name whose tokens are shaded by a value."""

    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]


@dataclass(frozen=True)
class Grid(Section):
    """A small matrix between `low` (no shade) and `high`; `summary` is the sentence for those who cannot see it. Where
    there are `words`, a picture with room writes them into the cells instead of figures.

    Of a `signed` one the colour is that of a head map: it grows with the square root of the size, values below 0 have
    a colour of their own, and cells (row, column) whose value is `unclear` are grey. A terminal prints it.
    """

    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    summary: str
    low: float = 0.0
    high: float = 1.0
    words: Sequence[Sequence[str]] = ()
    signed: bool = False
    unclear: Collection[tuple[int, int]] = ()

    @property
    def reach(self) -> float:
        """The largest size, which has the strongest colour of a signed one."""
        sizes = (abs(value) for row in self.values for value in row if value is not None and isfinite(value))
        return max(sizes, default=0.0) or 1.0


@dataclass(frozen=True)
class Group(Section):
    """Sections under one title. `name` is that of the component it is about, if it is: links lead to it. `word` stands
    beside the mark of a verdict in its place; the groups of a `tiled` one stand beside each other where there is room.
    """

    sections: Sequence[Section]
    name: str = ""
    tag: str | None = None
    verdict: str = ""
    word: str = ""
    side_by_side: bool = False
    tiled: bool = False


@dataclass(frozen=True)
class View:
    """What a result shows of itself. `place` is its page, `files` what else was written."""

    title: str
    answer: Answer
    sections: Sequence[Section] = ()
    command: str | None = None
    place: str | None = None
    files: Sequence[tuple[str, str]] = ()
    note: str = ""

    def brief(self) -> str:
        """The answer and the facts that go with it, for a repr."""
        first = self.sections[0] if self.sections else None
        facts = first.rows if isinstance(first, Facts) and not first.title else ()
        answer = cut_text(str(self.answer), LONGEST_REPR * 3 // 4)
        after = [] if self.answer.then is None else [f"next: {self.answer.then}"]
        return "\n".join([answer, *(f"{label}: {text}" if label else text for label, text in facts), *after])

    def sheet(self) -> Sheet:
        """The first table: the rows of `.table()`."""
        return next((one for one in self.all_sections() if isinstance(one, Sheet)), Sheet((), ()))

    def all_sections(self) -> "Iterable[Section]":
        """Every section, those of groups after their group."""
        pending = list(self.sections)
        while pending:
            one = pending.pop(0)
            yield one
            if isinstance(one, Group):
                pending[:0] = one.sections


class LateRows(Sequence[Sequence[Any]]):
    """Rows of a table that take long to make: `first(n)` makes the first n of `total`."""

    def __init__(self, total: int, first: Callable[[int], Sequence[Sequence[Any]]]) -> None:
        self._total, self._first = total, first

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, place: int) -> Sequence[Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sequence[Any]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self._first(place.indices(self._total)[1])[place]
        if not -self._total <= place < self._total:
            raise IndexError(place)
        return self._first(place % self._total + 1)[place % self._total]

    def __iter__(self) -> Any:
        return iter(self._first(self._total))
