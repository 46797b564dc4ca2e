"""What if: replace some components together and see what the model says then."""

import json
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from vesalius.api.dictionaries import dictionaries_of, other_model, require_fitting
from vesalius.api.door import directory_for, place_for, removed_if_empty, request_on, verb, written
from vesalius.api.sweeps import usual_kind
from vesalius.behaviours.contrast import require_contrast
from vesalius.behaviours.trial import Trial, trial, unchanged_outputs
from vesalius.components import Names
from vesalius.discovery.what_if import KINDS, LIKELY, Replacements, RunOutputs
from vesalius.documents.experiments import WHAT_IF_FILE, Likely, WhatIf, WhatIfRow
from vesalius.documents.metric import Metric
from vesalius.documents.sweep import SIDES
from vesalius.errors import BadInput, Failed
from vesalius.intervene import Batch, Readout
from vesalius.intervene.ablations import ablation_named
from vesalius.intervene.features import bound
from vesalius.intervene.signed import PHRASES, word_of
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.options import Draw, Edit, Force, Out, Sparse
from vesalius.progress import Progress, silent
from vesalius.sites import Site, parse_sites
from vesalius.values import JsonObject

#: Saved answers to one question, and characters of their name.
MOST_OF_ONE_NAME, LONGEST_NAME = 1_000, 80


def require_edit(specimen: object, edit: Edit, sparse: Sparse) -> None:
    """Refuse an ablation that does not exist, and dictionaries that do not go with the model."""
    if edit.kind is not None:
        ablation_named(edit.kind, KINDS)
    require_fitting(specimen, sparse)


@partial(verb, check=require_edit)
def what_if(
    specimen: Specimen,
    components: Names,
    *,
    edit: Edit,
    draw: Draw,
    force: Force,
    sparse: Sparse,
    out: Out = None,
    progress: Progress = silent,
) -> WhatIf:
    """Replace components, activations or edges together and compare what the model says before and after.

    Names are those of sites: `L1H2`, `L3_MLP`, `L12.resid@S2`, `L3H1.q`, `L0H1->L5H3.k`, with positions after @, and
    `L12F4711`, a latent of the sparse dictionaries in the directory `features`.
    `kind` is what takes their place: "zero", "mean", "resample" (from the counterfactual prompt) or "patch" (from the
    prompt `source`); where it is left out, what `sweep` takes, or on a prompt of yours "patch" or, without a source,
    "zero". By default on `n` prompts of the specimen's behaviour or inputs; with `prompt` on that one alone
    (a text, or a list of tokens): then the score is the probability of what the unchanged model says next. `at` limits
    the replacement to one position: a role of the behaviour's prompts, "end", a number from 0, or one below 0 from the
    end. `force` goes on where
    resampling everything does not lower the behaviour's score.
    """
    sites_in(specimen, components, sparse)
    progress("running the prompts", 0, 1)
    edit = replace(edit, kind=edit.kind or usual_kind(specimen))
    document = answer(prepare(specimen, edit, draw), components, edit, draw, force, sparse)
    progress("running the prompts", 1, 1)
    named = "+".join(document.request.components or ())[:60]
    asked = (edit, *_drawn(edit, draw), force, sparse)
    return written(document, place_for(out, specimen, document.request, *asked, words=(named,)), WHAT_IF_FILE)


def _drawn(edit: Edit, draw: Draw) -> tuple[Draw, ...]:
    """The prompts, where they are drawn."""
    return (draw,) if edit.prompt is None else ()


def save_what_if(document: WhatIf, directory: str | Path) -> Path:
    """Write an answer into a directory of its own below `directory`, named after the question; returns the file.

    An answer that lies there already is never overwritten: the next one of that name gets a number.
    """
    request = document.request
    name = _file_name([request.specimen, request.behaviour, request.options.get("kind"), *(request.components or ())])
    place = directory_for(directory)
    for number in range(1, MOST_OF_ONE_NAME + 1):
        own = place / (name if number == 1 else f"{name}-{number}")
        try:
            own.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise Failed(f"{own}: could not be made ({error.strerror}); choose another place") from None
        with removed_if_empty(own):
            document.write(own / WHAT_IF_FILE)
        return own / WHAT_IF_FILE
    raise BadInput(f"{place / name}: {MOST_OF_ONE_NAME} answers have this name; move some of them away")


def prepare(specimen: Specimen, edit: Edit, draw: Draw) -> Replacements:
    """The clean run of the prompts, for several questions on the same ones."""
    if edit.prompt is None:
        return Replacements(specimen, trial(specimen, draw.n, seed=draw.seed, split=draw.split), likely=LIKELY)
    given = _one_prompt(specimen, _tokens(edit.prompt), _tokens(edit.source))
    return Replacements(specimen, given, reference=given.counterfactual, likely=LIKELY)


def sites_in(specimen: Specimen, names: Names, sparse: Sparse) -> list[Site]:
    """The places that are named, latents with their dictionaries."""
    return bound(parse_sites(names, specimen.model.config), dictionaries_of(specimen, sparse))


