"""Circuits from one file format into the other."""

from pathlib import Path

from vesalius.documents.attribution_graph import is_graph, read_graph, write_graph
from vesalius.documents.circuit import CIRCUIT_FILE, Circuit
from vesalius.errors import BadInput
from vesalius.files import read_json


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
