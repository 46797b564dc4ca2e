"""Score a submission to a league: open the key, measure again, write one row and one page.

Scoring draws its inputs from a seed that follows from the salt of the key, so that no submission can be written for
them. What a submission leaves out, or failed on, counts as not found: giving up never raises a score.

    power          share of the key's components that are supported and whose program passes the interchange test
    false_support  share of supported components whose program fails it, or that are not in the circuit
    power_tags, false_support_tags   the same by the tag instead of the program
    bias           a stated value less the same quantity measured on fresh inputs: how often the program agrees with
                   the model, and the effect of replacing a component
    coverage       share of the stated intervals that hold the value measured again. The second value varies as the
                   first does, so an honest 95 % interval holds it in 83 % of cases; that is the baseline
    interval_width mean width of the stated intervals, of the range of their quantity: a wide interval holds
                   everything and says nothing

Fresh inputs come from the seed that the caller gives, which a submission must not know. A quantity counts once,
however often it is stated; an interval that is not one, or that leaves the range of its quantity, holds nothing.

A component that no interchange shows counts for no program. Of discovered circuits, power is recall and false support
what of the chosen components is not in the circuit.
"""

import hashlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from vesalius.api.door import directory_for
from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.documents.base import Ran, least_confined
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Evidence, Explanation
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput, Failed, choices, note, result_kept, shortened
from vesalius.explanations.retesting import Retester
from vesalius.explanations.scientists import BUILTIN
from vesalius.files import write_json
from vesalius.json_lines import PREFIX as COMMAND
from vesalius.model.specimen import Specimen
from vesalius.model.states import load_model, weights_sha256
from vesalius.progress import Progress, shown
from vesalius.report.layout import write_view
from vesalius.runs.steps import six_places
from vesalius.sandbox.command import Confined, Grants
from vesalius_bench.league.documents import (
    IDENTITY,
    ROWS,
    SPECIMENS,
    SUBMISSION_FILE,
    SUBMISSIONS,
    CircuitScore,
    League,
    LeagueError,
    LeagueRow,
    LeagueSubmission,
    LeagueTable,
    file_name,
    now,
    open_key,
    read_league,
)
from vesalius_functions.bench.benchmark import bench_functions
from vesalius_functions.interpreters import CONFINED, ORACLE, TABLE, check_interpreter, may_be_foreign
from vesalius_functions.serving import PREFIX as ANSWERS
from vesalius_truth.grading.circuits import Graded, circuit_metrics
from vesalius_truth.grading.discovery import grade_circuit_scores, median_and_mean, true_circuit, with_zeros
from vesalius_truth.grading.keys import graded_specimen, true_tags
from vesalius_truth.grading.programs import GOOD_FROM, Grader
from vesalius_truth.grading.tags import null_explanation, tag_rows
from vesalius_truth.making import KEY_FILE as SPEC_FILE
from vesalius_truth.making import PROGRAM_FILE

#: How often a 95 % interval holds an independent mean of as many values: 2 * Phi(1.96 / sqrt(2)) - 1.
COVERAGE_OF_HONEST = 0.834
#: The area under the ROC curve of scores that are all equal.
CONSTANT_AREA = 0.5
#: Figures are recorded to four places.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class StatedAgain:
    """A value that an explanation states, its interval, the value measured again, and the least that it can be; the
    most is 1.
    """

    stated: float
    low: float
    high: float
    again: float
    least: float = -1.0

    @property
    def covered(self) -> bool:
        """Whether the stated interval is one, and holds the value measured again."""
        return self._is_interval and self.low - _ROUNDING <= self.again <= self.high + _ROUNDING

    @property
    def difference(self) -> float:
        """How far the stated value lies above the one measured again, from -1 to 1."""
        return min(max(self.stated - self.again, -1.0), 1.0)

    @property
    def width(self) -> float:
        """The width of the stated interval as a share of the range; 1 where it is not an interval."""
        return min((self.high - self.low) / (1 - self.least), 1.0) if self._is_interval else 1.0

    @property
    def _is_interval(self) -> bool:
        ends = (self.least - _ROUNDING, self.low, self.stated, self.high, 1 + _ROUNDING)
        return all(one <= other for one, other in pairwise(ends))


