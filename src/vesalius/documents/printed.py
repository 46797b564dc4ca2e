"""What commands print and keep no file of: plans, lists of results, what a run used, specimens and tasks just made."""

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict

from vesalius.documents.base import FrozenList, FrozenMap, Record, ResultDocument
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, Viewable, cut_text, duration, join_first, prompts
from vesalius.errors import BadInput, choices


class Plan(Viewable, Record, kind="plan"):
    """What a command will cost.

    `forwards` are passes of all `n` prompts (of `tokens` each), without those that first ask whether the model performs
    and what replacing everything does (`contrast_forwards`), the `checks_forwards` of a discovery's checks, and what is
    taken at most by cutting the circuit (`select_forwards`), by the search for rivals (`rivals_forwards`) and by an
    alignment after its map (`search_forwards`), and by a search for latents beside a circuit (`latents_forwards`).
    `peak_bytes` is memory at the peak, of which `weight_bytes` are the weights; `fits` says whether what is not loaded
    yet fits into `free_bytes` (None where the system does not say), and `makes_it_fit` what does where it does not.
    `seconds` are estimated from what was `timed`. `tokens_assumed`: the length of prompts is a guess.
    """

    ABSENT_IF_DEFAULT = ("makes_it_fit", "latents_forwards")

    command: str
    forwards: float
    peak_bytes: int
    weight_bytes: int
    seconds: float
    timed: str
    n: int
    tokens: int
    contrast_forwards: float = 0.0
    checks_forwards: float
    rivals_forwards: float = 0.0
    select_forwards: float = 0.0
    search_forwards: float = 0.0
    latents_forwards: float = 0.0
    device: str
    free_bytes: int | None = None
    fits: bool | None = None
    makes_it_fit: str = ""
    tokens_assumed: bool = False

    def further_passes(self) -> str:
        """What comes on top of the passes of the work itself, in words."""
        passes = f", {self.contrast_forwards:.1f} for the contrast" if self.contrast_forwards else ""
        passes += f" and {self.checks_forwards:.1f} for the checks" if self.checks_forwards else ""
        passes += f", at most {self.select_forwards:.1f} for the selection" if self.select_forwards else ""
        passes += f", at most {self.rivals_forwards:,.0f} for the rivals" if self.rivals_forwards else ""
        passes += f", at most {self.latents_forwards:,.0f} for the latents" if self.latents_forwards else ""
        return passes + (f", at most {self.search_forwards:,.0f} after the map" if self.search_forwards else "")

    def _time(self) -> str:
        """The estimate in words, with what it is without a search of which only the most is known."""
        if not self.search_forwards:
            return f"about {duration(self.seconds)}"
        before = self.forwards + self.contrast_forwards
        first = self.seconds * before / (before + self.search_forwards)
        return f"about {duration(first)} up to the map, at most {duration(self.seconds)} in all"

    def view(self) -> View:
        """Passes, memory and time."""
        fits = self.fits is not False or self.free_bytes is None
        memory = f"about {self.peak_bytes / 2**20:,.0f} MB on {self.device}"
        remedy = f"; {self.makes_it_fit}" if self.makes_it_fit else ""
        free = "" if fits else f"; does not fit: {(self.free_bytes or 0) / 2**20:,.0f} MB are free{remedy}"
        assumed = ", which is assumed: a tokenizer and --behaviour would tell" if self.tokens_assumed else ""
        passes = f"{self.forwards:.1f} passes of {prompts(self.n)}{self.further_passes()}"
        time = (
            f"{self._time()}, from {self.timed} that was timed; nothing else was run"
            if fits
            else "not estimated, since it does not fit; nothing was run"
        )
        return View(
            f"Plan of {self.command}",
            Answer(
                f"Plan of {self.command}: {passes}, {memory}{free}" + (f", about {self.seconds:.1f} s" if fits else "")
            ),
            [
                Sheet(("figure", "value"), list(self.as_data().items()), pages_only=True),
                Facts(
                    [
                        ("passes", f"{passes}, of {self.tokens} tokens{assumed}"),
                        ("memory", f"{memory}{free}"),
                        ("time", time),
                    ]
                ),
            ],
        )


class CellPlan(Record):
    """What one cell of a survey takes at most; None where that cannot be said, with the reason as `error`."""

    model: str
    behaviour: str
    forwards: float | None
    peak_bytes: int | None
    seconds: float | None
    error: str | None


class SurveyPlan(Viewable, Record):
    """What a survey, or other work `of` several cells, takes at most: its cells, the passes and seconds of all, and the
    largest peak of memory.
    """

    ABSENT_IF_DEFAULT = ("of",)

    of: str = "a survey"
    cells: tuple[CellPlan, ...]
    forwards: float
    peak_bytes: int
    seconds: float

    def view(self) -> View:
        """Every cell, then all of them."""
        unknown = sum(cell.error is not None for cell in self.cells)
        rest = f"; {unknown} of them cannot be planned" if unknown else ""
        rows = [tuple(cell.as_data().values()) for cell in self.cells]
        columns = tuple(CellPlan.model_fields)
        many = "s" * (len(self.cells) != 1)
        return View(
            f"Plan of {self.of}",
            Answer(
                f"Plan of {self.of} of {len(self.cells)} cell{many}, at most about {self.seconds:.1f} s one after the "
                f"other and {self.peak_bytes / 2**20:,.0f} MB{rest}; nothing was run but one timed chunk of each"
            ),
            [Sheet(columns, rows)],
        )


