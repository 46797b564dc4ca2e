"""Discoveries as a submission to MIB's circuit localization track, and the areas that MIB would give its folders.

The areas:

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
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.api.door import verb
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.trial import Trial, trial
from vesalius.discovery.checks import HELD_OUT_SEED
from vesalius.discovery.faithfulness import interval_metric, resampled_faithfulness
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.model.specimen import Specimen
from vesalius.options import Draw
from vesalius.progress import Progress, silent
from vesalius_bench.mib.documents import Level, MibFolder, MibScore, MibSubmission
from vesalius_bench.mib.files import (
    LEAST_MODELS,
    LEAST_TASKS,
    MODELS,
    SHARES,
    TASKS,
    FileContent,
    FolderContent,
    read_folder,
    word_of,
    write_importances,
)
from vesalius_bench.options import MIB_SCORED

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


#: What stands for the model where a circuit of the benchmark is both task and model.
SPECIMEN_MODEL = "specimen"
LEVELS = ("edge", "node")


def write_mib(runs: Sequence[str | Path], out: str | Path, *, level: Level | None = None) -> MibSubmission:
    """Write the scores of discoveries (directories of `vesalius discover`) as a submission: a folder `TASK_MODEL` for
    each. `level` is "edge" where edges have scores, otherwise "node".
    """
    if level is not None and level not in LEVELS:
        raise BadInput(f"`level` {level!r} does not exist; choose edge or node")
    if not runs:
        raise BadInput("a submission of no discoveries is empty; give directories of `vesalius discover`")
    sources: dict[str, Path] = {}
    discoveries: dict[str, Discovery] = {}
    for path in map(Path, runs):
        if not (path / DISCOVERY_FILE).is_file():
            raise BadInput(f"{path}: holds no {DISCOVERY_FILE}; give a directory of `vesalius discover`")
        discovery = Discovery.read(path / DISCOVERY_FILE)
        folder = folder_name(discovery)
        if folder in sources:
            raise BadInput(f"{path}: is {folder}, as {sources[folder]} is; give one discovery of each task and model")
        sources[folder], discoveries[folder] = path, discovery
    for folder, discovery in discoveries.items():
        write_importances(discovery.circuit, Path(out) / folder, level)
    return check_mib(out)


def check_mib(directory: str | Path) -> MibSubmission:
    """Read every folder of a submission and say whether MIB would accept it."""
    place = Path(directory)
    folders = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    if not folders:
        raise BadInput(f"{place}: holds no folders such as ioi_gpt2; give the directory of a submission")
    rows = tuple(read_folder(folder).description for folder in folders)
    return MibSubmission(directory=str(place), folders=rows, problems=tuple(_problems(rows)))


@verb
def score_mib(
    folder: str | Path, specimen: Specimen, *, draw: Draw = MIB_SCORED, progress: Progress = silent
) -> MibScore:
    """CPR and CMD of a submission's folder as MIB defines them, on `n` prompts of the specimen's behaviour.

    These are prompts of the behaviour that is given, not MIB's private ones: give MIB's public rows as `behaviour` to
    score on those.
    """
    content = read_folder(Path(folder))
    progress("scoring circuits", 0, 1)
    material = trial(specimen, draw.n, seed=HELD_OUT_SEED + draw.seed, split=draw.split)
    score = score_folder(specimen, material, content)
    progress("scoring circuits", 1, 1)
    return score


def folder_name(discovery: Discovery) -> str:
    """The folder of a discovery: MIB's name of the task and of the model where it has one, otherwise our own."""
    name = Path(str(discovery.specimen)).name
    if discovery.behaviour is None:
        return f"{word_of(name)}_{SPECIMEN_MODEL}"
    known = (short for short, names in MODELS.items() if name.lower() in names)
    return f"{word_of(label_of(discovery.behaviour))}_{next(known, word_of(name))}"


def _problems(rows: Sequence[MibFolder]) -> list[str]:
    problems = []
    for what, known, least in (("task", TASKS, LEAST_TASKS), ("model", tuple(MODELS), LEAST_MODELS)):
        names = sorted({getattr(row, what) for row in rows})
        if unknown := [name for name in names if name not in known]:
            problems.append(f"MIB has no {what} {', '.join(unknown)}")
        if (count := len(names) - len(unknown)) < least:
            problems.append(f"MIB needs at least {least} {what}s and this has {count}")
    if len({row.level for row in rows}) > 1:
        problems.append("folders are of edges and of nodes; MIB takes one level")
    return problems
