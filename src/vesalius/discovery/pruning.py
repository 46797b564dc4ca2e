"""ACDC: walk from the logits to the embedding and cut every edge that is not missed.

At each input of each receiver, latest first, every edge that enters it is cut over to the counterfactual in turn,
beside the edges cut before; where the mean score falls by less than the threshold the cut stays. Many thresholds walk
at once, as rows of one batch, and an edge's score is the largest threshold at which it survives (0: it never does).

Nothing before the receiver under test has been cut yet, so each test starts from the recorded clean run at the
receiver's layer. The runs themselves are those of `intervene.edges`.

A model of more than `MAX_EDGES` edges is not walked whole: the edges that EAP-IG scores highest are the candidates, all
others are cut from the start, and only what the candidates connect is run (`intervene.circuits`). Most cuts stay, so
that several are tried in the rows of one run as if each before it stayed; the rows after the first that is missed are
tried again. What survives is what one test after the other gives.

The scores are no means over prompts, so that stability is found by pruning again on resamples of the prompts, at the
threshold `STABLE_AT`; a circuit is then every component with an edge that survives, however many those are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.method import Method, MethodInput, MethodResult, NotResampled, Scores, scores_by_edges
from vesalius.discovery.stability import RESAMPLES, pairwise_jaccard
from vesalius.documents.checks import Stability
from vesalius.errors import BadInput, require_whole
from vesalius.intervene.circuits import CircuitRuns
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, on_paths, run_edge_masks
from vesalius.intervene.estimate import Workload
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.options.records import option
from vesalius.progress import Progress
from vesalius.statistics import bootstrap_means

#: Shares of the clean score.
THRESHOLDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
#: Beyond this, testing edge by edge takes hours.
MAX_EDGES = 6_000
USUAL_CANDIDATES = 1_000
#: Cuts that are tried in one run, where candidates are walked.
TOGETHER = 16
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

    candidates: int = option(0, "Edges that are tested, those that EAP-IG scores highest (0: all, or 1,000 of many).")

    def __post_init__(self) -> None:
        require_whole(candidates=self.candidates)
        if not 0 <= self.candidates <= MAX_EDGES:
            raise BadInput(
                f"`candidates` {self.candidates} is out of range; give 1 to {MAX_EDGES:,}, or 0 for the usual"
            )

    def tested(self, config: Config) -> int | None:
        """How many edges are tested; None: all of them."""
        edges = EdgeGraph.of(config).n_edges
        wanted = self.candidates or (USUAL_CANDIDATES if edges > MAX_EDGES else edges)
        return wanted if wanted < edges else None

    def prompts(self, config: Config, n: int) -> int:
        """Fewer on large models."""
        return min(n, LARGE_PROMPTS) if EdgeGraph.of(config).n_edges > LARGE_EDGES else n

    def score(self, given: MethodInput) -> Scores:
        """Prune at all thresholds."""
        material = given.material
        if (tested := self.tested(given.specimen.model.config)) is not None:
            ranked = EAPIG().score(given)
            assert ranked.per_prompt is not None
            inside = best_edges(EdgeGraph.of(given.specimen.model.config), ranked.per_prompt.mean(0), tested)
            pruned = acdc_inside(given.specimen.model, material, inside, progress=given.progress)
            forwards = pruned.forwards + ranked.forwards
            return scores_by_edges(given.specimen, pruned.scores, forwards, "threshold, share of the clean score")
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
        """Half a pass for every edge at every threshold, at most; of candidates, after they were ranked."""
        config = work.model.config
        edges = self.tested(config)
        ranking = 0.0 if edges is None else EAPIG().cost(work)
        return ranking + len(THRESHOLDS) * (EdgeGraph.of(config).n_edges if edges is None else edges) / 2

    def stability(
        self, specimen: Specimen, result: MethodResult, size: int, *, seed: int = 0, resamples: int = RESAMPLES
    ) -> tuple[Stability, float]:
        """Prune again on each resample; not where candidates were walked, which are no means over prompts."""
        model, material = specimen.model, result.material
        if self.tested(model.config) is not None:
            raise NotResampled(f"candidates of {self.name} were pruned once; prune all edges to see resamples")
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


def best_edges(graph: EdgeGraph, scores: Float[Tensor, "sender receiver"], n: int) -> Bool[Tensor, "sender receiver"]:
    """The `n` edges with the highest scores, without those that lie on no path from the tokens to the logits."""
    order = torch.where(graph.real, scores, -torch.inf).flatten().argsort(descending=True, stable=True)
    inside = torch.zeros(graph.real.numel(), dtype=torch.bool)
    inside[order[: min(n, graph.n_edges)]] = True
    return on_paths(graph, inside.view(graph.real.shape))


@torch.no_grad()
def acdc_inside(
    model: Transformer,
    material: Trial,
    inside: Bool[Tensor, "sender receiver"],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    together: int = TOGETHER,
    progress: Progress | None = None,
) -> Pruned:
    """The same among candidates, every other edge being cut already. `together` cuts are tried in one run."""
    _require_thresholds(thresholds)
    graph, where, n = EdgeGraph.of(model.config), material.where, len(material.batch)
    runs = CircuitRuns(
        model, material.batch, material.readout, counterfactual=material.counterfactual, inside=inside, where=where
    )
    limits = torch.tensor(thresholds, device=model.device)
    walk = _Walk(
        graph, lambda cut, layer: runs.scores(~cut, first_layer=layer), limits, inside=inside, together=together
    )
    survived = torch.where(walk.finished(progress), 0.0, limits[:, None, None]).max(0).values
    return Pruned(torch.where(inside, survived.cpu(), 0.0), runs.cost / n)


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
    if (edges := EdgeGraph.of(model.config).n_edges) > MAX_EDGES:
        raise BadInput(f"this model has {edges:,} edges and at most {MAX_EDGES:,} are tested; walk candidates")
    recordings = SenderRecordings(model, batch, readout, counterfactual=counterfactual, where=where)
    return lambda cut, first_layer: run_edge_masks(recordings, cut, first_layer=first_layer)


def _require_thresholds(thresholds: Sequence[float]) -> None:
    if not thresholds or min(thresholds) <= 0:
        raise BadInput(f"thresholds {list(thresholds)} cannot be used; give positive numbers")


class _Walk:
    """Walkers from the logits to the embedding, each with its threshold and, in `weights`, its view of the prompts.

    Walkers that have cut the same edges so far form a group and need one run between them. Up to `together` cuts into a
    receiver are tried in one run, each as if those before it stayed; a walker goes on after the first that is missed.
    """

    def __init__(
        self,
        graph: EdgeGraph,
        run_masks: RunMasks,
        thresholds: Float[Tensor, " walker"],
        weights: Float[Tensor, "walker prompt"] | None = None,
        *,
        inside: Bool[Tensor, "sender receiver"] | None = None,
        together: int = 1,
    ) -> None:
        self.graph, self.run_masks, self.weights, self.together = graph, run_masks, weights, together
        self.inside = graph.real if inside is None else inside
        self.cut = torch.zeros(1, *graph.real.shape, dtype=torch.bool, device=thresholds.device)
        self.group = torch.zeros(len(thresholds), dtype=torch.long, device=thresholds.device)
        self.current = self._means(run_masks(self.cut, graph.n_layers), self.group)
        self.limits = thresholds * self.current.abs()
        self.forwards = 3.0

    def finished(self, progress: Progress | None = None) -> Bool[Tensor, "walker sender receiver"]:
        """Test every edge; what each walker has cut in the end."""
        graph, done, total = self.graph, 0, int(self.inside.sum())
        for receiver in reversed(range(len(graph.receivers))):
            part = graph.receivers[receiver][0]
            layer = graph.n_layers if part is None else part.layer
            senders = self.inside[:, receiver].nonzero()[:, 0].flip(0)
            self._test(senders.to(self.group.device), receiver, layer)
            done += len(senders)
            if progress:
                progress("pruning edges", done, total)
        return self.cut[self.group]

    def _test(self, senders: Int[Tensor, " sender"], receiver: int, layer: int) -> None:
        """Try the cuts into one receiver, in order."""
        tested = torch.zeros_like(self.group)  # how many each walker is done with
        size = self.together
        while bool((tested < len(senders)).any()):
            # One row for each group, place in the order and number of cuts.
            keys, of = torch.stack([self.group, tested], 1).unique(dim=0, return_inverse=True)
            tried = self.cut[keys[:, 0]].repeat_interleave(size, 0)
            steps = torch.arange(size, device=tested.device)
            places = (keys[:, 1:] + steps).clamp(max=len(senders) - 1)
            for row, up_to in enumerate(range(size)):
                tried[row::size][torch.arange(len(keys))[:, None], senders[places[:, : up_to + 1]], receiver] = True
            scores = self.run_masks(tried, layer)
            self.forwards += len(tried) * (self.graph.n_layers - layer) / self.graph.n_layers
            stayed, going = torch.zeros_like(tested), tested < len(senders)
            for step in range(size):
                means = self._means(scores, of * size + step)
                going &= tested + step < len(senders)
                unmissed = going & (self.current - means < self.limits)
                self.current = torch.where(unmissed, means, self.current)
                stayed += unmissed
                going = unmissed
            full = torch.minimum(torch.full_like(tested, size), len(senders) - tested)
            split, self.group = torch.stack([of, stayed], 1).unique(dim=0, return_inverse=True)
            before = self.cut[keys[split[:, 0], 0]]
            after = tried[split[:, 0] * size + (split[:, 1] - 1).clamp(min=0)]
            self.cut = torch.where((split[:, 1] > 0)[:, None, None], after, before)
            tested = tested + torch.where(stayed < full, stayed + 1, full)
            tested = tested.clamp(max=len(senders))
            all_stayed = bool((stayed == full).all())
            size = min(self.together, 2 * size) if all_stayed else max(1, size // 2)

    def _means(self, scores: Float[Tensor, "row prompt"], row: Int[Tensor, " walker"]) -> Float[Tensor, " walker"]:
        """The mean score of each walker in a row of its own."""
        if self.weights is None:
            return scores.mean(1)[row]
        return (self.weights @ scores.to(self.weights.dtype).T).gather(1, row[:, None])[:, 0]
