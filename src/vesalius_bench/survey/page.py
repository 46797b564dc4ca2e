"""The page of a survey: who performs what, which components matter, how stable that is, from `survey.json` alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vesalius.behaviours.behaviour import label_of
from vesalius.components import Component
from vesalius.documents.sweep import SweepRow
from vesalius.report.figures import Picture, new_figure
from vesalius.report.headmap import HeadMap, draw_headmap
from vesalius.report.html import duration, figure, render, write
from vesalius.report.profiles import Bars, bars_of
from vesalius.report.tables import Sheet, sheet
from vesalius.report.views import page, plot
from vesalius_bench.survey.documents import CellSweep, Survey, SurveyCell, short_name

PAGE = "report.html"
#: Components that a table lists for a cell, and those of each behaviour that a model's table compares.
LISTED, COMPARED = 10, 4
#: Head maps that a page still carries.
MOST_MAPS = 40
#: How each status looks: the style of a verdict, and its mark.
LOOKS = {
    "performed": ("supported", "✓"),
    "undecided": ("untested", "○"),
    "not performed": ("refuted", "✕"),
    "failed": ("untested", "–"),
}


@dataclass(frozen=True)
class GridCell:
    """One cell of the first table: where its section is (None: there is none), how it looks and what it says."""

    anchor: str | None
    look: str
    mark: str
    status: str
    figures: str
    reason: str


@dataclass(frozen=True)
class Section:
    """A cell that was swept: its sentence, its map and its tables."""

    anchor: str
    title: str
    lede: str
    headmap: HeadMap | None
    negative: bool
    strongest: Sheet
    discovery: tuple[str, str] | None
    notes: tuple[str, ...]


@page.register
def render_survey(survey: Survey, directory: Path) -> Path:
    """Write the page of a survey into a directory and return its path."""
    swept = [cell for cell in survey.cells if cell.sweep is not None]
    html = render(
        "survey.html",
        ["theme.js"],
        title=_title(survey),
        lede=_lede(survey),
        facts=_facts(survey),
        columns=[label_of(name) for name in survey.behaviours],
        grid=[(short_name(model), [_grid_cell(cell) for cell in _of_model(survey, model)]) for model in survey.models],
        rule=next((cell.performance.rule for cell in survey.cells if cell.performance), ""),
        compared=[(short_name(model), table) for model in survey.models if (table := _compared(survey, model))],
        stable=_stability(swept),
        sections=[_section(cell, drawn=place < MOST_MAPS) for place, cell in enumerate(swept)],
        failed=[(_name(cell), cell.error or "") for cell in survey.cells if cell.status == "failed"],
        command=survey.request.command_line(),
    )
    return write(directory / PAGE, html)


@plot.register
def draw_survey(survey: Survey) -> Picture:
    """Who performs what: accuracy by model and behaviour, with the status of each cell."""
    models, behaviours = survey.models, survey.behaviours
    figure = new_figure(2.4 + 1.25 * len(behaviours), 1.3 + 0.55 * len(models))
    axes = figure.add_subplot()
    cells = [[survey.cell(model, behaviour) for behaviour in behaviours] for model in models]
    table = np.array([[cell.performance.accuracy if cell.performance else np.nan for cell in row] for row in cells])
    image = axes.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            shade, measured = table[i, j], cell.performance
            words = cell.status if measured is None else f"{measured.accuracy:.2f}\n{cell.status}"
            colour = "white" if shade > 0.6 else "black"
            axes.text(j, i, words, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(behaviours)), [short_name(name) for name in behaviours], fontsize=8, rotation=20)
    axes.set_yticks(range(len(models)), [short_name(name) for name in models], fontsize=8)
    axes.set_title(f"survey: {survey.counts()}", fontsize=9)
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label="accuracy", shrink=0.8)
    return figure


def _title(survey: Survey) -> str:
    models, behaviours = len(survey.models), len(survey.behaviours)
    return f"{models} model{'s' * (models != 1)}, {behaviours} behaviour{'s' * (behaviours != 1)}"


def _lede(survey: Survey) -> str:
    best = [
        f"{short_name(model)} performs {', '.join(performed)}"
        for model in survey.models
        if (performed := [label_of(cell.behaviour) for cell in _of_model(survey, model) if cell.status == "performed"])
    ]
    return f"{'; '.join(best)}." if best else "No model performs any of the behaviours."


def _facts(survey: Survey) -> list[tuple[str, str]]:
    options = survey.request.options
    facts = [("Cells", survey.counts()), ("Replaced by", str(options.get("kind", "")))]
    facts += [("Prompts of a sweep", str(options.get("n", ""))), ("Seed", str(survey.request.seed))]
    if options.get("discover"):
        facts.append(("Discovery", str(options["discover"])))
    return [*facts, ("Work", duration(survey.seconds))]


def _of_model(survey: Survey, model: str) -> list[SurveyCell]:
    return [survey.cell(model, behaviour) for behaviour in survey.behaviours]


def _name(cell: SurveyCell) -> str:
    return f"{short_name(cell.model)}, {label_of(cell.behaviour)}"


def _grid_cell(cell: SurveyCell) -> GridCell:
    look, mark = LOOKS[cell.status]
    anchor = f"cell-{cell.id}" if cell.sweep else None
    if (measured := cell.performance) is None or (metric := cell.metric) is None:
        return GridCell(anchor, look, mark, cell.status, "", cell.error or "")
    accuracy = f"{measured.accuracy:.2f} [{measured.accuracy_low:.2f}, {measured.accuracy_high:.2f}]"
    interval = "" if metric.low is None or metric.high is None else f" [{metric.low:.2f}, {metric.high:.2f}]"
    words = f"{cell.metric_name.replace('-', ' ')} {metric.value:.2f}{interval}, n {measured.n}"
    return GridCell(anchor, look, mark, cell.status, f"accuracy {accuracy}", words)


def _compared(survey: Survey, model: str) -> Sheet | None:
    """The strongest components of a model's behaviours side by side: what of the clean score each one is worth."""
    cells = [cell for cell in _of_model(survey, model) if cell.sweep and cell.sweep.baseline.value]
    if not cells:
        return None
    sweeps: list[CellSweep] = [cell.sweep for cell in cells if cell.sweep]
    chosen = {row.id for swept in sweeps for row in swept.strongest(COMPARED)}
    effects = [{row.id: row for row in swept.components} for swept in sweeps]
    rows = [
        (id, *(_share(table.get(id), swept.baseline.value) for table, swept in zip(effects, sweeps, strict=True)))
        for id in map(str, sorted(map(Component.parse, chosen)))
    ]
    return sheet("", ("component", *(label_of(cell.behaviour) for cell in cells)), rows)


