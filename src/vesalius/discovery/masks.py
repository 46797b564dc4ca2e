"""The method `masks`: learn which components can be replaced, all at once.

Every component has a mask between 0 and 1. In a run, a component puts out `mask` times what it computes there plus
(1 - `mask`) times what it computes on the counterfactual prompt, so that the masks of all components act together, as
they do in a circuit. Adam moves the masks to keep the score of the clean prompts with as few of them open as it can:

    loss = mean over prompts of ((score - clean score) / range)^2  +  sparsity x mean mask

The range is the mean clean score less that with everything replaced. A component's score is its mask in the end, so the
ranking is one of sets, not of single effects: of two components that can stand in for each other one is closed. Masks
start from the order of EAP-IG (a warm start; arXiv 2510.06811 found ensembles of masks so started best), and noise is
added to the logits of the masks while they are learned, which drives them to 0 or 1 (arXiv 2406.16778 prunes edges in
this way, arXiv 2512.10903 nodes).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.discovery.attribution import EAPIG, smooth_readout
from vesalius.discovery.method import Method, MethodInput, Scores
from vesalius.errors import BadInput, require_whole
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Workload, attribution_peak
from vesalius.intervene.masking import masked_scores
from vesalius.options.objects import option

#: Prompts of one step, the first and the last noise of the logits, and how far apart a warm start puts first and last.
ROWS, NOISE, WARM = 8, (1.0, 0.2), 2.0


@dataclass(frozen=True)
class Masks(Method):
    """Learned masks over components: which of them a circuit can do without, all replaced together."""

    name = "masks"
    meaning = "A component's score is its learned mask: 1 where it must be kept, 0 where it can be replaced."
    scores_edges = False
    estimates = True
    sees_position = False

    steps: int = option(150, "Steps of Adam.")
    rate: float = option(0.1, "Learning rate of the masks' logits.")
    sparsity: float = option(0.5, "Weight of the mean mask in the loss.")
    warm: bool = option(True, "Start from the order of EAP-IG; otherwise all masks start open.")

    def __post_init__(self) -> None:
        require_whole(steps=self.steps)
        if self.steps < 1 or not self.rate > 0 or not self.sparsity >= 0:
            raise BadInput(
                f"`steps` {self.steps}, `rate` {self.rate:g} and `sparsity` {self.sparsity:g}: give at least 1 step, a "
                "positive rate and a sparsity of at least 0"
            )

    def score(self, given: MethodInput) -> Scores:
        """The masks after `steps` steps, each on a few prompts drawn anew."""
        model, material, progress = given.specimen.model, given.material, given.progress
        readout, passes = smooth_readout(model, material)
        logits, spent = self._start(given)
        optimizer = torch.optim.Adam([logits], lr=self.rate)
        generator = torch.Generator().manual_seed(given.seed)
        n, rows = len(material.batch), min(ROWS, len(material.batch))

        def scores_of(prompts: Tensor, mask: Tensor) -> Tensor:
            where = None if material.where is None else material.where[prompts]
            batch, other = material.batch.take(prompts), material.counterfactual.take(prompts)
            return masked_scores(model, batch, other, readout.take(prompts), mask, where=where)

        with torch.no_grad():
            everything = scores_of(torch.arange(n), torch.ones(len(logits)))
            nothing = scores_of(torch.arange(n), torch.zeros(len(logits)))
        span = (everything - nothing).mean()
        if not float(span.abs()) > 0:
            raise BadInput("masks: the score is the same with everything replaced; choose prompts that the model tells")
        for step in range(self.steps):
            if progress:
                progress("learning masks", step, self.steps)
            some = torch.randperm(n, generator=generator)[:rows]
            noise = NOISE[0] + (NOISE[1] - NOISE[0]) * step / max(1, self.steps - 1)
            mask = torch.sigmoid(logits + noise * torch.randn(len(logits), generator=generator))
            scores = scores_of(some, mask)
            loss = ((scores - everything[some]) / span).square().mean() + self.sparsity * mask.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        masks = torch.sigmoid(logits.detach()).tolist()
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
        ranks = effects.argsort(descending=True).argsort().double()
        return (WARM * (1 - 2 * ranks / max(1, n - 1))).float().requires_grad_(), scores.forwards

    def cost(self, work: Workload) -> float:
        """A forward and a backward pass of a few prompts for each step, and the counterfactual's."""
        warm = EAPIG().cost(work) if self.warm else 0.0
        return 2 + (2 if work.finite else 0) + warm + 4 * self.steps * min(1.0, ROWS / max(1, work.sizes.n))

    def peak(self, work: Workload) -> int:
        """That of edge attribution, which keeps as many activations for a backward pass."""
        return attribution_peak(work.model.config, work.dtype, work.sizes, steps=2, rule="gradient", memory=work.memory)
