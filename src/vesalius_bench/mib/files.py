"""The files of MIB's circuit localization track: one folder for each task and model, named `TASK_MODEL`.

A folder holds one file of importance scores of every edge (or node), or nine circuits of at most 0.1, 0.2, 0.5, 1, 2,
5, 10, 20 and 50 % of the edges. Files are JSON as in `documents.circuit`, or `.pt`: a dictionary of tensors that are
read without unpickling anything else. A node without a score is always in the circuit, as in MIB, so scores of all
heads and no MLP are complete; scores of some edges, or of some heads, are not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.circuit import Circuit
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.states import PARSER_ERRORS
from vesalius_bench.mib.documents import Form, Level, MibFolder

#: Shares of the edges or nodes at which circuits are read; a folder of circuits lacks the last, the whole model.
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
IMPORTANCES_FILE = "importances.json"
#: What MIB calls its tasks and models; it takes submissions of at least two of each.
TASKS = ("ioi", "mcqa", "arithmetic-addition", "arithmetic-subtraction", "arc-easy", "arc-challenge")
MODELS = {
    "gpt2": ("gpt2", "gpt2-small"),
    "qwen2.5": ("qwen2.5-0.5b",),
    "gemma2": ("gemma-2-2b",),
    "llama3": ("llama-3.1-8b", "meta-llama-3.1-8b"),
    "interpbench": ("interpbench",),
}
LEAST_TASKS, LEAST_MODELS = 2, 2
#: Cells of the table of edges that a file may need; the largest model of the track has 3 million.
MOST_CELLS = 1 << 26
_SUFFIXES = (".json", ".pt")
_TENSORS = ("edges_scores", "edges_in_graph", "nodes_in_graph")


def word_of(name: str) -> str:
    """A name without underscores, which part task and model."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"


@dataclass(frozen=True)
class FileContent:
    """What one file says: scores and membership in the tables of an `EdgeGraph`; scores that are missing are NaN."""

    graph: EdgeGraph
    d_model: int
    edge_scores: Float[Tensor, "sender receiver"]
    node_scores: Float[Tensor, " sender"]
    edges: Bool[Tensor, "sender receiver"]

    @property
    def level(self) -> Level:
        """By what circuits are made of it."""
        return "node" if bool(self.edge_scores.isnan().all()) else "edge"


@dataclass(frozen=True)
class FolderContent:
    """A readable folder: what it is, and its file or its nine files by size."""

    description: MibFolder
    files: tuple[FileContent, ...]


def read_folder(folder: Path) -> FolderContent:
    """Read a folder of a submission; what is incomplete or not of the format is refused in one line."""
    task, _, model = folder.name.rpartition("_")
    if not task or not model:
        raise BadInput(f"{folder}: is not named TASK_MODEL, such as ioi_gpt2; rename it")
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a directory; give a folder that holds {IMPORTANCES_FILE} or nine circuits")
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if (stranger := next((path for path in paths if path.suffix not in _SUFFIXES), None)) is not None:
        raise BadInput(f"{stranger}: is neither .json nor .pt; a folder holds circuit files alone")
    circuits = len(SHARES) - 1
    if len(paths) not in (1, circuits):
        raise BadInput(f"{folder}: holds {len(paths)} circuit files; it needs one of scores, or {circuits} circuits")
    form: Form = "importances" if len(paths) == 1 else "circuits"
    contents = {path: read_file(path) for path in paths}
    if form == "circuits":
        paths = _by_size(contents, folder)
    files = tuple(contents[path] for path in paths)
    level: Level = files[0].level if form == "importances" else "edge"
    items = _complete(files[0], paths[0]) if form == "importances" else files[0].graph.n_edges
    return FolderContent(
        MibFolder(
            folder=folder.name,
            task=task,
            model=model,
            level=level,
            form=form,
            items=items,
            files=tuple(path.name for path in paths),
        ),
        files,
    )


def read_file(path: Path) -> FileContent:
    """One file of scores or membership."""
    return _of_tensors(path) if path.suffix == ".pt" else _of_circuit(Circuit.read(path), path)


def write_importances(circuit: Circuit, folder: Path, level: Level | None = None) -> Path:
    """Write a circuit's scores as a folder's file: those of its edges where it has some, or of its nodes."""
    level = level or ("edge" if circuit.edge_scores else "node")
    if not (circuit.edge_scores if level == "edge" else circuit.components):
        raise BadInput(f"`level` {level}: the circuit scores no {level}s; choose the other level")
    data = circuit.as_data()
    del data["schema"]
    if level == "node":
        data["edges"] = {}
    else:
        data["nodes"] = {name: {"in_graph": node["in_graph"]} for name, node in data["nodes"].items()}
    _complete(_of_circuit(Circuit.from_data(data), folder), folder)
    path = folder / IMPORTANCES_FILE
    if folder.exists():
        raise BadInput(f"{folder}: is there already; choose another `out`, or remove it")
    folder.mkdir(parents=True)
    write_json(path, data)
    return path


