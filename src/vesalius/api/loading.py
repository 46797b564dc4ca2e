"""Turn a name, a path, a hub id or a model in memory into a specimen, and hold it to what transformers computes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vesalius.api.listing import NATURAL
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.natural import load_natural, with_behaviour
from vesalius.circuits.originals import WEIGHTS as ORIGINAL_WEIGHTS
from vesalius.circuits.originals import load_original
from vesalius.circuits.specimens import SPECIMEN_FILE, benchmark_directory, known_names, load_specimen
from vesalius.documents.request import IN_PYTHON
from vesalius.errors import BadInput, Failed
from vesalius.files import require_possible
from vesalius.model.devices import Devices, asked_dtype, named_devices, place
from vesalius.model.reference import PROMPTS, Agreement, compare, load_references
from vesalius.model.sources import loader_names, loader_of, read_model
from vesalius.model.specimen import Specimen
from vesalius.options import Load, require_drawable
from vesalius.progress import Progress, shown


def load(
    name: object,
    *,
    behaviour: object = None,
    metric: BehaviourMetric | None = None,
    tokenizer: object = None,
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
    model without any takes token ids). `dtype` is "auto" (that of the weights, or float32 where that is slow on this
    processor), "float32", "bfloat16" or "float16": scores are float32 in any case. `device` is one, or several
    ("cuda:0,cuda:1", or a list) over which layers are spread by free memory; "auto" is a GPU where there is one,
    several where the model does not fit one (circuits stay on the CPU, which is faster for them). `revision` is a hub
    revision.
    """
    device = device if device == "auto" else named_devices(device)
    reading: dict[str, Any] = {"tokenizer": tokenizer, "dtype": dtype, "revision": revision, "device": device}
    if not isinstance(name, str | int | Path):
        with shown(progress) as report:
            specimen = load_natural(name, behaviour=behaviour, metric=metric, progress=report, **reading)
        place(specimen.model, device)
        return replace(specimen, dtype=asked_dtype(dtype) or specimen.dtype, **_read_with(tokenizer, revision))
    text = str(name)
    if not text.strip():
        raise BadInput(f"specimen {text!r} is not a name; use one that `vesalius specimens` lists, a path or a hub id")
    require_possible(text, what="specimen")
    path = Path(text).expanduser()
    directory = benchmark_directory(text) or (path if (path / SPECIMEN_FILE).is_file() else None)
    if directory is not None:
        if behaviour is not None or metric is not None:
            given = f"behaviour {behaviour!r}" if behaviour is not None else f"metric {metric!r}"
            raise BadInput(f"specimen {text!r} has one task of its own; leave out the {given}")
        specimen = load_specimen(directory)
    elif (path / ORIGINAL_WEIGHTS).is_file():
        specimen = load_original(path)
    else:
        require_known(text)
        with shown(progress) as report:
            specimen = load_natural(text, behaviour=behaviour, metric=metric, progress=report, **reading)
    natural = specimen.kind == "natural"
    place(specimen.model, device, natural=natural)
    specimen = replace(specimen, source=text)
    if not natural:
        return specimen
    return replace(specimen, dtype=asked_dtype(dtype) or specimen.dtype, **_read_with(tokenizer, revision))


def require_known(name: str) -> None:
    """Refuse a name that stands for no specimen; what a path or a hub id holds is not read."""
    path = Path(name).expanduser()
    if name in NATURAL or loader_of(name) is not None or benchmark_directory(name) is not None or path.exists():
        return
    if "/" not in name and not name.endswith(".gguf"):
        known = f"{', '.join([*NATURAL, *loader_names()])}, {known_names(3)}"
        raise BadInput(f"specimen {name!r} is not known; use {known}, a path or a hub id such as org/model")


def _read_with(tokenizer: object, revision: str | None) -> dict[str, Any]:
    """How a model was read, as its requests name it."""
    if tokenizer is not None:
        tokenizer = str(tokenizer) if isinstance(tokenizer, str | Path) else IN_PYTHON
    return {"tokenizer": tokenizer, "revision": revision}


def loaded(
    specimen: Specimen | str | int | Path, load_as: Load | None = None, *, progress: Progress | bool | None = None
) -> Specimen:
    """A specimen as it is, or the one that a name or a path stands for; a natural model that is loaded already can be
    studied for another behaviour or by another metric.
    """
    load_as = load_as or Load()
    if not isinstance(specimen, Specimen):
        if not isinstance(specimen, str | int | Path) or isinstance(specimen, bool):
            raise BadInput(
                f"{type(specimen).__name__} is not a specimen; give a name, a path or what ves.load returned"
            )
        return load(specimen, **load_as.values(), progress=progress)
    asked = {"dtype": asked_dtype(load_as.dtype), **_read_with(load_as.tokenizer, load_as.revision)}
    for name, value in asked.items():
        if value not in (None, getattr(specimen, name)):
            raise BadInput(f"specimen {specimen.name!r} is loaded already; give {name} {value} to ves.load")
    if load_as.behaviour is None and load_as.metric is None:
        return specimen
    return with_behaviour(specimen, load_as.behaviour, metric=load_as.metric)


def check(
    model: object,
    *,
    tokenizer: object = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    revision: str | None = None,
    n: int = len(PROMPTS),
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Agreement:
    """Load a model here and in transformers, and compare all logits of `n` prompts, and of a longer one where a window
    or a rotation needs it. `agrees` says whether rounding explains the difference (`tolerance`).

    `model` is a directory, a hub id, a GGUF file or a model of transformers in memory. In half precision both are held
    against transformers in float32. Without transformers `compared_with` is None.
    """
    if isinstance(model, str | Path) and (
        benchmark_directory(str(model)) or (Path(model).expanduser() / SPECIMEN_FILE).is_file()
    ):
        raise BadInput(
            f"model {str(model)!r} is a specimen that was trained here, which transformers has no module for; check "
            "compares a Hugging Face directory, a hub id or a GGUF file"
        )
    require_drawable(n, seed)
    where = device if device == "auto" else named_devices(device)
    with shown(progress) as report:
        report("loading", 0, 3)
        loaded = read_model(model, tokenizer=tokenizer, dtype=dtype, revision=revision, device=where, progress=report)
        place(loaded.model, where)
        report("loading transformers' module", 1, 3)
        try:
            references = load_references(model, loaded)
        except BadInput:
            raise
        except Exception as error:  # another library reads files that may hold anything
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise Failed(f"{loaded.label}: transformers could not load this model ({reason})") from None
        report("comparing", 2, 3)
        found = compare(loaded, references, n=n, seed=seed)
        return found.model_copy(update={"model": str(model)}) if isinstance(model, str | Path) else found