def answer(
    ready: Replacements, components: Names, edit: Edit, draw: Draw, force: Force, sparse: Sparse | None = None
) -> WhatIf:
    """One question on prompts that `prepare` made ready."""
    sparse = sparse or Sparse()
    contrast = ready.contrast if ablation_named(edit.kind, KINDS).from_counterfactual else None
    if contrast is not None:
        named = ready.specimen.behaviour or ""
        require_contrast(contrast, named, model=ready.specimen.source or ready.specimen.name, force=force.force)
    if contrast is None or contrast.usable:
        force = Force()  # there was nothing to force, and the command that repeats it need not
    start, rows = time.perf_counter(), ready.cost.rows
    parts = tuple(dict.fromkeys(sites_in(ready.specimen, components, sparse)))
    clean, edited = ready.clean, ready.edited(parts, edit.kind, _position(edit.at))
    specimen, n, seed = ready.specimen, len(ready.material.batch), draw.seed
    asked = replace(edit, kind=str(edit.kind), prompt=_text(edit.prompt), source=_text(edit.source))
    drawn = _drawn(edit, replace(draw, n=n))
    named = {"components": tuple(map(str, parts)), "made_for": other_model(specimen, dictionaries_of(specimen, sparse))}
    return WhatIf(
        request=request_on(specimen, "what-if", asked, *drawn, force, sparse, **named),
        unit=ready.material.readout.unit,
        clean=Metric.of_mean(clean.score, seed=seed),
        edited=Metric.of_mean(edited.score, seed=seed),
        effect=Metric.of_mean(clean.score - edited.score, seed=seed),
        changed=Metric.of_share(sum(a != b for a, b in zip(clean.outputs, edited.outputs, strict=True)), n),
        rows=_rows(ready.texts(), clean, edited),
        forwards=(ready.cost.rows - rows) / n,
        seconds=time.perf_counter() - start,
        contrast=contrast,
        **_signed(clean, edited, seed),
    )


def _signed(clean: RunOutputs, edited: RunOutputs, seed: int) -> JsonObject:
    """The effects on the logits of right, wrong and the rest, and what they say; nothing where a score has no sides."""
    if clean.sides is None or edited.sides is None:
        return {}
    effects = clean.sides.minus(edited.sides)
    figures = {f"effect_{side}": Metric.of_mean(values, seed=seed) for side, values in zip(SIDES, effects, strict=True)}
    return {**figures, "acts": PHRASES.get(word_of(effects, seed=seed) or "")}


def _rows(texts: list[str], clean: RunOutputs, edited: RunOutputs) -> tuple[WhatIfRow, ...]:
    return tuple(
        WhatIfRow(
            prompt=text,
            clean=clean.outputs[i],
            edited=edited.outputs[i],
            clean_score=float(clean.score[i]),
            edited_score=float(edited.score[i]),
            changed=clean.outputs[i] != edited.outputs[i],
            clean_likely=_likely(clean, i),
            edited_likely=_likely(edited, i),
        )
        for i, text in enumerate(texts)
    )


def _likely(reading: RunOutputs, row: int) -> tuple[Likely, ...]:
    return tuple(Likely(token=token, probability=probability) for token, probability in reading.likely[row])


def _tokens(given: object) -> object:
    """A prompt as it was given; a text that is a JSON list stands for the list of its tokens."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        with suppress(json.JSONDecodeError, RecursionError):
            return json.loads(given)
    return given


def _text(prompt: object) -> str | None:
    """A prompt as an option of the command has it."""
    return prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt)


def _one_prompt(specimen: Specimen, prompt: object, source: object) -> Trial:
    """A prompt of the user's own, with the prompt that values are taken from."""
    given = [prompt] if source is None else [prompt, source]
    lengths = specimen.vocabulary.lengths(given)
    if len(set(lengths)) > 1:
        raise BadInput(
            f"`source`: has {lengths[1]} tokens and `prompt` has {lengths[0]}; give two prompts of as many tokens"
        )
    tokens = specimen.tokenize(given)
    batch, other = Batch(tokens[:1]), Batch(tokens[-1:])
    if not isinstance(specimen.vocabulary, TextVocabulary):
        return Trial(batch, other, unchanged_outputs(specimen, batch))
    with torch.no_grad():
        clean = specimen.model(batch.tokens.to(specimen.model.device))[0, -1].argmax().cpu()
    last = torch.tensor([[tokens.shape[1] - 1]])
    readout = Readout(
        lambda logits, row: logits[:, 0].float().softmax(-1)[:, int(clean)],
        last,
        unit="probability of the clean answer",
    )
    return Trial(batch, other, readout)


def _position(at: str | int | None) -> str | int | None:
    """A position given as text is a number where it looks like one."""
    return int(at) if isinstance(at, str) and re.fullmatch(r"-?[0-9]{1,9}", at) else at


def _file_name(words: Iterable[object]) -> str:
    """Words as the name of a directory: letters, digits and a few signs, never a path."""
    named = "-".join(re.sub(r"[^A-Za-z0-9_]+", "-", str(word)).strip("-") for word in words if word)
    return named[:LONGEST_NAME].strip("-") or "what-if"