@dataclass(frozen=True)
class ScoredExplanation:
    """An explanation of one circuit against its key."""

    id: str
    graded: Graded
    supported_extra: int
    stated: tuple[StatedAgain, ...]

    def _counts(self, *, tags: bool) -> tuple[int, int, int, int]:
        """Components that count, supported and right, supported, supported and wrong."""
        scores = {} if self.graded.program is None else self.graded.program.components
        names = [name for name in self.graded.tags if tags or not (name in scores and scores[name].inert)]
        supported = [name for name in names if self.graded.tags[name]["verdict"] == "supported"]

        def right(name: str) -> bool:
            row = self.graded.tags[name]
            return row["tag"] == row["true"] if tags else (scores[name].iia_changed or 0.0) >= GOOD_FROM

        good = sum(map(right, supported))
        return len(names), good, len(supported) + self.supported_extra, len(supported) - good + self.supported_extra

    def row(self) -> CircuitScore:
        """This circuit in a row."""
        _, _, supported, wrong = self._counts(tags=False)
        values = [score.iia or 0.0 for score in self.graded.scores]
        return CircuitScore(
            id=self.id,
            components=len(self.graded.tags),
            tags_right=self.graded.tags_right,
            supported=supported,
            supported_wrong=wrong,
            iia=round(statistics.fmean(values), 6) if values else None,
        )


def score_explanation(explanation: Explanation, directory: Path, *, case: str, seed: int) -> ScoredExplanation:
    """Hold one explanation against the key and the model in a directory, on the inputs of `seed`."""
    truth = true_tags(case, directory)
    specimen = graded_specimen(case, directory)
    program = Grader(specimen, seed=seed).grade(explanation.executable)
    extra = [part for part in explanation.components if part.id not in truth and part.verdict == "supported"]
    stated = _effects_again(explanation, specimen, seed=seed)
    if (agreement := explanation.program_agreement) is not None:
        stated += _compared(agreement, program.task_agreement, least=0.0)
    return ScoredExplanation(
        case, Graded(tags=tag_rows(explanation, truth), program=program), len(extra), tuple(stated)
    )


def _effects_again(explanation: Explanation, specimen: Specimen, *, seed: int) -> list[StatedAgain]:
    """The effects that claims of necessity state, each beside the same on the inputs of `seed`."""
    known = {str(part) for part in specimen.model.components}
    parts = tuple(part for part in explanation.components if part.id in known)
    if not parts:
        return []
    retester = Retester(specimen, explanation.model_copy(update={"components": parts}), seed=seed)
    pairs: dict[tuple[str, str, str], list[StatedAgain]] = {}
    for part in parts:
        for record in part.claims:
            quantities = [(part.id, one.experiment, one.measure) for one in record.evidence]
            if record.kind != "necessary" or all(quantity in pairs for quantity in quantities):
                continue
            try:
                again = retester.decide(part.id, record)
            except BadInput:  # the claim of another engine, or one that was saved without its prediction
                continue
            measured = {(one.experiment, one.measure): one.value for one in again.evidence}
            for quantity, one in zip(quantities, record.evidence, strict=True):
                pair = _compared(one, measured.get((one.experiment, one.measure)), least=-1.0)
                pairs.setdefault(quantity, pair)
    return [pair for stated in pairs.values() for pair in stated]


def _compared(stated: Evidence, again: float | None, *, least: float) -> list[StatedAgain]:
    if stated.value is None or stated.low is None or stated.high is None or again is None:
        return []
    return [StatedAgain(stated.value, stated.low, stated.high, again, least)]


def explanation_metrics(scored: Sequence[ScoredExplanation]) -> dict[str, Metric]:
    """The metrics of a row of explanations."""
    metrics = circuit_metrics([one.graded for one in scored])
    for suffix, tags in (("", False), ("_tags", True)):
        counts = [one._counts(tags=tags) for one in scored]
        metrics[f"power{suffix}"] = Metric.of_circuits([good for _, good, _, _ in counts], [n for n, _, _, _ in counts])
        metrics[f"false_support{suffix}"] = Metric.of_circuits(
            [wrong for _, _, _, wrong in counts], [supported for _, _, supported, _ in counts]
        )
    sizes = [len(one.stated) for one in scored]
    covered = [sum(pair.covered for pair in one.stated) for one in scored]
    metrics["coverage"] = Metric.of_circuits(covered, sizes, baseline=COVERAGE_OF_HONEST)
    widths = [sum(pair.width for pair in one.stated) for one in scored]
    metrics["interval_width"] = Metric.of_circuits(widths, sizes)
    differences = [sum(pair.difference for pair in one.stated) for one in scored]
    metrics["bias"] = Metric.of_circuits(differences, sizes, baseline=0.0, smallest=-1.0)
    return metrics


@dataclass(frozen=True)
class ScoredCircuit:
    """A discovered circuit against the true one: `right` of its `chosen` components are among the `true` ones."""

    id: str
    node_auroc: float | None
    edge_auroc: float | None
    true: int
    chosen: int
    right: int

    def row(self) -> CircuitScore:
        """This circuit in a row."""
        wrong = self.chosen - self.right
        area = None if self.node_auroc is None else round(self.node_auroc, 6)
        return CircuitScore(
            id=self.id, components=self.true, supported=self.chosen, supported_wrong=wrong, node_auroc=area
        )