def _share(row: SweepRow | None, baseline: float) -> str:
    """An effect as a share of the clean score, with a star where its interval does not hold 0."""
    if row is None:
        return ""
    clear = row.ci_low is not None and row.ci_high is not None and (row.ci_low > 0 or row.ci_high < 0)
    return f"{_of_clean(row, baseline)}{'*' if clear else ''}"


def _of_clean(row: SweepRow, baseline: float) -> str:
    return f"{round(row.effect / abs(baseline), 2) + 0.0:+.2f}" if baseline else "–"  # + 0.0: no minus before zero


def _stability(cells: Sequence[SurveyCell]) -> tuple[Bars, Bars] | None:
    """Both figures of every cell that has enough prompts to be halved."""
    halved = [(cell, cell.sweep.agreement) for cell in cells if cell.sweep and cell.sweep.agreement]
    if not halved:
        return None
    first = halved[0][1]
    jaccard = bars_of(
        f"The same {first.top} components?",
        f"Jaccard index of the {first.top} largest effects on two halves of the prompts. "
        f"Random components would give {first.chance:.2f} in the first row.",
        {_name(cell): (half.jaccard, half.jaccard_low, half.jaccard_high) for cell, half in halved},
    )
    ranks = bars_of(
        "The same order?",
        "Spearman's rank correlation of all effects. Most components do next to nothing, and their order is noise.",
        {_name(cell): (half.rank_correlation, half.rank_low, half.rank_high) for cell, half in halved},
    )
    return jaccard, ranks


def _section(cell: SurveyCell, *, drawn: bool) -> Section:
    swept = cell.sweep
    assert swept is not None
    strongest = swept.strongest(len(swept.components))
    ranked = [(Component.parse(row.id), row.effect) for row in strongest]
    clear, chance = len(swept.clear()), max(1, round(len(swept.components) / 20))
    heads, mlps = (", ".join(row.id for row in swept.strongest(3, heads=kind)) for kind in (True, False))
    words = [f"Heads: {heads}." if heads else "", f"MLPs: {mlps}." if mlps else ""]
    lede = (
        f"{' '.join(filter(None, words)) or 'No component has an effect.'} The intervals of {clear} of "
        f"{len(swept.components)} components do not hold 0; about {chance} would by chance."
    )
    rows = [
        (rank, row.id, figure(row.effect), _interval(row), _of_clean(row, swept.baseline.value))
        for rank, row in enumerate(strongest[:LISTED], 1)
    ]
    columns = ("rank", "component", f"effect ({swept.unit})", "95 % interval", "share of the clean score")
    return Section(
        anchor=f"cell-{cell.id}",
        title=_name(cell),
        lede=lede,
        headmap=draw_headmap(ranked, n_layers=swept.layers, n_heads=swept.heads) if drawn else None,
        negative=any(effect < 0 for _, effect in ranked),
        strongest=sheet("", columns, rows),
        discovery=_discovery(cell),
        notes=cell.notes,
    )


def _discovery(cell: SurveyCell) -> tuple[str, str] | None:
    """What a discovery method found, and the address of its page beside this one."""
    if (discovery := cell.discovery) is None:
        return None
    strongest = ", ".join(f"{row.id} {row.score:+.2f}" for row in discovery.components[:5])
    figures = ", ".join(f"{name} {value:.2f}" for name, value in discovery.metrics.items())
    words = f"{discovery.method}: {strongest or 'nothing scores'}. Checks: {figures or 'none'}."
    return words, f"{discovery.directory}/discovery.html"


def _interval(row: SweepRow) -> str | None:
    if row.ci_low is None or row.ci_high is None:
        return None
    return f"{figure(row.ci_low)} to {figure(row.ci_high)}"
