"""Heads detected by their attention alone: previous-token, duplicate-token and induction heads.

The probe contains no behaviour. For text and for token ids it is random tokens, repeated once after BOS where there is
one, so that copies and the tokens after them exist and nothing else can be predicted; for a finite vocabulary it is a
sample of the specimen's inputs. A head is flagged for a role if more than half of its attention lies there, on average
over the probe.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.discovery.attention import general_roles, masses
from vesalius.documents.checks import ROLES
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary

FLAGGED_MASS = 0.5
ROWS, LENGTH = 8, 16


@dataclass(frozen=True)
class Detections:
    """Mean attention of every head on each role, the heads flagged for it, and the number of rows run."""

    masses: Mapping[str, Float[Tensor, "layer head"]]
    rows: int

    @property
    def flagged(self) -> dict[str, tuple[Component, ...]]:
        """The heads of each role, in order of computation."""
        return {
            role: tuple(Component(layer, head) for layer, head in (mass > FLAGGED_MASS).nonzero().tolist())
            for role, mass in self.masses.items()
        }

    @property
    def heads(self) -> frozenset[Component]:
        """Heads flagged for any role."""
        return frozenset(head for heads in self.flagged.values() for head in heads)


@torch.no_grad()
def detect(specimen: Specimen, *, rows: int = ROWS, seed: int = 0) -> Detections:
    """Run the probe once and measure every head's attention."""
    model, (batch, first) = specimen.model, _probe(specimen, rows, seed)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
    targets = {role: general_roles(batch.tokens, real, first=first)[role] for role in ROLES}
    on_device = batch.to(model.device)
    _, cache = model.run_with_cache(
        on_device.tokens,
        mask=on_device.mask,
        names=lambda name: name.endswith(".hook_pattern"),
        choose=torch.zeros(len(batch), 1, dtype=torch.long, device=model.device),
    )
    patterns = [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.config.n_layers)]
    mass_by_role = {
        role: torch.stack([masses(pattern, target).nanmean(0).nan_to_num() for pattern in patterns])
        for role, target in targets.items()
    }
    return Detections(mass_by_role, len(batch))


def _probe(specimen: Specimen, rows: int, seed: int) -> tuple[Batch, int]:
    """The probe's tokens, and 1 if they begin with BOS, else 0."""
    vocabulary, config = specimen.vocabulary, specimen.model.config
    if isinstance(vocabulary, FiniteVocabulary):
        tokens = specimen.tokenize(specimen.sample(rows, seed))
        return Batch(tokens, tokens != config.pad_token), 1
    prefix, ids = [], range(config.d_vocab)
    if isinstance(vocabulary, TextVocabulary):
        prefix = [] if vocabulary.tokenizer.bos is None else [vocabulary.tokenizer.bos]
        ids = vocabulary.tokenizer.ordinary_ids
    length = min(LENGTH, (config.n_ctx - len(prefix)) // 2)
    ordinary = [i for i in ids if i < config.d_vocab and i not in prefix]
    if length < 2 or len(ordinary) < length:
        raise BadInput(
            f"{specimen.name}: a context of {config.n_ctx} and {len(ordinary)} ordinary tokens are too few to probe "
            "attention; leave the detectors out"
        )
    rng = random.Random(f"detectors/{seed}")
    sequences = [rng.sample(ordinary, length) for _ in range(rows)]
    return Batch(torch.tensor([[*prefix, *tokens, *tokens] for tokens in sequences])), len(prefix)
