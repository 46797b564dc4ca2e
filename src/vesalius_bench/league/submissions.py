"""Submit to a league: explain, or discover, every circuit. No key is needed."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.discoveries import discover
from vesalius.api.explanations import explain
from vesalius.api.places import directory_for
from vesalius.circuits.specimens import SPECIMEN_FILE, Card
from vesalius.discovery.discover import circuit_method
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.errors import BadInput, Failed
from vesalius.explanations.scientists import BUILTIN
from vesalius.grading.tags import NULL_SCIENTISTS, null_explanation
from vesalius.progress import Progress, shown
from vesalius_bench.league.documents import (
    IDENTITY,
    SPECIMENS,
    SUBMISSION_FILE,
    SUBMISSIONS,
    League,
    LeagueError,
    LeagueSubmission,
    file_name,
    read_league,
)

#: What one circuit of a league, by its name and its directory, is answered with; None where there is no answer.
Solve = Callable[[str, Path], Explanation | Circuit | None]


def submit_league(
    league: str | Path,
    *,
    scientist: str | None = None,
    backbone: str | None = None,
    explanations: str | Path | None = None,
    method: str | None = None,
    interpreter: str | None = None,
    name: str | None = None,
    seed: int = 0,
    n: int = 32,
    unsafe_sandbox: bool = False,
    progress: Progress | bool | None = None,
    **options: Any,
) -> LeagueSubmission:
    """Explain, or discover, every circuit of a league, and write one submission.

    `scientist` is one of `ves.explain` ("builtin" by default, "hyve" with a `backbone`, `package.module:function`), or
    a null: "empty", "by-kind", "always-MAPPER". `explanations` is a directory of them instead (c01.json, or
    c01/explanation.json); `method` a discovery method, on `n` prompts. `interpreter` is for the functions: the scorer
    runs it. `options` are further ones of `ves.explain`. A call that was interrupted continues.
    """
    directory, document = read_league(league)
    scientist = _author(scientist, backbone, explanations, method)
    submission = LeagueSubmission(
        league=document.key_sha256,
        name=name or _default_name(scientist, backbone, explanations, method),
        kind="circuits" if method is not None else "explanations",
        scientist=scientist,
        backbone=None if backbone is None else backbone.partition(":")[0] + ":" + Path(backbone.partition(":")[2]).name,
        method=method,
        interpreter=interpreter,
        seed=seed,
    )
    if method is not None:
        solve = partial(_discovered, method=method, n=n, seed=seed)
    elif explanations is not None:
        solve = partial(_given_explanation, folder=Path(explanations))
    elif scientist in NULL_SCIENTISTS:
        solve = partial(_null, scientist=scientist, seed=seed)
    else:
        options |= {"scientist": scientist, "backbone": backbone, "unsafe_sandbox": unsafe_sandbox}
        solve = partial(_explained, seed=seed, options=options)
    with shown(progress) as report:
        return _submit(submission, solve, directory, document, report)


def _author(scientist: str | None, backbone: Any, explanations: Any, method: str | None) -> str | None:
    """The scientist of a submission, None for given explanations or a method; refused where several are named."""
    if sum(option is not None for option in (scientist, explanations, method)) > 1:
        raise BadInput("name one of `scientist`, `explanations` and `method`: a submission is by one of them")
    if method is not None:
        circuit_method(method, parameter="method")
    if explanations is not None and not Path(explanations).is_dir():
        raise BadInput(f"`explanations` {explanations}: no such directory")
    if explanations is not None or method is not None:
        return None
    return scientist or ("hyve" if backbone is not None else BUILTIN)


def _default_name(scientist: str | None, backbone: str | None, explanations: Any, method: str | None) -> str:
    author = method or scientist or Path(explanations).resolve().name
    return author if backbone is None else f"{author}-{Path(backbone.replace(':', '_')).stem}"


def _submit(
    submission: LeagueSubmission, solve: Solve, directory: Path, league: League, report: Progress
) -> LeagueSubmission:
    """Solve every circuit that has no result yet, and write the submission."""
    place = directory_for(directory / SUBMISSIONS / file_name(submission.name))
    before = _earlier(place, submission)
    if before.complete:
        raise BadInput(f"{place}: is a complete submission; give another `name`, or remove it")
    results = directory_for(place / submission.kind)
    errors: list[LeagueError] = []
    start = time.perf_counter()
    for number, circuit in enumerate(league.circuits):
        report(f"{submission.name} on {circuit.id}", number, len(league.circuits))
        target = results / f"{circuit.id}.json"
        if target.exists():
            continue
        try:
            if (result := solve(circuit.id, directory / SPECIMENS / circuit.id)) is not None:
                result.write(target)
        except (BadInput, Failed) as error:
            errors.append(LeagueError(case=circuit.id, reason=str(error)))
    cases = tuple(one.id for one in league.circuits if (results / f"{one.id}.json").exists())
    if not cases:
        raise Failed(f"no circuit of {directory} has a result; the first: {errors[0].reason if errors else 'no file'}")
    seconds = round(before.seconds + time.perf_counter() - start, 3)
    update = {"cases": cases, "errors": tuple(errors), "complete": True, "seconds": seconds}
    submission = submission.model_copy(update=update)
    submission.write(place / SUBMISSION_FILE)
    return submission


def _earlier(place: Path, submission: LeagueSubmission) -> LeagueSubmission:
    """What was submitted before under this name, by the same scientist with the same seed; else refused."""
    file = place / SUBMISSION_FILE
    if not file.is_file():
        submission.write(file)
        return submission
    before = LeagueSubmission.read(file)
    if any(getattr(before, field) != getattr(submission, field) for field in IDENTITY):
        raise BadInput(f"{place}: holds another submission; give another `name`")
    return before


def _discovered(case: str, specimen: Path, *, method: str, n: int, seed: int) -> Circuit:
    return discover(specimen, method, n=n, seed=seed, checks=False, progress=False).circuit


def _explained(case: str, specimen: Path, *, seed: int, options: dict[str, Any]) -> Explanation:
    return explain(specimen, seed=seed, progress=False, **options)


def _null(case: str, specimen: Path, *, scientist: str, seed: int) -> Explanation:
    return null_explanation(scientist, case, Card.read(specimen / SPECIMEN_FILE).components, seed=seed)


def _given_explanation(case: str, specimen: Path, *, folder: Path) -> Explanation | None:
    for file in (folder / f"{case}.json", folder / case / EXPLANATION_FILE):
        if file.is_file():
            return Explanation.read(file)
    return None
