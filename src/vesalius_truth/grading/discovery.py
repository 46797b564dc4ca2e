"""How well scores find the true circuit: areas under the ROC curve against the compiled program.

Nodes: every head and MLP of the model is a candidate; those that the program was placed in are true.

Edges: every edge of the model is a candidate. True are those by which the program's variables are read:
- a Map or SequenceMap reads its operands through the MLP's input,
- an Aggregate reads its selector's keys, its selector's queries and its values through k, q and v of its head,
- a SelectorWidth reads keys and queries so, and its MLP reads its head,
- `tokens` and `indices` come from the embedding; the program's output goes to the logits.
Two kinds of edges are left out on both sides. The v input of a SelectorWidth's head reads no variable at all. An edge
that carries nothing but `indices` from the embedding has the same value in every prompt, so that no resampling shows
it. `edge_auroc_all` counts the latter as true all the same.

Training fixes which components carry which variables, not by which of them each is read, so a model may hold edges
between true components that the program lacks: an edge area below 1 is not always the method's fault.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from vesalius.circuits.specimens import KEY_FOLDER, benchmark_directory
from vesalius.components import Component, Edge, Port
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.intervene.edges import EdgeGraph
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.rasp import Aggregate, Program, SelectorWidth, Variable, indices
from vesalius.rasp.placement import is_input
from vesalius.statistics import RESAMPLES, average_ranks
from vesalius_truth.key import task
from vesalius_truth.making import KEY_FILE, key_program
from vesalius_truth.planted import TRUTH_FILE


@dataclass(frozen=True)
class TrueCircuit:
    """The components and edges of the compiled program; edges left out are those that carry `constant` variables and
    the v inputs of `counting` heads.
    """

    components: frozenset[Component]
    edges: frozenset[Edge]
    constant: frozenset[Edge]
    counting: frozenset[Component]

    def judges(self, edge: Edge) -> bool:
        """Whether the edge takes part in the comparison."""
        return edge not in self.constant and not (edge.port == "v" and edge.receiver in self.counting)


class Areas(BaseModel):
    """Areas under the ROC curve; None where one of the two classes is empty or nothing was scored."""

    model_config = ConfigDict(frozen=True)

    node_auroc: float | None
    edge_auroc: float | None
    edge_auroc_all: float | None


def true_circuit(specimen: str, directory: Path | None = None) -> TrueCircuit:
    """The truth about a benchmark circuit by id or name, or about the trained specimen in `directory`."""
    if directory is None or directory == benchmark_directory(specimen):
        known = task(specimen)
        return circuit_of(known.program(), dict(known.head_override))
    planted = directory / KEY_FOLDER / TRUTH_FILE
    return _planted_truth(planted) if planted.is_file() else circuit_of(key_program(directory), {})


def _planted_truth(path: Path) -> TrueCircuit:
    """The truth beside a model whose weights were written by hand."""
    data = read_json(path)
    edges, constant = (frozenset(map(Edge.parse, data[name])) for name in ("edges", "constant"))
    return TrueCircuit(frozenset(map(Component.parse, data["components"])), edges, constant, frozenset())


def precision_at_size(scored: Mapping[Any, float], true: Collection[object]) -> float | None:
    """Of as many strongest items as are true, the share that is; None without true items. Ties are in random order, so
    that a group of equal scores counts by its share of true items.
    """
    if not (size := len(true)):
        return None
    hits, taken = 0.0, 0
    for _, group in groupby(sorted(scored, key=lambda item: -abs(scored[item])), key=lambda item: abs(scored[item])):
        tied = list(group)
        room = min(len(tied), size - taken)
        hits += room * sum(item in true for item in tied) / len(tied)
        taken += room
    return hits / size


def circuit_of(program: Program, moved: Mapping[Component, Component]) -> TrueCircuit:
    """The circuit of a compiled program, `moved` heads standing elsewhere in the trained model."""
    place = {part.component: moved.get(part.component, part.component) for part in program.components}
    writer: dict[Variable, Component] = {}
    for part in program.components:  # heads before the MLP of their layer, so a SelectorWidth is its MLP's
        writer.update(dict.fromkeys(part.expressions, place[part.component]))
    reads = _reads(program, place)
    carried: dict[Edge, set[Variable]] = {}
    for variable, receiver, port in reads:
        sender = None if is_input(variable) else writer[variable]  # the embedding carries the inputs
        carried.setdefault(Edge(sender, receiver, port), set()).add(variable)
    constant = frozenset(edge for edge, variables in carried.items() if variables == {indices})
    counting = {
        place[part.component]
        for part in program.components
        if part.kind == "head" and isinstance(part.expressions[0], SelectorWidth)
    }
    between = {Edge(head, Component(head.layer), "mlp") for head in counting}
    edges = (carried.keys() - constant) | between
    return TrueCircuit(frozenset(place.values()), frozenset(edges), constant, frozenset(counting))


def _reads(program: Program, place: Mapping[Component, Component]) -> list[tuple[Variable, Component | None, Port]]:
    """Every variable that is read, with the component and the input that read it."""
    reads: list[tuple[Variable, Component | None, Port]] = [(program.output, None, "logits")]
    for part in program.components:
        here = place[part.component]
        for node in part.expressions:
            if part.kind == "head":
                assert isinstance(node, Aggregate | SelectorWidth)
                reads.append((node.selector.keys, here, "k"))
                reads.append((node.selector.queries, here, "q"))
                if isinstance(node, Aggregate):
                    reads.append((node.values, here, "v"))
            elif not isinstance(node, SelectorWidth):
                reads.extend((operand, here, "mlp") for operand in node.inputs if isinstance(operand, Variable))
    return reads


def grade_circuit_scores(circuit: Circuit, truth: TrueCircuit) -> Areas:
    """Compare a circuit's scores, by magnitude, with the truth."""
    nodes = [(abs(score), part in truth.components) for part, score in circuit.components.items()]
    edges = [(abs(score), edge in truth.edges) for edge, score in circuit.edge_scores.items() if truth.judges(edge)]
    everything = [
        (abs(score), edge in truth.edges or edge in truth.constant)
        for edge, score in circuit.edge_scores.items()
        if edge in truth.constant or truth.judges(edge)
    ]
    return Areas(node_auroc=auroc(nodes), edge_auroc=auroc(edges), edge_auroc_all=auroc(everything))


