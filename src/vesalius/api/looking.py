"""Look at one prompt: its tokens and answer, where heads look, what components write; or measure with instruments."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.api.catalogue import likeliest_tokens
from vesalius.api.door import verb
from vesalius.components import Component, parse_components, split_names
from vesalius.documents.attending import AttendingLook, CarriedTerm, PairTerm, SourceTerm
from vesalius.documents.experiments import AttentionLook, HeadAttention, LensLook, Likely, Look
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.laboratory.runs import require_heads
from vesalius.explanations.natural.instruments import Instruments
from vesalius.intervene import Batch
from vesalius.intervene.attending import BIASES, TOKEN, AttentionParts
from vesalius.intervene.probes import direct_logits
from vesalius.intervene.values import OUTPUT_HOOKS, contribution, values_of
from vesalius.model.specimen import Specimen, TextVocabulary, json_value
from vesalius.options import Draw

#: A longer prompt is refused: its picture could not be read, and takes memory quadratic in its length.
MOST_TOKENS = 256
MOST_COMPONENTS = 64
DIGITS = 4
#: Leading pairs that are confirmed by path patching, and tokens that are named of what a head moves.
CONFIRMED, MOVED_TOKENS = 40, 5


@verb
def look(specimen: Specimen, prompt: Any, *, top: int = 10) -> Look:
    """The tokens of a prompt, the output at each of them and, of a natural model, the likeliest next tokens."""
    tokens = _tokens(specimen, prompt)
    if top < 1:
        raise BadInput(f"top={top} tokens are none; ask for at least 1")
    with torch.no_grad():
        logits = specimen.model(tokens.to(specimen.model.device)).cpu()
    vocabulary = specimen.vocabulary
    likely = likeliest_tokens(vocabulary, logits[0, -1], top) if isinstance(vocabulary, TextVocabulary) else []
    return Look(
        specimen=specimen.name,
        prompt=prompt if isinstance(prompt, str) else " ".join(map(str, prompt)),
        tokens=specimen.pieces(tokens[0]),
        outputs=tuple(json_value(value) for value in specimen.decode(logits)[0]),
        likely=tuple(Likely.model_validate(one) for one in likely),
    )


@verb
def attention(specimen: Specimen, prompt: object, *, layer: int) -> AttentionLook:
    """The attention of every head of one layer on one prompt: `heads[i].pattern[query][key]`."""
    n_layers = specimen.model.config.n_layers
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < n_layers:
        raise BadInput(f"layer {layer!r} is not in this model; it has layers 0 to {n_layers - 1}")
    tokens = _tokens(specimen, prompt)
    name = f"blocks.{layer}.attn.hook_pattern"
    with torch.no_grad():
        _, cache = specimen.model.run_with_cache(tokens.to(specimen.model.device), names=name)
    patterns = cache[name][0].float().cpu()
    return AttentionLook(
        specimen=specimen.name,
        layer=layer,
        tokens=specimen.pieces(tokens[0]),
        heads=tuple(
            HeadAttention(
                head=str(Component(layer, head)),
                pattern=tuple(tuple(round(x, DIGITS) for x in row) for row in pattern.tolist()),
            )
            for head, pattern in enumerate(patterns)
        ),
    )


@verb
def lens(specimen: Specimen, prompt: object, components: Iterable[str | Component] | str, *, top: int = 5) -> LensLook:
    """The tokens whose logits each component's output raises most, at every position of one prompt."""
    vocabulary, model = specimen.vocabulary, specimen.model
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} is not a natural model; the logit lens is for text models")
    if top < 1:
        raise BadInput(f"top={top} tokens are none; ask for at least 1")
    parts = parse_components(list(map(str, split_names(components))), model.config)
    if len(parts) > MOST_COMPONENTS:
        raise BadInput(f"{len(parts)} components in one call; at most {MOST_COMPONENTS}")
    tokens = _tokens(specimen, prompt)
    batch = Batch(tokens.to(model.device))
    final = f"blocks.{model.config.n_layers - 1}.hook_resid_post"
    ends = ("blocks.0.hook_resid_pre", final)
    with torch.no_grad():
        _, cache = model.run_with_cache(batch.tokens, names=lambda name: name.endswith(OUTPUT_HOOKS) or name in ends)
    values, resid = values_of(model, cache, batch), cache[final][0]
    return LensLook(
        specimen=specimen.name,
        tokens=specimen.pieces(tokens[0]),
        components={str(part): _gains(specimen, contribution(model, part, values)[0], resid, top) for part in parts},
    )


