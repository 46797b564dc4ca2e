"""Several models on several behaviours as a file: `survey.json`. A cell is one model on one behaviour."""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, JsonValue, computed_field

from vesalius.components import Component
from vesalius.documents.answers import beyond_chance, cells_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenMap, Record, ResultDocument
from vesalius.documents.circuit import Score
from vesalius.documents.metric import Figure
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.sweep import HalfAgreement, SweepRow
from vesalius.documents.view import (
    Answer,
    Bars,
    Facts,
    Grid,
    Group,
    HeadMap,
    LateRows,
    Link,
    Mark,
    Row,
    Section,
    Sheet,
    Text,
    View,
    cut_text,
    duration,
    title_of,
)

SURVEY_FILE = "survey.json"
#: Whether a model performs a behaviour: "undecided" where the prompts are too few to tell, "failed" where nothing could
#: be measured.
Status = Literal["performed", "undecided", "not performed", "failed"]
#: Components of a cell that a row names.
NAMED = 3
LONGEST_NAME = 32


class CellSweep(Record):
    """What replacing each component of a model costs: `baseline` is the clean score, `components` the effects with
    their intervals, most helpful first, `agreement` how stable they are (None for fewer than 4 prompts).
    """

    baseline: Figure
    unit: str
    components: tuple[SweepRow, ...]
    agreement: HalfAgreement | None
    layers: int
    heads: int
    forwards: float

    def strongest(self, most: int, *, heads: bool | None = None) -> list[SweepRow]:
        """The components of the largest effects, whether they help or hurt; of one kind where `heads` says so."""
        ours = [row for row in self.components if row.effect and heads in (None, not row.id.endswith("_MLP"))]
        return sorted(ours, key=lambda row: -abs(row.effect))[:most]

    def beyond_chance(self) -> dict[str, SweepRow]:
        """The components whose effects chance does not explain, corrected for how many there are."""
        sure = {one[0] for one in beyond_chance([row.figures for row in self.components], self.baseline.n)}
        return {row.id: row for row in self.components if row.id in sure}


class CellDiscovery(Record):
    """The circuit that a discovery method found: its strongest components, the figures of its checks, and where its
    files are.
    """

    method: str
    components: tuple[Score, ...]
    metrics: FrozenMap[str, float]
    directory: str


class SurveyCell(Record):
    """One model on one behaviour.

    `performance` says whether the model performs it, `metric` the behaviour's own metric on the same prompts. `sweep`
    and `discovery` are None where it does not. `names` are those of the model's heads by the standard tests of the
    atlas, the same in every behaviour. A cell that failed has an `error` and nothing else.
    """

    ABSENT_IF_DEFAULT = (
        "performance",
        "metric",
        "metric_name",
        "sweep",
        "discovery",
        "names",
        "notes",
        "error",
        "error_kind",
        "fingerprint",
    )

    id: str
    model: str
    behaviour: str
    status: Status
    performance: Performance | None = None
    metric: Figure | None = None
    metric_name: str = ""
    sweep: CellSweep | None = None
    discovery: CellDiscovery | None = None
    names: FrozenMap[str, tuple[str, ...]] = Field(default_factory=FrozenDict)
    notes: tuple[str, ...] = ()
    error: str | None = None
    error_kind: str | None = None
    fingerprint: str | None = None
    seconds: float = 0.0

    def row(self) -> Row:
        """The cell as a row of a table."""
        measured, swept = self.performance, self.sweep
        agreement = swept.agreement if swept else None
        return {
            "model": self.model,
            "behaviour": self.behaviour,
            "status": self.status,
            "accuracy": measured and measured.accuracy,
            "accuracy_low": measured and measured.accuracy_low,
            "accuracy_high": measured and measured.accuracy_high,
            "metric": self.metric and self.metric.value,
            "metric_low": self.metric and self.metric.low,
            "metric_high": self.metric and self.metric.high,
            "heads": swept and names(swept.strongest(NAMED, heads=True)),
            "mlps": swept and names(swept.strongest(NAMED, heads=False)),
            "jaccard": agreement.jaccard if agreement else None,
            "rank_correlation": agreement.rank_correlation if agreement else None,
            "error": self.error,
        }


