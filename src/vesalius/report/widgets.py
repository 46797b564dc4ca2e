"""Results as interactive pictures in a notebook: the parts of the workbench, in an anywidget.

What is drawn is plain data (`shown_of`); the script that draws it is one file of the package (`static/widget.js`, built
from `workbench/`). Without anywidget a result is shown as its table, with one line that says so.
"""

from collections.abc import Iterable, Mapping
from functools import cache, singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any

from vesalius.components import Component
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.experiments import AttentionLook
from vesalius.documents.explanation import Explanation
from vesalius.documents.sweep import Sweep
from vesalius.documents.view import subject_of
from vesalius.errors import BadInput, note
from vesalius.intervene.effects import Effects
from vesalius.model.specimen import Specimen

SCRIPT = Path(__file__).parent / "static" / "widget.js"
#: Positions of a prompt whose attention is drawn.
MOST_TOKENS = 256
#: Edges of a graph, the strongest first, and how many of them are drawn at first.
MOST_EDGES, FIRST_EDGES = 1_200, 40
Shown = dict[str, Any]


@singledispatch
def shown_of(result: Any) -> Shown:
    """What the widget of a result draws."""
    raise BadInput(
        f"a {type(result).__name__} has no widget; sweeps, circuits, discoveries, explanations, specimens and attention"
        " have one"
    )


@shown_of.register
def _(result: Effects) -> Shown:
    single = {str(members[0]): float(mean) for members, mean in zip(result.sets, result.mean, strict=True)}
    if any(len(members) != 1 for members in result.sets):
        raise BadInput("effects of sets of components have no map; sweep single components, or use .table()")
    return _head_map(f"{result.kind} ablation, effect in {result.unit}", single)


@shown_of.register
def _(result: Sweep) -> Shown:
    if result.pairs:
        raise BadInput("a sweep of pairs has no map; sweep single components, or use .table()")
    subject = subject_of(result.specimen, result.behaviour)
    return _head_map(f"{subject}: {result.kind} ablation", {row.id: row.effect for row in result.components})


@shown_of.register
def _(result: Circuit) -> Shown:
    edges = [[edge.format(), score] for edge, score in result.ranked_edges() if result.edges[edge].in_graph]
    if not edges:
        return _scores(result, "circuit")
    counts = {"total": len(edges), "first": FIRST_EDGES}
    return {"kind": "graph", "title": "circuit", "edges": edges[:MOST_EDGES], **counts}


@shown_of.register
def _(result: Discovery) -> Shown:
    subject = subject_of(result.specimen, result.behaviour)
    return _scores(result.circuit, f"{subject}: circuit by {result.method}")


def _scores(circuit: Circuit, title: str) -> Shown:
    scores = {str(part): score for part, score in circuit.components.items()}
    return _head_map(title, scores, layers=circuit.n_layers, heads=circuit.n_heads)


@shown_of.register
def _(result: Explanation) -> Shown:
    return _head_map(result.title, {}, marked=[part.id for part in result.components])


@shown_of.register
def _(result: Specimen) -> Shown:
    config, inside = result.model.config, list(map(str, result.components))
    marked = inside if len(inside) < len(result.model.components) else []
    title = subject_of(result.name, result.behaviour)
    return _head_map(title, {}, marked=marked, layers=config.n_layers, heads=config.n_heads)


@shown_of.register
def _(result: AttentionLook) -> Shown:
    if len(result.tokens) > MOST_TOKENS:
        raise BadInput(f"attention of {len(result.tokens)} tokens; the widget draws {MOST_TOKENS}")
    data = result.as_data()
    title = f"{result.specimen}: attention of layer {result.layer}"
    return {"kind": "attention", "title": title, "tokens": data["tokens"], "heads": data["heads"]}


def _head_map(
    title: str,
    values: Mapping[str, float],
    *,
    marked: Iterable[str] = (),
    layers: int | None = None,
    heads: int | None = None,
) -> Shown:
    """A map of at least the layers and heads that the components need."""
    framed = list(marked)
    parts = [Component.parse(name) for name in (*values, *framed)]
    return {
        "kind": "headmap",
        "title": title,
        "layers": layers or max((part.layer + 1 for part in parts), default=0),
        "heads": heads or max((part.head + 1 for part in parts if part.head is not None), default=0),
        "values": dict(values),
        "marked": framed,
    }


def widget(shown: Any) -> Any:
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
