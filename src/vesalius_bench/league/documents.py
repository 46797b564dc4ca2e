"""A league: fresh circuits whose key is sealed, submissions about them, and one row for each that was scored."""

from typing import Literal

from pydantic import Field

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.frozen import FrozenDict, FrozenMap
from vesalius.documents.metric import Metric, metric_lines, metric_rows
from vesalius.documents.request import installed_versions
from vesalius.documents.views import Row

LEAGUE_FILE, SUBMISSION_FILE, ROW_FILE = "league.json", "submission.json", "row.json"
#: The figures that a table shows first.
LEAGUE_HEADLINES = (
    *("tag_accuracy", "component_iia", "power", "false_support", "coverage", "interval_width", "bias", "task_exact"),
    *("node_auroc", "circuit_recall", "circuit_precision"),
)


class LeagueCircuit(Record):
    """One circuit: its directory under `specimens`, the digest of its weights, and its shape."""

    id: str
    weights_sha256: str
    layers: int
    heads: int
    d_model: int


class League(ResultDocument, kind="league"):
    """What is known of a league without its key. `functions` are the numbers of black-box functions by category; they
    are in the key alone, and so is the seed. `circuits_given`: specimens list the components of their circuit, else
    all components of the model. `key` is sealed in `key.json`, or kept apart; `key_sha256` is the digest of its text.
    """

    FILE = LEAGUE_FILE
    RANK = None
    REMEDY = "make the league again with `vesalius league make`"

    made: str
    circuits: tuple[LeagueCircuit, ...]
    circuits_given: bool = True
    functions: FrozenMap[str, int] = Field(default_factory=FrozenDict)
    depth: int | None = None
    key: Literal["sealed", "apart"]
    key_sha256: str
    versions: FrozenMap[str, str] = Field(default_factory=installed_versions)

    def _summary(self) -> str:
        functions = ", ".join(f"{count} {name}" for name, count in self.functions.items()) or "no"
        return f"League of {len(self.circuits)} circuits and {functions} functions; key {self.key}, made {self.made}"

    def _rows(self) -> list[Row]:
        return [one.as_data() for one in self.circuits]


class LeagueError(Record):
    """A circuit, or a category of functions, that something failed on; what failed counts as not found."""

    case: str
    reason: str


class LeagueEntry(ResultDocument):
    """What a submission and its row share: the league, by the digest of its key, and what was submitted by whom."""

    league: str
    name: str
    kind: Literal["explanations", "circuits"]
    scientist: str | None = None
    backbone: str | None = None
    method: str | None = None
    interpreter: str | None = None
    seed: int = 0
    errors: tuple[LeagueError, ...] = ()
    seconds: float = 0.0
    versions: FrozenMap[str, str] = Field(default_factory=installed_versions)


#: The fields that say which submission one is.
IDENTITY = ("league", "name", "kind", "scientist", "backbone", "method", "interpreter", "seed")


class LeagueSubmission(LeagueEntry, kind="submission"):
    """What was submitted: explanations or discovered circuits, one file per circuit, and the name of an interpreter for
    the functions, which the scorer runs.
    """

    FILE = SUBMISSION_FILE
    RANK = None
    REMEDY = "submit again with `vesalius league submit`"

    cases: tuple[str, ...] = ()
    complete: bool = False

    def _summary(self) -> str:
        state = "complete" if self.complete else "not complete"
        return f"Submission {self.name}: {len(self.cases)} {self.kind}, {len(self.errors)} errors, {state}"

    def _rows(self) -> list[Row]:
        return [{"case": case} for case in self.cases]


class CircuitScore(Record):
    """One circuit of a row: how many components of the key, tags right, components supported, and of these wrong."""

    id: str
    components: int
    tags_right: int | None = None
    supported: int | None = None
    supported_wrong: int | None = None
    iia: float | None = None
    node_auroc: float | None = None


class LeagueRow(LeagueEntry, kind="row"):
    """A submission, scored: every metric with its interval, and the circuits behind it. All `n` circuits are in every
    figure; on `n_error` of them the scientist or method failed.
    """

    FILE = ROW_FILE
    RANK = None
    REMEDY = "score again with `vesalius league score`"

    n: int
    n_error: int
    metrics: FrozenMap[str, Metric]
    circuits: tuple[CircuitScore, ...] = ()
    scored: str

    def _summary(self) -> str:
        heading = f"{self.name}: {self.n} circuits scored, {self.n_error} errors"
        return f"{heading}\n{metric_lines(self.metrics, first=LEAGUE_HEADLINES, most=7)}"

    def _rows(self) -> list[Row]:
        return metric_rows(self.metrics)


class LeagueTable(ResultDocument):
    """Rows beside each other; `note` says where they come from."""

    REMEDY = "give rows that `vesalius league score` wrote"

    note: str = ""
    rows: tuple[LeagueRow, ...]

    def _summary(self) -> str:
        return f"{len(self.rows)} rows: {', '.join(row.name for row in self.rows)}"

    def _rows(self) -> list[Row]:
        shown = [name for name in LEAGUE_HEADLINES if any(name in row.metrics for row in self.rows)]
        return [
            {"name": row.name, "n": row.n, **{m: row.metrics[m].value if m in row.metrics else None for m in shown}}
            for row in self.rows
        ]
