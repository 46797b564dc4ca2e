"""A view as lines of a terminal: the answer first, then facts, texts and tables; drawings are left to the page, but for
maps of layers and positions, which are printed as figures.

Lines are as wide as the terminal. Where the output goes into a file or a pipe nothing is cut or wrapped, so that a
search finds whole sentences: a table is as wide as it is, and so is a line. A table that does not fit wraps the texts
in its cells, never its first column: a name that is cut cannot be typed again. Where even that does not fit, every row
becomes a few lines of its own.
"""

import math
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len

from vesalius.documents.view import Code, Facts, Grid, Group, Section, Sheet, Text, View, figure
from vesalius.errors import visible

#: Rows of a table that a terminal shows where neither the command nor the table says how many.
ROWS = 20
#: The least width of a wrapped cell.
NARROWEST = 14
#: Lines of one item of a list that is cut.
LINES = 3
GAP = "  "


def terminal_width() -> int | None:
    """The columns of the terminal, which COLUMNS may set; None where the output goes elsewhere."""
    if not sys.stdout.isatty():
        return None
    if os.environ.get("COLUMNS", "").isdigit() and int(os.environ["COLUMNS"]) > 0:
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def lines_of(view: View, *, top: int | None = None, width: int | None = None) -> Iterator[str]:
    """The lines of a view; `top` is the number of rows of each table that has no number of its own."""
    yield from _wrapped(str(view.answer), width)
    if view.answer.then is not None:
        yield f"next: {view.answer.then}"  # whole, to be copied
    yield from section_lines(view.sections, top, width)
    for name, place in view.files:
        yield f"{name}: {place}"
    if view.place is not None:
        yield f"page: {view.place}"


def section_lines(sections: Sequence[Section], top: int | None, width: int | None) -> Iterator[str]:
    """The lines of sections, each under its title."""
    for one in sections:
        if one.pages_only:
            continue
        body = list(_section(one, top, width))
        if not body:
            continue
        if one.title:
            yield ""
            yield from _wrapped(one.title, width)
        yield from body


def _section(one: Section, top: int | None, width: int | None) -> Iterator[str]:
    if isinstance(one, Facts):
        for label, text in one.rows:
            yield from _wrapped(f"{label}: {text}" if label else text, width)
    elif isinstance(one, Text):
        mark = "  " if one.bullets else ""
        for words in one.words[: one.terminal]:
            most = None if one.terminal is None else LINES
            yield from _wrapped(words, width, first=mark, then=mark * 2, most=most)
        if one.terminal is not None and len(one.words) > one.terminal:
            yield f"{mark}and {len(one.words) - one.terminal} more; the page has them"
    elif isinstance(one, Code):
        lines = one.text.splitlines()
        yield from map(visible, lines[: one.terminal])
        if one.terminal is not None and len(lines) > one.terminal:
            yield f"({len(lines) - one.terminal} more lines)"
    elif isinstance(one, Group):
        yield from section_lines(one.sections, top, width)
    elif isinstance(one, Sheet):
        yield from _sheet(one, top, width)
    elif isinstance(one, Grid) and one.signed:
        yield from _map(one, width)


def _map(grid: Grid, width: int | None) -> Iterator[str]:
    """A matrix as figures, a dot for what is unclear; of one that is too wide, some columns after the others."""
    labels = [visible(str(name)) for name in grid.columns]
    cells = [
        ["." if (i, j) in grid.unclear else "" if value is None else figure(value) for j, value in enumerate(row)]
        for i, row in enumerate(grid.values)
    ]
    widths = [max(cell_len(text) for text in (label, *column)) for label, *column in zip(labels, *cells, strict=True)]
    first = max(map(len, grid.rows), default=0)
    start = 0
    while start < len(labels):
        end, room = start + 1, math.inf if width is None else width - first - len(GAP) - widths[start]
        while end < len(labels) and (room := room - widths[end] - len(GAP)) >= 0:
            end += 1
        rows = [("", labels), *zip(grid.rows, cells, strict=True)]
        for name, row in rows:
            texts = [" " * (widths[j] - cell_len(row[j])) + row[j] for j in range(start, end)]
            yield GAP.join([name.ljust(first), *texts]).rstrip()
        start = end
        if start < len(labels):
            yield ""


def _wrapped(text: str, width: int | None, *, first: str = "", then: str = "  ", most: int | None = None) -> list[str]:
    """A text in lines, at most so many; a very narrow terminal breaks lines itself."""
    text = visible(" ".join(text.split()))
    if width is None or width < NARROWEST:
        return [f"{first}{text}"]
    options = {"initial_indent": first, "subsequent_indent": then, "break_long_words": False}
    return textwrap.wrap(text, width, break_on_hyphens=False, max_lines=most, placeholder=" ...", **options) or [""]


def _sheet(sheet: Sheet, top: int | None, width: int | None) -> Iterator[str]:
    most = sheet.terminal if sheet.terminal is not None else ROWS if top is None else top
    if most == 0 or not len(sheet.rows):
        return
    head, body = sheet.printed(most)
    numeric = [_is_numeric(sheet, body, name, place) for place, name in enumerate(head)]
    if not sheet.title:
        yield ""
    yield from table_lines(head, body, numeric, width)
    if len(sheet.rows) > len(body):
        yield f"... {len(sheet.rows) - len(body):,} more; {sheet.more}"


def _is_numeric(sheet: Sheet, body: Sequence[Sequence[str]], name: str, place: int) -> bool:
    """Whether figures of a column stand below each other at their ends."""
    if name not in sheet.columns or not place:
        return False
    column = list(sheet.columns).index(name)
    return any(isinstance(row[column], int | float) and not isinstance(row[column], bool) for row in sheet.rows[:3])


def table_lines(
    head: Sequence[str], body: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None
) -> Iterator[str]:
    """A table of texts, no wider than `width` where that can be had."""
    rows = [list(head), *map(list, body)]
    widths = [max(cell_len(row[place]) for row in rows) for place in range(len(head))]
    room = None if width is None else width - len(GAP) * (len(head) - 1)
    if room is not None and sum(widths) > room:
        smallest = [
            own if place == 0 or numeric[place] else min(own, max(NARROWEST, cell_len(head[place])))
            for place, own in enumerate(widths)
        ]
        if sum(smallest) > room:
            yield from _records(head, body, width)
            return
        while sum(widths) > room:
            widest = max(range(len(widths)), key=lambda place: widths[place] - smallest[place])
            widths[widest] -= 1
    for row in rows:
        cells = [textwrap.wrap(text, max(1, own)) or [""] for text, own in zip(row, widths, strict=True)]
        for line in range(max(map(len, cells))):
            parts = [part[line] if line < len(part) else "" for part in cells]
            yield GAP.join(
                " " * (own - cell_len(part)) + part if right else part + " " * (own - cell_len(part))
                for part, own, right in zip(parts, widths, numeric, strict=True)
            ).rstrip()


def _records(head: Sequence[str], body: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Rows that are too wide for a table: the name on a line of its own, what is known about it below."""
    for row in body:
        yield row[0]
        facts = ", ".join(f"{name} {text}".strip() for name, text in zip(head[1:], row[1:], strict=True) if text)
        yield from _wrapped(facts, width, first="  ", then="    ")
