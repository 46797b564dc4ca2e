"""The methods `masks` and `edge-masks`: learn which components, or edges, can be replaced, all at once.

Every component has a mask between 0 and 1. In a run, a component puts out `mask` times what it computes there plus
(1 - `mask`) times what it computes on the counterfactual prompt, so that the masks of all components act together, as
they do in a circuit. Adam moves the masks to keep the score of the clean prompts with as few of them open as it can:

    loss = mean over prompts of ((score - clean score) / range)^2  +  sparsity x mean mask

The range is the mean clean score less that with everything replaced. A component's score is its mask in the end, so the
ranking is one of sets, not of single effects: of two components that can stand in for each other one is closed. Masks
start from the order of EAP-IG (a warm start; arXiv 2510.06811 found ensembles of masks so started best), and noise is
added to the logits of the masks while they are learned, which drives them to 0 or 1 (arXiv 2406.16778 prunes edges in
this way, arXiv 2512.10903 nodes).

`edge-masks` learns the same for edges inside a set that is chosen before: those that EAP-IG scores highest and that lie
on a path from the tokens to the logits. All other edges carry the counterfactual throughout.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.discovery.attribution import EAPIG, smooth_readout
from vesalius.discovery.method import Method, MethodInput, Scores, scores_by_edges
from vesalius.discovery.pruning import best_edges
from vesalius.errors import BadInput, require_whole
from vesalius.intervene.circuits import CircuitRuns
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Workload, attribution_peak
from vesalius.intervene.masking import masked_scores
from vesalius.intervene.values import activations
from vesalius.options.records import option

#: Prompts of one step, the first and the last noise of the logits, and how far apart a warm start puts first and last.
ROWS, NOISE, WARM = 8, (1.0, 0.2), 2.0
#: Which prompts a step is made on, and their scores under a mask.
Batched = tuple[Tensor, Callable[[Tensor], Tensor]]


@dataclass(frozen=True)
class _Learned(Method):
    """What learned masks have in common."""

    estimates = True
    sees_position = False

    steps: int = option(150, "Steps of Adam.")
    rate: float = option(0.1, "Learning rate of the masks' logits.")
    sparsity: float = option(0.5, "Weight of the mean mask in the loss.")

    def __post_init__(self) -> None:
        require_whole(steps=self.steps)
        if self.steps < 1 or not self.rate > 0 or not self.sparsity >= 0:
            raise BadInput(
                f"`steps` {self.steps}, `rate` {self.rate:g} and `sparsity` {self.sparsity:g}: give at least 1 step, a "
                "positive rate and a sparsity of at least 0"
            )

    def learn(
        self,
        given: MethodInput,
        logits: Float[Tensor, " mask"],
        batches: Callable[[torch.Generator], Batched],
        everything: Float[Tensor, " prompt"],
        nothing: Float[Tensor, " prompt"],
    ) -> list[float]:
        """The masks after all steps, each on the prompts that `batches` draws."""
        span = (everything - nothing).mean()
        if not float(span.abs()) > 0:
            raise BadInput(
                f"{self.name}: the score is the same with everything replaced; choose prompts that the model tells"
            )
        optimizer = torch.optim.Adam([logits], lr=self.rate)
        generator = torch.Generator().manual_seed(given.seed)
        for step in range(self.steps):
            if given.progress:
                given.progress("learning masks", step, self.steps)
            some, scores_of = batches(generator)
            noise = NOISE[0] + (NOISE[1] - NOISE[0]) * step / max(1, self.steps - 1)
            mask = torch.sigmoid(logits + noise * torch.randn(len(logits), generator=generator))
            loss = ((scores_of(mask) - everything[some]) / span).square().mean() + self.sparsity * mask.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return torch.sigmoid(logits.detach()).tolist()


@dataclass(frozen=True)
class Masks(_Learned):
    """Learned masks over components: which of them a circuit can do without, all replaced together."""

    name = "masks"
    meaning = "A component's score is its learned mask: 1 where it must be kept, 0 where it can be replaced."
    scores_edges = False

    warm: bool = option(True, "Start from the order of EAP-IG; otherwise all masks start open.")

    def score(self, given: MethodInput) -> Scores:
        """The masks after `steps` steps, each on a few prompts drawn anew."""
        model, material = given.specimen.model, given.material
        readout, passes = smooth_readout(model, material)
        logits, spent = self._start(given)
        n, rows = len(material.batch), min(ROWS, len(material.batch))
        counterfactual = material.counterfactual.to(model.device)

        def scores_of(prompts: Tensor, mask: Tensor) -> Tensor:
            where = None if material.where is None else material.where[prompts]
            batch, other = material.batch.take(prompts), activations(model, counterfactual.take(prompts))
            return masked_scores(model, batch, other, readout.take(prompts), mask, where=where)

        def batches(generator: torch.Generator) -> Batched:
            some = torch.randperm(n, generator=generator)[:rows]
            return some, lambda mask: scores_of(some, mask)

        with torch.no_grad():
            ends = (scores_of(torch.arange(n), torch.full((len(logits),), end)) for end in (1.0, 0.0))
            everything, nothing = ends
        masks = self.learn(given, logits, batches, everything, nothing)
        forwards = 2 + passes + spent + 4 * self.steps * rows / n  # forward, backward and the counterfactual's run
        return Scores(dict(zip(model.components, masks, strict=True)), {}, forwards, "mask")

    def _start(self, given: MethodInput) -> tuple[Float[Tensor, " component"], float]:
        """The logits that learning starts from, and the passes that they took."""
        n = len(given.specimen.model.components)
        if not self.warm:
            return torch.full((n,), WARM, requires_grad=True), 0.0
        scores = EAPIG().score(MethodInput(given.specimen, given.material))
        assert scores.per_prompt is not None
        real = EdgeGraph.of(given.specimen.model.config).real
        effects = torch.where(real, scores.per_prompt.mean(0), 0.0).sum(-1)[1:]
        return _warm(effects), scores.forwards

    def cost(self, work: Workload) -> float:
        """A forward and a backward pass of a few prompts for each step, and the counterfactual's."""
        warm = EAPIG().cost(work) if self.warm else 0.0
        return 2 + (2 if work.finite else 0) + warm + 4 * self.steps * min(1.0, ROWS / max(1, work.sizes.n))

    def peak(self, work: Workload) -> int:
        """That of edge attribution, which keeps as many activations for a backward pass."""
        return attribution_peak(work.model.config, work.dtype, work.sizes, steps=2, rule="gradient", memory=work.memory)


