"""Sweeps and edge attribution in parts: some components, or some prompts, at a time, by whichever process is free.

Each function here that takes a specimen and a part is run where the part is; the others cut and put together again. A
part carries the prompts as token ids, so that every process runs the same ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.elsewhere import Spread
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial
from vesalius.intervene import Cost, Recordings
from vesalius.intervene.ablations import Ablation, ablation_named
from vesalius.intervene.edge_attribution import edge_attribution
from vesalius.intervene.effects import ComponentSet, effect_columns, has_units
from vesalius.intervene.relevance import Rule
from vesalius.model.specimen import Specimen

#: Parts for each process that works at a time: some take longer than others.
PARTS_PER_JOB = 4


@dataclass(frozen=True)
class SweepPart:
    """Some sets of components to be replaced on every prompt."""

    prompts: Prompts
    kind: Ablation
    sets: tuple[ComponentSet, ...]


@dataclass(frozen=True)
class AttributionPart:
    """Some prompts on which every edge is attributed."""

    prompts: Prompts
    steps: int
    rule: Rule = "gradient"


def cut(n: int, jobs: int, *, largest: int | None = None) -> list[range]:
    """`n` places in runs of almost equal length: several for each job, none longer than `largest`."""
    size = max(1, min(largest or n, -(-n // (PARTS_PER_JOB * jobs))))
    return [range(start, min(n, start + size)) for start in range(0, n, size)]


def swept_in_parts(
    spread: Spread,
    material: Trial,
    kind: Ablation | str,
    sets: Sequence[ComponentSet],
    keep: Callable[[range, Float[Tensor, "prompt set"], float], None],
    *,
    largest: int,
) -> None:
    """Edited scores of every prompt and set, given to `keep` with the rows that were run, as parts are finished."""
    assert material.prompts is not None
    prompts, ablation = material.prompts, ablation_named(kind)
    spans = cut(len(sets), spread.jobs, largest=largest)
    parts = [SweepPart(prompts, ablation, tuple(sets[i] for i in span)) for span in spans]
    spread(sweep_part, parts, step=f"{ablation} ablation", keep=lambda place, result: keep(spans[place], *result))


def sweep_part(specimen: Specimen, part: SweepPart) -> tuple[Float[Tensor, "prompt set"], float]:
    """The edited scores of one part, and the rows that were run for them."""
    model, cost, batch = specimen.model, Cost(), part.prompts.batch
    recordings = Recordings(model, batch.to(model.device), part.prompts.readout(model))
    recordings.scores()  # the clean run, which is counted once for all parts
    sources = {"counterfactual": part.prompts.counterfactual_batch, "neurons": has_units(part.sets)}
    replacement = part.kind.table(model, batch, **sources)
    columns = [scores for _, scores in effect_columns(recordings, replacement, part.sets, cost=cost)]
    return torch.cat(columns, 1), cost.rows


def attributed_in_parts(
    spread: Spread, material: Trial, steps: int, rule: Rule = "gradient"
) -> Float[Tensor, "prompt sender receiver"]:
    """The edge scores of every prompt."""
    assert material.prompts is not None
    prompts = material.prompts
    spans = cut(len(prompts), spread.jobs)
    parts = [AttributionPart(prompts.take(slice(span.start, span.stop)), steps, rule) for span in spans]
    return torch.cat(spread(attribution_part, parts, step="attributing edges"))


def attribution_part(specimen: Specimen, part: AttributionPart) -> Float[Tensor, "prompt sender receiver"]:
    """The edge scores of one part's prompts."""
    prompts, model = part.prompts, specimen.model
    return edge_attribution(
        model,
        prompts.batch,
        prompts.readout(model),
        counterfactual=prompts.counterfactual_batch,
        steps=part.steps,
        rule=part.rule,
    ).cpu()
