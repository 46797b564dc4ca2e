"""One experiment's material for any specimen: prompts, counterfactual prompts, and what is read off.

Natural models: the behaviour's prompts and logit difference. Specimens with a finite vocabulary: random inputs,
other random inputs of independent lengths as counterfactuals (so that what depends on the length shows), and the share
of outputs that stay as they were.

A trial can be asked for *apart from* another one, to check on what was not seen. The splits of a natural behaviour
share no prompt; random inputs of a small vocabulary do repeat, so there the seen ones are left out, and a vocabulary
that is used up gives fewer prompts than were asked for.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

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
#: How often inputs are drawn, and how many at least each time, before a vocabulary counts as used up.
DRAWS, DRAWN_AT_ONCE = 16, 1024
Row = tuple[int, ...]


class NothingUnseen(BadInput):
    """All inputs that could be drawn were seen already."""


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


def trial(specimen: Specimen, n: int, *, seed: int = 0, split: str = "test", apart_from: Trial | None = None) -> Trial:
    """Draw the material for a specimen; `split` picks the behaviour's pool of names, templates and fillers.

    With `apart_from`, no prompt is one of that trial's, counterfactuals included. Of a listed vocabulary that leaves
    `n` different prompts or as many as there are, of a behaviour the unseen ones of `n`; `len(trial.batch)` says how
    many.
    """
    require_drawable(n, seed)
    vocabulary = specimen.vocabulary
    if isinstance(vocabulary, TextVocabulary):
        prompts = _prompts(specimen, vocabulary, n, seed, split)
        if apart_from is not None:
            prompts = _unseen_prompts(prompts, split, rows_of(apart_from))
        return Trial(prompts.batch, prompts.counterfactual_batch, prompts.readout(), prompts)
    assert isinstance(vocabulary, FiniteVocabulary)
    if apart_from is None:
        inputs, others = specimen.sample(n, seed), specimen.sample(n, seed + 1)
    else:
        inputs, others = _unseen_pairs(specimen, n, seed, rows_of(apart_from))
    tokens, n = specimen.tokenize([*inputs, *others]), len(inputs)
    mask = tokens != specimen.model.config.pad_token
    batch, other = Batch(tokens[:n], mask[:n]), Batch(tokens[n:], mask[n:])
    return Trial(batch, other, unchanged_outputs(specimen, batch), where=mask[n:])


def rows_of(material: Trial) -> set[Row]:
    """The token ids of every prompt and every counterfactual, without padding."""
    return {*_rows(material.batch), *_rows(material.counterfactual)}


def _rows(batch: Batch) -> list[Row]:
    masks = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
    return [tuple(row[mask.bool()].tolist()) for row, mask in zip(batch.tokens.cpu(), masks.cpu(), strict=True)]


def _prompts(specimen: Specimen, vocabulary: TextVocabulary, n: int, seed: int, split: str) -> Prompts:
    if specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r} is a natural model: name a behaviour, such as --behaviour induction"
        )
    config = specimen.model.config
    return behaviour(specimen.behaviour).sample(
        vocabulary.tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab
    )


def _unseen_prompts(prompts: Prompts, split: str, seen: Collection[Row]) -> Prompts:
    kept = [place for place, row in enumerate(_rows(prompts.batch)) if row not in seen]
    if not kept:
        raise NothingUnseen(f"all prompts drawn of the {split} split were seen already; choose another split or seed")
    return prompts.take(torch.tensor(kept))


def _unseen_pairs(specimen: Specimen, n: int, seed: int, seen: Collection[Row]) -> tuple[list[Any], list[Any]]:
    """Inputs with counterfactuals, none of them seen: all different while there are enough, else each input is also
    the counterfactual of another.
    """
    drawn = different_inputs(specimen, 2 * n, seed=seed, seen=seen)
    if len(drawn) < 2:
        raise NothingUnseen(
            f"specimen {specimen.name!r}: {len(drawn)} inputs are left that were not seen, and a prompt and a "
            "counterfactual are needed; discover on fewer prompts"
        )
    n = min(n, len(drawn))
    shift = n if len(drawn) > n else 1
    return drawn[:n], [drawn[(place + shift) % len(drawn)] for place in range(n)]


def different_inputs(specimen: Specimen, n: int, *, seed: int, seen: Collection[Row] = ()) -> list[Any]:
    """Up to `n` inputs of a listed vocabulary, no two alike and none among `seen` (token ids without padding)."""
    met: set[tuple[Any, ...]] = set()
    found: list[Any] = []
    for draw in range(DRAWS):
        drawn = {tuple(given): given for given in specimen.sample(max(2 * n, DRAWN_AT_ONCE), seed + draw)}
        new = [given for key, given in drawn.items() if key not in met]
        if new:
            tokens = specimen.tokenize(new)
            rows = _rows(Batch(tokens, tokens != specimen.model.config.pad_token))
            found += [given for row, given in zip(rows, new, strict=True) if row not in seen]
        if len(found) >= n:
            break
        met |= drawn.keys()
    return found[:n]


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
