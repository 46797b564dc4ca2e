"""The logit lens: what a component's output alone adds to the answer's logits.

The final norm's scale is fixed at its clean value, so that the logit difference is a sum over the outputs written into
the residual stream at the answer position; a component's term of that sum is its direct logit attribution.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.natural.pool import Pool
from vesalius.intervene.logit_lens import direct_difference


def direct_attribution(pool: Pool, component: Component | None, *, shuffle: bool = False) -> Float[Tensor, " prompt"]:
    """What a component (None: the embedding) adds to logit(correct) - logit(wrong), in logits; without a wrong answer
    to logit(correct) minus the mean logit. `shuffle` uses the answers of another prompt.
    """
    output = pool.output_of(component, pool.values)[torch.arange(len(pool)), pool.prompts.position]
    return logit_difference_of(pool, output, shuffle=shuffle)


def logit_difference_of(
    pool: Pool, vector: Float[Tensor, "prompt d_model"], *, shuffle: bool = False
) -> Float[Tensor, " prompt"]:
    """The logit difference of a vector in the final residual stream."""
    correct, wrong = pool.prompts.correct, pool.prompts.wrong
    if shuffle:
        correct, wrong = correct.roll(1), wrong.roll(1)
    return direct_difference(pool.model, vector, resid=pool.final_resid, correct=correct, wrong=wrong).cpu()