class Survey(Answered, ResultDocument, kind="survey"):
    """Every model on every behaviour: who performs what, which components matter, and how stable that is.

    `cells` come model by model, in the order asked for.
    """

    FILE = SURVEY_FILE
    RANK = 90
    OWNS_DIRECTORY = True
    REMEDY = "run `vesalius survey` again"
    ABSENT_IF_DEFAULT = ("directory",)

    request: Request
    cells: tuple[SurveyCell, ...]
    directory: str | None = None

    @computed_field
    @property
    def models(self) -> tuple[str, ...]:
        """The models, as they were asked for."""
        return _texts(self.request.options.get("models"))

    @computed_field
    @property
    def behaviours(self) -> tuple[str, ...]:
        """The behaviours, as they were asked for."""
        return _texts(self.request.options.get("behaviour"))

    @computed_field
    @property
    def n_failed(self) -> int:
        """Cells that could not be measured."""
        return sum(cell.status == "failed" for cell in self.cells)

    @computed_field
    @property
    def seconds(self) -> float:
        """Seconds of work, over all cells."""
        return sum(cell.seconds for cell in self.cells)

    def cell(self, model: str, behaviour: str) -> SurveyCell:
        """The cell of a model and a behaviour, named as they were asked for."""
        return next(cell for cell in self.cells if (cell.model, cell.behaviour) == (model, behaviour))

    @property
    def size(self) -> str:
        """How many models and behaviours, in words."""
        models, behaviours = len(self.models), len(self.behaviours)
        return f"{models} model{'s' * (models != 1)} x {behaviours} behaviour{'s' * (behaviours != 1)}"

    def answered(self) -> Answer:
        """Whether the models perform the behaviours; then the circuit of what is performed most surely, or the same
        again where cells failed.
        """
        performed = [cell for cell in self.cells if cell.status == "performed"]
        surest = max(performed, key=_least_accuracy, default=None)
        said = f"Survey of {self.size}: {self.counts()}"
        if surest is not None and surest.performance is not None:
            said += f"; most surely {_name(surest)}, {surest.performance.accuracy_figures}"
        answer = cells_answer(said, len(performed), len(self.cells))
        if self.n_failed:
            return replace(answer, then=self.request.command_line())
        if surest is None:
            return replace(answer, then="choose other behaviours or models")
        words = ("vesalius", "discover", surest.model, "--behaviour", surest.behaviour)
        return replace(answer, then=" ".join(map(shlex.quote, words)))

    def counts(self) -> str:
        """How many cells ended how, in words."""
        statuses = [cell.status for cell in self.cells]
        return ", ".join(f"{statuses.count(one)} {one}" for one in get_args(Status) if one in statuses)

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return "survey"

    def view(self) -> View:
        """Who performs what, which components matter, how stable that is, and every cell."""
        return survey_view(self)


def short_name(name: str) -> str:
    """The end of a path; of a row written out its beginning; any other name as it is."""
    if name.lstrip().startswith("{"):
        return cut_text(name, LONGEST_NAME)
    return Path(name).stem if name.endswith((".jsonl", ".json", ".csv", ".toml")) else Path(name).name or name


def names(rows: Iterable[SweepRow]) -> str:
    """Components with their effects, in a line."""
    return ", ".join(f"{row.id} {row.effect:+.2f}" for row in rows)


def _least_accuracy(cell: SurveyCell) -> float:
    return 0.0 if cell.performance is None else cell.performance.accuracy_low


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


#: Components that a table lists for a cell, those of each behaviour that a model's table compares, and its rows in a
#: terminal.
LISTED, COMPARED, COMPARED_IN_TERMINAL = 10, 4, 12
#: Columns that a notebook shows.
NOTEBOOK = ("model", "behaviour", "status", "accuracy", "metric", "heads", "jaccard")
#: Head maps that a view still has, and cells that a terminal lists one by one.
MOST_MAPS, MOST_LINES = 40, 24
#: How each status looks, and what a terminal says.
LOOKS = {"performed": "supported", "undecided": "undecided", "not performed": "refuted", "failed": "untested"}
SAID = {"performed": "yes", "undecided": "unclear", "not performed": "no", "failed": "failed"}
#: Characters of the strongest components in the summary.
STRONGEST = 240


