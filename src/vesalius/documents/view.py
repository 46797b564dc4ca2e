"""What a result shows of itself, once: a `View` is an answer and a list of sections, which every face lays out.

    View      title, answer (the first line), sections, the command that repeats it, where its page is
    Facts     labels with texts              Sheet    a table             Claims   claims with evidence (`claims`)
    Text      paragraphs or a list           Chart    curves              Bars     values with intervals
    Code      a program or a command         HeadMap  layers by heads     Graph    components and edges
    Tokens    texts shaded by a value        Grid     a small matrix      Group    sections under one title
    Curves    a function and an answer to it

The terminal (`cli.terminal`), the page and the notebook (`report`), and the workbench draw these; nothing here does.
`Viewable` is the mixin of results: a class gives `view()`; `repr`, `_repr_html_`, `.table()`, `.plot()` and `.page()`
follow from it. Pictures and pages are drawn by `vesalius.report`, which stands on a higher floor: it registers its
`Renderer` here, and is imported by name when the first picture is asked for (docs/decisions/0011).
"""

import html
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, overload

from vesalius.errors import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A repr is one screen in a notebook at most.
LONGEST_REPR = 480
#: Rows that a printed or an HTML table shows.
SHOWN_ROWS, SHOWN_TEXT = 12, 80
#: A prompt in a title; of a longer one the end is shown.
TITLE_PROMPT = 60
#: The module that registers the renderer.
RENDERER_MODULE = "vesalius.report.pages"
#: Two neighbouring columns of these names are shown as one interval.
INTERVAL = ("low", "high")
INTERVAL_NAME = "95 % interval"
#: Words of a label that are written in capitals.
ACRONYMS = "auroc|cmd|cpr|iia|mlp|lm"
Row = Mapping[str, Any]
Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True)
class Answer:
    """The first line of a result: what it says, and where a rule decides it, Yes, Partly or No."""

    text: str
    verdict: Literal["yes", "partly", "no"] | None = None

    def __str__(self) -> str:
        return self.text if self.verdict is None else f"{self.verdict.capitalize()}: {self.text}"


@dataclass(frozen=True)
class Link:
    """A cell that leads somewhere: to a file beside the page, or with `#` to a part of it."""

    text: str
    address: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Mark:
    """A cell that holds a verdict, shown by a mark and a word; `remark` stands below it."""

    verdict: str
    text: str = ""
    remark: str = ""
    address: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.text or self.verdict, self.remark)))


class Unclear(float):
    """A figure whose interval holds 0: in brackets, and in grey where a face has colours."""


