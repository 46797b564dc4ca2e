"""Methods that estimate the effect of every edge from a slope: EAP, EAP-IG and RelP.

An edge's score is the change of its sender's value from clean to counterfactual prompt, times the slope of the readout
at its receiver (`intervene.attribution`). Slopes need a readout that has one; the share of unchanged outputs has
none, so that specimens with a listed vocabulary are read by `contrast`, which takes two more passes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.discovery.method import Method, MethodInput, Scores, scores_by_edges
from vesalius.discovery.sweep import attributed_in_parts, moved_forwards
from vesalius.errors import BadInput, require_whole
from vesalius.intervene import Batch, Readout
from vesalius.intervene.attribution import Rule, edge_attribution, sender_attribution
from vesalius.intervene.estimate import Workload, attribution_peak
from vesalius.intervene.values import embeddings
from vesalius.model.hooks import HookPoint
from vesalius.model.transformer import Transformer
from vesalius.options.records import option


@dataclass(frozen=True)
class EAP(Method):
    """Edge attribution patching: the first-order effect of every edge."""

    name = "eap"
    meaning = "A component's score is the largest magnitude among its outgoing edges."
    scores_edges = True
    in_parts = True
    estimates = True
    sees_position = False
    #: Which slope is taken.
    rule: ClassVar[Rule] = "gradient"

    @property
    def slopes(self) -> int:
        """At how many points between counterfactual and clean prompt the slope is taken."""
        return 1

    def score(self, given: MethodInput) -> Scores:
        """The mean over prompts of every edge's estimated effect."""
        specimen, material = given.specimen, given.material
        readout, passes = smooth_readout(specimen.model, material)
        if given.spread is not None:
            scores = attributed_in_parts(given.spread, material, self.slopes, self.rule)
        else:
            scores = self._estimated(edge_attribution, given, readout)
        forwards = 1 + 3 * self.slopes + passes
        return replace(scores_by_edges(specimen, scores.mean(0), forwards, readout.unit), per_prompt=scores)

    def sums(self, given: MethodInput) -> Scores:
        """For every component the sum of the scores of the edges that leave it, which estimates what replacing it
        costs; no edge is multiplied out.
        """
        model = given.specimen.model
        readout, passes = smooth_readout(model, given.material)
        sums = self._estimated(sender_attribution, given, readout)[:, 1:]
        components = dict(zip(model.components, sums.mean(0).tolist(), strict=True))
        return Scores(components, {}, 1 + 3 * self.slopes + passes, readout.unit, per_prompt=sums)

    def _estimated(self, estimate: Callable[..., Tensor], given: MethodInput, readout: Readout) -> Tensor:
        """What an estimate gives of every prompt, with the slopes and the rule of this method."""
        material = given.material
        return estimate(
            given.specimen.model,
            material.batch,
            readout,
            counterfactual=material.counterfactual,
            where=material.where,
            steps=self.slopes,
            rule=self.rule,
        )

    def cost(self, work: Workload) -> float:
        """The counterfactual's pass, a forward and a backward pass for each slope, and the readout's two."""
        return 1 + 3 * self.slopes + (2 if work.finite else 0) + moved_forwards(work, estimated=True)

    def peak(self, work: Workload) -> int:
        """That of edge attribution."""
        steps, memory = min(2, self.slopes), work.memory
        return attribution_peak(work.model.config, work.dtype, work.sizes, steps=steps, rule=self.rule, memory=memory)


@dataclass(frozen=True)
class EAPIG(EAP):
    """EAP with integrated gradients: the gradient averaged between counterfactual and clean prompt."""

    name = "eap-ig"
    steps: int = option(5, "Gradients that are averaged.")

    def __post_init__(self) -> None:
        require_whole(steps=self.steps)
        if self.steps < 1:
            raise BadInput(f"`steps` {self.steps} is out of range; give at least 1")

    @property
    def slopes(self) -> int:
        """One for each step."""
        return self.steps


@dataclass(frozen=True)
class RelP(EAP):
    """As EAP in a linearised model: relevance instead of the gradient (`intervene.attribution`)."""

    name = "relp"
    rule = "relp"


