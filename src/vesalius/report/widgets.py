"""Results as interactive pictures in a notebook: the parts of the workbench, in an anywidget.

What is drawn is plain data (`shown_of`); the script that draws it is one file of the package (`static/widget.js`, built
from `workbench/`). Without anywidget a result is shown as its table, with one line that says so.
"""

from functools import cache, singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any

from vesalius.documents.circuit import Circuit
from vesalius.documents.experiments import AttentionLook
from vesalius.documents.explanation import Explanation
from vesalius.documents.sweep import Sweep, shape_of
from vesalius.documents.view import HeadMap, Viewable
from vesalius.errors import BadInput, note
from vesalius.intervene.effects import Effects

SCRIPT = Path(__file__).parent / "static" / "widget.js"
#: Positions of a prompt whose attention is drawn.
MOST_TOKENS = 256
#: Edges of a graph, the strongest first, and how many of them are drawn at first.
MOST_EDGES, FIRST_EDGES = 1_200, 40
Shown = dict[str, Any]


@singledispatch
def shown_of(result: object) -> Shown:
    """What the widget of a result draws: the first map of its view, where it is no graph and no attention."""
    view = result.view() if isinstance(result, Viewable) else None
    one = next((part for part in view.all_sections() if isinstance(part, HeadMap)), None) if view else None
    if view is None or one is None:
        raise BadInput(f"a {type(result).__name__} has no widget: its view has no map of heads; use .table()")
    return _map(one, view.title)


def _map(one: HeadMap, title: str) -> Shown:
    return {
        "kind": "headmap",
        "title": title,
        "layers": one.layers,
        "heads": one.heads,
        "values": dict(one.values),
        "unclear": [name for name in one.values if one.unclear(name)],
        "unit": one.unit,
        "marked": list(one.marked),
    }


@shown_of.register
def _(result: Effects) -> Shown:
    single = {str(members[0]): float(mean) for members, mean in zip(result.sets, result.mean, strict=True)}
    if any(len(members) != 1 for members in result.sets):
        raise BadInput("effects of sets of components have no map; sweep single components, or use .table()")
    layers, heads = shape_of(single)
    return _map(HeadMap(single, layers, heads, unit=f"effect, {result.unit}"), f"{result.kind} ablation")


@shown_of.register
def _(result: Sweep) -> Shown:
    if result.pairs:
        raise BadInput("a sweep of pairs has no map; sweep single components, or use .table()")
    return _map(result.head_map(), result.view().title)


@shown_of.register
def _(result: Circuit) -> Shown:
    edges = [[edge.format(), score] for edge, score in result.ranked_edges() if result.edges[edge].in_graph]
    if not edges:
        return _map(result.head_map("score"), "circuit")
    counts = {"total": len(edges), "first": FIRST_EDGES}
    return {"kind": "graph", "title": "circuit", "edges": edges[:MOST_EDGES], **counts}


@shown_of.register
def _(result: Explanation) -> Shown:
    inside = [part.id for part in result.components]
    layers, heads = shape_of(inside)
    return _map(HeadMap({}, layers, heads, marked=inside), result.title)


@shown_of.register
def _(result: AttentionLook) -> Shown:
    if len(result.tokens) > MOST_TOKENS:
        raise BadInput(f"attention of {len(result.tokens)} tokens; the widget draws {MOST_TOKENS}")
    data = result.as_data()
    title = f"{result.specimen}: attention of layer {result.layer}"
    return {"kind": "attention", "title": title, "tokens": data["tokens"], "heads": data["heads"]}


def widget(shown: object) -> Any:
    """The widget of a result, or the result itself where anywidget is not installed."""
    drawn = shown_of(shown)
    try:
        made = _widget_class()
    except ImportError:
        note("the notebook widget needs anywidget: pip install 'vesalius[notebook]'; the table is shown instead")
        return shown
    return made(shown=drawn)


@cache
def _widget_class() -> type[Any]:
    """The widget's class, made when the first widget is asked for."""
    anywidget, traitlets = import_module("anywidget"), import_module("traitlets")

    class ResultWidget(anywidget.AnyWidget):
        """`shown` is what is drawn, `chosen` the components that the reader chose on a map."""

        _esm = SCRIPT
        shown = traitlets.Dict().tag(sync=True)
        chosen = traitlets.List(traitlets.Unicode()).tag(sync=True)

    return ResultWidget
