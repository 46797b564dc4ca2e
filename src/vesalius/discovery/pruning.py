"""ACDC: walk from the logits to the embedding and cut every edge that is not missed.

At each input of each receiver, latest first, every edge that enters it is cut over to the counterfactual in turn,
beside the edges cut before; where the mean score falls by less than the threshold the cut stays. Many thresholds walk
at once, as rows of one batch, and an edge's score is the largest threshold at which it survives (0: it never does).

Nothing before the receiver under test has been cut yet, so each test starts from the recorded clean run at the
receiver's layer. The runs themselves are those of `intervene.edges`.

The scores are no means over prompts, so that stability is found by pruning again on resamples of the prompts, at the
threshold `STABLE_AT`; a circuit is then every component with an edge that survives, however many those are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.discovery.method import Method, MethodInput, MethodResult, Scores, scores_by_edges
from vesalius.discovery.stability import RESAMPLES, pairwise_jaccard
from vesalius.documents.checks import Stability
from vesalius.errors import BadInput
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.intervene.estimate import Workload
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress
from vesalius.statistics import bootstrap_means

#: Shares of the clean score.
THRESHOLDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
#: Beyond this, testing edge by edge takes hours.
MAX_EDGES = 6_000
#: The work grows with edges times prompts: benchmarks prune models of more edges on this many prompts at most.
LARGE_EDGES, LARGE_PROMPTS = 1000, 8
#: The threshold at which resamples of the prompts are pruned.
STABLE_AT = 0.05
#: Scores of every prompt under every mask of cut edges; no mask cuts an edge into a receiver before `first_layer`.
RunMasks = Callable[[Bool[Tensor, "mask sender receiver"], int], Float[Tensor, "mask prompt"]]


@dataclass(frozen=True)
class ACDC(Method):
    """The largest threshold at which an edge survives greedy pruning."""

    name = "acdc"
    meaning = "A component's score is the largest threshold at which one of its outgoing edges survives pruning."
    scores_edges = True
    sees_position = False
    centred = True

    def require(self, config: Config) -> None:
        """Refuse a model of too many edges to be tested one by one."""
        edges = EdgeGraph.of(config).n_edges
        if edges > MAX_EDGES:
            raise BadInput(f"acdc tests edges one by one and this model has {edges}; use eap-ig")

    def prompts(self, config: Config, n: int) -> int:
        """Fewer on large models."""
        return min(n, LARGE_PROMPTS) if EdgeGraph.of(config).n_edges > LARGE_EDGES else n

    def score(self, given: MethodInput) -> Scores:
        """Prune at all thresholds."""
        material = given.material
        pruned = acdc(
            given.specimen.model,
            material.batch,
            material.readout,
            counterfactual=material.counterfactual,
            where=material.where,
            progress=given.progress,
        )
        return scores_by_edges(given.specimen, pruned.scores, pruned.forwards, "threshold, share of the clean score")

    def cost(self, work: Workload) -> float:
        """Half a pass for every edge at every threshold."""
        self.require(work.model.config)
        return len(THRESHOLDS) * EdgeGraph.of(work.model.config).n_edges / 2

    def stability(
        self, specimen: Specimen, result: MethodResult, size: int, *, seed: int = 0, resamples: int = RESAMPLES
    ) -> tuple[Stability, float]:
        """Prune again on each resample."""
        model, material = specimen.model, result.material
        kept, forwards = acdc_resampled(
            model,
            material.batch,
            material.readout,
            counterfactual=material.counterfactual,
            where=material.where,
            threshold=STABLE_AT,
            resamples=resamples,
            seed=seed,
        )
        return pairwise_jaccard(EdgeGraph.of(model.config).component_scores(kept.double())), forwards


@dataclass(frozen=True)
class Pruned:
    """The score of every edge, and the work in forward passes of the whole batch."""

    scores: Float[Tensor, "sender receiver"]
    forwards: float


@torch.no_grad()
def acdc(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    progress: Progress | None = None,
) -> Pruned:
    """Prune at every threshold (a share of the clean score's magnitude) and score edges by what they survive."""
    _require_thresholds(thresholds)
    run_masks = _mask_runs(model, batch, readout, counterfactual, where)
    return prune(EdgeGraph.of(model.config), run_masks, thresholds, device=model.device, progress=progress)


@torch.no_grad()
def acdc_resampled(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    threshold: float,
    resamples: int,
    seed: int = 0,
) -> tuple[Bool[Tensor, "resample sender receiver"], float]:
    """The edges that survive at one threshold on each bootstrap resample of the prompts, and the work done.

    All resamples walk together over the same runs of the prompts, which they only weigh differently.
    """
    _require_thresholds([threshold])
    graph, run_masks = EdgeGraph.of(model.config), _mask_runs(model, batch, readout, counterfactual, where)
    identity = torch.eye(len(batch), dtype=torch.float64)
    weights = bootstrap_means(identity, resamples=resamples, seed=seed).to(model.device)
    walk = _Walk(graph, run_masks, torch.full((resamples,), threshold, device=model.device), weights)
    cut = walk.finished()
    return ~cut.cpu() & graph.real, walk.forwards


@torch.no_grad()
def prune(
    graph: EdgeGraph,
    run_masks: RunMasks,
    thresholds: Sequence[float],
    *,
    device: torch.device | str,
    progress: Progress | None = None,
) -> Pruned:
    """The walk of `acdc` over any way of running masks."""
    limits = torch.tensor(thresholds, device=device)
    walk = _Walk(graph, run_masks, limits)
    survived = torch.where(walk.finished(progress), 0.0, limits[:, None, None]).max(0).values
    return Pruned(torch.where(graph.real, survived.cpu(), 0.0), walk.forwards)


def _mask_runs(
    model: Transformer, batch: Batch, readout: Readout, counterfactual: Batch, where: Tensor | None
) -> RunMasks:
    ACDC().require(model.config)
    recordings = SenderRecordings(model, batch, readout, counterfactual=counterfactual, where=where)
    return lambda cut, first_layer: run_edge_masks(recordings, cut, first_layer=first_layer)


def _require_thresholds(thresholds: Sequence[float]) -> None:
    if not thresholds or min(thresholds) <= 0:
        raise BadInput(f"thresholds {list(thresholds)} cannot be used; give positive numbers")


class _Walk:
    """Walkers from the logits to the embedding, each with its threshold and, in `weights`, its view of the prompts.

    Walkers that have cut the same edges so far form a group and need one run between them.
    """

    def __init__(
        self,
        graph: EdgeGraph,
        run_masks: RunMasks,
        thresholds: Float[Tensor, " walker"],
        weights: Float[Tensor, "walker prompt"] | None = None,
    ) -> None:
        self.graph, self.run_masks, self.weights = graph, run_masks, weights
        self.cut = torch.zeros(1, *graph.real.shape, dtype=torch.bool, device=thresholds.device)
        self.group = torch.zeros(len(thresholds), dtype=torch.long, device=thresholds.device)
        self.current = self._means(run_masks(self.cut, graph.n_layers))
        self.limits = thresholds * self.current.abs()
        self.forwards = 3.0

    def finished(self, progress: Progress | None = None) -> Bool[Tensor, "walker sender receiver"]:
        """Test every edge; what each walker has cut in the end."""
        graph, done = self.graph, 0
        for receiver in reversed(range(len(graph.receivers))):
            part = graph.receivers[receiver][0]
            layer = graph.n_layers if part is None else part.layer
            for sender in reversed(range(graph.n_feeding(part))):
                self._test(sender, receiver, layer)
                done += 1
                if progress:
                    progress("pruning edges", done, len(graph.edges))
        return self.cut[self.group]

    def _test(self, sender: int, receiver: int, layer: int) -> None:
        tried = self.cut.clone()
        tried[:, sender, receiver] = True
        scores = self._means(self.run_masks(tried, layer))
        unmissed = self.current - scores < self.limits
        self.current = torch.where(unmissed, scores, self.current)
        self.forwards += len(tried) * (self.graph.n_layers - layer) / self.graph.n_layers
        split, self.group = (2 * self.group + unmissed).unique(return_inverse=True)
        self.cut = torch.where((split % 2 == 1)[:, None, None], tried[split // 2], self.cut[split // 2])

    def _means(self, scores: Float[Tensor, "group prompt"]) -> Float[Tensor, " walker"]:
        if self.weights is None:
            return scores.mean(1)[self.group]
        return (self.weights @ scores.to(self.weights.dtype).T).gather(1, self.group[:, None])[:, 0]
