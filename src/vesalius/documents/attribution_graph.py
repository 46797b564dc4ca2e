"""Circuits as attribution graphs: the JSON that circuit-tracer writes and Neuronpedia's viewer shows.

    {"metadata": {"slug", "scan", "prompt", "prompt_tokens", "transcoder_list", ...},
     "qParams": {...},
     "nodes": [{"node_id", "layer", "feature", "ctx_idx", "feature_type", "influence", "clerp", ...}],
     "links": [{"source", "target", "weight"}]}

The nodes here are parts of the model itself: `attention head` (`feature` is its number), `mlp`, `neuron` and `expert`
(its number), `embedding` and `logit`. A circuit does not say at which position a part acts, so a graph that is written
has one column. In a graph that is read, a part may have a node at every position; influences and weights are summed
over positions. What the format has no place for (the input by which an edge enters, whether a part is in the circuit)
is in fields of our own, which other readers ignore. Links of neurons and experts are not edges of a circuit; features
of dictionaries are not parts of a model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vesalius.components import Component, Edge, Shape
from vesalius.documents.base import FrozenDict
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit, Member, Node, node_name
from vesalius.errors import BadInput, note
from vesalius.files import read_json, write_json
from vesalius.values import JsonObject

#: Edges that a graph has at most: viewers draw every one of them.
MOST_LINKS = 1000
KINDS = ("embedding", "attention head", "mlp", "neuron", "expert", "logit")
#: Kinds that other tools write for the same parts.
_OTHER_NAMES = {"mlp neuron": "neuron", "attention": "attention head", "head": "attention head"}
_PORT, _KEPT, _MORE, _UNSCORED = "port", "in_graph", "more", "unscored"


def is_graph(data: Mapping[str, object]) -> bool:
    """Whether a JSON object looks like an attribution graph."""
    return {"metadata", "nodes", "links"} <= data.keys() and isinstance(data["nodes"], list)


def graph_of(circuit: Circuit, *, slug: str, scan: str, prompt: str, most_links: int = MOST_LINKS) -> JsonObject:
    """The attribution graph of a circuit, with its strongest edges. `slug` names the graph, `scan` the model."""
    kept = [edge for edge, _ in circuit.ranked_edges()[:most_links]]
    kept += [edge for edge, member in circuit.edges.items() if member.score is None]
    if len(kept) < len(circuit.edges):
        note(f"the graph has the {len(kept)} strongest of {len(circuit.edges)} edges")
    sizes = {"n_layers": circuit.n_layers, "n_heads": circuit.n_heads, "d_model": circuit.d_model}
    return {
        "metadata": {
            "slug": slug,
            "scan": scan,
            "transcoder_list": [],
            "prompt_tokens": ["(all positions)"],
            "prompt": prompt,
            "node_threshold": None,
            "schema_version": 1,
            "cfg": {**sizes, "parallel_attn_mlp": circuit.parallel},
        },
        "qParams": {"pinnedIds": [], "supernodes": [], "linkType": "both", "clickedId": "", "sg_pos": ""},
        "nodes": [_node(node, member, circuit.n_layers) for node, member in circuit.nodes.items()],
        "links": [_link(edge, circuit.edges[edge], circuit.n_layers) for edge in kept],
    }


def circuit_of(data: JsonObject, *, shape: Shape | None = None, d_model: int = 1, source: str) -> Circuit:
    """The circuit of an attribution graph. One that was not written here does not say how large its model is: `shape`
    and `d_model` do.
    """
    sizes = data["metadata"].get("cfg") if isinstance(data["metadata"], Mapping) else None
    if sizes is None and shape is None:
        raise BadInput(f"{source}: does not say how many layers and heads its model has; add metadata.cfg")
    if sizes is None and shape is not None:
        sizes = {"n_layers": shape.n_layers, "n_heads": shape.n_heads, "d_model": d_model}
    named: dict[str, Node] = {}
    nodes: dict[Node, Member] = {}
    for entry in data["nodes"]:
        node = _read_node(entry, source)
        named[str(entry.get("node_id"))] = node
        nodes[node] = _summed(nodes.get(node), entry, "influence", source)
    edges: dict[Edge, Member] = {}
    dropped = 0
    for entry in data["links"]:
        ends: list[Node | None] = [
            named.get(str(entry.get(end))) if isinstance(entry, Mapping) else None for end in ("source", "target")
        ]
        if None in ends:
            raise BadInput(f"{source}: link {str(entry)[:80]} does not name two nodes of this graph")
        if any(isinstance(end, Component) and end.is_unit for end in ends):
            dropped += 1
            continue
        for edge in _edges(ends[0], ends[1], entry):
            edges[edge] = _summed(edges.get(edge), entry, "weight", source)
    if dropped:
        note(f"{source}: {dropped} links of neurons or experts are left out; edges run between heads and MLPs")
    return Circuit.from_data(
        {
            "cfg": sizes,
            "nodes": {node_name(node): member.as_data() for node, member in nodes.items()},
            "edges": {edge.format("eap"): member.as_data() for edge, member in edges.items()},
        },
        source=source,
    )


def write_graph(circuit: Circuit, path: Path | str, *, slug: str, scan: str, prompt: str) -> None:
    """Write the attribution graph of a circuit."""
    write_json(Path(path), graph_of(circuit, slug=slug, scan=scan, prompt=prompt))


def read_graph(path: Path | str, *, shape: Shape | None = None, d_model: int = 1) -> Circuit:
    """Read an attribution graph as a circuit."""
    data = read_json(Path(path))
    if not is_graph(data):
        raise BadInput(f"{path}: is not an attribution graph; one has metadata, nodes and links")
    return circuit_of(data, shape=shape, d_model=d_model, source=str(path))


def _place(node: Node | None, n_layers: int) -> tuple[str, int, str]:
    """Layer, feature and kind of a node; None is the embedding."""
    if node is None or node == "input":
        return "E", 0, "embedding"
    if isinstance(node, Component):
        if node.head is not None:
            return str(node.layer), node.head, "attention head"
        kind = "neuron" if node.is_neuron else "expert" if node.is_expert else "mlp"
        return str(node.layer), node.neuron or node.expert or 0, kind
    return str(n_layers + 1), 0, "logit"


def _id(node: Node | None, n_layers: int) -> str:
    layer, feature, kind = _place(node, n_layers)
    letter = {"attention head": "h", "mlp": "m", "neuron": "n", "expert": "e"}.get(kind, "")
    return f"{layer}_{letter}{feature}_0"


def _node(node: Node, member: Member, n_layers: int) -> JsonObject:
    layer, feature, kind = _place(node, n_layers)
    data = {
        "node_id": _id(node, n_layers),
        "feature": feature,
        "layer": layer,
        "ctx_idx": 0,
        "feature_type": kind,
        "token_prob": 0.0,
        "is_target_logit": kind == "logit",
        "run_idx": 0,
        "reverse_ctx_idx": 0,
        "jsNodeId": _id(node, n_layers),
        "clerp": str(node),
        "influence": member.score,
        "activation": None,
        _KEPT: member.in_graph,
    }
    return data | ({_MORE: dict(member.more)} if member.more else {})


def _link(edge: Edge, member: Member, n_layers: int) -> JsonObject:
    receiver: Node = "logits" if edge.receiver is None else edge.receiver
    data: JsonObject = {
        "source": _id(edge.sender, n_layers),
        "target": _id(receiver, n_layers),
        "weight": member.score or 0.0,
        _PORT: edge.port,
        _KEPT: member.in_graph,
    }
    data |= {_UNSCORED: True} if member.score is None else {}
    return data | ({_MORE: dict(member.more)} if member.more else {})


def _read_node(entry: Any, source: str) -> Node:
    """The part of the model that a node stands for."""
    kind = str(entry.get("feature_type")) if isinstance(entry, Mapping) else ""
    kind = _OTHER_NAMES.get(kind, kind)
    if kind not in KINDS:
        name = str(entry.get("node_id") if isinstance(entry, Mapping) else entry)[:40]
        raise BadInput(f"{source}: node {name!r} is a {kind[:40]!r}; heads, MLPs, neurons and experts can be read")
    if kind in ("embedding", "logit"):
        return "input" if kind == "embedding" else "logits"
    try:
        layer, feature = int(entry["layer"]), int(entry.get("feature", 0))
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"{source}: node {str(entry)[:80]} has no layer and feature number") from None
    number = {"attention head": "head", "neuron": "neuron", "expert": "expert"}.get(kind)
    return Component(layer) if number is None else Component(layer, **{number: feature})


def _edges(sender: Node | None, receiver: Node | None, entry: JsonObject) -> list[Edge]:
    """The edge of a link; into a head it must say by which input it enters."""
    start = None if sender == "input" else sender
    if sender == "logits" or receiver == "input" or not isinstance(start, Component | None):
        raise BadInput(f"link {str(entry)[:80]}: runs out of the logits or into the embedding")
    if not isinstance(receiver, Component):
        return [Edge(start, None, "logits")]
    port = entry.get(_PORT, "mlp" if not receiver.is_head else None)
    if port is None:
        raise BadInput(f"link {str(entry)[:80]}: enters a head; add 'port': 'q', 'k' or 'v'")
    return [Edge(start, receiver, port)]


def _summed(before: Member | None, entry: Mapping[str, object], field: str, source: str) -> Member:
    """A member with the score of one more node or link of the same part."""
    score = None if entry.get(_UNSCORED) is True else entry.get(field)
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
        raise BadInput(f"{source}: {field} {str(score)[:40]!r} is not a number")
    if before is not None and before.score is not None:
        score = before.score + (score or 0.0)
    kept = entry.get(_KEPT, True) is True or (before is not None and before.in_graph)
    more = entry.get(_MORE, {})
    if not isinstance(more, Mapping):
        raise BadInput(f"{source}: {_MORE} {str(more)[:40]!r} is not an object; leave it out")
    return Member(score=score, in_graph=kept, more=FrozenDict(more))


# Circuits from one file format into the other.


def convert(source: Path | str, target: Path | str, *, model: str = "model", title: str | None = None) -> Circuit:
    """Write a circuit in MIB form (a file, or a directory that holds `circuit.json`) as an attribution graph of
    circuit-tracer and Neuronpedia, and an attribution graph as a circuit in MIB form. `model` and `title` are what the
    graph calls the model and itself.
    """
    path = Path(source)
    path = path / CIRCUIT_FILE if path.is_dir() else path
    if Path(target).suffix != ".json":
        raise BadInput(f"{target}: circuits and graphs are JSON; give a name that ends in .json")
    if is_graph(read_json(path)):
        circuit = read_graph(path)
        circuit.write(target)
    else:
        circuit = Circuit.read(path)
        name = title or path.parent.name or path.stem
        write_graph(circuit, target, slug=name, scan=model, prompt=name)
    return circuit
