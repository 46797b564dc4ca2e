"""Look at one prompt: its tokens and answer, where heads look, what components write; or measure with instruments."""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.api.catalogue import likeliest_tokens
from vesalius.api.door import verb
from vesalius.components import Component, parse_components, split_names
from vesalius.documents.experiments import AttentionLook, HeadAttention, LensLook, Likely, Look
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.instruments import Instruments
from vesalius.intervene import Batch
from vesalius.intervene.probes import direct_logits
from vesalius.intervene.values import OUTPUT_HOOKS, contribution, values_of
from vesalius.model.specimen import Specimen, TextVocabulary, json_value
from vesalius.options import Draw

#: A longer prompt is refused: its picture could not be read, and takes memory quadratic in its length.
MOST_TOKENS = 256
MOST_COMPONENTS = 64
DIGITS = 4


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
def attention(specimen: Specimen, prompt: Any, *, layer: int) -> AttentionLook:
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
def lens(specimen: Specimen, prompt: Any, components: Iterable[str | Component] | str, *, top: int = 5) -> LensLook:
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


def _tokens(specimen: Specimen, prompt: Any) -> Int[Tensor, "1 pos"]:
    length = specimen.vocabulary.lengths([prompt])[0]
    if length > MOST_TOKENS:
        raise BadInput(f"prompt: has {length} tokens; at most {MOST_TOKENS} can be looked at")
    return specimen.tokenize([prompt])
