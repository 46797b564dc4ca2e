"""From a request back to its result: what a request says about the model and the prompts, and the call that repeats it.

A request names everything that decides a result. What lives in memory only cannot be named: of a metric that is a
function, of a tokenizer object, of rows given as a list and of prompts given as `material` it holds a name or a digest,
and `rerun` takes the objects themselves.
"""

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from vesalius.api.places import Out, material_mark
from vesalius.documents.base import Document
from vesalius.documents.experiments import WHAT_IF_FILE, WhatIf
from vesalius.documents.kinds import stored_kinds
from vesalius.documents.request import IN_PYTHON, MATERIAL, Request
from vesalius.errors import BadInput
from vesalius.progress import Progress


def rerun(request: Request | Any, specimen: Any = None, **given: Any) -> Document:
    """Repeat a request, or that of a result: `ves.rerun(explanation)`.

    `specimen` replaces the name in the request, for a model in memory. `given` are further keywords of the call, such
    as `out`, `progress` or `replay`, and whatever the request cannot hold: `material`, a list of rows as `behaviour`, a
    function as `metric`.
    """
    asked = request if isinstance(request, Request) else getattr(request, "request", None)
    if not isinstance(asked, Request):
        raise BadInput(f"{type(request).__name__} holds no request; give a Request or a result of this version")
    verbs = {kind.COMMAND: kind.VERB for kind in stored_kinds() if kind.COMMAND and kind.VERB}
    if asked.command not in verbs:
        raise BadInput(f"a request of {asked.command!r} is repeated by its command: {asked.command_line()}")
    options = asked.keywords()
    if (mark := options.pop(MATERIAL, None)) is not None:
        material = given.get(MATERIAL)
        if material is None or material_mark(material) != mark:
            raise BadInput(f"the request is about prompts given as material ({mark}); give the same ones")
    if options.get("tokenizer") == IN_PYTHON and specimen is None and given.get("tokenizer") is None:
        raise BadInput("the request is about a tokenizer given in Python; give the same one as `tokenizer`")
    subject = asked.specimen if specimen is None else specimen
    call = getattr(import_module("vesalius.api"), str(verbs[asked.command]))
    if subject is None:
        raise BadInput("the request does not name what it is about; give it as the second argument")
    try:
        signature(call).bind(subject, **{**options, **given})
    except TypeError as error:
        raise BadInput(f"the request is not one of `vesalius {asked.command}` ({error}); make it again") from None
    return call(subject, **{**options, **given})


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
