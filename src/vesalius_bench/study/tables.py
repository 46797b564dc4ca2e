"""A study for people: the circuit, the roles beside the reference roles, and the published table with our rows."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout, with_flags
from vesalius.documents.views import shortened
from vesalius_bench.study.documents import (
    StudiedRole,
    Study,
    StudyRow,
    evidence_table,
    roles_by_component,
)
from vesalius_bench.survey.documents import short_name

LONGEST_ROLE = 60
#: Options that remarks name.
OPTIONS = ("--ratings", "--judge", "--roles")


def print_study(study: Study) -> None:
    """The steps of the study in order, the table last."""
    found, performance = study.localisation, study.performance
    shape = f", the shape of {study.recognised_as}" if study.recognised_as else ""
    print_line(f"{short_name(study.model)}{shape}, {study.behaviour}")
    print_line(f"adds: {performance.describe()}; exactly right {performance.top1:.2f} of {performance.n}")
    print_line(f"circuit ({found.source}): {found.how}")
    print_line(f"  {len(found.components)} components: {', '.join(found.components)}")
    if found.backup_groups:
        groups = "; ".join("+".join(group) for group in found.backup_groups)
        print_line(f"  back each other up, on held-out prompts: {groups}")
    stdout.print(_evidence(study))
    stdout.print(_roles(study))
    stdout.print(_table(study))
    for remark in study.remarks():
        print_line(with_flags(remark, OPTIONS))
    print_line(f"published rows: {study.published_in}")
    print_line(f"page: {study.directory}/report.html")


def _evidence(study: Study) -> Table:
    title = f"interventions at the last token, {study.evidence.n} prompts that it gets right"
    table = Table(box=None, title=title, title_justify="left")
    columns, rows = evidence_table(study.evidence)
    shown = [place for place, column in enumerate(columns) if column != "cut"]  # the page has it
    for place in shown:
        table.add_column(columns[place], no_wrap=True)
    for row in rows:
        table.add_row(*(row[place] for place in shown))
    return table


def _roles(study: Study) -> Table:
    table = Table(box=None, title="roles", title_justify="left")
    table.add_column("component", no_wrap=True)
    for one in study.explainers:
        table.add_column(one.name)
    table.add_column("reference role")
    for component, reference, roles in roles_by_component(study):
        table.add_row(component, *map(_said, roles), _first_sentence(reference or "none"))
    return table


def _said(role: StudiedRole | None) -> str:
    if role is None:
        return ""
    words = role.role or _first_sentence(role.note)
    return words if role.rating is None else f"{words} ({role.rating})"


def _first_sentence(text: str) -> str:
    return shortened(text.split(". ")[0].rstrip("."), LONGEST_ROLE)


def _table(study: Study) -> Table:
    table = Table(box=None, title="Table 4: role descriptions, rated", title_justify="left")
    table.add_column("agent", overflow="fold")
    table.add_column("model")
    table.add_column("source")
    for column in ("n", "correct", "partial", "wrong", "unrated"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in study.table_4:
        table.add_row(row.agent, short_name(row.model), row.source, str(row.n), *_counts(row))
    return table


def _counts(row: StudyRow) -> list[str]:
    counts = [row.correct, row.partial, row.wrong]
    return ["-" if count is None else str(count) for count in counts] + [str(row.not_rated)]