@dataclass(frozen=True)
class Ratio:
    """A cell that counts: so many of so many, sorted by the share."""

    part: int
    whole: int

    @property
    def share(self) -> float | None:
        """The share, where there is a whole."""
        return self.part / self.whole if self.whole else None

    def __str__(self) -> str:
        return f"{self.part}/{self.whole}"


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

    @classmethod
    def of(cls, records: Sequence[Row], **options: Any) -> "Sheet":
        """A table of records; a column for each field that some record has."""
        columns = columns_of(records)
        return cls(columns, [[record.get(name) for name in columns] for record in records], **options)

    def records(self) -> list[dict[str, Any]]:
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
    what a face that can run the model asks when a cell is chosen: the options of `what-if`.
    """

    values: Mapping[str, float]
    layers: int
    heads: int
    unit: str = ""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    marked: Sequence[str] = ()
    ask: Mapping[str, str] | None = None

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
    """

    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    summary: str
    low: float = 0.0
    high: float = 1.0
    words: Sequence[Sequence[str]] = ()


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
        answer = shortened(str(self.answer), LONGEST_REPR // 2)
        return "\n".join([answer, *(f"{label}: {text}" if label else text for label, text in facts)])

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


def figure(value: float | None) -> str:
    """A measured number: three decimals near one, fewer far from it, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.1e}" if 0 < size < 0.0005 else f"{value + 0.0:.3f}"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def interval(low: float | None, high: float | None, *, signed: bool = False) -> str:
    """The ends of an interval; nothing where there are none."""
    if low is None or high is None:
        return ""
    return f"[{cell(float(low), signed=signed)}, {cell(float(high), signed=signed)}]"


def cell(value: Any, *, signed: bool = False) -> str:
    """A value as every face prints it: figures short, lists with commas, a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        text = f"+{figure(value)}" if signed and value > 0 and math.isfinite(value) else figure(value)
        return f"({text})" if isinstance(value, Unclear) else text
    if isinstance(value, str | Link | Mark | Ratio):
        return visible(" ".join(str(value).split()))
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def words(label: str) -> str:
    """A label in words: `edge_auroc_all` as edge AUROC all; names of components keep their underscores."""
    spaced = re.sub(r"\b[a-z]+(?:_[A-Za-z]+)+\b", lambda match: match[0].replace("_", " "), label)
    return re.sub(rf"\b(?:{ACRONYMS})\b", lambda match: match[0].upper(), spaced)


def prompts(n: int) -> str:
    """So many prompts, in words."""
    return f"{n:,} prompt{'' if n == 1 else 's'}"


class Renderer(Protocol):
    """Draws what the objects of the lower floors only hold."""

    def plot(self, shown: Any, /) -> "Figure":
        """The picture of an object."""
        ...

    def page(self, shown: Any, directory: Path, /) -> Path:
        """Write the page of an object into a directory and return its path."""
        ...

    def save(self, shown: Any, directory: Path, /) -> Path:
        """Write an object that cannot write itself, and return the path of its main file."""
        ...

    def widget(self, shown: Any, /) -> Any:
        """The notebook widget of an object."""
        ...


_renderers: list[Renderer] = []


def register(renderer: Renderer) -> None:
    """Let this renderer draw from now on."""
    _renderers[:] = [renderer]


def renderer() -> Renderer:
    """The registered renderer; imports the module that registers one if there is none yet."""
    if not _renderers:
        import_module(RENDERER_MODULE)
    return _renderers[0]


class Rows(list[Row]):
    """Rows of a table by column name, for readers without pandas. `str` and notebooks show the first of them."""

    def __repr__(self) -> str:
        if not self:
            return "no rows"
        columns = columns_of(self)
        cells = [columns, *([_text(row.get(name)) for name in columns] for row in self[:SHOWN_ROWS])]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
        left = len(self) - SHOWN_ROWS
        return "\n".join([*(line.rstrip() for line in lines), *([f"... {left} more rows"] if left > 0 else [])])

    def _repr_html_(self) -> str:
        return html_table(self)


class Several(tuple[Item, ...]):
    """A tuple whose repr and HTML show its first items only; in all else a tuple."""

    def __getitem__(self, place: Any) -> Any:
        chosen = super().__getitem__(place)
        return Several(chosen) if isinstance(place, slice) else chosen

    def __repr__(self) -> str:
        return repr_of_first(map(_short_repr, self), len(self), "({})")

    def _repr_html_(self) -> str:
        return html_table([_fields(item) for item in self[:SHOWN_ROWS]], total=len(self))


class Viewable:
    """What every result offers to its reader; subclasses give `view`."""

    #: The file of its page.
    PAGE: ClassVar[str] = "report.html"

    def view(self) -> View:
        """What it shows of itself."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return shortened(visible(self.view().brief()), LONGEST_REPR)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        view = self.view()
        summary = html.escape(shortened(visible(view.brief()), LONGEST_REPR)).replace("\n", "<br>")
        return f'<div style="max-width:60em"><p style="margin:0 0 .5em">{summary}</p>{view.sheet().html()}</div>'

    def table(self) -> Any:
        """The rows as a pandas DataFrame, or as `Rows` where pandas is not installed."""
        return as_table(self.view().sheet().records())

    def plot(self) -> "Figure":
        """A matplotlib figure."""
        return renderer().plot(self)

    def widget(self) -> Any:
        """An interactive picture for notebooks: a map of heads, the graph of a circuit, or attention on the tokens.

        It needs the extra `notebook` (anywidget); without it the result itself comes back, which notebooks show as a
        table.
        """
        return renderer().widget(self)

    def save(self, directory: Path | str) -> Path:
        """Write it into a directory, which is made if needed; returns the path of the main file."""
        return renderer().save(self, made(directory))

    def page(self, directory: Path | str | None = None) -> Path:
        """Write an HTML page that opens without a network, and return its path.

        By default it goes where the result was saved, or else into a new temporary directory.
        """
        place = directory or getattr(self, "directory", None) or tempfile.mkdtemp(prefix="vesalius-")
        return renderer().page(self, made(place))


def repr_of_first(items: Iterable[str], total: int, frame: str) -> str:
    """As many of the items as a repr has room for, between the ends of `frame`, and how many there are."""
    texts: list[str] = []
    room = LONGEST_REPR - len(frame) - len(f", ... {total} in all")
    for item in items:
        if sum(map(len, texts)) + 2 * len(texts) + len(item) > room:
            break
        texts.append(item)
    rest = "" if len(texts) == total else f"{', ' if texts else ''}... {total} in all"
    return frame.format(f"{', '.join(texts)}{rest}" + ("," if total == 1 and frame == "({})" and not rest else ""))


def _short_repr(item: object) -> str:
    return shortened(" ".join(repr(item).split()), LONGEST_REPR // 4)


def _fields(item: Any) -> Row:
    """An item as a row: the fields of a document's part, or the item itself."""
    fields = getattr(type(item), "model_fields", None)
    return {"": str(item)} if fields is None else {name: getattr(item, name) for name in fields}


def as_table(rows: Sequence[Row]) -> Any:
    """Rows as a pandas DataFrame, or as `Rows` where pandas is not installed."""
    try:
        pandas = import_module("pandas")
    except ImportError:
        return Rows(rows)
    return pandas.DataFrame(list(rows), columns=columns_of(rows))


def made(directory: Path | str) -> Path:
    """A directory, made if needed."""
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    return place


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Every column that some row has, in the order in which they come."""
    return list(dict.fromkeys(name for row in rows for name in row))


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; a cut one ends in three dots."""
    return text if len(text) <= most else text[: most - 4].rstrip() + " ..."


def has_options(behaviour: str) -> bool:
    """Whether a behaviour's name is followed by options: `addition:high=99`."""
    return bool(re.match(r"[a-z][a-z-]*:[a-z]+=", behaviour))


def title_of(behaviour: str) -> str:
    """A behaviour as a title names it: one prompt as it was written, of a path the name of the file."""
    if behaviour.lstrip().startswith("{"):
        try:
            row = json.loads(behaviour)
        except (json.JSONDecodeError, RecursionError):
            return shortened(behaviour, TITLE_PROMPT)
        prompt, answer = str(row.get("prompt", "")), row.get("answer", "")
        shown = prompt if len(prompt) <= TITLE_PROMPT else f"... {prompt[-TITLE_PROMPT:]}"
        return f"{shown!r} -> {shortened(repr(answer), TITLE_PROMPT)}"
    if has_options(behaviour):
        return behaviour
    return Path(behaviour).stem if "/" in behaviour or Path(behaviour).suffix else behaviour


def subject_of(specimen: str | None, behaviour: str | None) -> str:
    """A model and what it was studied for, as a title names them."""
    return ", ".join(filter(None, (specimen, behaviour and title_of(behaviour))))


def join_first(items: Iterable[str], most: int, *, total: int | None = None) -> str:
    """The first names of a list, and how many there are in all where some are left out."""
    names = list(items)
    count = len(names) if total is None else total
    shown = ", ".join(names[:most])
    return shown if count <= most else f"{shown}, ... ({count} in all)"


def html_table(rows: Sequence[Row], *, total: int | None = None) -> str:
    """The first rows as an HTML table in the colours of the page around it: no scripts, no style sheet."""
    if not rows:
        return "<p>no rows</p>"
    columns = columns_of(rows)
    cell = 'style="text-align:{};padding:.15em .8em .15em 0"'
    numeric = {name for name in columns if any(isinstance(row.get(name), int | float) for row in rows)}
    sides = {name: cell.format("right" if name in numeric else "left") for name in columns}
    head = "".join(f"<th {sides[name]}>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td {sides[name]}>{html.escape(_text(row.get(name)))}</td>" for name in columns) + "</tr>"
        for row in rows[:SHOWN_ROWS]
    )
    left = (len(rows) if total is None else total) - SHOWN_ROWS
    more = f'<p style="opacity:.7;margin:.3em 0 0">{left} more rows; .table() has them all</p>' if left > 0 else ""
    return f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return visible(shortened(" ".join(str(value).split()), SHOWN_TEXT))
