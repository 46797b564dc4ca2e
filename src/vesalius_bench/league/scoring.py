"""Score a submission to a league: open the key, measure again, write one row and one page.

Scoring draws its inputs from a seed that follows from the salt of the key, so that no submission can be written for
them. What a submission leaves out, or failed on, counts as not found: giving up never raises a score.
"""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from vesalius.api.places import directory_for
from vesalius.circuits.making import KEY_FILE as SPEC_FILE
from vesalius.circuits.making import KEY_FOLDER, PROGRAM_FILE
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, choices, note
from vesalius.explanations.scientists import BUILTIN
from vesalius.files import write_json
from vesalius.grading.tags import null_explanation
from vesalius.model.states import load_model, weights_sha256
from vesalius.progress import Progress, shown
from vesalius.report.layout import write_view
from vesalius.runs.scorecard import rounded
from vesalius_bench.league.documents import (
    IDENTITY,
    SUBMISSION_FILE,
    League,
    LeagueError,
    LeagueRow,
    LeagueSubmission,
    LeagueTable,
)
from vesalius_bench.league.files import ROWS, SPECIMENS, SUBMISSIONS, file_name, now, open_key, read_league
from vesalius_bench.league.grading import circuit_score_metrics, explanation_metrics, score_circuit, score_explanation
from vesalius_functions.bench.run import bench_functions
from vesalius_functions.interpreters import ORACLE, TABLE

#: Rows that ship with the package.
SHIPPED = "rows.json"
#: Metrics of functions that a row takes over, and those of them that a function earns nothing in which failed.
_FUNCTION_METRICS = ("success", "exact_match", "unit_test", "queries")
_EARNED = ("success", "exact_match", "unit_test")
#: Seeds of the inputs that a league is scored on lie below this.
_SEEDS = 2**30


def score_league(
    league: str | Path,
    submission: str | Path,
    *,
    passphrase: str | None = None,
    key: str | Path | None = None,
    interpreter: str | None = None,
    progress: Progress | bool | None = None,
) -> LeagueRow:
    """Open the key, score a submission, and write its row and its page.

    A circuit that the submission does not mention, or names as an error, is scored as unexplained, and as one in which
    a discovery method found nothing. The submission's interpreter is run on the functions here, since only the key
    holds them: one from elsewhere, which is a program on your machine, only if you name it as well.
    """
    directory, document = read_league(league)
    place = Path(submission) if Path(submission).is_dir() else directory / SUBMISSIONS / file_name(str(submission))
    submitted = LeagueSubmission.read(place / SUBMISSION_FILE)
    if submitted.league != document.key_sha256:
        raise BadInput(f"{place}: was submitted to another league than {directory}")
    target = directory_for(directory / ROWS) / f"{file_name(submitted.name)}.json"
    if target.exists():
        raise BadInput(f"{target}: a submission of this name has a row already; remove it to score again")
    _require_interpreter(submitted.interpreter, interpreter)
    opened = open_key(directory, document, passphrase, key)
    start = time.perf_counter()
    with shown(progress) as report:
        scored = _score_circuits(place, submitted, directory, document, opened, report)
        functions, errors = _function_metrics(submitted.interpreter, opened.get("functions", {}), report)
    metrics = circuit_score_metrics(scored) if submitted.kind == "circuits" else explanation_metrics(scored)
    row = LeagueRow(
        **{field: getattr(submitted, field) for field in IDENTITY},
        errors=(*submitted.errors, *errors),
        n=len(scored),
        n_error=len({error.case for error in submitted.errors}),
        metrics={
            name: Metric.model_validate(rounded(metric.as_data())) for name, metric in (metrics | functions).items()
        },
        circuits=tuple(one.row() for one in scored),
        scored=now(),
        seconds=round(submitted.seconds + time.perf_counter() - start, 3),
    )
    row.write(target)
    write_view(row.view(), target.with_suffix(".html"))
    return row


def league_table(*places: str | Path) -> LeagueTable:
    """Rows beside each other: those of leagues, or of files; without any, those that ship with the package."""
    if not places:
        data = json.loads(files("vesalius_bench.league").joinpath(SHIPPED).read_text(encoding="utf-8"))
        return LeagueTable.from_data(data, source=SHIPPED)
    paths: list[Path] = []
    for place in map(Path, places):
        paths += sorted((place / ROWS).glob("*.json")) if place.is_dir() else [place]
    if not paths:
        raise BadInput(f"{choices(places)}: no row yet; score a submission with `vesalius league score`")
    return LeagueTable(rows=tuple(LeagueRow.read(path) for path in paths))


