"""What there is to study: load a specimen, list them, show one, run it, ask which behaviours it performs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.behaviours import Behaviour, measure
from vesalius.behaviours import behaviours as all_behaviours
from vesalius.behaviours.check import check_behaviour
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.natural import load_natural, with_behaviour
from vesalius.behaviours.registry import behaviour as behaviour_named
from vesalius.behaviours.registry import find_behaviour, plugin_behaviours
from vesalius.behaviours.trial import MOST_PROMPTS, require_drawable
from vesalius.circuits.originals import WEIGHTS as ORIGINAL_WEIGHTS
from vesalius.circuits.originals import load_original
from vesalius.circuits.specimens import (
    SPECIMEN_FILE,
    benchmark_cards,
    benchmark_directory,
    known_names,
    load_specimen,
)
from vesalius.components import all_components
from vesalius.documents.catalogue import (
    BehaviourEntry,
    BehaviourReport,
    Listing,
    MeasuredBehaviour,
    SpecimenDescription,
    SpecimenEntry,
)
from vesalius.documents.request import IN_PYTHON
from vesalius.errors import BadInput, note
from vesalius.model.arithmetic import NAME as ARITHMETIC
from vesalius.model.config import Config
from vesalius.model.devices import Devices, named_devices, place
from vesalius.model.dtypes import asked_dtype
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.sources import loader_names, loader_of
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress, shown

#: Prompts on which each built-in behaviour is measured.
MEASURED = 32
#: Natural models that are known by name; their shape is stated so that listing them loads nothing.
NATURAL = {
    SMOLLM: Config(
        n_layers=30,
        n_heads=9,
        n_kv_heads=3,
        d_model=576,
        d_head=64,
        d_mlp=1536,
        d_vocab=49152,
        d_vocab_out=49152,
        n_ctx=8192,
    ),
    ARITHMETIC: Config(n_layers=3, n_heads=6, d_model=192, d_head=32, d_mlp=384, d_vocab=105, d_vocab_out=105, n_ctx=7),
}


def load(
    name: Any,
    *,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    tokenizer: Any = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    revision: str | None = None,
    progress: Progress | bool | None = None,
) -> Specimen:
    """Load a specimen.

    A benchmark circuit by id or name (`3`, `frac_prevs`), a directory made by `vesalius train`, a case folder of
    the published InterpBench models, or a natural model with the behaviour it is studied for (`smollm2-135m`, a
    Hugging Face directory, a GGUF file, a hub id, a model of transformers in memory).

    `behaviour` is a name, the path of a file of rows, a list of rows or a `ves.Behaviour`; `metric` is what its answers
    are measured by: "logit-difference", "probability", "probability-difference", "log-probability", "loss", "kl" or a
    function.

    For natural models: `tokenizer` is one of transformers or tokenizers, or a directory (default: the model's own; a
    model without any takes token ids). `dtype` is "auto" (that of the weights), "float32", "bfloat16" or "float16":
    scores are float32 in any case. `device` is one, or several ("cuda:0,cuda:1", or a list) over which layers are
    spread by free memory; "auto" is a GPU where there is one, several where the model does not fit one (circuits
    stay on the CPU, which is faster for them). `revision` is a hub revision.
    """
    device = device if device == "auto" else named_devices(device)
    reading: dict[str, Any] = {"tokenizer": tokenizer, "dtype": dtype, "revision": revision, "device": device}
    if not isinstance(name, str | int | Path):
        with shown(progress) as report:
            specimen = load_natural(name, behaviour=behaviour, metric=metric, progress=report, **reading)
        place(specimen.model, device)
        return replace(specimen, dtype=asked_dtype(dtype), **_read_with(tokenizer, revision))
    text = str(name)
    if not text.strip():
        raise BadInput(f"specimen {text!r} is not a name; use one that `vesalius specimens` lists, a path or a hub id")
    path = Path(text).expanduser()
    directory = benchmark_directory(text) or (path if (path / SPECIMEN_FILE).is_file() else None)
    if directory is not None:
        if behaviour is not None or metric is not None:
            given = f"behaviour {behaviour!r}" if behaviour is not None else f"metric {metric!r}"
            raise BadInput(f"specimen {text!r} has one task of its own; leave out the {given}")
        specimen = load_specimen(directory)
    elif (path / ORIGINAL_WEIGHTS).is_file():
        specimen = load_original(path)
    elif text in NATURAL or loader_of(text) is not None or path.exists() or "/" in text or text.endswith(".gguf"):
        with shown(progress) as report:
            specimen = load_natural(text, behaviour=behaviour, metric=metric, progress=report, **reading)
    else:
        known = f"{', '.join([*NATURAL, *loader_names()])}, {known_names(3)}"
        raise BadInput(f"specimen {text!r} is not known; use {known}, a path or a hub id such as org/model")
    natural = specimen.kind == "natural"
    place(specimen.model, device, natural=natural)
    asked = {"dtype": asked_dtype(dtype), **_read_with(tokenizer, revision)} if natural else {}
    return replace(specimen, source=text, **asked)


def _read_with(tokenizer: Any, revision: str | None) -> dict[str, str | None]:
    """How a model was read, as its requests name it."""
    if tokenizer is not None:
        tokenizer = str(tokenizer) if isinstance(tokenizer, str | Path) else IN_PYTHON
    return {"tokenizer": tokenizer, "revision": revision}


def loaded(
    specimen: Specimen | str | int | Path,
    *,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    tokenizer: Any = None,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    progress: Progress | bool | None = None,
) -> Specimen:
    """A specimen as it is, or the one that a name or a path stands for; a natural model that is loaded already can be
    studied for another behaviour or by another metric.
    """
    if not isinstance(specimen, Specimen):
        if not isinstance(specimen, str | int | Path) or isinstance(specimen, bool):
            raise BadInput(
                f"{type(specimen).__name__} is not a specimen; give a name, a path or what ves.load returned"
            )
        reading: dict[str, Any] = {"tokenizer": tokenizer, "revision": revision, "dtype": dtype, "device": device}
        return load(specimen, behaviour=behaviour, metric=metric, progress=progress, **reading)
    asked = {"dtype": asked_dtype(dtype), **_read_with(tokenizer, revision)}
    for name, value in asked.items():
        if value not in (None, getattr(specimen, name)):
            raise BadInput(f"specimen {specimen.name!r} is loaded already; give {name} {value} to ves.load")
    if behaviour is None and metric is None:
        return specimen
    return with_behaviour(specimen, behaviour, metric=metric)


def specimens() -> Listing[SpecimenEntry]:
    """Every specimen that is known by name, one description each: the benchmark circuits, then the natural models."""
    natural = [
        {
            "id": name,
            "name": name,
            "kind": "natural",
            "components": [str(component) for component in all_components(config)],
            "layers": config.n_layers,
            "heads": config.n_heads,
            "d_model": config.d_model,
        }
        for name, config in NATURAL.items()
    ]
    return Listing(SpecimenEntry(**one) for one in [*(card.describe() for card in benchmark_cards()), *natural])


def show(
    specimen: Specimen | str | int | Path, *, behaviour: Any = None, progress: Progress | bool | None = None
) -> SpecimenDescription:
    """One specimen in full: its shape, components, vocabulary and a few examples."""
    specimen = loaded(specimen, behaviour=behaviour, progress=progress)
    vocabulary, examples = specimen.vocabulary, specimen.examples
    vocab, lengths = vocabulary.summary(), {"max_len": vocabulary.max_len, "min_len": vocabulary.min_len}
    return SpecimenDescription(**specimen.describe(), examples=examples, vocab=vocab, **lengths)  # type: ignore[arg-type]


def predict(
    specimen: Specimen | str | int | Path, inputs: Sequence[Any] | str, *, progress: Progress | bool | None = None
) -> list[list[Any]]:
    """The model's decoded outputs for each input (a list of tokens, or a text), one per token; a natural model also
    takes one text alone.
    """
    specimen = loaded(specimen, progress=progress)
    return specimen.predict(_several(specimen, inputs))


def bos_text(specimen: Specimen) -> str | None:
    """The token that is put before every text of a natural model; None where there is none."""
    return specimen.vocabulary.bos_text if isinstance(specimen.vocabulary, TextVocabulary) else None


def next_tokens(
    specimen: Specimen | str | int | Path,
    inputs: Sequence[Any] | str,
    *,
    top: int = 5,
    progress: Progress | bool | None = None,
) -> list[list[dict[str, Any]]]:
    """The `top` likeliest tokens after each text, with their probabilities."""
    specimen = loaded(specimen, progress=progress)
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


def likeliest_tokens(vocabulary: TextVocabulary, logits: Tensor, top: int) -> list[dict[str, Any]]:
    """The `top` likeliest tokens by the logits of one position, with their probabilities."""
    probabilities = logits.float().softmax(-1)
    best = probabilities.topk(min(top, len(probabilities)))
    return [
        {"token": vocabulary.tokenizer.piece(token), "probability": probability}
        for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _several(specimen: Specimen, inputs: Sequence[Any] | str) -> Sequence[Any]:
    """Inputs as a list; one text alone stands for itself."""
    return [inputs] if isinstance(inputs, str) and isinstance(specimen.vocabulary, TextVocabulary) else inputs


def behaviours(
    specimen: Specimen | str | Path | None = None,
    *,
    behaviour: Any = None,
    metric: BehaviourMetric | None = None,
    n: int | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Any:
    """A `Listing` of the behaviours by name; with a natural model, of how well it performs each on `n` prompts (32).
    Where its tokenizer cannot say a behaviour's words, `performs` is None and `reason` says why.

    With `behaviour` (a name, a file, rows or a `ves.Behaviour`) a `BehaviourReport` on that one: which rows are kept
    and why others are not, and accuracy and metric with intervals, of all rows and of each split (at most `n` of each).
    """
    if specimen is None:
        if behaviour is not None:
            raise BadInput(f"behaviour {behaviour!r}: name the model whose tokenizer reads it, before `behaviour`")
        return Listing(BehaviourEntry(name=one.name, description=one.description) for one in _all_behaviours())
    require_drawable(MEASURED if n is None else n, seed)
    own = None if behaviour is None else find_behaviour(behaviour, metric=metric)
    with shown(progress) as report:
        specimen = loaded(specimen, progress=report)
        if not isinstance(specimen.vocabulary, TextVocabulary):
            raise BadInput(f"specimen {specimen.name!r} is not a natural model; behaviours are for text models")
        model, tokenizer = specimen.model, specimen.vocabulary.tokenizer
        if own is not None:
            most = n or (MOST_PROMPTS if own.measured_split != "test" else MEASURED)
            report_data = check_behaviour(own, model, tokenizer, n=most, seed=seed, progress=report)
            subject = {"model": specimen.source or specimen.id, "bos": specimen.vocabulary.bos_text}
            return BehaviourReport(**subject, **report_data)
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
        except BadInput as error:
            note(str(error))
    return found
