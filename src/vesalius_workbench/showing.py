"""A view as data for the page: each section by its kind, in the order in which every face lays them out.

What a static page draws, the page draws too: curves, graphs and grids are sent as the SVG that the templates print
(`report`), a head map as values, because its cells are buttons. The page has one renderer a kind
(`workbench/src/parts/sections.ts`) and knows no kind of document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import singledispatch
from typing import Any

from vesalius.documents.claims import Claims
from vesalius.documents.view import (
    Bars,
    Chart,
    Code,
    Facts,
    Graph,
    Grid,
    Group,
    HeadMap,
    Section,
    Sheet,
    Text,
    Tokens,
    View,
    cut_text,
    words,
)
from vesalius.report.html import TAG_MEANINGS, anchor, macro
from vesalius.report.layout import address_of, drawn, kind_of
from vesalius.report.maps import colour_bar, key_of

#: Characters of a cell; what is longer is told whole elsewhere, or in the file.
MOST_CELL = 2_000
#: Components and edges of one drawing; the graph of a result (`circuits`) shows more of them.
MOST_BOXES, MOST_ARROWS = 300, 3_000


def view_data(view: View, *, ask: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the page lays out. `ask` is asked where a cell of a head map is chosen and the map says nothing itself."""
    names = [one.name for one in view.all_sections() if isinstance(one, Group) and one.name]
    return {
        "title": view.title,
        "verdict": view.answer.verdict,
        "answer": view.answer.text,
        "next": view.answer.then,
        "sections": _sections(view.sections, ask),
        "command": view.command,
        "note": view.note,
        "names": names,
    }


def _sections(sections: Sequence[Section], ask: Mapping[str, str] | None) -> list[dict[str, Any]]:
    return [_section(one, ask) for one in sections if not one.terminal_only]


def _section(one: Section, ask: Mapping[str, str] | None) -> dict[str, Any]:
    own = content(one)
    if isinstance(one, Group):
        own["sections"] = _sections(one.sections, ask)
    elif isinstance(one, HeadMap):
        own["ask"] = dict(one.ask or ask or {})
    common = {"kind": kind_of(one), "id": address_of(one), "title": one.title, "caption": one.caption}
    return {**common, "folded": one.folded, **own}


@singledispatch
def content(one: Section) -> dict[str, Any]:
    """What a section holds; of a kind that is not known its title and caption are shown."""
    return {}


@content.register
def _(one: Facts) -> dict[str, Any]:
    return {"rows": [(words(label), text) for label, text in one.rows]}


@content.register
def _(one: Text) -> dict[str, Any]:
    return {"words": one.words, "bullets": one.bullets, "quiet": one.quiet}


@content.register
def _(one: Code) -> dict[str, Any]:
    return {"text": one.text}


@content.register
def _(one: Sheet) -> dict[str, Any]:
    table = asdict(drawn(one))
    for cell in (cell for row in table["rows"] for cell in row):
        cell["text"] = cut_text(cell["text"], MOST_CELL)
        if not cell["number"]:
            cell["value"] = ""  # words are sorted by what they say
    return table


@content.register
def _(one: Chart) -> dict[str, Any]:
    return {"svg": macro("drawings.html", "curve", drawn(one))}


@content.register
def _(one: Grid) -> dict[str, Any]:
    return {"svg": macro("drawings.html", "grid", drawn(one))}


@content.register
def _(one: Graph) -> dict[str, Any]:
    if not one.nodes:
        return {}
    if len(one.nodes) > MOST_BOXES or len(one.edges) > MOST_ARROWS:
        size = f"{len(one.nodes):,} components and {len(one.edges):,} edges"
        return {"words": f"{size} are too many for one drawing."}
    legend = {"tags": TAG_MEANINGS, "gaps": one.gaps} if one.leads else None
    return {"svg": macro("drawings.html", "circuit", drawn(one), one, fixed=True), "legend": legend}


@content.register
def _(one: HeadMap) -> dict[str, Any]:
    return {
        "values": one.values,
        "layers": one.layers,
        "heads": one.heads,
        "unit": one.unit,
        "unclear": [name for name in one.values if one.unclear(name)],
        "marked": one.marked,
        "key": key_of(one, ranks=False),
        "bar": macro("drawings.html", "scale", colour_bar(one)) if one.values else "",
    }


@content.register
def _(one: Bars) -> dict[str, Any]:
    return {"rows": [{**asdict(bar), "left": bar.left, "width": bar.width} for bar in drawn(one).rows]}


@content.register
def _(one: Tokens) -> dict[str, Any]:
    return {"rows": drawn(one)}


@content.register
def _(one: Claims) -> dict[str, Any]:
    return {"claims": [claim.as_data() for claim in one.claims]}


@content.register
def _(one: Group) -> dict[str, Any]:
    own = {"id": anchor(one.name)} if one.name else {}
    return {**own, "name": one.name, "tag": one.tag, "verdict": one.verdict, "side_by_side": one.side_by_side}
