"""Submissions to both tracks of the MIB benchmark: what is in one, and what a folder scores."""

from typing import Literal

from pydantic import Field

from vesalius.documents.base import FrozenMap, Record, ResultDocument, ShownDocument
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Facts, Sheet, View, subject_of

Level = Literal["edge", "node"]
Form = Literal["importances", "circuits"]


class MibFolder(Record):
    """One folder of a submission, `TASK_MODEL`: importance scores of `items` edges or nodes, or nine circuits."""

    folder: str
    task: str
    model: str
    level: Level
    form: Form
    items: int
    files: tuple[str, ...]


class MibSubmission(ShownDocument, kind="mib_submission"):
    """A submission's folders, all of them readable. `problems` says why MIB would refuse it as it is; empty where it
    would not.
    """

    SCHEMA = 1
    REMEDY = "run `vesalius mib check` again"

    schema_version: Literal[1] = Field(default=1, alias="schema")
    directory: str
    folders: tuple[MibFolder, ...]
    problems: tuple[str, ...]

    def view(self) -> View:
        """Every folder, and whether MIB would take the submission."""
        verdict = "; ".join(self.problems) or "complete: MIB takes at least two tasks and two models"
        return View(
            "MIB submission",
            Answer(f"MIB submission in {self.directory}, {len(self.folders)} folders: {verdict}"),
            [Sheet.of([row.model_dump(exclude={"files"}) for row in self.folders], title="Folders", terminal=200)],
        )


class MibScore(ShownDocument, kind="mib_score"):
    """The areas of one folder on some prompts. `by_score` is the faithfulness at each of `shares` of circuits that rank
    by score, of which CPR is the area; `by_magnitude` that of circuits that rank by magnitude, whose distance to 1 has
    the area CMD. The nine circuits of a folder are the same in both. `edges` counts the connected edges at each share,
    by magnitude.
    """

    SCHEMA = 1
    REMEDY = "run `vesalius mib score` again"

    schema_version: Literal[1] = Field(default=1, alias="schema")
    folder: str
    specimen: str
    behaviour: str | None
    level: Level
    form: Form
    cpr: Metric
    cmd: Metric
    shares: tuple[float, ...]
    edges: tuple[int, ...]
    by_score: tuple[float, ...]
    by_magnitude: tuple[float, ...]
    n: int
    unit: str
    full: float
    ablated: float
    seconds: float

    def view(self) -> View:
        """Both areas, and the curves behind them."""
        rows = list(zip(self.shares, self.edges, self.by_score, self.by_magnitude, strict=True))
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: MIB score",
            Answer(
                f"{self.folder} in {subject_of(self.specimen, self.behaviour)}, {self.n} prompts: CPR "
                f"{self.cpr.figures}, CMD {self.cmd.figures}"
            ),
            [Sheet(("share", "edges", "by score", "by magnitude"), rows, title="Curves", terminal=200)],
        )


class MibUnit(Record):
    """One unit of a folder of the causal variable track: a place, and the share of all pairs whose output is as the
    program says once the unit is taken from the source (`accuracy`; its baseline is what the unchanged model earns).
    `changes` counts the pairs whose output has to change, `kinds` each kind of counterfactual.
    """

    unit: str
    place: str
    directions: int | None
    accuracy: Metric
    changes: Metric
    kinds: FrozenMap[str, Metric]


class MibInterchange(ResultDocument, kind="mib_interchange"):
    """The interchange accuracy of a folder of the causal variable track, on held-out pairs that the model answers as
    the program says. `highest` is that of the best unit, `average` the mean over layers of each layer's best.
    `left_out` counts rows and pairs that are not graded, by reason.
    """

    REMEDY = "run `vesalius mib interchange` again"

    folder: str
    task: str
    model: str
    variable: str
    specimen: str
    behaviour: str | None
    rows: str | None
    algorithm: str
    agreement: Metric
    pairs: int
    left_out: FrozenMap[str, int]
    units: tuple[MibUnit, ...]
    highest: Metric
    average: float
    seconds: float

    def view(self) -> View:
        """Every unit, beside what the unchanged model earns."""
        best = max(self.units, key=lambda one: one.accuracy.value or 0.0)
        agreement = f"{self.algorithm}; it gives the model's answer on {self.agreement.text()} of the bases"
        kinds = list(dict.fromkeys(kind for one in self.units for kind in one.kinds))
        rows = [
            (
                one.unit,
                one.directions,
                *one.accuracy.ends,
                one.accuracy.baseline,
                one.changes.value,
                one.changes.n,
                *(one.kinds[kind].value if kind in one.kinds else None for kind in kinds),
            )
            for one in self.units
        ]
        head = ("unit", "directions", "accuracy", "low", "high", "unchanged", "changes", "n", *kinds)
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: {self.variable}",
            Answer(
                f"{self.variable} of {self.task} in {self.specimen}, {self.pairs} held-out pairs: highest accuracy "
                f"{best.accuracy.figures} at {best.place} (unchanged {best.accuracy.baseline or 0.0:.2f}), mean of "
                f"the layers' best {self.average:.2f}"
            ),
            [
                Facts(
                    [
                        ("program", agreement),
                        *((why, str(n)) for why, n in self.left_out.items()),
                    ]
                ),
                Sheet(
                    head,
                    rows,
                    title="Units",
                    caption="Accuracy: the share of all pairs whose output is what the program says once the unit is "
                    "taken from the source; unchanged: the same with nothing exchanged; changes: the share of the "
                    "pairs whose output has to change.",
                    terminal=200,
                ),
            ],
        )
