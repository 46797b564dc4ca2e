"""A survey on one screen: a line for each cell, or a grid where there are many."""

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius.documents import SurveyPlan
from vesalius_bench.survey.documents import Survey, SurveyCell, short_name

#: Cells that a screen lists one by one.
MOST_LINES = 24
MARKS = {"performed": "yes", "undecided": "unclear", "not performed": "no", "failed": "failed"}


def print_survey(survey: Survey) -> None:
    """Who performs what, which components, how stable; then where the page is."""
    print_line(f"{len(survey.cells)} cell{'s' * (len(survey.cells) != 1)}: {survey.counts()}")
    few = len(survey.cells) <= MOST_LINES
    stdout.print(_lines(survey) if few else _grid(survey))
    if few and any(cell.sweep for cell in survey.cells):
        print_line("halves: how alike the strongest components of two halves of the prompts are (Jaccard index)")
    for line in _failures(survey):
        print_line(line)
    print_line(f"page: {survey.directory}/report.html")
    print_line(f"numbers: {survey.directory}/survey.json")


def print_survey_plan(plan: SurveyPlan) -> None:
    """The cells of a survey that was not run, and what it takes at most."""
    table = Table("model", "behaviour", "passes", "memory", "time", box=None)
    for cell in plan.cells:
        subject = short_name(cell.model), short_name(cell.behaviour)
        if cell.forwards is None or cell.peak_bytes is None or cell.seconds is None:
            table.add_row(*subject, "-", "-", cell.error)
            continue
        table.add_row(*subject, f"{cell.forwards:.1f}", f"{cell.peak_bytes / 2**20:,.0f} MB", f"{cell.seconds:.1f} s")
    stdout.print(table)
    many = "s" * (len(plan.cells) != 1)
    print_line(
        f"{len(plan.cells)} cell{many}, at most about {plan.seconds:.1f} s one after the other and "
        f"{plan.peak_bytes / 2**20:,.0f} MB; nothing was run but one timed chunk of each"
    )


def _lines(survey: Survey) -> Table:
    table = Table("model", "behaviour", box=None)
    for column in ("performed, accuracy", "metric"):
        table.add_column(column, no_wrap=True)
    table.add_column("strongest")
    table.add_column("halves", no_wrap=True)
    for cell in survey.cells:
        measured, metric, swept = cell.performance, cell.metric, cell.sweep
        words = [MARKS[cell.status]]
        if measured is not None:
            words.append(f"{measured.accuracy:.2f}{_interval(measured.accuracy_low, measured.accuracy_high)}")
        value = metric and f"{metric.value:.2f}"
        strongest = swept and ", ".join(row.id for row in swept.strongest(3))
        stable = swept and swept.agreement and f"{swept.agreement.jaccard:.2f}"
        subject = short_name(cell.model), short_name(cell.behaviour)
        table.add_row(*subject, " ".join(words), value or "", strongest or "", stable or "")
    return table


def _grid(survey: Survey) -> Table:
    table = Table("model", *(short_name(name) for name in survey.behaviours), box=None, title="accuracy")
    for model in survey.models:
        cells = [survey.cell(model, behaviour) for behaviour in survey.behaviours]
        table.add_row(short_name(model), *map(_short, cells))
    return table


def _short(cell: SurveyCell) -> str:
    mark = MARKS[cell.status]
    return mark if cell.performance is None else f"{cell.performance.accuracy:.2f} {mark}"


def _failures(survey: Survey) -> list[str]:
    """Why cells failed; the cells of a model that failed alike are one line."""
    failed: dict[tuple[str, str], list[str]] = {}
    for cell in survey.cells:
        if cell.status == "failed":
            failed.setdefault((short_name(cell.model), cell.error or ""), []).append(short_name(cell.behaviour))
    lines = [f"failed: {model}, {', '.join(names)}: {why}" for (model, why), names in failed.items()]
    return [*lines, "the same command tries what failed again"] if lines else []


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
