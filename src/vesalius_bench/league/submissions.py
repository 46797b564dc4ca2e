"""Submit to a league: explain, or discover, every circuit. No key is needed."""

import time
from collections.abc import Callable
from pathlib import Path

from vesalius.api.discoveries import discover
from vesalius.api.door import directory_for, verb
from vesalius.api.explanations import explain
from vesalius.circuits.specimens import SPECIMEN_FILE, Card
from vesalius.discovery.discover import circuit_method
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.errors import BadInput, Failed
from vesalius.explanations.scientists import BUILTIN
from vesalius.progress import Progress, silent
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
from vesalius_bench.options import Entrant
from vesalius_truth.grading.tags import NULL_SCIENTISTS, null_explanation

#: What one circuit of a league, by its name and its directory, is answered with; None where there is no answer.
Solve = Callable[[str, Path], Explanation | Circuit | None]


@verb
def submit_league(league: str | Path, *, entrant: Entrant, progress: Progress = silent) -> LeagueSubmission:
    """Explain, or discover, every circuit of a league, and write one submission.

    `scientist` is one of `ves.explain` ("builtin" by default, "hyve" with a `backbone`, `package.module:function`), or
    a null: "empty", "by-kind", "always-MAPPER". `explanations` is a directory of them instead (c01.json, or
    c01/explanation.json); `method` a discovery method, on `n` prompts. `interpreter` is for the functions: the scorer
    runs it. A call that was interrupted continues.
    """
    directory, document = read_league(league)
    scientist, backbone, seed = _author(entrant), entrant.backbone, entrant.seed
    author = entrant.method or scientist or Path(str(entrant.explanations)).resolve().name
    if backbone is not None:
        author = f"{author}-{Path(backbone.replace(':', '_')).stem}"
        provider, _, model = backbone.partition(":")
        backbone = f"{provider}:{Path(model).name}"
    submission = LeagueSubmission(
        league=document.key_sha256,
        name=entrant.name or author,
        kind="circuits" if entrant.method is not None else "explanations",
        scientist=scientist,
        backbone=backbone,
        method=entrant.method,
        interpreter=entrant.interpreter,
        seed=seed,
    )

    def solve(case: str, specimen: Path) -> Explanation | Circuit | None:
        if entrant.method is not None:
            found = discover(specimen, entrant.method, n=entrant.n, seed=seed, checks=False, progress=False)
            return found.circuit
        if entrant.explanations is not None:
            folder = Path(entrant.explanations)
            files = (folder / f"{case}.json", folder / case / EXPLANATION_FILE)
            return next((Explanation.read(file) for file in files if file.is_file()), None)
        if scientist in NULL_SCIENTISTS:
            return null_explanation(scientist, case, Card.read(specimen / SPECIMEN_FILE).components, seed=seed)
        return explain(specimen, scientist=scientist, backbone=entrant.backbone, seed=seed, progress=False)

    return _submit(submission, solve, directory, document, progress)


def _author(entrant: Entrant) -> str | None:
    """The scientist of a submission, None for given explanations or a method; refused where several are named."""
    if sum(option is not None for option in (entrant.scientist, entrant.explanations, entrant.method)) > 1:
        raise BadInput("name one of `scientist`, `explanations` and `method`: a submission is by one of them")
    if entrant.method is not None:
        circuit_method(entrant.method, parameter="method")
    if entrant.explanations is not None and not Path(entrant.explanations).is_dir():
        raise BadInput(f"`explanations` {entrant.explanations}: no such directory")
    if entrant.explanations is not None or entrant.method is not None:
        return None
    return entrant.scientist or ("hyve" if entrant.backbone is not None else BUILTIN)


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
            result = solve(circuit.id, directory / SPECIMENS / circuit.id)
        except (BadInput, Failed) as error:
            errors.append(LeagueError(case=circuit.id, reason=str(error)))
            continue
        if result is not None:  # a disk without room is not a failure of the scientist
            result.write(target)
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