def _score_circuits(
    place: Path,
    submission: LeagueSubmission,
    directory: Path,
    league: League,
    key: Mapping[str, Any],
    report: Progress,
) -> list[Any]:
    """Every circuit of the league against its key."""
    failed = {error.case for error in submission.errors}
    scored: list[Any] = []
    with _specimens_with_key(directory, league, key) as keyed:
        for number, circuit in enumerate(league.circuits):
            case = circuit.id
            report(f"scoring {case}", number, len(league.circuits))
            file = place / submission.kind / f"{case}.json"
            given = file if file.exists() and case not in failed else None
            if submission.kind == "circuits":
                discovered = None if given is None else Circuit.read(given)
                scored.append(score_circuit(discovered, keyed / case, case=case))
            else:
                silent = null_explanation("empty", case, (), seed=submission.seed)
                explanation = silent if given is None else Explanation.read(given)
                seed = _scoring_seed(key["salt"], case)
                scored.append(score_explanation(explanation, keyed / case, case=case, seed=seed))
    return scored


def _scoring_seed(salt: str, case: str) -> int:
    """The seed of the inputs that a circuit is scored on, which only the key tells."""
    return int(hashlib.sha256(f"{salt}/{case}/scoring".encode()).hexdigest(), 16) % _SEEDS


@contextmanager
def _specimens_with_key(directory: Path, league: League, key: Mapping[str, Any]) -> Iterator[Path]:
    """A folder, for the time of scoring, where every specimen has its program beside it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for circuit in league.circuits:
            source = directory / SPECIMENS / circuit.id
            if weights_sha256(load_model(source)) != circuit.weights_sha256:
                raise BadInput(f"{source}: the weights are others than those of league.json; take the league again")
            shutil.copytree(source, root / circuit.id)
            answers = root / circuit.id / KEY_FOLDER
            answers.mkdir()
            write_json(answers / PROGRAM_FILE, key["circuits"][circuit.id]["program"])
            (answers / SPEC_FILE).write_text(key["circuits"][circuit.id]["spec"], encoding="utf-8")
        yield root


def _require_interpreter(submitted: str | None, named: str | None) -> None:
    """Refuse an interpreter that knows the answers, and to run a submitted program unless the scorer names it."""
    if submitted == ORACLE:
        raise BadInput("the submission's interpreter is the oracle, which is given the answers; it cannot be scored")
    if submitted not in (None, BUILTIN, TABLE) and submitted != named:
        raise BadInput(
            f"the submission's interpreter is {submitted!r}, a program that would run here; look at it, then name it: "
            "--interpreter"
        )


def _function_metrics(
    interpreter: str | None, functions: Mapping[str, Any], report: Progress
) -> tuple[dict[str, Metric], list[LeagueError]]:
    """The figures of an interpreter on the functions of the key; those it failed on earn nothing."""
    if interpreter is None:
        return {}, []
    if not functions:
        note("the league has no functions; the interpreter of the submission is not run")
    metrics: dict[str, Metric] = {}
    errors: list[LeagueError] = []
    for category, drawn in functions.items():
        report(f"{interpreter} on {drawn['count']} functions of {category}", 0, 1)
        with tempfile.TemporaryDirectory() as folder:
            options = {"seed": drawn["seed"], "count": drawn["count"], "out": folder, "jobs": 1, "progress": False}
            card = bench_functions(category=category, interpreter=interpreter, **options)
        for name in (name for name in _FUNCTION_METRICS if name in card.metrics):
            metric = card.metrics[name]
            metrics[f"functions.{category}.{name}"] = (
                counting_failures(metric, card.n_error) if name in _EARNED else metric
            )
        if card.n_error:
            reason = f"{card.n_error} of {drawn['count']} functions failed; they count as wrong"
            errors.append(LeagueError(case=f"functions.{category}", reason=reason))
    return metrics, errors


def counting_failures(metric: Metric, failed: int) -> Metric:
    """A mean of figures from 0 to 1 when as many further cases as failed earn 0. The interval is that of a share, which
    is at least as wide as that of any such mean.
    """
    if not failed or metric.value is None:
        return metric
    return Metric.of_share(metric.value * metric.n, metric.n + failed, baseline=metric.baseline)