#: Results that a terminal lists.
SHOWN = 40
#: `running`: a process works on it now; `unfinished`: there is work left and no process does it.
State = Literal["running", "finished", "unfinished", "unreadable"]


class ResultRow(Record):
    """One result. `path` is relative to the directory listed; `figures` is its answer in one line, or how far it is.

    `done` of `total` cases are there where a run has cases; `problem` says why a result cannot be read; `started` is
    when the process that works on it began; `has_calls` says that calls of a language model are on record.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    path: str
    kind: str
    title: str = ""
    state: State
    figures: str = ""
    done: int | None = None
    total: int | None = None
    cost: float | None = None
    seconds: float | None = None
    modified: float
    started: float | None = None
    has_calls: bool = False
    problem: str = ""


class ResultList(ResultDocument, kind="results"):
    """Every result below a directory, the latest first. `left_out` counts directories beyond the limit."""

    REMEDY = "run `vesalius runs` again"

    directory: str
    results: tuple[ResultRow, ...]
    left_out: int = 0

    def of_kind(self, kind: str) -> "ResultList":
        """Only the results of one kind."""
        kinds = sorted({row.kind for row in self.results})
        if kind not in kinds:
            raise BadInput(f"kind {kind!r}: no such result in {self.directory}; there are {choices(kinds) or 'none'}")
        return self.model_copy(update={"results": tuple(row for row in self.results if row.kind == kind)})

    def view(self) -> View:
        """One line for each result, the latest first."""
        names = [f"{row.path} ({row.kind}, {row.state})" for row in self.results]
        columns = ("path", "kind", "title", "state", "figures", "cost", "seconds")
        lines = [
            (
                row.path,
                row.kind,
                _state(row),
                cut_text(row.problem or row.figures or row.title, 90),
                "" if row.seconds is None else duration(row.seconds),
                datetime.fromtimestamp(row.modified).strftime("%Y-%m-%d %H:%M"),
            )
            for row in self.results
        ]
        if not self.results:
            return View(f"Results in {self.directory}", Answer(f"no results in {self.directory}"))
        rest = [f"{self.left_out} more directories were not looked at"] if self.left_out else []
        return View(
            f"Results in {self.directory}",
            Answer(f"{len(names)} results in {self.directory}"),
            [
                Facts([("", join_first(names, 5))], pages_only=True),
                Sheet.of([{name: getattr(row, name) for name in columns} for row in self.results], terminal=0),
                Sheet(
                    ("result", "kind", "state", "answer", "took", "changed"), lines, terminal=SHOWN, terminal_only=True
                ),
                *([Text(rest)] if rest else []),
            ],
        )


def _state(row: ResultRow) -> str:
    if row.state in ("running", "unfinished") and row.done is not None and row.total:
        return f"{row.state}, {row.done} of {row.total}"
    return row.state


class CallUsage(Record):
    """Calls with an outcome, failed ones included. `cached_tokens` is the part of `input_tokens` that came from the
    provider's cache; `cost` in dollars and `seconds` are None where one of the calls does not say.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = 0.0
    seconds: float | None = 0.0


class StageUsage(CallUsage):
    """The calls of one stage."""

    stage: str


class ComponentUsage(CallUsage):
    """The scientist's calls about one component of one case; `component` is None for calls about all of them."""

    case: str
    component: str | None


class RunUsage(Viewable, Record):
    """The calls of a benchmark run, or of one explanation. `per_component` is what the scientist used, all calls about
    whole circuits included, divided by the components it was asked about; None where it was asked about none.
    """

    run: str
    scientist: str
    backbone: str | None = None
    stages: tuple[StageUsage, ...] = ()
    components: FrozenList[ComponentUsage] = ()
    total: CallUsage = CallUsage()
    n_components: int = 0
    per_component: dict[str, float | None] | None = None

    def view(self) -> View:
        """What each stage asked."""
        used, by = self.total, "" if self.backbone is None else f" with {self.backbone}"
        cost = "cost not known" if used.cost is None else f"{used.cost:.2f} dollars"
        return View(
            f"Calls of {self.run}",
            Answer(
                f"Calls of {self.run}, {self.scientist}{by}: {used.calls} calls, {used.input_tokens} tokens in "
                f"({used.cached_tokens} from the cache), {used.output_tokens} out, {cost}"
            ),
            [Sheet.of([stage.as_data() for stage in self.stages], title="Stages")],
        )


