"""What a study gives: its document, its request, and the files in its directory."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from vesalius.discovery.known_heads import LLAMA_3_8B
from vesalius.documents.circuit import CIRCUIT_FILE
from vesalius.documents.explanation import EXPLANATION_FILE, ComponentExplanation
from vesalius.documents.request import Request
from vesalius.explanations.scientists import BUILTIN
from vesalius.grading.keys import ReferenceRoles
from vesalius.runs.directory import read_explanation
from vesalius_bench.papers.published import SOURCE as PUBLISHED_IN
from vesalius_bench.papers.published import TABLE_4
from vesalius_bench.ratings.grading_ratings import LEAST_RATERS, Rating, rater_agreement
from vesalius_bench.study.documents import (
    RATINGS,
    STUDY_FILE,
    RaterAgreement,
    StudiedExplainer,
    StudiedRole,
    Study,
    StudyRow,
)
from vesalius_bench.study.roles import MEASURE, RatedText
from vesalius_bench.study.run import ExplainedBy, StudyRun, StudySettings
from vesalius_bench.study.study_steps import SHEET_FILE, write_sheet


def study_document(
    work: StudyRun,
    request: Request,
    references: ReferenceRoles | None,
    rated: dict[str, dict[str, RatedText]],
    scores: Sequence[Rating],
    judges: Sequence[str],
) -> Study:
    """Everything that is known by now."""
    performed, found, evidence = work.performed, work.localisation, work.evidence
    assert performed is not None
    assert found is not None
    assert evidence is not None
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
        evidence=evidence,
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
    assert work.localisation is not None
    said = {part.id: part for part in explanation.components}
    roles = tuple(_role(name, said.get(name), rated, name in known) for name in work.localisation.components)
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


def _raters(scores: Sequence[Rating], judges: Sequence[str]) -> str | None:
    if judges:
        return f"{', '.join(judges)} (judges; the lowest score counts)"
    raters = sorted({rating.rater for rating in scores if rating.measure == MEASURE})
    if not raters:
        return None
    rule = "the majority counts" if len(raters) >= LEAST_RATERS else f"fewer than {LEAST_RATERS}: nothing is rated"
    return f"{len(raters)} rater{'s' * (len(raters) > 1)} ({', '.join(raters)}; {rule})"


def _agreement(scores: Sequence[Rating]) -> list[RaterAgreement]:
    pairs = []
    for pair, kappa in rater_agreement(scores).get(MEASURE, {}).items():
        first, _, second = pair.partition(" | ")
        pairs.append(
            RaterAgreement(
                raters=(first, second),
                kappa=kappa.value,
                low=kappa.low,
                high=kappa.high,
                agreement=kappa.agreement,
                n=kappa.n,
            )
        )
    return pairs


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
        assert work.performed is not None
        rateable = {
            one.name: [role.component for role in one.roles if role.component in result.references]
            for one in result.explainers
        }
        write_sheet(directory / SHEET_FILE, work.performed.specimen, rateable)
