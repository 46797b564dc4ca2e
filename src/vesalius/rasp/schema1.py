"""Program documents of schema 1, as explanations of earlier versions hold them.

    {"schema": 1, ..., "nodes": [{"op": "tokens"}, {"op": "map", "inputs": [0], "name": "is_x", "table": ...}, ...],
     "output": 1}

Nodes refer to each other by place, the two inputs are nodes, and a select has no name.
"""

from typing import Any

from vesalius.errors import BadInput


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The same program as a document of schema 2; what else may be wrong with it is left to the reader of those."""
    nodes = document.get("nodes")
    if not isinstance(nodes, list) or not all(isinstance(node, dict) for node in nodes):
        raise BadInput("program document: nodes must be a list of objects")
    names: list[str] = []
    given = {node["name"] for node in nodes if isinstance(node.get("name"), str)}
    variables = []
    for place, node in enumerate(nodes):
        if node.get("op") in ("tokens", "indices"):
            names.append(node["op"])
            continue
        inputs = node.get("inputs")
        of = [_name(names, i, place) for i in inputs] if isinstance(inputs, list) else inputs
        name = node.get("name", _free(f"{node.get('op')}_{place}", given))
        names.append(name)
        rest = {field: value for field, value in node.items() if field not in ("op", "inputs", "name")}
        variables.append({"name": name, "op": node.get("op"), "of": of, **rest})
    output = _name(names, document.get("output"), len(nodes))
    fields = {field: value for field, value in document.items() if field != "nodes"}
    return {**fields, "schema": 2, "variables": variables, "output": output}


def _name(names: list[str], place: Any, before: int) -> str:
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(names):
        raise BadInput(f"program document, node {before}: {place!r:.40} is not an earlier node")
    return names[place]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
