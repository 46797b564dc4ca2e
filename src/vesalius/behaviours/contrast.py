"""Whether replacing everything breaks a behaviour: measured before any component is asked about.

All components are resampled from the counterfactual prompts, on every prompt. What is left of the score is what no
circuit explains; the range between the two scores is what all shares are shares of. Where a counterfactual has the same
last token, a model with everything replaced computes exactly what it computes on the counterfactual.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.prompts import GIVEN, OTHER_PROMPT, RANDOM_TOKENS, Prompts
from vesalius.behaviours.trial import Trial
from vesalius.documents.contrast import LEAST_RANGE, MOST_AGAINST, Contrast, Judgement
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.intervene import Recordings
from vesalius.intervene.ablations import Resample
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.readout import SHARE_OF_OUTPUTS
from vesalius.model.transformer import Transformer
from vesalius.statistics import interval_or_none

#: Ranges within the rounding of the scores are none.
_ROUNDING = 16 * torch.finfo(torch.float32).eps


def replaced_scores(model: Transformer, material: Trial) -> tuple[Float[Tensor, " prompt"], Float[Tensor, " prompt"]]:
    """The score of every prompt, and the score with every component resampled."""
    batch = material.batch.to(model.device)
    recordings = Recordings(model, batch, material.readout)
    values = Resample().table(model, batch, counterfactual=material.counterfactual.to(model.device))
    every = [tuple(model.components)]
    replaced = [scores for _, scores in effect_columns(recordings, values, every, positions=material.where)]
    return recordings.scores().cpu().double(), replaced[0][:, 0].cpu().double()


def measure_contrast(model: Transformer, material: Trial) -> Contrast:
    """The contrast of some prompts with their counterfactuals."""
    return contrast_of(*replaced_scores(model, material), unit=material.readout.unit, source=_source(material.prompts))


def contrast_of(
    full: Float[Tensor, " prompt"], replaced: Float[Tensor, " prompt"], *, unit: str = "", source: str = ""
) -> Contrast:
    """The contrast of scores with nothing and with everything replaced."""
    ranges = full - replaced
    ranges = ranges.where(ranges.abs() > _ROUNDING * full.abs().maximum(replaced.abs()), 0.0)
    mean, against = _metric(ranges), float((ranges <= 0).double().mean())
    return Contrast(
        full=_metric(full),
        replaced=_metric(replaced),
        range=mean,
        against=against,
        unit=unit,
        source=source,
        verdict=_verdict(mean, float(full.mean()), against, by_chance=unit == SHARE_OF_OUTPUTS),
    )


def require_contrast(contrast: Contrast, name: str, *, force: bool = False) -> None:
    """Refuse a contrast without a clearly positive range, unless `force`."""
    if contrast.usable or force:
        return
    advice = "give every row a counterfactual on which the answer is no longer right"
    if contrast.source != GIVEN:
        advice = (
            f"{contrast.source} cannot break it; `vesalius behaviours MODEL -b {name} --propose FILE` proposes others"
        )
    raise BadInput(f"behaviour {name}: {contrast.doubt}; {advice}, or `force` to go on without a verdict")


def _verdict(mean: Metric, full: float, against: float, *, by_chance: bool) -> Judgement:
    """`by_chance`: outputs of any other prompt are partly the same, so that the range cannot reach the score. Where
    outputs are few it is small on every prompt, which says nothing against the counterfactuals.
    """
    assert mean.value is not None
    if mean.low is None or mean.high is None:  # one prompt
        return "weak" if mean.value > 0 else "empty"
    if mean.high < 0:
        return "reversed"
    if mean.low <= 0:
        return "empty"
    if by_chance:
        return "clear"
    return "weak" if mean.value < LEAST_RANGE * abs(full) or against > MOST_AGAINST else "clear"


def _metric(values: Float[Tensor, " prompt"]) -> Metric:
    low, high = interval_or_none(values)
    return Metric(value=float(values.mean()), low=low, high=high, n=len(values))


def _source(prompts: Prompts | None) -> str:
    """Where most counterfactuals come from."""
    if prompts is None or not prompts.sources:
        return GIVEN
    counts = {one: prompts.sources.count(one) for one in (OTHER_PROMPT, RANDOM_TOKENS, GIVEN)}
    return max(counts, key=lambda one: counts[one])
