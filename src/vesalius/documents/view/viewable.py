"""What every result offers to its reader: its `view()`, and `repr`, `_repr_html_`, `.table()`, `.plot()` and `.page()`,
which follow from it.

Pictures and pages are drawn by `vesalius.report`, which stands on a higher floor: it registers its `Renderer` here, and
is imported by name when the first picture is asked for (docs/decisions/0045).
"""

import html
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from vesalius.documents.view.cells import (
    LONGEST_REPR,
    SHOWN_ROWS,
    Row,
    _text,
    columns_of,
    cut_text,
    html_table,
)
from vesalius.documents.view.sections import (
    View,
)
from vesalius.errors import BadInput, Failed, raised_where, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The module that registers the renderer.
RENDERER_MODULE = "vesalius.report.pages"
Item = TypeVar("Item", covariant=True)


class Renderer(Protocol):
    """Draws what the objects of the lower floors only hold."""

    def plot(self, shown: object, /) -> "Figure":
        """The picture of an object."""
        ...

    def page(self, shown: object, directory: Path, /) -> Path:
        """Write the page of an object into a directory and return its path."""
        ...

    def save(self, shown: object, directory: Path, /) -> Path:
        """Write an object that cannot write itself, and return the path of its main file."""
        ...

    def widget(self, shown: object, /) -> Any:
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


def _one_line_if_broken(view: Callable[..., View]) -> Callable[..., View]:
    """The view of a class of another package: where it is broken, no face ends in a traceback."""

    @wraps(view)
    def checked(self: "Viewable", *arguments: object, **options: object) -> View:
        named = f"view of {type(self).__module__}.{type(self).__qualname__}"
        try:
            made = view(self, *arguments, **options)
        except (BadInput, Failed):
            raise
        except Exception as error:
            raise Failed(f"{named}: raised {raised_where(error)}; fix that class") from error
        if not isinstance(made, View):
            raise Failed(f"{named}: returned a {type(made).__name__}; return a vesalius.documents.view.View")
        return made

    return checked


class Viewable:
    """What every result offers to its reader; subclasses give `view`."""

    #: The file of its page.
    PAGE: ClassVar[str] = "report.html"

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "view" in cls.__dict__ and cls.__module__.partition(".")[0] != "vesalius":
            cls.view = _one_line_if_broken(cls.__dict__["view"])  # type: ignore[method-assign]

    def view(self) -> View:
        """What it shows of itself."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return cut_text(visible(self.view().brief()), LONGEST_REPR)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        view = self.view()
        summary = html.escape(cut_text(visible(view.brief()), LONGEST_REPR)).replace("\n", "<br>")
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
    return cut_text(" ".join(repr(item).split()), LONGEST_REPR // 4)


def _fields(item: object) -> Row:
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
