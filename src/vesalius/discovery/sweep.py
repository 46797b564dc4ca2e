"""The method `sweep`: a component's score is what replacing it alone by its counterfactual value costs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vesalius.behaviours.elsewhere import Spread
from vesalius.behaviours.trial import Trial
from vesalius.discovery.method import Method, Scores
from vesalius.discovery.moved import moved_forwards
from vesalius.discovery.parts import swept_in_parts
from vesalius.intervene import Recordings, effects
from vesalius.intervene.ablations import Resample
from vesalius.intervene.estimate import Workload, sweep_forwards
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress


@dataclass(frozen=True)
class Sweep(Method):
    """Clean minus edited score, each component resampled alone."""

    name = "sweep"
    meaning = "A component's score is the clean minus the edited score when it alone is replaced."
    scores_edges = False
    in_parts = True
    sees_position = False

    def score(
        self,
        specimen: Specimen,
        material: Trial,
        *,
        spread: Spread | None = None,
        progress: Progress | None = None,
        seed: int = 0,
    ) -> Scores:
        """One row of interventions for every component and prompt."""
        if spread is not None:
            return _swept_in_parts(specimen, material, spread)
        swept = effects(
            specimen.model,
            material.batch,
            material.readout,
            kind=Resample(),
            counterfactual=material.counterfactual,
            positions=material.where,
            progress=progress,
        )
        scores = {members[0]: float(mean) for members, mean in zip(swept.sets, swept.mean, strict=True)}
        return Scores(scores, {}, swept.forwards + 1, material.readout.unit, swept.matrix)

    def cost(self, work: Workload) -> float:
        """The part of the model after each component, the clean run and the counterfactual's."""
        every = [(component,) for component in work.model.components]
        return sweep_forwards(work.model, every) + 1 + moved_forwards(work, estimated=False)


def _swept_in_parts(specimen: Specimen, material: Trial, spread: Spread) -> Scores:
    model, readout, n = specimen.model, material.readout, len(material.batch)
    sets = [(component,) for component in model.components]
    baseline = Recordings(model, material.batch.to(model.device), readout).scores().cpu()
    matrix, forwards = torch.empty(n, len(sets)), [2.0]

    def keep(span: range, scores: Tensor, rows: float) -> None:
        matrix[:, span.start : span.stop] = baseline[:, None] - scores
        forwards[0] += rows / n

    swept_in_parts(spread, material, Resample(), sets, keep, largest=len(sets))
    scores = {members[0]: float(mean) for members, mean in zip(sets, matrix.mean(0), strict=True)}
    return Scores(scores, {}, forwards[0], readout.unit, matrix)
