"""Train per-layer transcoders of a model, and say what they keep of it: the verb `train_transcoders`."""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from vesalius.api.door import place_for, removed_if_empty, request_on, verb
from vesalius.behaviours.contrast import contrast_on, require_contrast
from vesalius.behaviours.controls import Corpus
from vesalius.behaviours.trial import Trial, trial
from vesalius.documents.printed import Plan
from vesalius.documents.request import Request
from vesalius.errors import BadInput, result_kept
from vesalius.model.devices import available_bytes, weight_bytes
from vesalius.model.dictionaries import read_dictionaries
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import fingerprint
from vesalius.options import Draw, Force, Out
from vesalius.progress import Progress, silent
from vesalius.sites import Feature
from vesalius_features.contexts import details, most_active, read_contexts, write_contexts
from vesalius_features.documents import TRANSCODERS_FILE, LayerTranscoder, Splice, Transcoders
from vesalius_features.measuring import (
    KINDS,
    MOST_TOKENS,
    Spliced,
    Splicing,
    mean_writes,
    reconstructions,
    spliced_text,
    surviving,
)
from vesalius_features.options import MEASURED, TranscoderTraining
from vesalius_features.rows import Texts, read_corpora, rows_of
from vesalius_features.stack import Stack, Trainer, fast_products, highest_rate
from vesalius_features.training import Recipe, Training, activations, marks_of, room_for

Answer = TypeVar("Answer")
#: Latents of the default width, in widths of the model; latents of each layer whose passages are shown.
WIDER, SHOWN = 8, 2


def require_training(training: TranscoderTraining) -> None:
    """Refuse a training without a text, and texts that cannot be read, before a model is loaded."""
    training.require_text()
    read_corpora(training.text)


def _prepared(specimen: Specimen, training: TranscoderTraining, draw: Draw) -> tuple[Corpus, Texts, Recipe]:
    """The text, its rows and the recipe for this model; what does not go with it is refused."""
    config = specimen.model.config
    if config.wrapped:
        raise BadInput(f"specimen {specimen.name!r} is wrapped: dictionaries go with models of our families")
    latents = training.latents or WIDER * config.d_model
    layers = training.layers_of(config.n_layers)
    if training.k >= latents:
        raise BadInput(f"k={training.k} of {latents} latents is not sparse; give `k` below `latents`")
    corpus = read_corpora(training.text)
    texts = rows_of(specimen, corpus, context=training.context)
    rate = training.learning_rate or highest_rate(latents)
    recipe = Recipe(layers, latents, training.k, training.steps, training.batch, rate, draw.seed)
    if texts.train.n_tokens < recipe.batch:
        raise BadInput(
            f"text {corpus.name}: {texts.train.n_tokens} tokens to train on, and batch={recipe.batch}; give more text, "
            "or a smaller `batch`"
        )
    return corpus, texts, recipe


@partial(verb, check=require_training)
def transcoders(
    specimen: Specimen,
    *,
    training: TranscoderTraining,
    draw: Draw = MEASURED,
    force: Force,
    out: Out = True,
    progress: Progress = silent,
) -> Transcoders:
    """Train a transcoder of each layer's MLP on text, and measure what they keep of the model on text held out.

    `text` are files whose articles are separated by blank lines (every third article is held out), `factbook` or
    `wikitext:PATH`; `latents`, `k`, `steps` and `batch` say how wide, how sparse and how long. The directory `out` is
    what `features` takes elsewhere; a training that was interrupted continues when the same call is made again. For a
    model with a behaviour, the share of it that survives is measured on `n` of its prompts: one layer at a time, and
    all together.
    """
    started = time.perf_counter()
    corpus, texts, recipe = _prepared(specimen, training, draw)
    material = _material(specimen, draw, force)
    request = request_on(specimen, "transcoders", training, draw, force)
    directory = place_for(out or True, specimen, request, training, draw, force, words=(corpus.name[:60],))
    assert directory is not None
    with removed_if_empty(directory):
        _training(specimen, training, texts, recipe, directory, progress).run()
    document = _measured(specimen, request, corpus, texts, recipe, material, directory, progress)
    document = document.model_copy(update={"seconds": round(time.perf_counter() - started, 2)})
    with result_kept(document):
        document.write(directory / TRANSCODERS_FILE)
        document.page(directory)
    return document