def _of_circuit(circuit: Circuit, path: Path) -> FileContent:
    graph = _graph(circuit, path)
    row = {sender: place for place, sender in enumerate(graph.senders)}
    column = {receiver: place for place, receiver in enumerate(graph.receivers)}
    scores, inside = _empty(graph), torch.zeros_like(graph.real)
    for edge, member in circuit.edges.items():
        place = row.get(edge.sender, -1), column.get((edge.receiver, edge.port), -1)
        if min(place) < 0 or not graph.real[place]:
            raise BadInput(f"{path}: {edge} is not an edge of this model; remove it")
        inside[place] = member.in_graph
        scores[place] = torch.nan if member.score is None else member.score
    nodes = torch.full((len(graph.senders),), torch.nan)
    for node, member in circuit.nodes.items():
        if (isinstance(node, Component) and node not in row) or "neurons_scores" in member.more:
            raise BadInput(f"{path}: scores neurons; circuits of edges or of heads and MLPs are read here")
        if node != "logits" and member.score is not None:
            nodes[0 if node == "input" else row[node]] = member.score
    return FileContent(graph, circuit.d_model, scores, nodes, inside)


def _of_tensors(path: Path) -> FileContent:
    """A `.pt` file: tables in the order of an `EdgeGraph`, which is MIB's."""
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except PARSER_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{path}: is not a plain dictionary of tensors ({reason}); save it as JSON") from None
    config = data.get("cfg") if isinstance(data, dict) else None
    if not isinstance(config, Mapping) or not all(isinstance(data.get(name), Tensor) for name in _TENSORS):
        raise BadInput(f"{path}: lacks cfg or one of {', '.join(_TENSORS)}; it is not a MIB circuit")
    if "neurons_scores" in data or "neurons_in_graph" in data:
        raise BadInput(f"{path}: scores neurons; circuits of edges or of heads and MLPs are read here")
    shape = Circuit.from_data({"cfg": config, "nodes": {}, "edges": {}}, source=str(path))
    graph = _graph(shape, path)
    edges, inside = data["edges_scores"].float(), data["edges_in_graph"].bool()
    nodes = data.get("nodes_scores")
    nodes = torch.full((len(graph.senders),), torch.nan) if nodes is None else nodes.float()
    sizes: dict[str, tuple[Any, Any]] = {
        "edges_scores": (edges.shape, graph.real.shape),
        "edges_in_graph": (inside.shape, graph.real.shape),
        "nodes_scores": (nodes.shape, graph.real.shape[:1]),
    }
    if wrong := next((name for name, (given, needed) in sizes.items() if given != needed), None):
        given, needed = (list(size) for size in sizes[wrong])
        raise BadInput(f"{path}: {wrong} has shape {given}, this model needs {needed}; write the file again")
    if bool((edges[graph.real].isinf()).any() | nodes.isinf().any()):
        raise BadInput(f"{path}: some scores are infinite; write the file again")
    scored_nodes = data.get("nodes_scores") is not None and not bool(edges[graph.real].any())
    edges = edges.masked_fill(~graph.real | scored_nodes, torch.nan)
    return FileContent(graph, shape.d_model, edges, nodes, inside & graph.real)


def _graph(circuit: Circuit, path: Path) -> EdgeGraph:
    """The edges of a circuit's model; refused before they are counted where their table would not fit into memory."""
    senders = 1 + circuit.n_layers * (circuit.n_heads + 1)
    receivers = 1 + circuit.n_layers * (3 * circuit.n_heads + 1)
    if senders * receivers > MOST_CELLS:
        raise BadInput(
            f"{path}: cfg says {circuit.n_layers:,} layers of {circuit.n_heads:,} heads, whose edges need a table of "
            f"{senders * receivers:,} cells; at most {MOST_CELLS:,} are read; correct cfg"
        )
    return EdgeGraph(circuit.n_layers, circuit.n_heads, circuit.parallel)


def _empty(graph: EdgeGraph) -> Float[Tensor, "sender receiver"]:
    return torch.full(tuple(graph.real.shape), torch.nan)


def _complete(content: FileContent, path: Path) -> int:
    """How many edges or nodes have scores; refused where only some have."""
    graph = content.graph
    if content.level == "edge":
        scored = int((~content.edge_scores[graph.real].isnan()).sum())
        if scored < graph.n_edges:
            raise BadInput(f"{path}: scores {scored} of {graph.n_edges} edges; score every edge, 0 where unimportant")
        return scored
    scored = ~content.node_scores.isnan()
    heads = torch.tensor([part is not None and part.is_head for part in graph.senders])
    if not bool(scored.any()):
        raise BadInput(f"{path}: has no scores; score every edge, or every node, or give nine circuits")
    if not bool(scored[heads].all()) or (bool(scored[1:][~heads[1:]].any()) and not bool(scored[1:].all())):
        parts = len(graph.senders) - 1
        raise BadInput(f"{path}: scores {int(scored[1:].sum())} of {parts} heads and MLPs; score all, or all heads")
    return int(scored.sum())


def _by_size(contents: Mapping[Path, FileContent], folder: Path) -> list[Path]:
    """The nine files by their number of edges, each within its share."""
    if len({(one.graph, one.d_model) for one in contents.values()}) > 1:
        raise BadInput(f"{folder}: its circuits are of models of different shapes; give one model's")
    sizes = {path: int(one.edges.sum()) for path, one in contents.items()}
    ordered = sorted(sizes, key=lambda path: sizes[path])
    total = contents[ordered[0]].graph.n_edges
    for path, share in zip(ordered, SHARES, strict=False):
        if sizes[path] > share * total:
            raise BadInput(
                f"{path}: has {sizes[path]} of {total} edges and is the circuit of at most {share:.1%}; leave out edges"
            )
    return ordered
