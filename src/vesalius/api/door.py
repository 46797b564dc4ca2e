"""The door of the package: what callers give becomes a loaded specimen and records, once; what is answered says what
was asked.

    @verb
    def sweep(specimen: Specimen, *, knockout: Knockout, draw: Draw = SWEPT, ...) -> Effects: ...

    ves.sweep("frac_prevs", n=8)                      # a name, and fields of records as keywords
    ves.sweep(specimen, Draw(n=8), Knockout("mean"))  # a loaded specimen and records

A verb sees a `Specimen` and records only. Options that can be refused without the model are refused before it is
loaded.
"""

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from vesalius.api.loading import loaded
from vesalius.behaviours.behaviour import Behaviour, label_of
from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.trial import Trial
from vesalius.circuits.specimens import benchmark_directory
from vesalius.components import split_names
from vesalius.documents.base import ResultDocument
from vesalius.documents.performance import Performance
from vesalius.documents.request import MATERIAL, Command, Request
from vesalius.documents.trace import Trace
from vesalius.documents.view import title_of
from vesalius.errors import BadInput, note, result_kept
from vesalius.intervene import Batch
from vesalius.model.specimen import Specimen
from vesalius.options import Flat, Load, Option, OptionRecord, Out, given_options
from vesalius.progress import Progress, shown

# What calls have in common: where they leave their files (the directory asked for, or one under `vesalius-runs` named
# after the request), and what their requests say about model and prompts.

RUNS = "vesalius-runs"


def directory_for(out: Out, *words: str | None) -> Path:
    """Make the directory `out`, or one under `vesalius-runs` named by the words, and check that it can be written."""
    if isinstance(out, str | Path) and str(out):
        directory = Path(out)
    else:
        directory = Path(RUNS) / "-".join(word.replace("/", "_") for word in words if word)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _unusable(directory, error) from None
    if not os.access(directory, os.W_OK):
        raise BadInput(f"`out` {directory}: cannot be written to; choose another place")
    return directory


def require_place(out: Out) -> None:
    """Refuse a directory that cannot be made or written to before any work begins; nothing stays that was not there."""
    if not isinstance(out, str | Path) or not str(out):
        return _require_runs() if out is True else None
    place = Path(out)
    try:
        made = [one for one in (place, *place.parents) if not one.exists()]
    except OSError as error:  # a name that is too long
        raise _unusable(place, error) from None
    try:
        directory_for(place)
    finally:
        for one in made:
            with suppress(OSError, ValueError):
                one.rmdir()


def _require_runs() -> None:
    """The same of `vesalius-runs`, where results go that are given no place. It is not made to see whether it could be:
    another process may be making it.
    """
    place = Path(RUNS)
    near = place if place.exists() else Path.cwd()
    if not near.is_dir() or not os.access(near, os.W_OK | os.X_OK):
        raise BadInput(f"{near}: cannot be written to, and results go to {RUNS} by default; give another `out`")


def _unusable(directory: Path, error: Exception) -> BadInput:
    why = getattr(error, "strerror", None) or error
    return BadInput(f"`out` {directory}: cannot be used as a directory ({why}); choose another")


def subject_options(specimen: Specimen, material: Trial | None = None) -> dict[str, str]:
    """The options of a request that say what is measured on which model: the metric, the tokenizer, the revision and
    the number format, where they were chosen, and the mark of prompts of the caller's own.
    """
    source = specimen.behaviour_source
    metric = source.metric if isinstance(source, Behaviour) else None
    options = {
        "metric": None if metric is None else metric_name(metric),
        "tokenizer": specimen.tokenizer,
        "revision": specimen.revision,
        "dtype": specimen.dtype,
        MATERIAL: None if material is None else material_mark(material),
    }
    return {name: value for name, value in options.items() if value is not None}


def material_mark(material: Trial) -> str:
    """A short digest of the prompts and of their counterfactuals."""
    return prompts_sha256(material.batch, material.counterfactual)[:16]


def prompts_sha256(*batches: Batch) -> str:
    """SHA-256 over the tokens and masks of batches of prompts."""
    digest = hashlib.sha256()
    for batch in batches:
        mask = None if batch.mask is None else batch.mask.int().tolist()
        digest.update(json.dumps([batch.tokens.tolist(), mask]).encode())
    return digest.hexdigest()


@contextmanager
def removed_if_empty(directory: Path | None) -> Iterator[None]:
    """Remove the directory again where the work is refused or fails before anything is written to it."""
    try:
        yield
    except BaseException:
        if directory is not None:
            with suppress(OSError):  # something is in it
                directory.rmdir()
        raise


def findable_model(model: str | None) -> str | None:
    """A scripted model's file by its whole path, so that workers find it wherever they run."""
    if model is None:
        return None
    provider, colon, name = model.partition(":")
    return f"scripted:{Path(name).resolve()}" if provider == "scripted" and colon and name else model


Answer = TypeVar("Answer")
Written = TypeVar("Written", bound=ResultDocument)
#: What each verb takes, by the name of its function.
VERBS: dict[str, Flat] = {}
#: What callers may give for parameters that verbs see in one form: the type, and the default.
_GIVEN = {
    "specimen": (Specimen | str | int | Path, inspect.Parameter.empty),
    "progress": (cast(Any, Progress) | bool | None, None),
}
#: Fields of a request that are no options.
_OWN_FIELDS = ("components", "circuit", "seed", "backbone", "protocol")
#: What the name of a directory ends with.
_LAST_WORDS = ("n", "seed")


