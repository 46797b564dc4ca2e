"""The door of the package: what callers give becomes a loaded specimen and records, once; what is answered says what
was asked.

    @verb
    def sweep(specimen: Specimen, *, knockout: Knockout, draw: Draw = SWEPT, ...) -> Effects: ...

    ves.sweep("frac_prevs", n=8)                      # a name, and fields of records as keywords
    ves.sweep(specimen, Draw(n=8), Knockout("mean"))  # a loaded specimen and records

A verb sees a `Specimen` and records only. Options that can be refused without the model are refused before it is
loaded.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from vesalius.api.loading import loaded
from vesalius.api.places import directory_for, require_place, subject_options
from vesalius.behaviours.behaviour import label_of
from vesalius.behaviours.trial import Trial
from vesalius.components import split_names
from vesalius.documents.request import MATERIAL, Command, Request
from vesalius.model.specimen import Specimen
from vesalius.options import Flat, Load, Option, Out, Record, given_options
from vesalius.progress import Progress, shown

Answer = TypeVar("Answer")
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
    def call(*args: Any, **given: Any) -> Answer:
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
    specimen: Specimen, command: Command, *records: Record, material: Trial | None = None, **fields: Any
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
    out: Out, specimen: Specimen, request: Request, *records: Record, words: Sequence[str] = ()
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
        specimen.name,
        request.behaviour and label_of(request.behaviour),
        str(request.options.get("metric") or "") or None,
        *(word for name, word in named if name not in _LAST_WORDS),
        *words,
        None if mark is None else f"material{mark}",
        *(word for name, word in named if name in _LAST_WORDS),
    )


def _usual(command: str) -> list[Record]:
    return list(VERBS[command.replace("-", "_")].records.values())


def _word(option: Option, value: Any) -> str:
    """A value in the name of a directory."""
    return str(option.flag.word).format("_".join(map(str, value)) if isinstance(value, list | tuple) else value)
