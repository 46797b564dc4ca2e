"""`vesalius convert`: a circuit as an attribution graph and back, the same circuit."""

import json
from pathlib import Path

from tests.cli.conftest import Vesalius
from tests.documents.test_attribution_graph import CIRCUIT


def test_there_and_back(vesalius: Vesalius, tmp_path: Path) -> None:
    start, graph, end = (tmp_path / name for name in ("start.json", "graph.json", "end.json"))
    whole = {**CIRCUIT, "nodes": {**CIRCUIT["nodes"], "a1.h0": {"in_graph": True}}}
    start.write_text(json.dumps(whole))
    assert "6 nodes, 5 edges" in vesalius("convert", start, "--out", graph, "--model", "tiny").out
    assert json.loads(graph.read_text())["metadata"]["scan"] == "tiny"
    printed = json.loads(vesalius("convert", graph, "--out", end, "--json").out)
    assert printed == json.loads(end.read_text()) == whole
    refused = vesalius("convert", start, "--out", tmp_path / "graph.txt")
    assert (refused.code, "ends in .json" in refused.err) == (2, True)