def score_circuit(circuit: Circuit | None, directory: Path, *, case: str) -> ScoredCircuit:
    """Hold the scores of a discovered circuit against the program in a directory; None for one that was not found.

    Every component and edge of the model is a candidate: what the circuit does not score has the score 0.
    """
    truth = true_circuit(case, directory)
    shape = graded_specimen(case, directory).model.config
    if circuit is None:
        circuit = Circuit.scored(shape, shape.d_model, {}, {})
    try:
        areas = grade_circuit_scores(with_zeros(circuit, shape), truth)
    except BadInput as error:
        raise BadInput(f"the circuit of {case}: {error}") from None
    chosen = set(circuit.chosen())
    right = len(chosen & truth.components)
    edge_auroc = areas.edge_auroc if circuit.edge_scores else None
    return ScoredCircuit(case, areas.node_auroc, edge_auroc, len(truth.components), len(chosen), right)


def circuit_score_metrics(scored: Sequence[ScoredCircuit]) -> dict[str, Metric]:
    """The metrics of a row of discovered circuits. Where some have scores of edges, the others have the area of a
    constant, 0.5.
    """
    recall = Metric.of_circuits([one.right for one in scored], [one.true for one in scored])
    precision = Metric.of_circuits([one.right for one in scored], [one.chosen for one in scored])
    wrong = Metric.of_circuits([one.chosen - one.right for one in scored], [one.chosen for one in scored])
    nodes = [one.node_auroc for one in scored if one.node_auroc is not None]
    edges = [CONSTANT_AREA if one.edge_auroc is None else one.edge_auroc for one in scored]
    areas = {"node_auroc": nodes, "edge_auroc": edges if any(one.edge_auroc is not None for one in scored) else []}
    metrics: dict[str, Metric] = {}
    for name, values in areas.items():
        if (pair := median_and_mean(values, baseline=CONSTANT_AREA)) is not None:
            metrics[name], metrics[f"{name}_mean"] = pair
    return metrics | {"circuit_recall": recall, "circuit_precision": precision, "power": recall, "false_support": wrong}


#: Rows that ship with the package.
SHIPPED = "rows.json"
#: Metrics of functions that a row takes over, and those of them that a function earns nothing in which failed.
_FUNCTION_METRICS = ("success", "exact_match", "unit_test", "queries")
_EARNED = ("success", "exact_match", "unit_test")
#: Which of these each category has, for an interpreter that failed on all of it.
_EARNED_IN = {"numeric": ("success",), "strings": ("exact_match", "unit_test")}
#: Characters of a reason that a row takes over from a submission.
_LONGEST_REASON = 300
#: Seeds of the inputs that a league is scored on lie below this.
_SEEDS = 2**30


def score_league(
    league: str | Path,
    submission: str | Path,
    *,
    passphrase: str | None = None,
    key: str | Path | None = None,
    interpreter: str | None = None,
    unsafe_sandbox: bool = False,
    progress: Progress | bool | None = None,
) -> LeagueRow:
    """Open the key, score a submission, and write its row and its page.

    A circuit that the submission does not mention, or names as an error, is scored as unexplained, and as one in which
    a discovery method found nothing. The submission's interpreter is run on the functions here, since only the key
    holds them: one from elsewhere only if you name it as well. That one runs in a process of its own, confined and
    without the key; this one holds the key and answers its queries. Where the kernel cannot confine it, it is refused
    unless `unsafe_sandbox`, and the row says how it ran.
    """
    directory, document = read_league(league)
    place = Path(submission) if Path(submission).is_dir() else directory / SUBMISSIONS / file_name(str(submission))
    submitted = LeagueSubmission.read(place / SUBMISSION_FILE)
    if submitted.league != document.key_sha256:
        raise BadInput(f"{place}: was submitted to another league than {directory}")
    target = directory_for(directory / ROWS) / f"{file_name(submitted.name)}.json"
    if target.exists():
        raise BadInput(f"{target}: a submission of this name has a row already; remove it to score again")
    results = [place / submitted.kind / f"{circuit.id}.json" for circuit in document.circuits]
    if results and not any(file.is_file() for file in results):
        raise Failed(f"{place}: holds no result of any circuit; submit again")
    _require_interpreter(submitted.interpreter, interpreter)
    opened = open_key(directory, document, passphrase, key)
    checked = None
    if submitted.interpreter is not None and opened.get("functions"):
        checked = _check_can_run(submitted.interpreter, unsafe_sandbox=unsafe_sandbox)
    start = time.perf_counter()
    with shown(progress) as report:
        scored = _score_circuits(place, submitted, directory, document, opened, report)
        functions, errors, ran = _function_metrics(
            submitted.interpreter, opened.get("functions", {}), report, checked, unsafe_sandbox=unsafe_sandbox
        )
    metrics = circuit_score_metrics(scored) if submitted.kind == "circuits" else explanation_metrics(scored)
    failed = _own_errors(submitted, document)
    row = LeagueRow(
        **{field: getattr(submitted, field) for field in IDENTITY},
        errors=(*failed, *errors),
        n=len(scored),
        n_error=len(failed),
        metrics={
            name: Metric.model_validate(six_places(metric.as_data())) for name, metric in (metrics | functions).items()
        },
        circuits=tuple(one.row() for one in scored),
        ran=ran,
        scored=now(),
        seconds=round(max(submitted.seconds, 0.0) + time.perf_counter() - start, 3),
    )
    with result_kept(row):
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


