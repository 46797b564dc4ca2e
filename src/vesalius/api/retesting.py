"""Decide a claim of a finished explanation again."""

import time
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for, verb
from vesalius.api.loading import loaded
from vesalius.documents.experiments import RETEST_FILE, Retest
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.explanations.retesting import decide_again, record_of, why_not_again
from vesalius.model.specimen import Specimen
from vesalius.options import Load, Out, require_drawable
from vesalius.progress import Progress, silent

__all__ = ["retest", "why_not_again"]

#: Options of an explanation's request that say how its model was read.
_OF_THE_MODEL = ("metric", "tokenizer", "revision", "dtype")


@verb
def retest(
    explanation: Explanation | str | Path,
    component: str,
    claim: int | str = 1,
    *,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Retest:
    """Run the experiment of one claim again on the held-out inputs of another `seed`, by the same rule.

    `explanation` is one, its file or its directory; `claim` a number from 1 among the claims about the component, or a
    kind, such as "necessary". The seed of the explanation draws the same inputs, and repeats the record. `specimen`
    replaces the one that the explanation names, which is read as it was then.
    """
    require_drawable(1, seed)
    start = time.perf_counter()
    given, place = _read(explanation)
    number, before = record_of(given, component, claim)
    asked = given.request
    options: dict[str, Any] = {name: asked.options[name] for name in _OF_THE_MODEL if asked and name in asked.options}
    name = specimen if specimen is not None else (asked and asked.specimen) or given.specimen
    if not isinstance(name, Specimen):
        name = loaded(name, Load(**{"behaviour": given.behaviour, **options}), progress=progress)
    progress(f"testing {component} again", 0, 1)
    after = decide_again(name, given, component, before, seed=seed)
    progress(f"testing {component} again", 1, 1)
    document = Retest(
        request=Request(command="retest", specimen=place, options={"component": component, "claim": number}, seed=seed),
        specimen=given.specimen,
        behaviour=given.behaviour,
        component=component,
        claim=number,
        before=before,
        before_seed=given.seed,
        after=after,
        seconds=time.perf_counter() - start,
    )
    if out:
        document.write(
            directory_for(out, "retest", given.specimen, component, before.kind, f"seed{seed}") / RETEST_FILE
        )
    return document


def _read(explanation: Explanation | str | Path) -> tuple[Explanation, str | None]:
    if isinstance(explanation, Explanation):
        where = explanation.directory
        return explanation, None if where is None else str(Path(where) / EXPLANATION_FILE)
    if not isinstance(explanation, str | Path):
        raise BadInput(f"explanation {type(explanation).__name__} is none; give one, its file or its directory")
    path = Path(explanation)
    file = path / EXPLANATION_FILE if path.is_dir() else path
    return Explanation.read(file), str(explanation)