@dataclass(frozen=True)
class RelPQK(EAP):
    """As RelP, attention patterns not frozen."""

    name = "relp-qk"
    rule = "relp-qk"


@dataclass(frozen=True)
class GIM(EAP):
    """Gradient interaction modifications: EAP with the slopes of norms and attention changed
    (`intervene.attribution`).
    """

    name = "gim"
    rule = "gim"


@dataclass(frozen=True)
class Best(EAPIG):
    """EAP-IG, RelP and RelP-qk on the same prompts: which of them ranks best differs from behaviour to behaviour, and
    the one that gives the smallest circuit on other prompts is taken (`discovery.whole`). Without that search the
    scores are those of EAP-IG. In a wrapped model, whose norms and MLPs are not seen, EAP-IG is asked alone.
    """

    name = "best"
    #: The others that are asked.
    beside: ClassVar[tuple[type[EAP], ...]] = (RelP, RelPQK)

    def score(self, given: MethodInput) -> Scores:
        """The scores of EAP-IG, and those of all under `rankings`."""
        return _first_of({kind.name: kind.score(given) for kind in self._asked(given)})

    def sums(self, given: MethodInput) -> Scores:
        """The sums of EAP-IG, and those of all under `rankings`."""
        return _first_of({kind.name: kind.sums(given) for kind in self._asked(given)})

    def _asked(self, given: MethodInput) -> list[EAP]:
        beside = () if given.specimen.model.config.wrapped else self.beside
        return [EAPIG(self.steps), *(kind() for kind in beside)]

    def cost(self, work: Workload) -> float:
        """That of all."""
        return super().cost(work) + sum(kind().cost(work) for kind in self.beside)


def _first_of(rankings: dict[str, Scores]) -> Scores:
    """The first of several scores, with all of them and the passes of all."""
    first = next(iter(rankings.values()))
    return replace(first, rankings=rankings, forwards=sum(one.forwards for one in rankings.values()))


def smooth_readout(model: Transformer, material: Trial) -> tuple[Readout, int]:
    """A readout with a slope, and the forward passes of all prompts that it took to make."""
    return (material.readout, 0) if material.prompts is not None else (contrast(model, material), 2)


def contrast(model: Transformer, material: Trial) -> Readout:
    """How far the outputs lie from the counterfactual's towards the clean ones: linear in the logits.

    The direction is clean logits minus those of the run with the counterfactual's embedding patched in, at real
    positions after BOS. Dividing by its mean square makes a full switch cost 1 on average.
    """
    batch, other = material.batch.to(model.device), material.counterfactual.to(model.device)
    with torch.no_grad():
        clean = _answering(model(batch.tokens, mask=batch.mask), material.answers)
        direction = clean - _switched(model, batch, other, material.where)
    if clean.shape[-1] > 1:
        direction = direction - direction.mean(-1, keepdim=True)
    counted = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask.clone()
    counted[:, 0] = False
    direction = direction * counted[:, :, None]
    direction = direction / direction.square().sum((1, 2)).mean().clamp(min=1e-12)

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        return (logits * direction.to(logits.device)[prompt]).sum((1, 2))

    return Readout(score, unit="share of the change")


def _answering(logits: Float[Tensor, "prompt pos out"], answers: Tensor | None) -> Float[Tensor, "prompt pos out"]:
    """The logits with the answer's exchanged for the largest."""
    if answers is None:
        return logits
    top, answer = logits.argmax(-1, keepdim=True), answers.to(logits.device)[:, :, None]
    return logits.scatter(-1, top, logits.gather(-1, answer)).scatter(-1, answer, logits.gather(-1, top))


def _switched(model: Transformer, batch: Batch, other: Batch, where: Tensor | None) -> Tensor:
    """Logits of a run with the counterfactual's embedding patched in."""
    embedding = embeddings(model, other)

    def switch(value: Tensor, hook: HookPoint) -> Tensor:
        return embedding if where is None else torch.where(where.to(value.device)[:, :, None], embedding, value)

    return model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=[("blocks.0.hook_resid_pre", switch)])