@verb
def why_attends(
    specimen: Specimen,
    prompt: object,
    head: str | Component,
    *,
    query: int = -1,
    key: int | None = None,
    source: object = None,
    top: int = 10,
) -> AttendingLook:
    """Why a head attends from one token of a prompt to another, and what it carries from there: its score as an exact
    sum over pairs of upstream components, tokens and biases at the query and at the key, the leading ones confirmed by
    path patching.

    `query` and `key` are positions from 0 (the first token, BOS included), or from the end as in Python; by default the
    last token, and the one that gets most of its attention. `top` is how many terms are listed. Path patching takes
    contributions out, or replaces them by those on the prompt `source`, of as many tokens: that changes the norms less.
    """
    model = specimen.model
    (part,) = parse_components([str(head)], model.config)
    require_heads([part])
    if top < 1:
        raise BadInput(f"top={top} terms are none; ask for at least 1")
    tokens = _tokens(specimen, prompt)
    at = _place("query", query, tokens.shape[1])
    if key is None:
        key = int(AttentionParts(model, tokens, part, at, at).pattern.argmax())
    there = _place("key", key, tokens.shape[1])
    if model.config.causal and there > at:
        raise BadInput(f"`key` {key}: comes after `query` {query}, which cannot see it; name an earlier token")
    other = None if source is None else AttentionParts(model, _tokens(specimen, source), part, at, there)
    if other is not None and other.tokens.shape != tokens.shape:
        lengths = f"{other.tokens.shape[1]} tokens and `prompt` has {tokens.shape[1]}"
        raise BadInput(f"`source`: has {lengths}; give two prompts of as many tokens")
    parts = AttentionParts(model, tokens, part, at, there, other)
    pieces = specimen.pieces(tokens[0])
    names = {side: [_source(one, pieces[i]) for one in parts.sources] for side, i in (("query", at), ("key", there))}
    order = parts.pairs.abs().flatten().argsort(descending=True)[: max(top, CONFIRMED)].tolist()
    wide = len(parts.sources)
    leading = [(i // wide, i % wide) for i in order]
    biases = parts.sources.index(BIASES)  # those of the projections are not in the stream, so that none are taken out
    changed = parts.expected_pairs.abs().flatten().argsort(descending=True)[:CONFIRMED].tolist()
    asked = [(i // wide, i % wide) for i in changed]
    patched = {pair: parts.patched_pair(*pair) for pair in asked if biases not in pair}
    values = [float(parts.pairs[pair]) for pair in leading]
    shown = range(min(top, len(leading)))
    carried = parts.carried.sum(0)
    shares = parts.carried @ carried / carried.square().sum().clamp(min=torch.finfo(carried.dtype).tiny)
    return AttendingLook(
        specimen=specimen.name,
        head=str(part),
        tokens=pieces,
        query=at,
        key=there,
        weight=parts.weight,
        score=parts.score,
        pairs=tuple(
            PairTerm(
                query=names["query"][leading[i][0]],
                key=names["key"][leading[i][1]],
                value=values[i],
                patched=patched.get(leading[i]) if other is None else None,
            )
            for i in shown
        ),
        n_pairs=wide * wide,
        rest=parts.score - sum(values[i] for i in shown),
        by_query=_terms(names["query"], parts.pairs.sum(1)),
        by_key=_terms(names["key"], parts.pairs.sum(0)),
        agreement=_correlation([float(parts.expected_pairs[pair]) for pair in patched], list(patched.values())),
        n_confirmed=len(patched),
        carries=tuple(
            CarriedTerm(
                source=names["key"][i], share=float(shares[i]), tokens=_raised(specimen, parts, parts.carried[[i]])
            )
            for i in shares.abs().argsort(descending=True)[:top].tolist()
        ),
        writes=_raised(specimen, parts, carried[None]),
    )


def _place(name: str, at: int, width: int) -> int:
    if isinstance(at, bool) or not isinstance(at, int) or not -width <= at < width:
        raise BadInput(f"`{name}` {at!r}: the prompt has positions 0 to {width - 1}")
    return at % width


def _source(name: str, piece: str) -> str:
    return f"token {piece!r}" if name == TOKEN else name


def _terms(names: list[str], values: Tensor) -> tuple[SourceTerm, ...]:
    """Every source with what it adds, largest first."""
    order = values.abs().argsort(descending=True).tolist()
    return tuple(SourceTerm(source=names[i], value=float(values[i])) for i in order)


def _correlation(first: list[float], second: list[float]) -> float | None:
    """Pearson's; None where there is nothing to compare."""
    pairs = torch.tensor([first, second], dtype=torch.float64)
    if len(first) < 3 or bool((pairs.std(1) == 0).any()):
        return None
    return round(float(torch.corrcoef(pairs)[0, 1]), DIGITS)


def _raised(specimen: Specimen, parts: AttentionParts, vector: Tensor) -> tuple[tuple[str, float], ...]:
    """The tokens whose logits a part of what a head moves raises most, against the mean logit; of text models."""
    if not isinstance(specimen.vocabulary, TextVocabulary):
        return ()
    return _gains(specimen, vector.to(parts.final), parts.final, MOVED_TOKENS)[0]


@verb
def instruments(specimen: Specimen, *, draw: Draw) -> Instruments:
    """Instruments on `n` prompts of a natural model's behaviour: attention between roles, replacements of sets of
    components at a role, corrupted roles, attention cuts, pruning, the logit lens, direct effects, restoring.

    Each method returns plain data; docs/reference/instruments.md lists them.
    """
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r}: instruments measure a natural model on a behaviour; give `behaviour`"
        )
    lab = NaturalLab.draw(specimen, draw.n, seed=draw.seed, split=draw.split)
    return Instruments(lab, piece=vocabulary.tokenizer.piece)


def _gains(specimen: Specimen, output: Tensor, resid: Tensor, top: int) -> tuple[tuple[tuple[str, float], ...], ...]:
    model = specimen.model
    assert isinstance(specimen.vocabulary, TextVocabulary)
    piece = specimen.vocabulary.tokenizer.piece
    logits = direct_logits(model, output, resid=resid)
    logits = logits - logits.mean(-1, keepdim=True)
    best = logits.topk(min(top, logits.shape[-1]))
    return tuple(
        tuple((piece(token), round(gain, DIGITS)) for token, gain in zip(tokens, gains, strict=True))
        for tokens, gains in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )


def _tokens(specimen: Specimen, prompt: object) -> Int[Tensor, "1 pos"]:
    length = specimen.vocabulary.lengths([prompt])[0]
    if length > MOST_TOKENS:
        raise BadInput(f"prompt: has {length} tokens; at most {MOST_TOKENS} can be looked at")
    return specimen.tokenize([prompt])
