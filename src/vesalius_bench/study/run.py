"""A study in a run directory: each step is in the ledger as soon as it is done, and the same command does the rest.

The settings decide the circuit. Explainers, ratings and judges may differ from call to call: an explainer joins those
that explained the circuit before, ratings and judges are about all of them.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from vesalius.discovery.known_heads import LLAMA_3_8B
from vesalius.documents.circuit import CIRCUIT_FILE
from vesalius.documents.explanation import EXPLANATION_FILE, ComponentExplanation
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.explanations.scientists import BUILTIN
from vesalius.files import sha256, write_text
from vesalius.runs.directory import EVENTS, EXPLANATIONS, RUN, Run, read_explanation
from vesalius.runs.ledger import Record
from vesalius.version import __version__
from vesalius_backbones.runs.steps import RunLimits
from vesalius_bench.papers.published import SOURCE as PUBLISHED_IN
from vesalius_bench.papers.published import TABLE_4
from vesalius_bench.ratings.reading import LEAST_RATERS, Rating, kappa_fields, rater_agreement
from vesalius_bench.study.documents import (
    RATINGS,
    STUDY_FILE,
    Interchange,
    Localisation,
    RaterAgreement,
    StudiedExplainer,
    StudiedRole,
    Study,
    StudyRow,
)
from vesalius_bench.study.evidence import CircuitEvidence, ComponentEvidence, short_role
from vesalius_bench.study.roles import MEASURE, RatedText
from vesalius_truth.grading.keys import ReferenceRoles

PERFORMED, LOCALISED, MEASURED, EXPLAINED = "performed", "localised", "measured", "explained"
SHEET_FILE = "rating-sheet.csv"
SHEET_FIELDS = ("specimen", "explainer", "component", "rater", "measure", "score", "comment")


@dataclass(frozen=True)
class StudySettings:
    """What decides the circuit of a study; `circuit` is the file or the names given, `circuit_mark` stands for its
    content.
    """

    study: str
    model: str
    behaviour: str | None
    circuit: str | None
    circuit_mark: str | None
    n: int
    top: int
    seed: int
    quick: bool
    dtype: str

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": f"study {self.study}",
            "model": self.model,
            "behaviour": self.behaviour,
            "circuit": self.circuit_mark,
            **{name: getattr(self, name) for name in ("n", "top", "seed", "quick", "dtype")},
            "version": __version__,
        }


@dataclass(frozen=True)
class Performed:
    """That the model adds: on which sums, how well, and its weights' fingerprint; on how many prompts that it answers
    correctly the study is made, and how many were drawn for these.
    """

    behaviour: str
    recognised_as: str | None
    specimen: str
    fingerprint: str
    n: int
    drawn: int
    performance: Performance


@dataclass(frozen=True)
class ExplainedBy:
    """An explainer that is done; `options` are those that decide what a language model answers."""

    name: str
    scientist: str
    backbone: str | None
    protocol: str | None
    options: dict[str, Any]

    @property
    def folder(self) -> str:
        """Its directory's name in the run."""
        return folder_of(self.name)


