"""Finished runs and results: list them, draw their pages, repeat one, compare two with each other."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from vesalius.api.door import RUNS, directory_for, material_mark, require_place, written
from vesalius.api.explanations import PAGE_FILE
from vesalius.api.homes import named
from vesalius.api.loading import load
from vesalius.documents.base import Document
from vesalius.documents.difference import DIFFERENCE_FILE, Difference
from vesalius.documents.experiments import WHAT_IF_FILE, WhatIf
from vesalius.documents.explanation import Explanation
from vesalius.documents.kinds import kind_in, stored_kinds
from vesalius.documents.printed import ResultList
from vesalius.documents.request import IN_PYTHON, MATERIAL, Request
from vesalius.documents.view import Viewable
from vesalius.errors import BadInput, Failed, quoted
from vesalius.files import no_directory
from vesalius.model.specimen import Specimen
from vesalius.options import RECORDS, Out, options_of
from vesalius.plugins import names_a_module
from vesalius.progress import Progress, shown
from vesalius.report.pages import render_page
from vesalius.runs.comparing import Replayed, difference
from vesalius.runs.comparing import replay as replayed
from vesalius.runs.directory import is_run, read_run
from vesalius.runs.kinds import kind_of_directory
from vesalius.runs.listing import list_results


def replay(
    run: str | Path,
    *,
    jobs: int = 2,
    execute: bool = False,
    trusted: bool = False,
    unsafe_sandbox: bool = False,
    progress: Progress | bool | None = None,
) -> Replayed:
    """Repeat a finished run from its recorded calls, without network or key, and compare the scorecards.

    What executed code gave is read from the run as well; `execute` runs it again. A run of a `package.module:function`
    needs `trusted`, since the function runs with your rights. `unsafe_sandbox` runs code and programs even where the
    kernel cannot confine them, whatever the run allowed.
    """
    directory = require_run(run)
    names = read_run(directory).get("names", {})
    with shown(progress) as report:
        return replayed(
            directory,
            jobs=jobs,
            execute=execute,
            trusted=trusted,
            sandbox_unsafe=unsafe_sandbox,
            progress=lambda event: report(event.label(names, priced=False), event.done, event.total),
        )


def results(directory: str | Path = RUNS) -> ResultList:
    """Every run and every result below a directory, the latest first: what it is, how far, its figures and cost."""
    return list_results(Path(directory))


def diff(a: Document | str | Path, b: Document | str | Path, *, out: Out = None) -> Difference:
    """What differs between two results of the same kind: claims that flipped, components that moved, figures side by
    side.

    Each is a result, a directory that `explain`, `discover`, `sweep` or `bench` wrote, or its JSON file: two seeds, two
    scientists, a base model and a fine-tuned one. Nothing is computed again. With `out` it is written there.
    """
    require_place(out)
    compared_results = difference(a, b)
    return written(compared_results, directory_for(out, "diff") if out else None, DIFFERENCE_FILE)


def require_run(name: str | Path) -> Path:
    """The directory of a run of a benchmark."""
    if not is_run(Path(name)):
        raise BadInput(f"run {name}: no run there (expected {Path(name) / 'run.json'})")
    return Path(name)


# Pages of what lies in a directory: a result of any kind, or a benchmark's run.

MADE = "name one that `vesalius explain`, `discover`, `neurons`, `survey`, `study` or `bench` made"


def report(run: str | Path, *, progress: Progress | bool | None = None) -> Path:
    """Draw the pages of a directory again and return the path of the page, or of a benchmark's index page."""
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"{run}: {no_directory(directory)}; {MADE}")
    kind = kind_in(directory)
    if is_run(directory) and not (kind and kind.OWNS_DIRECTORY):
        with shown(progress) as tell:
            return kind_of_directory(directory).page(directory, progress=tell)
    if kind is None or not issubclass(kind, Viewable):
        raise BadInput(f"{run}: holds no result that has a page; {MADE}")
    result = kind.read(directory / str(kind.FILE))  # pyrefly: ignore[missing-attribute]  # a view is a document
    if isinstance(result, Explanation):
        return render_page(result, directory / PAGE_FILE, specimen=_specimen(result))
    return result.page(directory)


