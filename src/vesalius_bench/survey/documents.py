"""Several models on several behaviours as a file: `survey.json`. A cell is one model on one behaviour."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from pydantic import JsonValue, computed_field

from vesalius.documents.base import Line, Record, ResultDocument
from vesalius.documents.circuit import Score
from vesalius.documents.frozen import FrozenMap
from vesalius.documents.metric import Figure
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.sweep import HalfAgreement, SweepRow
from vesalius.documents.view import Row, View, made, shortened

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

    def clear(self) -> list[SweepRow]:
        """Components whose interval does not hold 0; of components that do nothing one in twenty is among them."""
        return [row for row in self.components if row.ci_low is not None and row.ci_high is not None and _clear(row)]


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
    and `discovery` are None where it does not. A cell that failed has an `error` and nothing else.
    """

    ABSENT_IF_DEFAULT = (
        "performance",
        "metric",
        "metric_name",
        "sweep",
        "discovery",
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
    notes: tuple[str, ...] = ()
    error: str | None = None
    error_kind: str | None = None
    fingerprint: str | None = None
    seconds: float = 0.0

    def row(self) -> Row:
        """The cell as a row of a table."""
        measured, swept = self.performance, self.sweep
        agreement = swept and swept.agreement
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
            "jaccard": agreement and agreement.jaccard,
            "rank_correlation": agreement and agreement.rank_correlation,
            "error": self.error,
        }


class Survey(ResultDocument, kind="survey"):
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

    def save(self, directory: Path | str) -> Path:
        """Write `survey.json` into a directory and return its path."""
        place = made(directory)
        self.model_copy(update={"directory": str(place)}).write(place / SURVEY_FILE)
        return place / SURVEY_FILE

    def counts(self) -> str:
        """How many cells ended how, in words."""
        statuses = [cell.status for cell in self.cells]
        return ", ".join(f"{statuses.count(one)} {one}" for one in get_args(Status) if one in statuses)

    def listed(self) -> Line:
        """What a list of results says of it: the first line of its summary."""
        return Line("survey", repr(self).splitlines()[0][:120])

    def view(self) -> View:
        """Who performs what, which components matter, how stable that is, and every cell."""
        return import_module("vesalius_bench.survey.view").survey_view(self)


def short_name(name: str) -> str:
    """The end of a path; of a row written out its beginning; any other name as it is."""
    if name.lstrip().startswith("{"):
        return shortened(name, LONGEST_NAME)
    return Path(name).stem if name.endswith((".jsonl", ".json", ".csv", ".toml")) else Path(name).name or name


def names(rows: Iterable[SweepRow]) -> str:
    """Components with their effects, in a line."""
    return ", ".join(f"{row.id} {row.effect:+.2f}" for row in rows)


def _clear(row: SweepRow) -> bool:
    assert row.ci_low is not None
    assert row.ci_high is not None
    return row.ci_low > 0 or row.ci_high < 0


def _texts(value: JsonValue) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
