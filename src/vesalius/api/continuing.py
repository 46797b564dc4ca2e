"""Continue a prompt under interventions: sites replaced, a direction added, and what the model writes then."""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.api.dictionaries import dictionaries_of, other_model, require_fitting
from vesalius.api.door import place_for, request_on, verb
from vesalius.api.door import written as in_directory
from vesalius.api.knockouts import sites_in
from vesalius.documents.base import FrozenDict
from vesalius.documents.experiments import COMPLETION_FILE, Completion, NextToken
from vesalius.documents.request import IN_PYTHON, Request
from vesalius.errors import BadInput
from vesalius.intervene.ablations import ABLATIONS
from vesalius.intervene.generation import (
    Changes,
    Steering,
    clean_next,
    contrast_direction,
    divergence,
    greedy,
    random_directions,
    steering_width,
)
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import read_tensors
from vesalius.options import Continuing, Out, Sparse
from vesalius.progress import Progress, silent
from vesalius.sites import parse_sites

#: The likeliest next tokens of each side that are shown, and the random directions that steering is compared with.
LIKELY, RANDOM = 5, 8


def require_question(specimen: object, continuing: Continuing, sparse: Sparse) -> None:
    """Refuse a question without a prompt, or in which nothing is changed, and dictionaries that do not go with the
    model.
    """
    continuing.require_question()
    require_fitting(specimen, sparse)


@partial(verb, check=require_question)
def complete(
    specimen: Specimen,
    *,
    continuing: Continuing,
    sparse: Sparse,
    out: Out = None,
    progress: Progress = silent,
) -> Completion:
    """What a natural model writes after `prompt`, as it is and under interventions, the likeliest token each time; with
    the distribution of the next token before and after.

    `edits` are sites (`L1H2`, `L3.resid@2`, `L0H1->L5H3.k`, or `L12F4711`, a latent of the sparse dictionaries in the
    directory `features`) that are replaced by zero, or, with `source`, by their
    values on that text. `steer` is a site to which a direction is added `strength` times: the mean of its values at the
    last token of the texts `toward`, less that of the texts `away`; or `direction`, a tensor or a safetensors file.
    Without positions after @ both hold for every token, those written included; patched sites only for the prompt's.
    Steering is compared with random directions of the same length.
    """
    vocabulary, model = specimen.vocabulary, specimen.model
    if not isinstance(vocabulary, TextVocabulary) or not model.config.causal:
        raise BadInput(f"specimen {specimen.name!r} does not write text; give a natural model")
    start, prompt = time.perf_counter(), _tokens(specimen, str(continuing.prompt), "prompt")
    if prompt.shape[1] + continuing.tokens > model.config.n_ctx:
        most = max(0, model.config.n_ctx - prompt.shape[1])
        raise BadInput(f"`tokens` {continuing.tokens}: after this prompt the model's context has room for {most}")
    edits = () if continuing.edits is None else tuple(sites_in(specimen, continuing.edits, sparse))
    source = None
    if continuing.source is not None:
        source = _tokens(specimen, continuing.source, "source")
        if source.shape != prompt.shape:
            lengths = f"has {source.shape[1]} tokens and `prompt` has {prompt.shape[1]}"
            raise BadInput(f"`source`: {lengths}; give two texts of as many tokens")
    kind = ABLATIONS[continuing.kind or "zero"]()
    changes = Changes(edits, kind, source, _steering(specimen, continuing))
    clean, edited = clean_next(model), changes.next(model, prompt)
    with torch.no_grad():
        before, after = clean(prompt), edited(prompt)
        written = []
        for done, side in enumerate((clean, edited)):
            progress("writing", done, 2)
            written.append(greedy(side, prompt, continuing.tokens))
        control = _control(model, changes, prompt, before, continuing.seed)
    progress("writing", 2, 2)
    asked = replace(continuing, direction=_named(continuing.direction))
    request, piece = _request(specimen, asked, sparse), vocabulary.tokenizer.piece
    document = Completion(
        request=request,
        prompt=str(continuing.prompt),
        clean=vocabulary.tokenizer.decode(written[0]),
        edited=vocabulary.tokenizer.decode(written[1]),
        clean_tokens=tuple(map(piece, written[0])),
        edited_tokens=tuple(map(piece, written[1])),
        next=tuple(
            NextToken(token=piece(token), clean=float(before[token].exp()), edited=float(after[token].exp()))
            for token in dict.fromkeys([*before.topk(LIKELY).indices.tolist(), *after.topk(LIKELY).indices.tolist()])
        ),
        divergence=divergence(before, after),
        control=control,
        length=None if changes.steering is None else _length(changes.steering),
        seconds=time.perf_counter() - start,
    )
    words = tuple(filter(None, (continuing.edits, continuing.steer and f"steer-{continuing.steer}")))
    short = [word[:60].replace("->", "-") for word in words]
    return in_directory(document, place_for(out, specimen, request, asked, sparse, words=short), COMPLETION_FILE)