def _specimen(explanation: Explanation) -> Specimen | None:
    """The specimen explained, or None where it is no longer there."""
    name = explanation.specimen if explanation.request is None else explanation.request.specimen
    try:
        return load(name or explanation.specimen, behaviour=explanation.behaviour, progress=False)
    except (BadInput, Failed):
        return None


# From a request back to its result. A request names everything that decides a result. What lives in memory only cannot
# be named: of a metric that is a function, of a tokenizer object, of rows given as a list and of prompts given as
# `material` it holds a name or a digest, and `rerun` takes the objects themselves.


def rerun(request: Request | Any, specimen: Any = None, **given: Any) -> Document:
    """Repeat a request, or that of a result: `ves.rerun(explanation)`.

    `specimen` replaces the name in the request, for a model in memory. `given` are further keywords of the call, such
    as `out`, `progress` or `replay`, and whatever the request cannot hold: `material`, a list of rows as `behaviour`, a
    function as `metric`. What a request may name but not decide is given again too: a function of a module as
    `scientist`, a script as `backbone`, `base_url`, and what programs are given (`pass_env`, `allow_network`).
    """
    asked = request if isinstance(request, Request) else getattr(request, "request", None)
    if not isinstance(asked, Request):
        raise BadInput(f"{type(request).__name__} holds no request; give a Request or a result of this version")
    verbs = {kind.COMMAND: kind.VERB for kind in stored_kinds() if kind.COMMAND and kind.VERB}
    if asked.command not in verbs:
        raise BadInput(f"a request of {asked.command!r} is repeated by its command: {asked.command_line()}")
    call = named(str(verbs[asked.command]), of="vesalius.api", beside=())
    options = keywords_for(call, asked)
    if (mark := options.pop(MATERIAL, None)) is not None:
        material = given.get(MATERIAL)
        if material is None or material_mark(material) != mark:
            raise BadInput(f"the request is about prompts given as material ({mark}); give the same ones")
    if options.get("tokenizer") == IN_PYTHON and specimen is None and given.get("tokenizer") is None:
        raise BadInput("the request is about a tokenizer given in Python; give the same one as `tokenizer`")
    # Refuse a request that runs code, or reaches further than others, unless the caller says so again: a result
    # may come from a stranger.
    for name, value in options.items():
        runs = (name == "scientist" and names_a_module(value)) or (
            name == "backbone" and str(value).startswith("scripted:")
        )
        if (runs or name in _OF_THE_CALLER) and name not in given:
            why = "code that runs with your rights" if runs else "which only you decide"
            raise BadInput(
                f"the request says `{name}` {quoted(value, 100)}, {why}; if you trust it, give it as `{name}` again"
            )
    subject = asked.specimen if specimen is None else specimen
    if subject is None:
        raise BadInput("the request does not name what it is about; give it as the second argument")
    try:
        signature(call).bind(subject, **{**options, **given})
    except TypeError as error:
        raise BadInput(f"the request is not one of `vesalius {asked.command}` ({error}); make it again") from None
    return call(subject, **{**options, **given})


def keywords_for(call: Callable[..., object], asked: Request) -> dict[str, Any]:
    """The keywords of a request as a verb calls them: a request has the names of flags, such as `role` for `roles`."""
    known = signature(call).parameters
    names = {one.key: one.name for record in RECORDS for one in options_of(record) if one.name in known}
    return {name if name in known else names.get(name, name): value for name, value in asked.keywords().items()}


#: Options that a request may hold and only the caller decides: where keys are sent and files are written, and what
#: confined programs are given.
_OF_THE_CALLER = ("base_url", "pass_env", "allow_read", "allow_network", "unsafe_sandbox", "out", "record")


def what_if_again(file: str | Path, *, out: Out = None, progress: Progress | bool | None = None) -> WhatIf:
    """Ask what a saved `what_if.json`, or the one in a directory, asked, on the same prompts."""
    file = Path(file)
    document = WhatIf.read(file / WHAT_IF_FILE if file.is_dir() else file)
    if document.request.command != "what-if":
        raise BadInput(
            f"{file}: was asked by `vesalius {document.request.command}`; give what `vesalius what-if` wrote"
        )
    try:
        again = rerun(document, out=out, progress=progress)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    assert isinstance(again, WhatIf)
    return again