@partial(verb, check=require_training)
def transcoders_plan(
    specimen: Specimen,
    *,
    training: TranscoderTraining,
    draw: Draw = MEASURED,
    force: Force,
    progress: Progress = silent,
) -> Plan:
    """The memory and time that `train_transcoders` takes; one batch is collected and one step taken to time it."""
    _, texts, recipe = _prepared(specimen, training, draw)
    _material(specimen, draw, force)
    model, device = specimen.model, specimen.model.device
    room = room_for(recipe, model, texts.train)
    progress("timing one step", 0, 0)
    rows = texts.train.take(slice(0, max(1, len(texts.train) * 2 * recipe.batch // texts.train.n_tokens + 1)))
    layers = recipe.layers[: room.layers]
    collecting, (read, written) = _timed(lambda: activations(model, rows, layers), device)
    places = torch.arange(min(recipe.batch, read.shape[1]), device=device)
    stack = Stack.start(layers, read, written, latents=recipe.latents, k=recipe.k, seed=recipe.seed)
    trainer = Trainer(stack, steps=recipe.steps, rate=recipe.rate)
    with fast_products(device):
        trainer.take(read[:, places], written[:, places])  # the first one allocates
        step, _ = _timed(lambda: trainer.take(read[:, places], written[:, places]), device)
    groups = len(recipe.layers) / room.layers
    once = room.rows >= len(texts.train)
    passes = groups * (1 if once else recipe.steps * recipe.batch / texts.train.n_tokens)
    weights, free = weight_bytes(model), available_bytes(device)
    seconds = groups * recipe.steps * step + passes * texts.train.n_tokens / rows.n_tokens * collecting
    return Plan(
        command="transcoders",
        forwards=round(passes, 2),
        peak_bytes=weights + room.bytes,
        weight_bytes=weights,
        seconds=round(seconds, 2),
        timed="one step",
        n=len(texts.train),
        tokens=texts.train.tokens.shape[1],
        checks_forwards=0.0,
        device=str(device),
        free_bytes=free,
        fits=None if free is None else room.bytes <= free,
    )


def _timed(work: Callable[[], Answer], device: torch.device) -> tuple[float, Answer]:
    """Seconds of some work, with what it gives."""
    started = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, result


def _training(
    specimen: Specimen,
    training: TranscoderTraining,
    texts: Texts,
    recipe: Recipe,
    directory: Path,
    progress: Progress,
) -> Training:
    assert isinstance(specimen.vocabulary, TextVocabulary)
    bos, model = specimen.vocabulary.tokenizer.bos, specimen.model
    marks = marks_of(specimen.name, fingerprint(model), texts.sha256, training.context)
    return Training(model, texts.train, recipe, directory, bos, marks, progress)


def _material(specimen: Specimen, draw: Draw, force: Force) -> Trial | None:
    """The prompts of the behaviour, where the model has one and it shows something."""
    if specimen.behaviour is None:
        return None
    material = trial(specimen, draw.n, seed=draw.seed, split=draw.split)
    assert material.prompts is not None
    contrast = contrast_on(specimen.model, material.prompts)
    require_contrast(contrast, specimen.behaviour, model=specimen.source or specimen.name, force=force.force)
    return material


def _measured(
    specimen: Specimen,
    request: Request,
    corpus: Corpus,
    texts: Texts,
    recipe: Recipe,
    material: Trial | None,
    directory: Path,
    progress: Progress,
) -> Transcoders:
    """What the transcoders in a directory keep, read as `--features` reads them."""
    model = specimen.model
    dictionaries = read_dictionaries(directory, model.config)
    held_out = texts.held_out
    most = max(1, MOST_TOKENS * len(held_out) // max(1, held_out.n_tokens))
    spread = torch.linspace(0, len(held_out) - 1, min(most, len(held_out))).long()
    held_out = held_out.take(spread)
    progress("measuring on held-out text", 0, 0)
    found = reconstructions(model, held_out, dictionaries)
    write_contexts(directory, held_out, found)
    splicing = Splicing(dictionaries, mean_writes(model, held_out, dictionaries))
    sets = [(layer,) for layer in recipe.layers]
    sets += [recipe.layers] if len(sets) > 1 else []
    intact, losses = spliced_text(model, held_out, splicing, sets, progress)
    kept = None if material is None else surviving(model, material, splicing, sets, progress)
    splices = [_splice(loss, None if kept is None else kept[i]) for i, loss in enumerate(losses)]
    layers = tuple(
        LayerTranscoder(
            layer=layer,
            explained=found[layer].explained,
            dead=found[layer].dead,
            active=found[layer].active,
            spliced=splices[i],
        )
        for i, layer in enumerate(recipe.layers)
    )
    shown = [Feature(layer, latent, dictionaries.at(layer)) for layer, latent in most_active(found, SHOWN)]
    return Transcoders(
        request=request,
        text=corpus.name,
        trained_on=texts.train.n_tokens,
        tokens=held_out.n_tokens,
        latents=recipe.latents,
        k=recipe.k,
        steps=recipe.steps,
        batch=recipe.batch,
        intact=intact,
        guess=math.log(model.config.d_vocab_out),
        layers=layers,
        together=splices[-1],
        details=details(specimen, read_contexts(directory, dictionaries), shown),
        forwards=round(recipe.steps * recipe.batch / texts.train.n_tokens, 2),
        seconds=0.0,
        directory=str(directory),
    )


def _splice(loss: Spliced, kept: Spliced | None) -> Splice:
    figures = {f"loss_{kind}": loss[kind] for kind in KINDS}
    return Splice(**figures, **({} if kept is None else {f"kept_{kind}": kept[kind] for kind in KINDS}))
