"""What calls have in common: where they leave their files (the directory asked for, or one under `vesalius-runs` named
after the request), and what their requests say about model and prompts.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.trial import Trial
from vesalius.documents.request import MATERIAL
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.model.specimen import Specimen

RUNS = "vesalius-runs"
#: A directory; True for one under `vesalius-runs`, named after the request; None or False to write nothing.
Out = str | Path | bool | None


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
