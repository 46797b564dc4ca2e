"""A league: fresh circuits whose key is sealed, submissions about them, and one row for each that was scored.

DIR/league.json           what is known without the key
DIR/specimens/c01 ...     the models, renamed and in random order
DIR/key.json              the key, sealed with a passphrase (or kept apart, in a file elsewhere)
DIR/submissions/NAME      submission.json, explanations/c01.json ... or circuits/c01.json ...
DIR/rows/NAME.json, .html the figures of a submission, and its page
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vesalius.documents.base import FileName, FrozenDict, FrozenMap, Ran, Record, ResultDocument
from vesalius.documents.metric import Metric, metric_facts, metric_sheet
from vesalius.documents.request import installed_versions
from vesalius.documents.view import Answer, Facts, Section, Sheet, Text, View, duration
from vesalius.errors import BadInput, quoted
from vesalius.files import read_json
from vesalius_bench.sealing import open_text

#: Interpreters that are no foreign program.
OURS = ("builtin", "table")
LEAGUE_FILE, SUBMISSION_FILE, ROW_FILE = "league.json", "submission.json", "row.json"
#: The figures that a table shows first.
LEAGUE_HEADLINES = (
    *("tag_accuracy", "component_iia", "power", "false_support", "coverage", "interval_width", "bias", "task_exact"),
    *("node_auroc", "circuit_recall", "circuit_precision"),
)

#: What a table of rows proves.
UNSIGNED = "Rows are shown as their files state them, unsigned; `vesalius league score` with the key makes a row again."

#: Columns of the two tables; a row prints every metric.
EXPLANATION_COLUMNS = ("tag_accuracy", "component_iia", "power", "false_support", "coverage", "bias", "task_exact")
DISCOVERY_COLUMNS = ("power", "false_support", "node_auroc", "circuit_recall", "circuit_precision")


class LeagueCircuit(Record):
    """One circuit: its directory under `specimens`, the digest of its weights, and its shape."""

    id: FileName
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

    def view(self) -> View:
        """Its circuits."""
        functions = ", ".join(f"{count} {name}" for name, count in self.functions.items()) or "no"
        answer = f"League of {len(self.circuits)} circuits and {functions} functions; key {self.key}, made {self.made}"
        return View(
            "League", Answer(answer), [Sheet.of([one.as_data() for one in self.circuits], title="Circuits", terminal=0)]
        )


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

    def view(self) -> View:
        """What was submitted."""
        state = "complete" if self.complete else "not complete"
        answer = f"Submission {self.name}: {len(self.cases)} {self.kind}, {len(self.errors)} errors, {state}"
        return View(
            f"Submission {self.name}", Answer(answer), [Sheet(("case",), [(case,) for case in self.cases], terminal=0)]
        )


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
    #: How the interpreter ran, where it is code of others.
    ran: Ran | None = None

    @property
    def how_run(self) -> str:
        """How its interpreter ran, in one word."""
        if self.ran is not None:
            return self.ran.word
        if self.interpreter is None:
            return "no program"
        return "built in" if self.interpreter in OURS else "not recorded"

    def view(self) -> View:
        """Every metric, and the circuits behind it."""
        order = dict.fromkeys([*(name for name in LEAGUE_HEADLINES if name in self.metrics), *self.metrics])
        last = "interchange accuracy" if self.kind == "explanations" else "node AUROC"
        circuits = [
            (one.id, one.components, one.tags_right, one.supported, one.supported_wrong, one.iia or one.node_auroc)
            for one in self.circuits
        ]
        facts = [
            ("by", self.scientist or self.method or self.name),
            *([("language model", self.backbone)] if self.backbone else []),
            *([("functions by", self.interpreter)] if self.interpreter else []),
            ("interpreter ran", self.how_run),
            ("seed", str(self.seed)),
            ("key of the league", self.league[:16]),
            ("work", duration(self.seconds)),
        ]
        return View(
            f"League: {self.name}",
            Answer(f"{self.name}: {self.n} circuits scored, {self.n_error} errors"),
            [
                metric_facts(self.metrics, first=LEAGUE_HEADLINES, most=7),
                *([Text([self.ran.sentence])] if self.ran else []),
                metric_sheet(
                    {name: self.metrics[name] for name in order},
                    title="Figures",
                    terminal=100,
                    caption="Power: components of the key that are supported and right. False support: supported "
                    "components that are wrong. Bias: stated values less the same measured on fresh inputs. Coverage: "
                    "stated intervals that hold the value measured again; an honest 95 % interval does in 83 % of "
                    "cases. Intervals resample circuits.",
                ),
                Facts(facts, pages_only=True),
                Sheet(
                    ("circuit", "components", "tags right", "supported", "of these wrong", last),
                    circuits,
                    title="Circuit by circuit",
                    terminal=0,
                ),
                *(
                    [Text([f"{error.case}: {error.reason}" for error in self.errors], title="Errors", pages_only=True)]
                    if self.errors
                    else []
                ),
            ],
        )


class LeagueTable(ResultDocument):
    """Rows beside each other; `note` says where they come from."""

    REMEDY = "give rows that `vesalius league score` wrote"

    note: str = ""
    rows: tuple[LeagueRow, ...]

    def view(self) -> View:
        """Rows by headline metrics: explanations in one table, discoveries in another."""
        shown = [name for name in LEAGUE_HEADLINES if any(name in row.metrics for row in self.rows)]
        whole = [(row.name, row.n, *(_value(row, name) for name in shown)) for row in self.rows]
        sections: list[Section] = [Sheet(("name", "n", *shown), whole, title="All headlines", terminal=0)]
        for title, columns, is_discovery in (
            ("Explanations", EXPLANATION_COLUMNS, False),
            ("Discoveries", DISCOVERY_COLUMNS, True),
        ):
            rows = [row for row in self.rows if ("node_auroc" in row.metrics) == is_discovery]
            kept = [name for name in columns if any(name in row.metrics for row in rows)]
            if rows:
                cells = [(row.name, row.n, *(_value(row, name) for name in kept), row.how_run) for row in rows]
                sections.append(Sheet(("name", "n", *kept, "interpreter ran"), cells, title=title, terminal=200))
        names = ", ".join(row.name for row in self.rows)
        return View(
            "League table",
            Answer(f"{len(self.rows)} rows: {names}"),
            [*sections, Text([UNSIGNED, *([self.note] if self.note else [])])],
        )


def _value(row: LeagueRow, name: str) -> float | None:
    return row.metrics[name].value if name in row.metrics else None


KEY_NAME, SPECIMENS, SUBMISSIONS, ROWS = "key.json", "specimens", "submissions", "rows"
_LONGEST_NAME = 80


def read_league(league: str | Path) -> tuple[Path, League]:
    directory = Path(league)
    if not (directory / LEAGUE_FILE).is_file():
        raise BadInput(f"{league}: holds no {LEAGUE_FILE}; make a league with `vesalius league make --out DIR`")
    return directory, League.read(directory / LEAGUE_FILE)


def file_name(name: str) -> str:
    """The name of a submission as that of its directory and its row."""
    safe = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in name)[:_LONGEST_NAME]
    if not safe or safe.startswith("."):
        raise BadInput(f"`name` {quoted(name, 40)}: begin it with a letter or a digit")
    return safe


def open_key(directory: Path, league: League, passphrase: str | None, key: str | Path | None) -> dict[str, Any]:
    """The key, opened with its passphrase or read from the file it was written to; refused if it is another."""
    if (passphrase is None) == (key is None):
        raise BadInput("the key: give a `passphrase_file`, or `key`, the file that it was written to")
    if passphrase is not None:
        if league.key != "sealed":
            raise BadInput(f"{directory}: its key is kept apart; give its file as `key`")
        text = open_text(read_json(directory / KEY_NAME), passphrase, source=directory / KEY_NAME)
    else:
        try:
            text = Path(str(key)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"`key` {key}: cannot be read ({error})") from None
    if text_digest(text) != league.key_sha256:
        raise BadInput(f"the key is not that of {directory}; league.json names another digest")
    return json.loads(text)


def read_passphrase(path: str | Path) -> str:
    """The first line of a passphrase file."""
    try:
        lines: Sequence[str] = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"`passphrase_file` {path}: cannot be read ({error})") from None
    if not lines or not lines[0].strip():
        raise BadInput(f"`passphrase_file` {path}: is empty; write the passphrase on its first line")
    return lines[0].strip()


def text_digest(text: str) -> str:
    """The digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    """The time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
