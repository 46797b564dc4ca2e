"""One experiment's material for any specimen: prompts, counterfactual prompts, and what is read off.

Natural models: the behaviour's prompts and logit difference. Specimens with a finite vocabulary: random inputs,
other random inputs of independent lengths as counterfactuals (so that what depends on the length shows), and the share
of outputs that stay as they were.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.registry import behaviour
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Readout, agreement
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary

NUMERIC_TOLERANCE = 0.05
MOST_PROMPTS = 100_000
#: Seeds of controls and held-out prompts lie above the one asked for, and all must fit 64 bits.
LARGEST_SEED = 2**62


@dataclass(frozen=True)
class Trial:
    """What a sweep runs on.

    `prompts` is set for natural models. `where` marks the positions at which a counterfactual can be patched in: those
    that are real in it. Beyond its end the clean value stays. None means everywhere.
    """

    batch: Batch
    counterfactual: Batch
    readout: Readout
    prompts: Prompts | None = None
    where: Bool[Tensor, "prompt pos"] | None = None


def trial(specimen: Specimen, n: int, *, seed: int = 0, split: str = "test") -> Trial:
    """Draw the material for a specimen; `split` picks the behaviour's pool of names, templates and fillers."""
    require_drawable(n, seed)
    vocabulary = specimen.vocabulary
    if isinstance(vocabulary, TextVocabulary):
        if specimen.behaviour is None:
            raise BadInput(
                f"specimen {specimen.name!r} is a natural model: name a behaviour, such as --behaviour induction"
            )
        config = specimen.model.config
        prompts = behaviour(specimen.behaviour).sample(
            vocabulary.tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab
        )
        return Trial(prompts.batch, prompts.counterfactual_batch, prompts.readout(), prompts)
    assert isinstance(vocabulary, FiniteVocabulary)
    tokens = specimen.tokenize([*specimen.sample(n, seed), *specimen.sample(n, seed + 1)])
    mask = tokens != specimen.model.config.pad_token
    batch, other = Batch(tokens[:n], mask[:n]), Batch(tokens[n:], mask[n:])
    return Trial(batch, other, unchanged_outputs(specimen, batch), where=mask[n:])


def require_drawable(n: int, seed: int) -> None:
    """Refuse numbers of prompts and seeds that nothing can be drawn with."""
    if not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"an experiment on {n} prompts cannot be made; ask for 1 to {MOST_PROMPTS:,}")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed {seed} cannot be used; take one from 0 to {LARGEST_SEED}")


def unchanged_outputs(specimen: Specimen, batch: Batch) -> Readout:
    """Share of real positions whose output equals the clean model's (numbers: within 0.05)."""
    counted = batch.tokens != specimen.model.config.pad_token
    counted[:, 0] = False
    with torch.no_grad():
        clean = specimen.model(batch.tokens.to(specimen.model.device)).cpu()
    if specimen.model.config.d_vocab_out > 1:
        return agreement(clean.argmax(-1), counted)

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        kept, real = clean.to(logits.device)[prompt], counted.to(logits.device)[prompt]
        same = (logits - kept).abs()[..., 0] < NUMERIC_TOLERANCE
        return (same & real).sum(1) / real.sum(1)

    return Readout(score, unit="share of outputs")
