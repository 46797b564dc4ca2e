"""Inputs on which a model's outputs differ, searched for where inputs drawn at random hardly ever show them.

An exchange between two inputs with the same outputs cannot show what a component does to the output. Where fewer than
`RARE` of the pairs drawn from a finite vocabulary differ in an output, inputs whose outputs are not the usual ones of
their positions are collected from many draws, and each pair has one of them: in turn as the clean input and as the
counterfactual. A trial that others are held apart from takes every second one, so that some are left for those.
"""

import random
from collections.abc import Collection, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.model.specimen import FiniteVocabulary, Specimen

#: Below this share of differing pairs the behaviour counts as rare; pairs that decide it where fewer of those drawn
#: than `PLENTY`, and fewer than `PLENTY` times the share, differ.
RARE, DECIDING, PLENTY = 0.05, 512, 4
#: Pairs that are looked at together.
LOOK = 256
#: Outputs that are numbers differ from here on.
NUMERIC_TOLERANCE = 0.05
#: Draws, and inputs of each, before the search ends; tries to find a partner for one input.
SEARCH_DRAWS, SEARCH_SIZE, PARTNER_TRIES = 16, 2048, 64
SEARCH_SEED = 3_000_017
Row = tuple[int, ...]
Outputs = Float[Tensor, "input pos"]


def outputs_of(specimen: Specimen, inputs: Sequence[object]) -> Outputs:
    """The output at every position after BOS of the longest input the specimen takes; NaN past an input's end."""
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    tokens = specimen.tokenize(inputs)
    with torch.no_grad():
        logits = specimen.model(tokens.to(specimen.model.device)).cpu()[:, 1:]
    values = logits[..., 0] if vocabulary.outputs is None else logits.argmax(-1)
    given = torch.full((len(inputs), vocabulary.max_len), torch.nan)
    padding = ~specimen.model.config.not_padding(tokens)[:, 1:]
    given[:, : values.shape[1]] = values.float().masked_fill(padding, torch.nan)
    return given


def differ(ours: Outputs, theirs: Outputs) -> Bool[Tensor, " input"]:
    """Whether two inputs have another output at a position of both."""
    return ((ours - theirs).abs() >= NUMERIC_TOLERANCE).any(1)  # NaN is never larger


def is_rare(specimen: Specimen, inputs: Sequence[object], others: Sequence[object]) -> bool:
    """Whether pairs hardly ever differ. Those drawn decide where many do; a few of a few may be chance, so that more
    are drawn to decide.
    """
    many, differing = max(PLENTY, PLENTY * RARE * len(inputs)), 0
    for start in range(0, len(inputs), LOOK):  # mostly the first look decides
        part = slice(start, start + LOOK)
        differing += int(differ(outputs_of(specimen, inputs[part]), outputs_of(specimen, others[part])).sum())
        if differing >= many:
            return False
    more = (outputs_of(specimen, specimen.sample(DECIDING, SEARCH_SEED + side)) for side in (0, 1))
    return float(differ(*more).double().mean()) < RARE


def searched_pairs(
    specimen: Specimen, n: int, *, seed: int, seen: Collection[Row] | None
) -> tuple[list[Any], list[Any]] | None:
    """`n` pairs that differ in an output, of inputs that are not `seen` (None: of every second unusual input); None
    where the search finds no such pair.
    """
    usual, unusual = _collected(specimen, n, seen)
    unusual = unusual[::2] if seen is None else unusual
    rng = random.Random(f"differing/{seed}")
    rng.shuffle(unusual)
    pairs: list[tuple[object, object]] = []
    for place in range(n if unusual else 0):
        one, its = unusual[place % len(unusual)]
        for other, theirs in (rng.choice(usual) for _ in range(PARTNER_TRIES if usual else 0)):
            if bool(differ(its[None], theirs[None])):
                pairs.append((one, other) if place % 2 == 0 else (other, one))
                break
    return ([clean for clean, _ in pairs], [other for _, other in pairs]) if pairs else None


def _collected(
    specimen: Specimen, n: int, seen: Collection[Row] | None
) -> tuple[list[tuple[Any, Tensor]], list[tuple[Any, Tensor]]]:
    """Inputs with the usual outputs and those with others, each with its outputs, in the order of the draws."""
    usual: list[tuple[object, Tensor]] = []
    unusual: list[tuple[object, Tensor]] = []
    middle, met = None, set[tuple[object, ...]]()
    for draw in range(SEARCH_DRAWS):
        drawn = {tuple(tokens): tokens for tokens in specimen.sample(SEARCH_SIZE, SEARCH_SEED + draw)}
        fresh = [tokens for key, tokens in drawn.items() if key not in met]
        met |= set(drawn)
        if not fresh:
            break
        outputs = outputs_of(specimen, fresh)
        if middle is None:
            middle = outputs.nanmedian(0).values
        stands_out = differ(outputs, middle[None]).tolist()
        unseen = [True] * len(fresh) if not seen else [row not in seen for row in _ids(specimen, fresh)]
        for tokens, its, out, new in zip(fresh, outputs, stands_out, unseen, strict=True):
            if new:
                (unusual if out else usual).append((tokens, its))
        if len(unusual) >= 4 * n:
            break
    return usual, unusual


def _ids(specimen: Specimen, inputs: Sequence[object]) -> list[Row]:
    """Token ids without padding."""
    pad = specimen.model.config.pad_token
    return [tuple(token for token in row if token != pad) for row in specimen.tokenize(inputs).tolist()]
