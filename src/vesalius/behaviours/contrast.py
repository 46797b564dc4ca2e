"""Whether replacing everything breaks a behaviour: measured before any component is asked about.

All components are resampled from the counterfactual prompts, on every prompt. What is left of the score is what no
circuit explains; the range between the two scores is what all shares are shares of. Where a counterfactual has the same
last token, a model with everything replaced computes exactly what it computes on the counterfactual.
"""

import shlex
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour, label_of
from vesalius.behaviours.metrics import has_zero
from vesalius.behaviours.own import ALL_ROWS, RowBehaviour
from vesalius.behaviours.prompts import GIVEN, OTHER_PROMPT, SWAPPED_PROMPT, Prompts
from vesalius.behaviours.trial import Trial
from vesalius.documents.metric import Metric
from vesalius.documents.performance import (
    LEAST_RANGE,
    MORE_ROWS,
    MOST_AGAINST,
    RANDOM_TOKENS,
    Contrast,
    Judgement,
)
from vesalius.errors import BadInput
from vesalius.intervene import Recordings
from vesalius.intervene.ablations import Resample
from vesalius.intervene.effects import effect_columns
from vesalius.intervene.estimate import sweep_forwards
from vesalius.intervene.readout import SHARE_OF_OUTPUTS
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer

#: Prompts on which a contrast is measured, at most.
MOST_PROMPTS = 32
#: Prompts that decide which other prompts serve as counterfactuals.
DECIDING = 8
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


def contrast_passes(model: Transformer) -> float:
    """Passes of all prompts that a contrast takes: the prompts, their counterfactuals, and everything replaced."""
    return 1 + sweep_forwards(model, [tuple(model.components)])


def measure_contrast(model: Transformer, material: Trial) -> Contrast:
    """The contrast of some prompts with their counterfactuals."""
    prompts = material.prompts
    return contrast_of(
        *replaced_scores(model, material),
        unit=material.readout.unit,
        source=_source(prompts),
        with_zero=prompts is None or has_zero(prompts.metric),
    )


def contrast_on(model: Transformer, prompts: Prompts) -> Contrast:
    """The contrast of the first of some prompts."""
    prompts = prompts.take(slice(MOST_PROMPTS))
    return measure_contrast(model, Trial.of(prompts, prompts.readout(model)))


def contrast_of(
    full: Float[Tensor, " prompt"],
    replaced: Float[Tensor, " prompt"],
    *,
    unit: str = "",
    source: str = "",
    with_zero: bool = True,
) -> Contrast:
    """The contrast of scores with nothing and with everything replaced. A range is compared with the score itself only
    where the metric has a zero.
    """
    ranges = full - replaced
    ranges = ranges.where(ranges.abs() > _ROUNDING * full.abs().maximum(replaced.abs()), 0.0)
    mean, against = Metric.of_mean(ranges), float((ranges <= 0).double().mean())
    return Contrast(
        full=Metric.of_mean(full),
        replaced=Metric.of_mean(replaced),
        range=mean,
        against=against,
        unit=unit,
        source=source,
        verdict=_verdict(
            mean,
            float(full.mean()) if with_zero else 0.0,
            against,
            by_chance=unit == SHARE_OF_OUTPUTS,
            drawn=source == RANDOM_TOKENS,
        ),
    )


def with_best_partners(behaviour: Behaviour, model: Transformer, tokenizer: Tokenizer) -> Behaviour:
    """A behaviour whose rows without a counterfactual have the partners that lower this model's score more for certain:
    prompts of their wrong answers, or the next prompts. Where the two are the same prompts nothing is run.
    """
    if not isinstance(behaviour, RowBehaviour) or behaviour.swap is not None:
        return behaviour
    config = model.config
    fates = behaviour.check(tokenizer, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
    if not any(fate.kept and fate.row.counterfactual is None for fate in fates):
        return behaviour
    rules = {swap: replace(behaviour, swap=swap) for swap in (False, True)}
    drawn = {
        swap: one.sample(tokenizer, DECIDING, seed=0, split=ALL_ROWS, n_ctx=config.n_ctx, d_vocab=config.d_vocab)
        for swap, one in rules.items()
    }
    if torch.equal(drawn[True].counterfactual, drawn[False].counterfactual):
        return rules[False]
    ranges = {swap: contrast_on(model, prompts).range for swap, prompts in drawn.items()}
    return rules[max(ranges, key=lambda swap: _lower(ranges[swap]))]


def _lower(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value if metric.low is None else metric.low


def require_contrast(contrast: Contrast, name: str, *, model: str = "MODEL", force: bool = False) -> None:
    """Refuse a contrast without a clearly positive range, unless `force`."""
    if contrast.usable or force:
        return
    raise BadInput(
        f"behaviour {label_of(name)}: {contrast.doubt}; {advice(contrast, name, model=model)}, or `force` to go on "
        "without a verdict"
    )


def advice(contrast: Contrast, name: str, *, model: str = "MODEL") -> str:
    """How to get a better contrast."""
    if contrast.few:
        return MORE_ROWS
    if contrast.source == GIVEN:
        return "give every row a counterfactual on which the answer is no longer right"
    command = f"vesalius behaviours {shlex.quote(model)} -b {shlex.quote(name)} --propose NEW.jsonl"
    return f"{contrast.source} cannot break it; let other words be proposed by `{command}`"


def _verdict(mean: Metric, full: float, against: float, *, by_chance: bool, drawn: bool) -> Judgement:
    """`by_chance`: outputs of any other prompt are partly the same, so that the range cannot reach the score. Where
    outputs are few it is small on every prompt, which says nothing against the counterfactuals. `drawn`: these are
    random tokens.
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
    return "weak" if drawn or mean.value < LEAST_RANGE * abs(full) or against > MOST_AGAINST else "clear"


def _source(prompts: Prompts | None) -> str:
    """Where most counterfactuals come from."""
    if prompts is None or not prompts.sources:
        return GIVEN
    counts = {one: prompts.sources.count(one) for one in (OTHER_PROMPT, SWAPPED_PROMPT, RANDOM_TOKENS, GIVEN)}
    return max(counts, key=lambda one: counts[one])
