"""A run of the functions benchmark as it can be looked through: every function with its score, and one in full.

What a function really is (its truth, its family, the drawing beside the answer) is only there once the whole run is
graded.
"""

from typing import Literal

from vesalius.documents.base import FrozenMap, Record
from vesalius.documents.metric import Metric
from vesalius.documents.trace import AgentCall, RunState, Text
from vesalius.documents.view import Answer, Sheet, View, Viewable


class FunctionRow(Record):
    """One function. `score` is the figure that decides, `right` whether it is 1; None until the run is graded."""

    id: str
    state: Literal["interpreted", "failed"] = "interpreted"
    score: float | None = None
    right: bool | None = None
    queries: int | None = None
    seconds: float | None = None
    problem: str = ""


class FunctionsRun(Viewable, Record):
    """A run: `done` of `total` functions are interpreted. `metrics` are those of the scorecard, where there is one."""

    run: str
    state: RunState
    category: str
    interpreter: str
    backbone: str | None = None
    step: str = ""
    started: float | None = None
    done: int
    total: int | None = None
    cost: float | None = None
    graded: bool
    metrics: FrozenMap[str, Metric]
    functions: tuple[FunctionRow, ...]

    def view(self) -> View:
        """Every function of the run."""
        right = sum(row.right is True for row in self.functions)
        found = f", {right} right" if self.graded else ""
        rows = [(row.id, row.score, row.right, row.queries) for row in self.functions]
        return View(
            self.run,
            Answer(
                f"{self.run}: {self.category} functions by {self.interpreter}, {self.state}, {self.done} answered"
                f"{found}"
            ),
            [Sheet(("id", "score", "right", "queries"), rows, title="Functions")],
        )


class DrawingLabel(Record):
    """A figure at an axis."""

    x: float
    y: float
    text: str


class Drawing(Record):
    """The function, the answer and the points asked, as paths in the coordinates of one small picture."""

    summary: str
    width: float
    height: float
    frame: tuple[float, float, float, float]
    truth: str
    answer: str
    samples: str
    labels: tuple[DrawingLabel, ...]


class FunctionExample(Record):
    """One input with the true and the answered output."""

    input: str
    truth: str
    answer: str
    right: bool


class FunctionTest(Record):
    """One unit test: what was offered, which of them is the function's own, and what the answer chose."""

    offered: tuple[str, ...]
    own: int
    chosen: str
    right: bool


class FunctionKey(Record):
    """What is only said of a graded run: what the function is, and how the answer compares."""

    family: str
    truth: str
    right: bool
    score: float | None
    scores: str
    fault: str
    drawing: Drawing | None = None
    examples: tuple[FunctionExample, ...] = ()
    tests: tuple[FunctionTest, ...] = ()


class FunctionCase(Record):
    """One function in full: the answer, what was asked (the first of `n_asked`), and the calls of a language model."""

    id: str
    description: Text
    domain: Text
    code: Text
    asked: tuple[tuple[str, str], ...]
    n_asked: int
    calls: tuple[AgentCall, ...] = ()
    n_calls: int = 0
    problems: tuple[str, ...] = ()
    key: FunctionKey | None = None
