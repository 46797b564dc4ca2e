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
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.discovery.attribution import EAPIG, smooth_readout
from vesalius.discovery.method import Method, MethodInput, Scores, option
from vesalius.errors import BadInput, require_whole
from vesalius.intervene import Batch
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.estimate import Workload, attribution_peak
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Values, activations
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer

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
        with torch.no_grad():
            everything = masked_scores(model, material, readout, torch.arange(n), torch.ones(len(logits)))
            nothing = masked_scores(model, material, readout, torch.arange(n), torch.zeros(len(logits)))
        span = (everything - nothing).mean()
        if not float(span.abs()) > 0:
            raise BadInput("masks: the score is the same with everything replaced; choose prompts that the model tells")
        for step in range(self.steps):
            if progress:
                progress("learning masks", step, self.steps)
            some = torch.randperm(n, generator=generator)[:rows]
            noise = NOISE[0] + (NOISE[1] - NOISE[0]) * step / max(1, self.steps - 1)
            mask = torch.sigmoid(logits + noise * torch.randn(len(logits), generator=generator))
            scores = masked_scores(model, material, readout, some, mask)
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
        return 2 + (2 if work.finite else 0) + warm + 4 * self.steps * min(1.0, ROWS / max(1, len(work.sizes)))

    def peak(self, work: Workload) -> int:
        """That of edge attribution, which keeps as many activations for a backward pass."""
        return attribution_peak(work.model.config, work.dtype, work.sizes, steps=2, rule="gradient", memory=work.memory)


def masked_scores(
    model: Transformer,
    material: Trial,
    readout: Readout,
    prompts: Int[Tensor, " prompt"],
    mask: Float[Tensor, " component"],
) -> Float[Tensor, " prompt"]:
    """The score of some prompts with every component mixed with its value on the counterfactual, by its mask."""
    batch = material.batch.take(prompts).to(model.device)
    other = activations(model, material.counterfactual.take(prompts).to(model.device))
    where = None if material.where is None else material.where[prompts].to(model.device)
    with torch.set_grad_enabled(mask.requires_grad):
        logits = model.run_with_hooks(
            batch.tokens, mask=batch.mask, fwd_hooks=_mixing(model, batch, other, mask.to(model.device), where)
        )
        if readout.at is not None:
            rows = torch.arange(len(prompts), device=logits.device)[:, None]
            logits = logits[rows, readout.at[prompts].to(logits.device)]
        if readout.choose is not None:
            chosen = readout.choose[prompts].to(logits.device)
            logits = logits.gather(2, chosen[:, None].expand(-1, logits.shape[1], -1))
        return readout.score(logits, prompts.to(logits.device)).cpu()


def _mixing(
    model: Transformer, batch: Batch, other: Values, mask: Float[Tensor, " component"], where: Tensor | None
) -> list[Hook]:
    """Hooks that mix what heads and MLPs put out with the counterfactual's values."""
    n_heads = model.config.n_heads

    def heads(value: Tensor, hook: HookPoint) -> Tensor:
        layer = hook.layer()
        open_ = mask[layer * (n_heads + 1) : layer * (n_heads + 1) + n_heads].to(value)[None, None, :, None]
        return _mixed(value, other.z[layer], open_, None if where is None else where[:, :, None, None])

    def mlp(value: Tensor, hook: HookPoint) -> Tensor:
        layer = hook.layer()
        replaced = other.mlp[layer] + model.blocks[layer].mlp_bias
        open_ = mask[layer * (n_heads + 1) + n_heads].to(value)
        return _mixed(value, replaced, open_, None if where is None else where[:, :, None])

    return [
        (lambda name: name.endswith("attn.hook_z"), heads),
        (lambda name: name.endswith("hook_mlp_out"), mlp),
    ]


def _mixed(value: Tensor, replaced: Tensor, open_: Tensor, where: Tensor | None) -> Tensor:
    mixed = open_ * value + (1 - open_) * replaced.to(value.device)
    return mixed if where is None else torch.where(where, mixed, value)