class StudyRun:
    """A study so far, in an open run directory."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.performed: Performed | None = None
        self.localisation: Localisation | None = None
        self.evidence: CircuitEvidence | None = None
        self.explainers: dict[str, ExplainedBy] = {}
        for record in run.ledger.records:
            self._take(record)

    @property
    def adds(self) -> Performed:
        """That the model adds, once that is established."""
        assert self.performed is not None
        return self.performed

    @property
    def circuit(self) -> Localisation:
        """The circuit, once it is known."""
        assert self.localisation is not None
        return self.localisation

    def note(self, event: str, **fields: object) -> None:
        """Write a step down that is done."""
        self._take(self.run.ledger.append(event, **fields))

    def directory_of(self, explainer: str) -> Path:
        """Where the files of an explainer are."""
        return self.run.directory / EXPLANATIONS / folder_of(explainer)

    def is_explained(self, wanted: ExplainedBy) -> bool:
        """Whether an explainer is done; refused where it explained with other options."""
        done = self.explainers.get(wanted.name)
        if done is None:
            return False
        if done != wanted:
            raise BadInput(
                f"{self.run.directory}: {wanted.name} explained with {done.options or 'the usual options'}, not "
                f"{wanted.options or 'the usual ones'}; repeat its command or choose another `out`"
            )
        return True

    def _take(self, record: Record) -> None:
        if record["event"] == PERFORMED:
            named = ("behaviour", "recognised_as", "specimen", "fingerprint", "n", "drawn")
            fields = {name: record[name] for name in named}
            self.performed = Performed(**fields, performance=Performance.model_validate(record["performance"]))
        elif record["event"] == LOCALISED:
            self.localisation = Localisation.model_validate(record["localisation"])
        elif record["event"] == MEASURED:
            self.evidence = CircuitEvidence.model_validate(record["evidence"])
        elif record["event"] == EXPLAINED:
            fields = {name: record[name] for name in ("name", "scientist", "backbone", "protocol", "options")}
            self.explainers[record["name"]] = ExplainedBy(**fields)


@contextmanager
def open_study(directory: Path, settings: StudySettings, limits: RunLimits) -> Iterator[StudyRun]:
    """A study in its directory; one that is refused before its first step leaves nothing behind."""
    with Run(directory, settings=settings.as_data(), limits=limits.as_data()) as run:
        try:
            yield StudyRun(run)
        except BaseException:
            if not run.ledger.records:
                for name in (RUN, EVENTS):
                    (directory / name).unlink(missing_ok=True)
            raise


def folder_of(name: str) -> str:
    """A name as that of a directory."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "explainer"


def file_mark(path: Path) -> str | None:
    """What stands for the content of a file, or of the files at the top of a directory; None where there is none."""
    files = [path] if path.is_file() else sorted(path.glob("*.json"))
    return ",".join(sha256(file)[:16] for file in files) or None


def study_document(
    work: StudyRun,
    request: Request,
    references: ReferenceRoles | None,
    rated: dict[str, dict[str, RatedText]],
    scores: Sequence[Rating],
    judges: Sequence[str],
) -> Study:
    """Everything that is known by now."""
    performed, found = work.adds, work.circuit
    assert work.evidence is not None
    known: Mapping[str, str] = {} if references is None else references.roles
    rows = (
        StudyRow(agent=agent, source="published", model=LLAMA_3_8B, n=sum(row.values()), **row, not_rated=0)
        for agent, row in TABLE_4.items()
    )
    return Study(
        request=request,
        model=str(request.options["model"]),
        recognised_as=performed.recognised_as,
        behaviour=performed.behaviour,
        performance=performed.performance,
        localisation=found,
        evidence=work.evidence,
        references={name: known[name] for name in found.components if name in known},
        references_from=None if references is None else references.source,
        not_localised=tuple(name for name in known if name not in found.components),
        rated_by=_raters(scores, judges),
        explainers=tuple(_explainer(work, one, rated.get(one.name), known) for one in work.explainers.values()),
        agreement=tuple(_agreement(scores)),
        published=tuple(rows),
        published_in=PUBLISHED_IN,
        directory=str(work.run.directory),
    )


def _explainer(
    work: StudyRun, explained: ExplainedBy, rated: dict[str, RatedText] | None, known: Mapping[str, str]
) -> StudiedExplainer:
    directory = work.directory_of(explained.name)
    explanation = read_explanation(directory / EXPLANATION_FILE)
    said = {part.id: part for part in explanation.components}
    assert work.evidence is not None
    carried = {one.component: interchange_of(one) for one in work.evidence.components}
    roles = tuple(
        _role(name, said.get(name), rated, name in known).model_copy(update={"interchange": carried.get(name)})
        for name in work.circuit.components
    )
    return StudiedExplainer(
        name=explained.name,
        scientist=explained.scientist,
        backbone=explained.backbone,
        protocol=explained.protocol,
        roles=roles,
        cost=explanation.cost,
        seconds=explanation.seconds,
        directory=str(directory.relative_to(work.run.directory)),
    )


