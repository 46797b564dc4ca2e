"""The two areas of MIB's circuit localization track for a folder of a submission.

1. At each of ten shares of the edges (or nodes) the circuit is the best floor(share * number) of them, without what is
   not connected to both ends; a node that is in it keeps all its outgoing edges, and one without a score always is.
   Everything else carries its value on the counterfactual prompt. Nine given circuits are taken as they are, and the
   whole model is the tenth.
2. faithfulness = (score of the circuit - score with every edge cut) / (score of the model - score with every edge cut).
3. CPR is the area under the faithfulness of circuits ranked by score, CMD the area between 1 and that of circuits
   ranked by magnitude, both over the shares from 0.001 to 1, linear, by straight lines.

This differs from `faithfulness`: no point at 0, floors, and two rankings.
"""

import time

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.discovery.faithfulness import interval_metric, resampled_faithfulness
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene.edge_masks import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.model.specimen import Specimen
from vesalius_bench.mib.documents import Level, MibScore
from vesalius_bench.mib.files import SHARES, FileContent, FolderContent

Edges = Bool[Tensor, "circuit sender receiver"]


def score_folder(specimen: Specimen, material: Trial, content: FolderContent) -> MibScore:
    """The areas of a folder on these prompts; refused where it is one of another model."""
    start, description = time.perf_counter(), content.description
    config, first = specimen.model.config, content.files[0]
    if (first.graph, first.d_model) != (EdgeGraph.of(config), config.d_model):
        raise BadInput(f"{description.folder}: its circuits are of a model of another shape than {specimen.name}")
    if description.form == "circuits":
        given = torch.stack([one.edges for one in content.files] + [first.graph.real])
        by_score = by_magnitude = given
    else:
        by_score, by_magnitude = (circuits_of(first, description.level, signed=signed) for signed in (True, False))
    n, shares = len(material.batch), torch.tensor(SHARES, dtype=torch.float64)
    scores = _kept_scores(specimen, material, torch.cat([by_score, by_magnitude])).double()
    columns = torch.arange(len(SHARES))
    (mean, signed, signed_drawn), (_, plain, plain_drawn) = (
        resampled_faithfulness(scores[:, torch.cat([torch.tensor([0]), 1 + start_at + columns])])
        for start_at in (0, len(SHARES))
    )
    return MibScore(
        folder=description.folder,
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        level=description.level,
        form=description.form,
        cpr=_area(signed[:, 1:], signed_drawn[:, 1:], shares, n),
        cmd=_area((1 - plain[:, 1:]).abs(), (1 - plain_drawn[:, 1:]).abs(), shares, n),
        shares=SHARES,
        edges=tuple(by_magnitude.sum((1, 2)).tolist()),
        by_score=tuple(signed[0, 1:].tolist()),
        by_magnitude=tuple(plain[0, 1:].tolist()),
        n=n,
        unit=material.readout.unit,
        full=float(mean[-1]),
        ablated=float(mean[0]),
        seconds=time.perf_counter() - start,
    )


def circuits_of(content: FileContent, level: Level, *, signed: bool) -> Edges:
    """The circuit at every share by a file's scores, largest first; `signed`, or by magnitude."""
    graph = content.graph
    scores = content.edge_scores[graph.real] if level == "edge" else content.node_scores
    unscored = scores.isnan()
    ranks = (scores if signed else scores.abs()).masked_fill(unscored, -torch.inf)
    order, items = ranks.argsort(descending=True, stable=True), int((~unscored).sum())
    circuits = []
    for share in SHARES:
        chosen = unscored.clone()
        chosen[order[: int(share * items)]] = True
        edges = torch.zeros_like(graph.real)
        edges[graph.real] = chosen if level == "edge" else chosen[:, None].expand_as(graph.real)[graph.real]
        circuits.append(connected(edges, graph))
    return torch.stack(circuits)


def connected(edges: Bool[Tensor, "sender receiver"], graph: EdgeGraph) -> Bool[Tensor, "sender receiver"]:
    """The edges on a path from the embedding to the logits; a head counts as reached by any of its inputs."""
    row = {part: place for place, part in enumerate(graph.senders)}
    receiver = torch.tensor([len(row) if part is None else row[part] for part, _ in graph.receivers])
    while True:
        fed = torch.zeros(len(row) + 1).index_add(0, receiver, edges.any(0).float()) > 0
        fed[0] = True  # the embedding
        inside = fed & torch.cat([edges.any(1), torch.tensor([True])])
        inside[-1] = True  # the logits
        fewer = edges & inside[:-1, None] & inside[receiver][None]
        if bool((fewer == edges).all()):
            return edges
        edges = fewer


@torch.no_grad()
def _kept_scores(specimen: Specimen, material: Trial, circuits: Edges) -> Float[Tensor, "prompt circuit"]:
    """The score of every prompt with every edge cut, then with the edges of each circuit alone."""
    real = EdgeGraph.of(specimen.model.config).real
    cut = torch.cat([real[None], real & ~circuits])
    recordings = SenderRecordings(
        specimen.model, material.batch, material.readout, counterfactual=material.counterfactual, where=material.where
    )
    return run_edge_masks(recordings, cut).T.cpu()


def _area(curve: Float[Tensor, "1 share"], drawn: Float[Tensor, "draw share"], shares: Tensor, n: int) -> Metric:
    return interval_metric(torch.trapezoid(curve, shares)[0], torch.trapezoid(drawn, shares), n)
