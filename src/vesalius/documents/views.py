"""How results show themselves: a short repr, a small HTML table, `.table()`, `.plot()`, `.save()`, `.page()`.

`Viewable` is the mixin. A class says what it is in a few words (`_summary`) and which rows it has (`_rows`); the rest
follows. Pictures and pages are drawn by `vesalius.report`, which stands on a higher floor and knows all classes: it
registers its `Renderer` here, and is imported by name when the first picture is asked for (docs/decisions/0011).
"""

import html
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
RENDERER_MODULE = "vesalius.report.views"
Row = Mapping[str, Any]
Item = TypeVar("Item", covariant=True)


class Renderer(Protocol):
    """Draws what the objects of the lower floors only hold."""

    def plot(self, shown: Any) -> "Figure":
        """The picture of an object."""
        ...

    def page(self, shown: Any, directory: Path) -> Path:
        """Write the page of an object into a directory and return its path."""
        ...

    def save(self, shown: Any, directory: Path) -> Path:
        """Write an object that cannot write itself, and return the path of its main file."""
        ...

    def widget(self, shown: Any) -> Any:
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
    """What every result offers to its reader; subclasses give `_summary` and `_rows`."""

    def _summary(self) -> str:
        """What it is, in a few words; cut after `LONGEST_REPR` characters."""
        raise NotImplementedError

    def _rows(self) -> Sequence[Row]:
        """The rows of its table."""
        raise NotImplementedError

    def _shown_rows(self) -> tuple[Sequence[Row], int]:
        """The rows that a notebook shows, and how many there are; overridden where all rows take long to make."""
        rows = self._rows()
        return rows[:SHOWN_ROWS], len(rows)

    def __repr__(self) -> str:
        return shortened(visible(self._summary()), LONGEST_REPR)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        summary = html.escape(repr(self)).replace("\n", "<br>")
        rows, total = self._shown_rows()
        table = html_table(rows, total=total)
        return f'<div style="max-width:60em"><p style="margin:0 0 .5em">{summary}</p>{table}</div>'

    def table(self) -> Any:
        """The rows as a pandas DataFrame, or as `Rows` where pandas is not installed."""
        return as_table(self._rows())

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
