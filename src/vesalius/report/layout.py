"""A view as one HTML page: the answer, the sections in their order, how to reproduce it.

Each kind of section has one drawing (`drawn`) and one piece of template (`templates/sections.html`); a document says
only what it shows (`documents.view`). A page that a plug-in's document gives is laid out by the same template.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vesalius.documents.claims import ClaimRecord, Claims, Evidence
from vesalius.documents.view import (
    INTERVAL,
    Bars,
    Chart,
    Curves,
    Graph,
    Grid,
    Group,
    HeadMap,
    Link,
    Mark,
    Ratio,
    Section,
    Sheet,
    Tokens,
    Unclear,
    View,
    cell,
    words,
)
from vesalius.report.charts import bars_of, draw_chart, draw_curves
from vesalius.report.diagram import draw_circuit
from vesalius.report.html import SHARED, add_filters, render, write
from vesalius.report.maps import draw_grid, draw_headmap, key_of

#: Rows that a table of a page shows, and from how many on it can be sorted.
MOST_ROWS, SORTABLE = 500, 4
#: Parts of a section that the navigation names; of more it names the section alone.
MOST_LISTED = 60
#: Columns whose cells are names of figures, which a page says in words.
NAMING = ("metric", "figure", "check")


@dataclass(frozen=True)
class ShownCell:
    """A cell of a table: what it says, what it is sorted by, and where it leads."""

    text: str
    value: str = ""
    number: bool = False
    address: str = ""
    verdict: str = ""
    remark: str = ""
    unclear: bool = False


@dataclass(frozen=True)
class ShownSheet:
    """A table as the template prints it; a column is its name and whether it holds figures."""

    label: str
    columns: tuple[tuple[str, bool, str], ...]
    rows: tuple[tuple[ShownCell, ...], ...]
    left_out: int
    sortable: bool


@dataclass(frozen=True)
class Plot:
    """An interval on a scale of 100: where the value, its interval, its controls and the ends 0 and 1 stand."""

    value: float | None
    low: float
    high: float
    controls: tuple[float, ...]
    zero: float
    one: float


def page_of(view: View) -> str:
    """The whole page of a view."""
    names = [one.name for one in view.all_sections() if isinstance(one, Group) and one.name]
    return render("view.html", ["theme.js", "sort.js"], view=view, contents=_contents(view), names=names)


def write_view(view: View, path: Path) -> Path:
    """Write the page of a view and return its path."""
    return write(path, page_of(view))


def _contents(view: View) -> list[tuple[str, str, list[Group]]]:
    """What the page has, for its navigation; nothing where it is short."""
    named = [one for one in view.sections if one.title and not one.terminal_only]
    if len(named) < 2:
        return []
    parts = {
        id(one): [part for part in one.sections if isinstance(part, Group) and part.name]
        for one in named
        if isinstance(one, Group)
    }
    few = {key: several for key, several in parts.items() if len(several) <= MOST_LISTED}
    rows = [(address_of(one), short_title(one.title), few.get(id(one), [])) for one in named]
    return [*rows, *([("reproduce", "Reproduce", [])] if view.command else [])]


def short_title(title: str) -> str:
    """A title as the navigation names it."""
    return title.split(", ")[0].split(" (")[0].split(": ")[0]


def address_of(one: Section) -> str:
    """The fragment identifier of a section."""
    return re.sub(r"[^a-z0-9]+", "-", one.title.lower()).strip("-")[:60] or "section"


@singledispatch
def drawn(one: object) -> Any:
    """What the template prints of a section."""
    raise TypeError(f"no drawing for a {type(one).__name__}")


drawn.register(HeadMap, draw_headmap)
drawn.register(Chart, draw_chart)
drawn.register(Bars, bars_of)
drawn.register(Grid, draw_grid)


@drawn.register
def _(one: Curves) -> object:
    return draw_curves(one.x, one.truth, one.answer, samples=one.samples, summary=one.summary)


@drawn.register
def _(one: Graph) -> object:
    return draw_circuit([node.name for node in one.nodes], one.edges, ports=one.ports, show_gaps=one.gaps)


@drawn.register
def _(one: Tokens) -> list[tuple[str, list[tuple[str, float, int]]]]:
    return [(name, _shaded(tokens)) for name, tokens in one.rows]


def _shaded(tokens: Sequence[tuple[str, float]]) -> list[tuple[str, float, int]]:
    strongest = max((abs(value) for _, value in tokens), default=0.0) or 1.0
    return [(token, value, round(9 * value / strongest)) for token, value in tokens]


@drawn.register
def _(one: Claims) -> list[tuple[ClaimRecord, list[tuple[Evidence, Plot | None]]]]:
    return [(claim, [(evidence, plot(evidence)) for evidence in claim.evidence]) for claim in one.claims]


@drawn.register
def _(one: Sheet) -> ShownSheet:
    head, body = one.printed(MOST_ROWS)
    raw = one.shown(MOST_ROWS)
    places = [place for place, name in enumerate(one.columns) if not _second_end(one.columns, place)]
    numbers = [any(_is_figure(row[place]) for row in raw) for place in places]
    sortable = len(raw) >= SORTABLE or bool(one.sorted_by)
    return ShownSheet(
        one.title or ", ".join(filter(None, head)) or "table",
        tuple(
            (words(name), number, "ascending" if name == one.sorted_by else "none")
            for name, number in zip(head, numbers, strict=True)
        ),
        tuple(
            tuple(
                _cell(row[place], words(text) if one.columns[place] in NAMING else text, figures=figures)
                for place, text, figures in zip(places, texts, numbers, strict=True)
            )
            for row, texts in zip(raw, body, strict=True)
        ),
        len(one.rows) - len(raw),
        sortable,
    )


def _second_end(columns: Sequence[str], place: int) -> bool:
    return place > 0 and (columns[place - 1], columns[place]) == INTERVAL


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float | Ratio) and not isinstance(value, bool)


def _cell(value: object, text: str, *, figures: bool) -> ShownCell:
    """A cell; a missing one of a column of figures stands where they do."""
    if isinstance(value, Link):
        # A colon must not name a scheme.
        address = value.address if value.address.startswith("#") else quote(value.address, safe="/")
        return ShownCell(text, value.text, address=address)
    if isinstance(value, Mark):
        return ShownCell(
            cell(value.text), value.verdict, verdict=value.verdict, remark=cell(value.remark), address=value.address
        )
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ShownCell(text, "", number=figures)
    if isinstance(value, bool):
        return ShownCell(text, str(int(value)))
    if isinstance(value, Ratio):
        return ShownCell(text, str(value.share) if value.share is not None else "", number=True)
    return ShownCell(text, str(value), number=_is_figure(value), unclear=isinstance(value, Unclear))


def plot(evidence: Evidence) -> Plot | None:
    """The evidence on a common scale that holds 0, 1, the interval and every control; None without an interval.

    Counts among the controls (how many cells were tested) are not on that scale.
    """
    if evidence.low is None or evidence.high is None:
        return None
    on_scale = (value for name, value in evidence.controls.items() if name not in SHARED["counts"])
    controls = [value for value in on_scale if value is not None]
    points = [evidence.low, evidence.high, *controls, *([] if evidence.value is None else [evidence.value])]
    if not all(map(math.isfinite, points)):
        return None
    bottom, top = min(0.0, *points), max(1.0, *points)

    def place(value: float) -> float:
        return round(100 * (value - bottom) / (top - bottom), 1)

    return Plot(
        value=None if evidence.value is None else place(evidence.value),
        low=place(evidence.low),
        high=place(evidence.high),
        controls=tuple(map(place, controls)),
        zero=place(0.0),
        one=place(1.0),
    )


def kind_of(one: Section) -> str:
    """The kind of a section, as the template names it."""
    return type(one).__name__.lower()


add_filters(
    {
        "nodes": lambda graph: {node.name: node for node in graph.nodes},
        "drawn": drawn,
        "address": address_of,
        "kind": kind_of,
        "key": key_of,
    },
    {name.__name__.lower(): (lambda one, kind=name: isinstance(one, kind)) for name in (Group, Bars, Grid)},
)