def verb(function: Callable[..., Answer], *, check: Callable[..., object] | None = None) -> Callable[..., Answer]:
    """Make a verb of a function on a loaded specimen: it takes whatever names one, and its records also as keywords.

    A parameter `specimen` is loaded with the fields of `Load`, `progress` is shown. Before that `out` is checked, and
    `check` is called with the arguments that it names, and with further ones where it takes any.
    """
    checked = () if check is None else tuple(inspect.signature(check).parameters)
    seen = inspect.signature(function, eval_str=True).parameters.get("specimen")
    loads = seen is not None and seen.annotation is Specimen
    flat = Flat.of(function, {"load": Load()} if loads else None)
    for name, (kind, default) in _GIVEN.items():
        if name in flat.plain and (loads or name != "specimen"):
            flat.plain[name] = flat.plain[name].replace(annotation=kind, default=default)
    VERBS[function.__name__] = flat

    @wraps(function)
    def call(*args: object, **given: object) -> Answer:
        arguments = flat.gather(args, given)
        if check is not None:
            check(**{name: arguments[name] for name in checked if name in arguments}, **flat.further(arguments))
        require_place(arguments.get("out"))
        with shown(arguments.get("progress")) as report:
            if "progress" in flat.plain:
                arguments["progress"] = report
            if (load := arguments.pop("load", None)) is not None:
                arguments["specimen"] = loaded(arguments["specimen"], load, progress=report)
            return function(**arguments)

    call.__signature__ = flat.signature(function.__annotations__.get("return"))  # type: ignore[attr-defined]
    return call


def request_on(
    specimen: Specimen, command: Command, *records: OptionRecord, material: Trial | None = None, **fields: Any
) -> Request:
    """What a verb was asked, read off its records: fields that a `Request` has itself, and the options that are not the
    usual ones. `fields` are those of the request that the verb alone knows.
    """
    named: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for option, value in given_options(records, _usual(command)):
        if value is None or value == []:
            continue
        if option.name == "components":
            named["components"] = tuple(map(str, split_names(value)))
        elif option.name in _OWN_FIELDS:
            named[option.name] = value
        elif option.flag.method_of:
            named["method"] = str(value)
        else:
            options[option.key] = not value if option.flag.off else list(value) if isinstance(value, tuple) else value
    return Request(
        command=command,
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        options=options | subject_options(specimen, material),
        **named | fields,
    )


def place_for(
    out: Out, specimen: Specimen, request: Request, *records: OptionRecord, words: Sequence[str] = ()
) -> Path | None:
    """The directory of a result, made: `out`, or one named after whatever decides the result; None to write nothing.
    `words` are further ones of its name.
    """
    if not out:
        return None
    given = list(given_options(records, _usual(request.command)))
    named = [(option.name, _word(option, value)) for option, value in given if option.flag.word is not None]
    mark = request.options.get(MATERIAL)
    return directory_for(
        out,
        request.command.replace(" ", "-"),
        *subject_words(specimen),
        str(request.options.get("metric") or "") or None,
        *(word for name, word in named if name not in _LAST_WORDS),
        *words,
        None if mark is None else f"material{mark}",
        *(word for name, word in named if name in _LAST_WORDS),
    )


def written(document: Written, directory: Path | None, file: str) -> Written:
    """A result, written as this file of its directory where it has one."""
    if directory is not None:
        with result_kept(document):
            document.write(directory / file)
    return document


def with_page(document: Written, directory: Path | None) -> Written:
    """A result that names its directory, where it has one, and lies there with its page."""
    if directory is None:
        return document
    document = document.model_copy(update={"directory": str(directory)})
    with result_kept(document):
        document.save(directory)
        document.page(directory)
    return document


def subject_words(specimen: Specimen) -> tuple[str, str | None]:
    """The model and the behaviour in the name of a directory. What was read from a path has a few digits of it as well,
    so that the result of one file does not take the place of that of another of the same name.
    """
    source, behaviour = specimen.source or specimen.id, specimen.behaviour
    model = specimen.name if benchmark_directory(source) else specimen.name + _digits(source)
    return model, behaviour and label_of(behaviour) + _digits(behaviour)


def _digits(name: str) -> str:
    """Some of the digest of a path; nothing for what is none."""
    with suppress(OSError, RuntimeError):  # a row written out is too long for a path, and ~NAME may have no home
        place = Path(name.partition(":")[0]).expanduser()
        return f"-{hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:6]}" if place.exists() else ""
    return ""


def _usual(command: str) -> list[OptionRecord]:
    return list(VERBS[command.replace("-", "_")].records.values())


def _word(option: Option, value: object) -> str:
    """A value in the name of a directory."""
    return str(option.flag.word).format("_".join(map(str, value)) if isinstance(value, list | tuple) else value)


# Notes that several calls give.


def note_unperformed(name: str, behaviour: str | None, performance: Performance | None, *, force: bool) -> None:
    """Say that a model was studied for something it does not do, or with a contrast that cannot show it, because
    `force` was given.
    """
    if performance is None or not force:
        return
    if not performance.performs:
        title = title_of(behaviour or "")
        note(f"{name} does not perform {title} ({performance.describe()}); what is found may be noise")
    if performance.contrast is not None and not performance.contrast.usable:
        note(f"{performance.contrast.doubt}; what is found may be noise")


def note_problems(trace: Trace | None) -> None:
    """Say how many of a language model's answers could not be used, and the first of them."""
    problems = [] if trace is None else list(trace.problems)
    if trace is not None and problems:
        many = f"{len(problems)} times, first" if len(problems) > 1 else "once"
        note(f"{trace.backbone} gave nothing usable {many} in {problems[0]}; the trace has every problem")