def circuit_areas(specimen: Specimen, circuit: Circuit) -> dict[str, float]:
    """The areas against the true circuit of a specimen, where it is known; `auroc` is that of the nodes."""
    name = specimen.source or specimen.id
    shipped = benchmark_directory(name)
    directory = shipped or Path(name).expanduser()
    if shipped is None and not (directory / KEY_FOLDER / KEY_FILE).is_file():
        return {}
    areas = grade_circuit_scores(circuit, true_circuit(name, directory)).model_dump()
    return {name: area for name, area in {"auroc": areas["node_auroc"], **areas}.items() if area is not None}


def with_zeros(circuit: Circuit, config: Config) -> Circuit:
    """The circuit with a score for every component and edge of a model, 0 for those it does not score; refused where it
    names one that the model does not have.
    """
    graph = EdgeGraph.of(config)
    components = [part for part in graph.senders if part is not None]
    filled: list[dict[Any, float]] = []
    scores: list[tuple[Mapping[Any, float], Sequence[Any]]] = [
        (circuit.components, components),
        (circuit.edge_scores, graph.edges),
    ]
    for given, candidates in scores:
        if strangers := given.keys() - set(candidates):
            name = min(map(str, strangers))
            raise BadInput(f"{name} is not in a model of {config.n_layers} layers and {config.n_heads} heads")
        filled.append({name: given.get(name, 0.0) for name in candidates})
    return Circuit.scored(config, config.d_model, *filled)


def auroc(scored: Sequence[tuple[float, bool]]) -> float | None:
    """The chance that a true item scores above a false one, ties counting half; None if either kind is missing."""
    if not all(math.isfinite(score) for score, _ in scored):
        raise BadInput("some scores are not finite; an area by them says nothing")
    n_true = sum(truth for _, truth in scored)
    n_false = len(scored) - n_true
    if not n_true or not n_false:
        return None
    ranks = average_ranks(np.array([score for score, _ in scored]))
    rank_sum = float(ranks[[truth for _, truth in scored]].sum())
    return (rank_sum - n_true * (n_true + 1) / 2) / (n_true * n_false)


def median_and_mean(values: Sequence[float], *, baseline: float | None = None) -> tuple[Metric, Metric] | None:
    """Median and mean of one figure over specimens, with intervals by resampling specimens; None without values.

    `baseline`, what knowing nothing earns, belongs to the median.
    """
    if not values:
        return None
    figures = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    resamples = figures[torch.randint(len(figures), (RESAMPLES, len(figures)), generator=generator)]
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.quantile(resamples.quantile(0.5, dim=1), ends).tolist()
    median = Metric(
        value=float(figures.quantile(0.5)), low=low, high=high, n=len(values), baseline=baseline, statistic="median"
    )
    low, high = torch.quantile(resamples.mean(1), ends).tolist()
    return median, Metric(value=float(figures.mean()), low=low, high=high, n=len(values), statistic="mean")