#: The figures that a trained model is accepted by.
GATE = (
    "accuracy",
    "iia_worst",
    "iia_changed_worst",
    "moved_worst",
    "strict_worst",
    "strict_all",
    "mean_ablated",
    "zero_ablated",
)


class TrainedSpecimen(Viewable, Record):
    """A specimen that was trained and accepted, with the figures of the gate on `n` fresh inputs.

    `iia` is the interchange accuracy of every component, `iia_changed` the same where the answer changes, `moved` the
    same with its output moved to other positions, `inert` the components that no interchange at the same position
    shows. `strict_worst` and `strict_all` are accuracies with one component, and with all, outside the circuit patched;
    `mean_ablated` and `zero_ablated` with all of them ablated.
    """

    name: str
    accuracy: float
    iia_worst: float
    iia_changed_worst: float
    moved_worst: float
    strict_worst: float
    strict_all: float
    mean_ablated: float
    zero_ablated: float
    iia: FrozenMap[str, float]
    iia_changed: FrozenMap[str, float | None]
    moved: FrozenMap[str, float | None]
    inert: tuple[str, ...]
    accepted: bool
    n: int
    params: int
    attempts: int
    seconds: float
    directory: str

    @property
    def gate(self) -> dict[str, float]:
        """The figures that the model is accepted by."""
        return {name: getattr(self, name) for name in GATE}

    def view(self) -> View:
        """What was trained, and how it passed."""
        tries = "1 try" if self.attempts == 1 else f"{self.attempts} tries"
        rows = [
            (name, value, self.iia_changed.get(name), self.moved.get(name), name in self.inert)
            for name, value in self.iia.items()
        ]
        return View(
            f"Trained specimen {self.name}",
            Answer(
                f"Trained specimen {self.name} in {self.directory}: accepted after {tries}, {self.params} weights, "
                f"{self.seconds:.1f} s"
            ),
            [
                Facts(
                    [
                        (
                            "",
                            f"accuracy {self.accuracy:.4f}, worst interchange accuracy {self.iia_worst:.4f}, "
                            f"worst with a component outside patched {self.strict_worst:.4f}",
                        )
                    ]
                ),
                Facts([(name.replace("_", " "), f"{value:.4f}") for name, value in self.gate.items()]),
                Sheet(("component", "iia", "iia_changed", "moved", "inert"), rows, title="Components"),
            ],
            files=[("specimen", self.directory)],
        )


class TrainingRow(Record):
    """One of several programs trained together. One that `was_there` before has no figures."""

    ABSENT_IF_DEFAULT = (
        "was_there",
        *GATE,
        "shortfalls",
        "directory",
    )

    name: str
    accepted: bool
    was_there: bool | None = None
    accuracy: float | None = None
    iia_worst: float | None = None
    iia_changed_worst: float | None = None
    moved_worst: float | None = None
    strict_worst: float | None = None
    strict_all: float | None = None
    mean_ablated: float | None = None
    zero_ablated: float | None = None
    shortfalls: tuple[str, ...] | None = None
    directory: str | None = None


class TrainedSpecimens(Viewable, Record):
    """Several programs trained together: `accepted` of `n`."""

    n: int
    accepted: int
    specimens: tuple[TrainingRow, ...]

    def view(self) -> View:
        """Which programs were accepted, and why others were not."""
        refused = [row for row in self.specimens if not row.accepted]
        names = join_first([row.name for row in refused], 5)
        rest = f"; not accepted: {names}" if refused else ""
        why = [f"{row.name}: not accepted: {'; '.join(row.shortfalls or ())}" for row in refused]
        return View(
            "Trained specimens",
            Answer(f"{self.accepted} of {self.n} programs accepted{rest}"),
            [
                Sheet.of([row.as_data() for row in self.specimens], terminal=0),
                *([Text(why, bullets=True)] if why else []),
            ],
        )


class GeneratedTask(Record):
    """One task: its SPEC.py, the components that its program takes, its tokens, its longest input and its kind."""

    name: str
    path: str
    components: tuple[str, ...]
    vocab: tuple[Any, ...]
    max_len: int
    kind: str = "plain"


class GeneratedTasks(Viewable, Record):
    """Fresh RASP tasks, the same for the same seed; `depth` is the longest chain of operators."""

    seed: int
    depth: int
    tasks: tuple[GeneratedTask, ...]

    def view(self) -> View:
        """The tasks, and how to train the first."""
        names = join_first([task.name for task in self.tasks], 5)
        rows = [(task.name, task.kind, task.path, " ".join(task.components), task.max_len) for task in self.tasks]
        first = self.tasks[0]
        return View(
            "Generated tasks",
            Answer(f"{len(self.tasks)} generated tasks of seed {self.seed}, depth {self.depth}: {names}"),
            [
                Sheet(("name", "kind", "path", "components", "max_len"), rows),
                Facts([("train one with", f"vesalius train {first.path} --out specimens/{first.name}")]),
            ],
        )