def survey_view(survey: Survey) -> View:
    """The sections of a survey."""
    swept = [cell for cell in survey.cells if cell.sweep is not None]
    parts = [f"{_name(cell)}: {names(cell.sweep.strongest(NAMED))}" for cell in swept if cell.sweep]
    strongest = cut_text("; ".join(parts), STRONGEST) or "no cell was swept"
    columns = tuple(survey.cells[0].row()) if survey.cells else ()
    rows = LateRows(len(survey.cells), lambda most: [tuple(cell.row().values()) for cell in survey.cells[:most]])
    failed = [cell for cell in survey.cells if cell.status == "failed"]
    return View(
        f"Survey: {survey.size.replace(' x ', ', ')}",
        survey.answered(),
        [
            Facts([("strongest", strongest)]),
            Facts(_facts(survey)),
            Sheet(columns, rows, title="All figures", folded=True, terminal=0, notebook=NOTEBOOK),
            *_in_terminal(survey),
            *_performed(survey),
            Group(compared := _compared(survey), title="Which components", pages_only=_on_pages(compared)),
            Group(_stability(swept), title="How stable", pages_only=True),
            *(
                [
                    Group(
                        [_cell(cell, drawn=place < MOST_MAPS) for place, cell in enumerate(swept)],
                        title="Cell by cell",
                        pages_only=True,
                    )
                ]
                if swept
                else []
            ),
            *(
                [Text([*_failures(failed), "The same command tries what failed again."], title="Failed")]
                if failed
                else []
            ),
        ],
        command=survey.request.command_line(),
        place=survey.directory and f"{survey.directory}/report.html",
        files=[("numbers", f"{survey.directory}/{SURVEY_FILE}")] if survey.directory else [],
        note="survey.json holds the effect of every component.",
    )


def _facts(survey: Survey) -> list[tuple[str, str]]:
    options, best = survey.request.options, []
    for model in survey.models:
        performed = [title_of(cell.behaviour) for cell in _of_model(survey, model) if cell.status == "performed"]
        best += [f"{short_name(model)} performs {', '.join(performed)}"] if performed else []
    known = all(cell.status == "not performed" for cell in survey.cells)
    none = "No model performs any of the behaviours" if known else "No model is known to perform any of the behaviours"
    facts = [("in short", f"{'; '.join(best) or none}.")]
    facts += [
        ("in all", f"{len(survey.cells)} cell{'s' * (len(survey.cells) != 1)}: {survey.counts()}"),
        ("replaced by", str(options.get("kind", ""))),
    ]
    facts += [("prompts of a sweep", str(options.get("n", ""))), ("seed", str(survey.request.seed))]
    facts += [("discovery", str(options["discover"]))] if options.get("discover") else []
    return [*facts, ("work", duration(survey.seconds))]


def _of_model(survey: Survey, model: str) -> list[SurveyCell]:
    return [survey.cell(model, behaviour) for behaviour in survey.behaviours]


def _name(cell: SurveyCell) -> str:
    return f"{short_name(cell.model)}, {short_name(cell.behaviour)}"


def _in_terminal(survey: Survey) -> list[Section]:
    """A line for each cell, or a grid where there are many."""
    if len(survey.cells) > MOST_LINES:
        rows = [(short_name(model), *(_short(cell) for cell in _of_model(survey, model))) for model in survey.models]
        columns = ("model", *(short_name(name) for name in survey.behaviours))
        return [Sheet(columns, rows, title="accuracy", terminal=200, terminal_only=True)]
    rows = []
    for cell in survey.cells:
        measured, metric, swept = cell.performance, cell.metric, cell.sweep
        words = [SAID[cell.status]]
        if measured is not None:
            words.append(f"{measured.accuracy:.2f} [{measured.accuracy_low:.2f}, {measured.accuracy_high:.2f}]")
        rows.append(
            (
                short_name(cell.model),
                short_name(cell.behaviour),
                " ".join(words),
                f"{metric.value:.2f}" if metric else "",
                ", ".join(row.id for row in swept.strongest(3)) if swept else "",
                f"{swept.agreement.jaccard:.2f}" if swept and swept.agreement else "",
            )
        )
    columns = ("model", "behaviour", "performed, accuracy", "metric", "strongest", "halves")
    alike = "halves: how alike the strongest components of two halves of the prompts are (Jaccard index)"
    return [
        Sheet(columns, rows, terminal=MOST_LINES, terminal_only=True),
        *([Text([alike], terminal_only=True)] if any(cell.sweep for cell in survey.cells) else []),
    ]


