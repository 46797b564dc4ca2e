"""What there is to study: load a specimen, list them, show one, run it, ask which behaviours it performs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.api.door import verb
from vesalius.api.loading import loaded
from vesalius.behaviours import Behaviour, measure
from vesalius.behaviours import behaviours as all_behaviours
from vesalius.behaviours.checking import check_behaviour, propose_counterfactuals, require_new_file
from vesalius.behaviours.contrast import with_best_partners
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.own import RowBehaviour
from vesalius.behaviours.registry import behaviour as behaviour_named
from vesalius.behaviours.registry import find_behaviour, plugin_behaviours
from vesalius.documents.behaviour_report import report as behaviour_report
from vesalius.documents.catalogue import (
    BehaviourEntry,
    Listing,
    MeasuredBehaviour,
    SpecimenDescription,
)
from vesalius.errors import BadInput, Failed, note
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.options import MOST_PROMPTS, Load, Read, require_drawable
from vesalius.progress import Progress, shown
from vesalius.values import JsonObject

#: Prompts on which each built-in behaviour is measured.
MEASURED = 32


@verb
def show(specimen: Specimen) -> SpecimenDescription:
    """One specimen in full: its shape, components, vocabulary and a few examples."""
    vocabulary, examples = specimen.vocabulary, specimen.examples
    vocab, lengths = vocabulary.summary(), {"max_len": vocabulary.max_len, "min_len": vocabulary.min_len}
    return SpecimenDescription(**specimen.describe(), examples=examples, vocab=vocab, **lengths)  # type: ignore[arg-type]


@verb
def predict(specimen: Specimen, inputs: Sequence[object] | str) -> list[list[Any]]:
    """The model's decoded outputs for each input (a list of tokens, or a text), one per token; a natural model also
    takes one text alone.
    """
    return specimen.predict(_several(specimen, inputs))


def bos_text(specimen: Specimen) -> str | None:
    """The token that is put before every text of a natural model; None where there is none."""
    return specimen.vocabulary.bos_text if isinstance(specimen.vocabulary, TextVocabulary) else None


@verb
def next_tokens(specimen: Specimen, inputs: Sequence[object] | str, *, top: int = 5) -> list[list[JsonObject]]:
    """The `top` likeliest tokens after each text, with their probabilities."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        raise BadInput(f"specimen {specimen.name!r} is not a natural model; the likeliest tokens are for text models")
    if top < 1:
        raise BadInput(f"top={top} tokens are none; ask for at least 1")
    likeliest = []
    for text in _several(specimen, inputs):
        tokens = specimen.tokenize([text]).to(specimen.model.device)
        with torch.no_grad():
            likeliest.append(likeliest_tokens(vocabulary, specimen.model(tokens)[0, -1], top))
    return likeliest


def likeliest_tokens(vocabulary: TextVocabulary, logits: Tensor, top: int) -> list[JsonObject]:
    """The `top` likeliest tokens by the logits of one position, with their probabilities."""
    probabilities = logits.float().softmax(-1)
    best = probabilities.topk(min(top, len(probabilities)))
    return [
        {"token": vocabulary.tokenizer.piece(token), "probability": probability}
        for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _several(specimen: Specimen, inputs: Sequence[object] | str) -> Sequence[object]:
    """Inputs as a list; one text alone stands for itself."""
    return [inputs] if isinstance(inputs, str) and isinstance(specimen.vocabulary, TextVocabulary) else inputs


def behaviours(
    specimen: Specimen | str | Path | None = None,
    read: Read | None = None,
    *,
    behaviour: object = None,
    metric: BehaviourMetric | None = None,
    n: int | None = None,
    seed: int = 0,
    propose: str | Path | None = None,
    words: Sequence[str] = (),
    progress: Progress | bool | None = None,
) -> Any:
    """A `Listing` of the behaviours by name; with a natural model, of how well it performs each on `n` prompts (32).
    Where its tokenizer cannot say a behaviour's words, `performs` is None and `reason` says why.

    With `behaviour` (a name, a file, rows or a `ves.Behaviour`) a `BehaviourReport` on that one: which rows are kept
    and why others are not; how often the model prefers the right answer and how often it says it, and the metric, with
    intervals, of all rows and of each split (at most `n` of each); what it says instead; whether replacing everything
    lowers the score. `read` says how a model is read that is not loaded yet. With `propose` (a new file)
    counterfactuals for rows without one are looked for among the model's own expectations, other rows and `words`, and
    written there for you to read.
    """
    if propose is None and words:
        raise BadInput("words: are candidates for counterfactuals; give `propose` and a new file too")
    path = None if propose is None else require_new_file(propose)
    if path is not None and behaviour is None:
        raise BadInput(f"propose {str(path)!r}: name the rows that counterfactuals are for, with a behaviour")
    if specimen is None:
        if behaviour is not None:
            raise BadInput(f"behaviour {behaviour!r}: name the model whose tokenizer reads it, before `behaviour`")
        return Listing(BehaviourEntry(name=one.name, description=one.description) for one in _all_behaviours())
    require_drawable(MEASURED if n is None else n, seed)
    own = None if behaviour is None else find_behaviour(behaviour, metric=metric)
    with shown(progress) as report:
        specimen = loaded(specimen, None if read is None else Load(**read.values()), progress=report)
        if not isinstance(specimen.vocabulary, TextVocabulary):
            why = "has one task of its own; behaviours are for language models"
            if specimen.kind == "natural":
                why = "has no tokenizer; give the directory of one, with --tokenizer or tokenizer="
            raise BadInput(f"specimen {specimen.name!r} {why}")
        model, tokenizer = specimen.model, specimen.vocabulary.tokenizer
        if own is not None:
            own = with_best_partners(own, model, tokenizer)
            most = n or (MOST_PROMPTS if own.measured_split != "test" else MEASURED)
            measured = check_behaviour(own, model, tokenizer, n=most, seed=seed, progress=report)
            if path is not None:
                found = propose_counterfactuals(own, model, tokenizer, path, words=words, progress=report)
                measured["proposed"] = found
            subject = {"model": specimen.source or specimen.id, "bos": specimen.vocabulary.bos_text}
            given = {} if read is None else read.values()
            flags = [f"--{name}={value}" for name, value in given.items() if isinstance(value, str) and value != "auto"]
            return behaviour_report(measured, **subject, own=isinstance(own, RowBehaviour), reading=flags)
        if metric is not None:
            raise BadInput(f"metric {metric!r}: name the behaviour that is measured by it, `behaviour` NAME or FILE")
        rows: list[MeasuredBehaviour] = []
        listed = _all_behaviours()
        for done, one in enumerate(listed):
            report(f"measuring {one.name}", done, len(listed))
            try:
                result = measure(one, model, tokenizer, n=n or MEASURED, seed=seed, progress=report)
            except BadInput as error:  # the tokenizer cannot say this one; the others are measured all the same
                rows.append(MeasuredBehaviour(name=one.name, performs=None, reason=str(error)))
            else:
                rows.append(MeasuredBehaviour(name=one.name, **result.model_dump()))
    return Listing(rows)


def _all_behaviours() -> list[Behaviour]:
    """The built-in behaviours and those of plug-ins; one that cannot be loaded is a note, and the others are there."""
    found = all_behaviours()
    for name in plugin_behaviours():
        try:
            found.append(behaviour_named(name))
        except (BadInput, Failed) as error:
            note(str(error))
    return found