def _request(specimen: Specimen, asked: Continuing, sparse: Sparse) -> Request:
    """What was asked; a behaviour that the specimen is loaded with decides nothing here."""
    made_for = other_model(specimen, dictionaries_of(specimen, sparse))
    request = request_on(specimen, "complete", asked, sparse, made_for=made_for)
    options = {name: value for name, value in request.options.items() if name != "metric"}
    return request.model_copy(update={"behaviour": None, "options": FrozenDict(options)})


def _tokens(specimen: Specimen, text: str, name: str) -> Int[Tensor, "1 pos"]:
    tokens = specimen.tokenize([text])
    if not tokens.shape[1]:
        raise BadInput(f"`{name}` {text!r} has no tokens; give a longer text")
    return tokens


def _steering(specimen: Specimen, continuing: Continuing) -> Steering | None:
    if continuing.steer is None:
        return None
    sites = parse_sites(continuing.steer, specimen.model.config)
    if len(sites) > 1:
        raise BadInput(f"`steer` {continuing.steer}: a direction is added at one site; give one")
    width = steering_width(specimen.model, sites[0])
    if continuing.direction is not None:
        direction = _direction(continuing.direction)
        if tuple(direction.shape) != (width,):
            raise BadInput(f"`direction` has shape {tuple(direction.shape)}; {sites[0]} needs ({width},)")
    else:
        toward, away = (
            [_tokens(specimen, text, name) for text in texts]
            for name, texts in (("toward", continuing.toward), ("away", continuing.away))
        )
        direction = contrast_direction(specimen.model, sites[0], toward, away)
    if not bool(direction.isfinite().all()) or not float(direction.norm()):
        raise BadInput("the direction is zero or not finite; give texts that differ, or another direction")
    return Steering(sites[0], direction, continuing.strength)


def _direction(given: object) -> Float[Tensor, " width"]:
    """A direction as it was given: a tensor, or a file with one."""
    if isinstance(given, Tensor):
        return given.detach().cpu().float()
    if given == IN_PYTHON:
        raise BadInput("the request is about a direction given in Python; give the same one as `direction`")
    tensors = read_tensors(Path(str(given)))
    if len(tensors) != 1:
        raise BadInput(f"`direction` {given}: holds {len(tensors)} tensors; give a file with one")
    (direction,) = tensors.values()
    return direction.float()


def _named(direction: object) -> str | None:
    """What a request says of a direction."""
    return IN_PYTHON if isinstance(direction, Tensor) else None if direction is None else str(direction)


def _length(steering: Steering) -> float:
    return abs(steering.strength) * float(steering.direction.norm())


def _control(
    model: Any, changes: Changes, prompt: Int[Tensor, "1 pos"], before: Float[Tensor, " vocab"], seed: int
) -> tuple[float, ...]:
    """How far random directions of the same length move the next token; the edits are the same."""
    if changes.steering is None:
        return ()
    drawn = random_directions(changes.steering.direction, RANDOM, seed)
    steered = (replace(changes, steering=changes.steering.along(one)) for one in drawn)
    return tuple(divergence(before, one.next(model, prompt)(prompt)) for one in steered)