def _short(cell: SurveyCell) -> str:
    said = SAID[cell.status]
    return said if cell.performance is None else f"{cell.performance.accuracy:.2f} {said}"


def _performed(survey: Survey) -> list[Section]:
    """Models by behaviours: as words, and as a picture."""
    rule = next((cell.performance.rule for cell in survey.cells if cell.performance), "")
    rule = f"{rule[:1].upper()}{rule[1:]}. " if rule else ""
    models = [short_name(model) for model in survey.models]
    behaviours = [title_of(name) for name in survey.behaviours]
    rows = [(name, *map(_mark, _of_model(survey, model))) for name, model in zip(models, survey.models, strict=True)]
    accuracy = [
        [cell.performance.accuracy if cell.performance else None for cell in _of_model(survey, model)]
        for model in survey.models
    ]
    words = [
        [f"{cell.performance.accuracy:.2f}\n{cell.status}" if cell.performance else cell.status for cell in cells]
        for cells in (_of_model(survey, model) for model in survey.models)
    ]
    return [
        Group(
            [
                Sheet(
                    ("model", *behaviours),
                    rows,
                    caption=f"{rule}Undecided: the means are as they should be, the prompts are too few. Intervals are "
                    "95 %.",
                ),
                Grid(
                    accuracy,
                    models,
                    behaviours,
                    f"accuracy by model and behaviour: {survey.counts()}",
                    words=words,
                    title="accuracy",
                    pictured=True,
                ),
            ],
            title="Who performs what",
            pages_only=True,
        )
    ]


def _mark(cell: SurveyCell) -> Mark:
    address = f"#{_name(cell)}" if cell.sweep else ""
    if (measured := cell.performance) is None or (metric := cell.metric) is None:
        return Mark(LOOKS[cell.status], cell.status, cell.error or "", address)
    accuracy = f"accuracy {measured.accuracy:.2f} [{measured.accuracy_low:.2f}, {measured.accuracy_high:.2f}]"
    interval = "" if metric.low is None or metric.high is None else f" [{metric.low:.2f}, {metric.high:.2f}]"
    words = f"{cell.metric_name.replace('-', ' ')} {metric.value:.2f}{interval}, n {measured.n}"
    return Mark(LOOKS[cell.status], cell.status, f"{accuracy}; {words}", address)


def _compared(survey: Survey) -> list[Section]:
    """The components of each model side by side: what the atlas calls them, and the part of each in every behaviour;
    those with a part in most behaviours first.
    """
    sheets: list[Section] = []
    for model in survey.models:
        cells = [cell for cell in _of_model(survey, model) if cell.sweep and cell.sweep.baseline.value]
        sweeps: list[CellSweep] = [cell.sweep for cell in cells if cell.sweep]
        if not cells:
            continue
        effects = [{row.id: row for row in swept.components} for swept in sweeps]
        sure = [swept.beyond_chance() for swept in sweeps]
        parts = Counter(id for table in sure for id in table)
        chosen = {row.id for swept in sweeps for row in swept.strongest(COMPARED)}
        chosen |= {id for id, count in parts.items() if count > 1}
        names = next((cell.names for cell in cells if cell.names), {})
        rows = [
            (
                id,
                ", ".join(names.get(id, ())),
                *(
                    _part(table.get(id), swept.baseline.value, sure=id in known)
                    for table, known, swept in zip(effects, sure, sweeps, strict=True)
                ),
            )
            for id in sorted(chosen, key=lambda id: (-parts[id], Component.parse(id)))
        ]
        columns = ("component", "by the atlas", *(title_of(cell.behaviour) for cell in cells))
        title = f"{short_name(model)}: its components in each behaviour"
        alone = len(cells) == 1  # a terminal has its strongest components already
        sheets.append(Sheet(columns, rows, title=title, terminal=COMPARED_IN_TERMINAL, pages_only=alone))
    if not sheets:
        return [Text(["No behaviour is performed, so nothing was replaced."], pages_only=True)]
    words = (
        "What replacing a component costs, as a share of the clean score, and which logit it moves; those with a part "
        "in most behaviours first. A star: beyond chance, corrected for the number of components. By the atlas: the "
        "standard tests of `vesalius atlas`."
    )
    return [*sheets, Text([words], quiet=True)]


def _on_pages(sections: Sequence[Section]) -> bool:
    """Whether only pages have something of them to lay out."""
    return all(one.pages_only for one in sections if isinstance(one, Sheet))


