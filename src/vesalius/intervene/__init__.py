"""The scalpel: replace components and edges, many at once, and measure what changes."""

from vesalius.intervene.ablations import Replacement, ablation_named
from vesalius.intervene.attribution import attribute, attribute_units
from vesalius.intervene.effects import effects, pairs
from vesalius.intervene.engine import Cost, run, run_with_outputs
from vesalius.intervene.plan import Plan, Row
from vesalius.intervene.readout import Readout, agreement, all_logits, logit_difference, next_token_loss
from vesalius.intervene.recordings import Recordings
from vesalius.intervene.values import Batch, Values, activations, component_values, means, means_of, reordered, zeros

__all__ = [
    "Batch",
    "Cost",
    "Plan",
    "Readout",
    "Recordings",
    "Replacement",
    "Row",
    "Values",
    "ablation_named",
    "activations",
    "agreement",
    "all_logits",
    "attribute",
    "attribute_units",
    "component_values",
    "effects",
    "logit_difference",
    "means",
    "means_of",
    "next_token_loss",
    "pairs",
    "reordered",
    "run",
    "run_with_outputs",
    "zeros",
]
