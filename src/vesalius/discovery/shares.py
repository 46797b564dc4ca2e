"""The share of a behaviour that circuits keep on some prompts: their score between that of nothing and the model's.

F = (circuit - replaced) / (model - replaced), a ratio of means with a bootstrap interval. `Shares` resamples every
component that a circuit leaves out, `EdgeShares` every edge.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.documents.metric import Metric
from vesalius.documents.whole import TOO_MUCH, Says
from vesalius.intervene import Recordings
from vesalius.intervene.ablations import Resample
from vesalius.intervene.circuits import CircuitRuns
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.engine import Cost
from vesalius.intervene.recordings import activation_memory
from vesalius.model.transformer import Transformer
from vesalius.statistics import bootstrap_means

#: Standard errors by which a circuit must exceed the share on the prompts that choose it.
MARGIN = 2.0


class Shares:
    """What circuits keep on some prompts: their score with every other component resampled, between that of nothing
    kept and that of the model. Components that are not `searched` are always kept.
    """

    def __init__(
        self,
        model: Transformer,
        material: Trial,
        *,
        searched: Collection[Component] | None = None,
        memory: int | None = None,
    ) -> None:
        self.model, self.material, self.memory, self.cost = model, material, memory, Cost()
        self.searched = set(model.components if searched is None else searched)
        batch = material.batch.to(model.device)
        self.recordings = Recordings(model, batch, material.readout, memory=memory)
        self.full: Float[Tensor, " prompt"] = self.recordings.scores().cpu()
        self.replacement = Resample().table(model, batch, counterfactual=material.counterfactual.to(model.device))
        self.cost.rows += 2 * len(batch)
        self.columns: dict[tuple[Component, ...], Float[Tensor, " prompt"]] = {(): self.full}
        self.nothing: Float[Tensor, " prompt"] = self.scores([frozenset()])[:, 0]

    def scores(self, circuits: Sequence[Collection[Component]]) -> Float[Tensor, "prompt circuit"]:
        """The score of every prompt with what each circuit leaves out resampled. A circuit is run once."""
        parts = [part for part in self.model.components if part in self.searched]
        removed = [tuple(part for part in parts if part not in circuit) for circuit in circuits]
        some = [one for one in dict.fromkeys(removed) if one not in self.columns]
        if some:
            scores = effect_columns(
                self.recordings,
                self.replacement,
                some,
                positions=self.material.where,
                memory=self.memory,
                cost=self.cost,
            )
            self.columns |= dict(zip(some, torch.cat([part for _, part in scores], 1).T, strict=True))
        return torch.stack([self.columns[one] for one in removed], 1)

    def kept(self, circuits: Sequence[Collection[Component]]) -> "list[KeptShare]":
        """The share that each circuit keeps."""
        return [self.share(column) for column in self.scores(circuits).T] if circuits else []

    def says(self, circuit: Collection[Component]) -> Says | None:
        """On which share of the prompts the circuit alone says the right answer; None where there are no answers."""
        prompts = self.material.prompts
        if prompts is None:
            return None
        recordings = self.recordings.read_as(prompts.said())
        removed = tuple(part for part in self.model.components if part in self.searched and part not in circuit)
        columns = effect_columns(
            recordings,
            self.replacement,
            [removed],
            positions=self.material.where,
            memory=self.memory,
            cost=self.cost,
        )
        ((_, alone),) = columns
        n = len(prompts)
        return Says(
            alone=Metric.of_share(float(alone.sum()), n), model=Metric.of_share(float(recordings.scores().sum()), n)
        )

    def share(self, scores: Float[Tensor, " prompt"]) -> "KeptShare":
        """The share of a score between that of nothing and that of the model: a ratio of means, with its interval."""
        return share_between(self.nothing, scores, self.full)


@dataclass(frozen=True)
class KeptShare:
    """A share with its 95 % interval and its standard error."""

    value: float
    low: float | None
    high: float | None
    error: float
    n: int

    def metric(self) -> Metric:
        """As results have it."""
        return Metric(value=self.value, low=self.low, high=self.high, n=self.n)

    def reaches(self, keep: float) -> bool:
        """Whether it reaches a share by two standard errors (at most a quarter of it), so that new prompts are likely
        to show it too: what is chosen because it is just enough here is just too little elsewhere.
        """
        return self.value - min(MARGIN * self.error, keep / 4) >= keep

    def clears(self, keep: float) -> bool:
        """Whether it reaches a share and does not exceed the model's own score by far."""
        return self.reaches(keep) and self.value <= TOO_MUCH


def share_between(
    nothing: Float[Tensor, " prompt"], scores: Float[Tensor, " prompt"], full: Float[Tensor, " prompt"]
) -> KeptShare:
    """The share of a score between two others, prompt by prompt: a ratio of means, with its interval."""
    columns = torch.stack([nothing, scores, full], 1).double()
    value = _ratio(columns.mean(0)[None])[0]
    if len(columns) < 2:
        error = 0.0 if torch.equal(scores, full) else float("inf")  # nothing replaced keeps all, for sure
        return KeptShare(float(value), None, None, error, len(columns))
    drawn = _ratio(bootstrap_means(columns))
    low, high = torch.quantile(drawn, torch.tensor([0.025, 0.975], dtype=drawn.dtype)).tolist()
    return KeptShare(float(value), low, high, float(drawn.std()), len(columns))


def _ratio(means: Float[Tensor, "draw 3"]) -> Float[Tensor, " draw"]:
    nothing, own, everything = means.T
    return (own - nothing) / (everything - nothing)


class EdgeShares:
    """What circuits of edges `inside` a set keep on the prompts of `shares`: every other edge carries its
    counterfactual value.
    """

    def __init__(self, shares: Shares, inside: Bool[Tensor, "sender receiver"]) -> None:
        self.shares = shares
        model, material = shares.model, shares.material
        width = material.batch.tokens.shape[1] * model.config.d_model * next(model.parameters()).element_size()
        senders = int(inside.any(1).sum()) if material.where is None else len(inside)
        at_once = max(1, activation_memory(model, shares.memory) // (8 * max(1, senders) * width))
        parts = [material.take(rows) for rows in torch.arange(len(material.batch)).split(at_once)]
        self.runs = [
            CircuitRuns(
                model, part.batch, part.readout, counterfactual=part.counterfactual, inside=inside, where=part.where
            )
            for part in parts
        ]
        shares.cost.rows += sum(one.cost for one in self.runs)

    def kept(self, masks: Bool[Tensor, "circuit sender receiver"]) -> list[KeptShare]:
        """The share that each circuit of edges keeps."""
        before = sum(one.cost for one in self.runs)
        columns = [one.scores(masks, memory=self.shares.memory).cpu() for one in self.runs]
        self.shares.cost.rows += sum(one.cost for one in self.runs) - before
        return [self.shares.share(scores) for scores in torch.cat(columns, 1)]