def _own_errors(submission: LeagueSubmission, league: League) -> list[LeagueError]:
    """What a submission says that it failed on: one line for a circuit of the league, and nothing of anything else."""
    said = {error.case: error.reason for error in submission.errors}
    cases = [circuit.id for circuit in league.circuits if circuit.id in said]
    return [LeagueError(case=case, reason=shortened(said[case], _LONGEST_REASON)) for case in cases]


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
                drawn = hashlib.sha256(f"{key['salt']}/{case}/scoring".encode()).hexdigest()  # only the key tells it
                seed = int(drawn, 16) % _SEEDS
                scored.append(score_explanation(explanation, keyed / case, case=case, seed=seed))
    return scored


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
            f"the submission's interpreter is {submitted!r}, a program that would run here, confined; look at it, then "
            "name it: --interpreter"
        )


def _check_can_run(interpreter: str, *, unsafe_sandbox: bool) -> Ran | None:
    """How a foreign interpreter will run. One that is not there, and a kernel that cannot confine it, are refused here,
    before any work: what fails later is the interpreter's own fault.
    """
    check_interpreter(_apart(interpreter), "numeric", backbone=None)  # table knows no other category
    with Confined([sys.executable, "-I", "-S", "-c", ""], Grants(unsafe=unsafe_sandbox)) as running:
        foreign = may_be_foreign(interpreter) and not interpreter.startswith(ANSWERS)
        return Ran(**vars(running.ran)) if foreign else None


def _apart(interpreter: str) -> str:
    """The interpreter so named that foreign code of it runs in a process without the key."""
    foreign = may_be_foreign(interpreter) and not interpreter.startswith((CONFINED, COMMAND, ANSWERS))
    return f"{CONFINED}{interpreter}" if foreign else interpreter


def _function_metrics(
    interpreter: str | None,
    functions: Mapping[str, Any],
    report: Progress,
    checked: Ran | None,
    *,
    unsafe_sandbox: bool,
) -> tuple[dict[str, Metric], list[LeagueError], Ran | None]:
    """The figures of an interpreter on the functions of the key, and how it ran, `checked` where it never answered;
    those it failed on earn nothing.
    """
    if interpreter is None:
        return {}, [], None
    if not functions:
        note("the league has no functions; the interpreter of the submission is not run")
    metrics: dict[str, Metric] = {}
    errors: list[LeagueError] = []
    ran: list[Ran | None] = []
    for category, drawn in functions.items():
        report(f"{interpreter} on {drawn['count']} functions of {category}", 0, 1)
        with tempfile.TemporaryDirectory() as folder:
            options = {"seed": drawn["seed"], "count": drawn["count"], "out": folder, "jobs": 1, "progress": False}
            options |= {"interpreter": _apart(interpreter), "unsafe_sandbox": unsafe_sandbox}
            try:
                card = bench_functions(category=category, **options)
            except (BadInput, Failed) as error:
                note(f"{interpreter} on functions of {category}: {error}")
                nothing = Metric.of_share(0, drawn["count"])
                metrics |= {f"functions.{category}.{name}": nothing for name in _EARNED_IN[category]}
                reason = f"all {drawn['count']} functions failed; they count as wrong"
                errors.append(LeagueError(case=f"functions.{category}", reason=reason))
                ran.append(checked)
                continue
        ran.append(card.ran)
        for name in (name for name in _FUNCTION_METRICS if name in card.metrics):
            metric = card.metrics[name]
            metrics[f"functions.{category}.{name}"] = (
                counting_failures(metric, card.n_error) if name in _EARNED else metric
            )
        if card.n_error:
            reason = f"{card.n_error} of {drawn['count']} functions failed; they count as wrong"
            errors.append(LeagueError(case=f"functions.{category}", reason=reason))
    return metrics, errors, least_confined(ran)


def counting_failures(metric: Metric, failed: int) -> Metric:
    """A mean of figures from 0 to 1 when as many further cases as failed earn 0. The interval is that of a share, which
    is at least as wide as that of any such mean.
    """
    if not failed or metric.value is None:
        return metric
    return Metric.of_share(metric.value * metric.n, metric.n + failed, baseline=metric.baseline)
