"""Submissions to the circuit localization track of the MIB benchmark: what is in one, and what a folder scores."""

from typing import Literal

from pydantic import Field

from vesalius.documents.base import Record, ShownDocument
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Sheet, View, subject_of

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