def _role(
    component: str, part: ComponentExplanation | None, rated: dict[str, RatedText] | None, known: bool
) -> StudiedRole:
    """What is said about a component, which may be nothing, and its rating."""
    fields: dict[str, Any] = {"component": component, "role": None, "note": "", "verdict": "untested"}
    if part is not None:
        fields |= {"role": part.role, "note": part.note, "verdict": part.verdict}
    if not known:
        return StudiedRole(**fields, unrated="no reference role")
    one = RatedText(None, "nobody rated it") if rated is None else rated[component]
    rating = None if one.score is None else RATINGS[one.score]
    return StudiedRole(**fields, rating=rating, unrated=one.unrated, votes=dict(one.votes or {}))


def interchange_of(one: ComponentEvidence) -> Interchange | None:
    """The operand that answers follow most where a component's output is that of a sum with another one."""
    if not one.exchanged:  # a study of before
        return None
    operand = max(one.switched, key=lambda role: one.switched[role])
    others = [share for role, share in one.switched.items() if role != operand]
    n = one.exchanged[operand]
    accuracy = Metric.of_share(round(one.switched[operand] * n), n)
    return Interchange(operand=short_role(operand), accuracy=accuracy, others=max(others, default=None))


def _raters(scores: Sequence[Rating], judges: Sequence[str]) -> str | None:
    if judges:
        return f"{', '.join(judges)} (judges; the lowest score counts)"
    raters = sorted({rating.rater for rating in scores if rating.measure == MEASURE})
    if not raters:
        return None
    rule = "the majority counts" if len(raters) >= LEAST_RATERS else f"fewer than {LEAST_RATERS}: nothing is rated"
    return f"{len(raters)} rater{'s' * (len(raters) > 1)} ({', '.join(raters)}; {rule})"


def _agreement(scores: Sequence[Rating]) -> Iterator[RaterAgreement]:
    for pair, kappa in rater_agreement(scores).get(MEASURE, {}).items():
        first, _, second = pair.partition(" | ")
        yield RaterAgreement(raters=(first, second), **kappa_fields(kappa))


def study_request(
    work: StudyRun, settings: StudySettings, last: ExplainedBy, judges: Sequence[str], files: dict[str, str]
) -> Request:
    """What was asked, so that it can be asked again; a circuit that was in memory is named by the file of the run."""
    in_memory = settings.circuit is None and settings.circuit_mark is not None
    options: dict[str, JsonValue] = {
        "model": settings.model,
        "n": settings.n,
        "top": settings.top,
        "quick": settings.quick or None,
        "judge": list(judges) or None,
        "dtype": None if settings.dtype == "auto" else settings.dtype,
        **last.options,
        **files,
    }
    return Request(
        command="study af1",
        behaviour=settings.behaviour,
        circuit=str(work.run.directory / CIRCUIT_FILE) if in_memory else settings.circuit,
        method=None if last.scientist == BUILTIN else last.scientist,
        options={name: value for name, value in options.items() if value is not None},
        seed=settings.seed,
        backbone=last.backbone,
        protocol=last.protocol,
    )


def write_study(work: StudyRun, result: Study) -> None:
    """The document, the page and, where there are reference roles, the sheet for raters."""
    directory = work.run.directory
    result.write(directory / STUDY_FILE)
    result.page(directory)
    if result.references:
        rateable = {
            one.name: [role.component for role in one.roles if role.component in result.references]
            for one in result.explainers
        }
        write_sheet(directory / SHEET_FILE, work.adds.specimen, rateable)


def write_sheet(path: Path, specimen: str, roles: Mapping[str, Sequence[str]]) -> Path:
    """Write a sheet that raters fill in, one line for each of them, explainer and component. One in which a score is
    filled in stays as it is.
    """
    if path.exists():
        with path.open(encoding="utf-8-sig", newline="") as file:
            if any((row.get("score") or "").strip() for row in csv.DictReader(file)):
                return path
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SHEET_FIELDS)
    for rater in range(1, LEAST_RATERS + 1):
        for explainer, components in roles.items():
            for component in components:
                writer.writerow([specimen, explainer, component, f"rater {rater}", MEASURE, "", ""])
    write_text(path, text.getvalue())
    return path