def _part(row: SweepRow | None, baseline: float, *, sure: bool) -> str:
    """An effect as a share of the clean score; beyond chance it has a star and says what it does to the logits."""
    if row is None:
        return ""
    share = _of_clean(row, baseline)
    return f"{share}*{f' {row.acts}' if row.acts else ''}" if sure else share


def _of_clean(row: SweepRow, baseline: float) -> str:
    return f"{round(row.effect / abs(baseline), 2) + 0.0:+.2f}" if baseline else "–"  # + 0.0: no minus before zero


def _stability(cells: Sequence[SurveyCell]) -> list[Section]:
    """Both figures of every cell that has enough prompts to be halved."""
    halved = [(cell, cell.sweep.agreement) for cell in cells if cell.sweep and cell.sweep.agreement]
    if not halved:
        return [Text(["No sweep has the four prompts that two halves need."])]
    first = halved[0][1]
    jaccard = Bars(
        [(_name(cell), half.jaccard, half.jaccard_low, half.jaccard_high) for cell, half in halved],
        title=f"The same {first.top} components?",
        caption=f"Jaccard index of the {first.top} largest effects on two halves of the prompts. "
        f"Random components would give {first.chance:.2f} in the first row.",
    )
    ranks = Bars(
        [(_name(cell), half.rank_correlation, half.rank_low, half.rank_high) for cell, half in halved],
        title="The same order?",
        caption="Spearman's rank correlation of all effects. Most components do next to nothing, and their order is "
        "noise.",
    )
    words = "Means over random halvings of the prompts; the line holds the middle 95 % of them."
    return [Group([jaccard, ranks], side_by_side=True), Text([words], quiet=True)]


def _cell(cell: SurveyCell, *, drawn: bool) -> Group:
    """A cell that was swept: its sentence, its map, its strongest components, and what was discovered."""
    swept = cell.sweep
    assert swept is not None
    strongest = swept.strongest(len(swept.components))
    sure = len(swept.beyond_chance())
    heads, mlps = (", ".join(row.id for row in swept.strongest(3, heads=kind)) for kind in (True, False))
    words = [f"Heads: {heads}." if heads else "", f"MLPs: {mlps}." if mlps else ""]
    lede = (
        f"{' '.join(filter(None, words)) or 'No component has an effect.'} {sure} of {len(swept.components)} "
        "components change the score beyond chance."
    )
    sections: list[Section] = [Text([lede])]
    if drawn:
        intervals = {
            row.id: (row.ci_low, row.ci_high)
            for row in swept.components
            if row.ci_low is not None and row.ci_high is not None
        }
        values = {row.id: row.effect for row in strongest}
        ask = {"specimen": cell.model, "behaviour": cell.behaviour, "kind": "resample"}
        unit = f"effect, {swept.unit}"
        sections.append(HeadMap(values, swept.layers, swept.heads, unit=unit, intervals=intervals, ask=ask))
    rows = [
        (rank, row.id, row.effect, row.ci_low, row.ci_high, _of_clean(row, swept.baseline.value))
        for rank, row in enumerate(strongest[:LISTED], 1)
    ]
    columns = ("rank", "component", f"effect ({swept.unit})", "low", "high", "share of the clean score")
    sections.append(Sheet(columns, rows))
    if (discovery := cell.discovery) is not None:
        found = ", ".join(f"{row.id} {row.score:+.2f}" for row in discovery.components[:5])
        figures = ", ".join(f"{name} {value:.2f}" for name, value in discovery.metrics.items())
        words = f"{discovery.method}: {found or 'nothing scores'}. Checks: {figures or 'none'}."
        sections.append(
            Sheet(("discovery", "page"), [(words, Link("Its page", f"{discovery.directory}/discovery.html"))])
        )
    if cell.notes:
        sections.append(Text(cell.notes, quiet=True))
    return Group(sections, title=_name(cell), name=_name(cell))


def _failures(failed: Sequence[SurveyCell]) -> list[str]:
    """Why cells failed; the cells of a model that failed alike are one line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for cell in failed:
        alike.setdefault((short_name(cell.model), cell.error or ""), []).append(short_name(cell.behaviour))
    return [f"failed: {model}, {', '.join(names)}: {why}" for (model, why), names in alike.items()]
