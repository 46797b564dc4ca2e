"""The page of a study: the published table with our rows, the roles beside the reference roles, where the circuit comes
from; all from `study.json`.
"""

from dataclasses import dataclass
from pathlib import Path

from vesalius.report.html import duration, render, write
from vesalius.report.tables import Sheet, sheet
from vesalius.report.views import page
from vesalius_bench.study.documents import (
    StudiedRole,
    Study,
    StudyRow,
    evidence_table,
    roles_by_component,
)
from vesalius_bench.survey.documents import short_name

PAGE = "report.html"
NOT_RATED = "not rated"
#: How a rating looks: the style of a verdict, and its mark.
LOOKS = {"correct": ("supported", "✓"), "partial": ("untested", "◐"), "wrong": ("refuted", "✕")}
UNRATED_LOOK = ("untested", "–")


@dataclass(frozen=True)
class Said:
    """What one explainer says about a component, and how that was rated."""

    explainer: str
    role: str
    note: str
    look: str
    mark: str
    rating: str
    votes: str


@dataclass(frozen=True)
class Part:
    """A component: its reference role, and what the explainers say."""

    component: str
    reference: str | None
    said: list[Said]


@page.register
def render_study(study: Study, directory: Path) -> Path:
    """Write the page of a study into a directory and return its path."""
    found = study.localisation
    html = render(
        "study.html",
        ["theme.js"],
        title=f"AF1 study: {short_name(study.model)}",
        lede=_lede(study),
        facts=_facts(study),
        table=_table(study),
        remarks=study.remarks(),
        published_in=study.published_in,
        how=found.how,
        components=", ".join(found.components),
        evidence=sheet("", *evidence_table(study.evidence)),
        evidence_n=study.evidence.n,
        pruning=", ".join(f"{step.component} {step.accuracy:.2f}" for step in study.evidence.pruning),
        groups=["+".join(group) for group in found.backup_groups],
        parts=[_part(study, *row) for row in roles_by_component(study)],
        pages=[(one.name, f"{one.directory}/{PAGE}") for one in study.explainers],
        agreement=_agreement(study),
        command=study.request.command_line(),
    )
    return write(directory / PAGE, html)


def _lede(study: Study) -> str:
    found = study.localisation
    return (
        f"{short_name(study.model)} gets {study.performance.top1:.0%} of {study.performance.n} sums exactly right. "
        f"{len(found.components)} components ({found.source}) are explained on sums that it gets right."
    )


def _facts(study: Study) -> list[tuple[str, str]]:
    facts = [("Sums", study.behaviour), ("Performance", study.performance.describe())]
    facts += [("Model's shape", f"that of {study.recognised_as}")] if study.recognised_as else []
    facts += [("Prompts", str(study.request.options.get("n", ""))), ("Seed", str(study.request.seed))]
    return [*facts, ("Reference roles", study.references_from or "none"), ("Work", duration(study.seconds))]


def _table(study: Study) -> Sheet:
    columns = ("agent", "model", "", "components", "correct", "partial", "wrong", NOT_RATED)
    return sheet("", columns, [_cells(row) for row in study.table_4])


def _cells(row: StudyRow) -> tuple[str | int | None, ...]:
    counts = (row.correct, row.partial, row.wrong)
    return (row.agent, short_name(row.model), row.source, row.n, *counts, row.not_rated)


def _part(study: Study, component: str, reference: str | None, roles: list[StudiedRole | None]) -> Part:
    said = [_said(one.name, role) for one, role in zip(study.explainers, roles, strict=True) if role is not None]
    return Part(component, reference, said)


def _said(explainer: str, role: StudiedRole) -> Said:
    look, mark = UNRATED_LOOK if role.rating is None else LOOKS[role.rating]
    rating = role.rating or f"{NOT_RATED}: {role.unrated}"
    votes = ", ".join(f"{name} {score}" for name, score in role.votes.items())
    return Said(explainer, role.role or "", role.note, look, mark, rating, votes)


def _agreement(study: Study) -> Sheet | None:
    if not study.agreement:
        return None
    rows = [(" and ".join(one.raters), one.n, one.agreement, one.kappa, one.low, one.high) for one in study.agreement]
    return sheet("", ("raters", "roles", "equal scores", "weighted kappa", "95 % from", "to"), rows)