@dataclass(frozen=True)
class EdgeMasks(_Learned):
    """Learned masks over edges: which edges of a set a circuit can do without, all cut together."""

    name = "edge-masks"
    meaning = "A component's score is the largest learned mask of its outgoing edges; 0 outside of the set."
    scores_edges = True

    edges: int = option(1_000, "Edges of the set: those that EAP-IG scores highest.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole(edges=self.edges)
        if self.edges < 1:
            raise BadInput(f"`edges` {self.edges} is out of range; give at least 1")

    def score(self, given: MethodInput) -> Scores:
        """The masks of the set after `steps` steps, each on a few prompts."""
        model, material = given.specimen.model, given.material
        readout, passes = smooth_readout(model, material)
        ranked = EAPIG().score(given)
        assert ranked.per_prompt is not None
        effects = ranked.per_prompt.mean(0)
        inside = best_edges(EdgeGraph.of(model.config), effects, self.edges)
        if not bool(inside.any()):
            raise BadInput(f"edge-masks: none of the {self.edges} best edges lies on a path; give more (edges)")
        logits = _warm(effects[inside])
        n, parts = len(material.batch), torch.arange(len(material.batch)).split(min(ROWS, len(material.batch)))
        runs = [
            CircuitRuns(
                model,
                part.batch,
                readout.take(rows),
                counterfactual=part.counterfactual,
                inside=inside,
                where=part.where,
            )
            for rows in parts
            for part in [material.take(rows)]
        ]

        def table(mask: Tensor) -> Tensor:
            return torch.zeros(inside.shape).masked_scatter(inside, mask)[None]

        def batches(generator: torch.Generator) -> Batched:
            place = int(torch.randint(len(runs), (1,), generator=generator))
            return parts[place], lambda mask: runs[place].scores(table(mask))[0].cpu()

        ends = (
            torch.cat([one.scores(table(torch.full((len(logits),), end)))[0] for one in runs]) for end in (1.0, 0.0)
        )
        everything, nothing = (scores.cpu() for scores in ends)
        masks = self.learn(given, logits, batches, everything, nothing)
        scores = torch.zeros(inside.shape).masked_scatter(inside, torch.tensor(masks))
        # A backward pass counts as two; `cost` has counted the forward passes alone.
        learned = sum(one.passes for one in runs) / len(runs) * 2 * self.steps * ROWS / n
        forwards = ranked.forwards + passes + sum(one.cost for one in runs) / n + learned
        return scores_by_edges(given.specimen, scores, forwards, "mask")

    def cost(self, work: Workload) -> float:
        """At most: a forward and a backward pass of a few prompts for each step, after the ranking."""
        learned = 3 * self.steps * min(1.0, ROWS / max(1, work.sizes.n))
        return 3 + (2 if work.finite else 0) + EAPIG().cost(work) + learned

    def peak(self, work: Workload) -> int:
        """That of edge attribution."""
        return attribution_peak(work.model.config, work.dtype, work.sizes, steps=2, rule="gradient", memory=work.memory)


def _warm(effects: Float[Tensor, " mask"]) -> Float[Tensor, " mask"]:
    """Logits by the order of estimated effects, from open to closed."""
    ranks = effects.argsort(descending=True).argsort().double()
    return (WARM * (1 - 2 * ranks / max(1, len(effects) - 1))).float().requires_grad_()
