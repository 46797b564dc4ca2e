"""A run of the functions benchmark as it can be looked through: every function with its score, and one in full.

What a function really is (its truth, its family, the drawing beside the answer) is only there once the whole run is
graded.
"""

import math
from typing import Literal

from vesalius.documents.base import FrozenList, FrozenMap, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.scorecard import CallTotals
from vesalius.documents.trace import AgentCall, RunState
from vesalius.documents.trace import Text as CutText
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, Viewable


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
    description: CutText
    domain: CutText
    code: CutText
    asked: tuple[tuple[str, str], ...]
    n_asked: int
    calls: tuple[AgentCall, ...] = ()
    n_calls: int = 0
    problems: tuple[str, ...] = ()
    key: FunctionKey | None = None


# How reliably the functions of concepts and facts follow what they are: Table A1 and Figure A4 of their paper.

RELIABILITY_FILE = "reliability.json"

#: The least reliable functions that are named.
WORST = 10


class ReliableFunction(Record):
    """One function: `rate` is the share of inputs on which it does what it is said to.

    Of an entity, `own` is the mean output over words of its concept and `random` that over words of other concepts; it
    is right above and below a half. Of a relation `facts` counts inputs that have an answer, and `undefined` those of
    its exception. `n_error` inputs got no usable reply and count as wrong.
    """

    ABSENT_IF_DEFAULT = ("own", "random", "facts", "undefined")

    id: str
    category: Literal["entities", "relations"]
    name: str
    rate: Metric
    own: float | None = None
    random: float | None = None
    facts: Metric | None = None
    undefined: Metric | None = None
    n_error: int = 0


class ReliableCategory(Record):
    """One category: who answers, and means over its functions (`rate`, `own`, `random`; `rate`, `facts`,
    `undefined`, `rate_relation`, `rate_exception`), with intervals over functions.
    """

    backbone: str
    metrics: FrozenMap[str, Metric]


class Selectivity(Record):
    """Mean outputs: row i is the function of entity i, column j the words of entity j. `diagonal_largest` is the share
    of rows whose own words have the largest mean; a tie is not one.
    """

    entities: tuple[str, ...]
    means: tuple[tuple[float | None, ...], ...]
    diagonal_largest: Metric

    def softmax(self) -> list[list[float]]:
        """Each row through a softmax, as the figure was published; an absent mean counts as 0."""
        weights = [[math.exp(value or 0.0) for value in row] for row in self.means]
        return [[value / sum(row) for value in row] for row in weights]


class Reliability(ResultDocument, kind="reliability"):
    """A reliability study: figures by category and by function and, where asked for, the matrix of selectivity."""

    FILE = RELIABILITY_FILE
    RANK = None
    REMEDY = "run `vesalius functions reliability` again"

    request: Request
    inputs: int
    categories: FrozenMap[str, ReliableCategory]
    functions: FrozenList[ReliableFunction]
    selectivity: Selectivity | None = None
    caveats: tuple[str, ...] = ()
    usage: CallTotals | None = None
    seconds: float

    def view(self) -> View:
        """The means of each category, and the functions that follow their rule least."""
        lines = [
            f"{name} answered by {category.backbone}: "
            + ", ".join(f"{which} {metric.figures} (n {metric.n})" for which, metric in category.metrics.items())
            for name, category in self.categories.items()
        ]
        rows = [
            (
                row.id,
                row.category,
                row.name,
                row.rate.value,
                row.own,
                row.random,
                None if row.undefined is None else row.undefined.value,
                row.n_error,
            )
            for row in self.functions
        ]
        means = [
            (name, category.backbone, which, metric.value, metric.low, metric.high, metric.n)
            for name, category in self.categories.items()
            for which, metric in category.metrics.items()
        ]
        worst = sorted(self.functions, key=lambda row: (row.rate.value or 0.0, row.id))
        told = [
            f"{row.id} {row.name[:80]}: {row.rate.value or 0.0:.2f} of {row.rate.n} right"
            + ("" if row.own is None or row.random is None else f", own {row.own:.3f}, random {row.random:.3f}")
            for row in worst
            if (row.rate.value or 0.0) < 1
        ][:WORST]
        facts = []
        if self.selectivity is not None:
            largest = self.selectivity.diagonal_largest
            facts.append(("own words score highest in", f"{largest.figures} of {largest.n} entities"))
        if self.usage is not None:
            cost = "cost not known" if self.usage.cost is None else f"cost ${self.usage.cost:.2f}"
            facts.append(("effort", f"{self.usage.calls} calls, {cost}, {self.seconds:.0f} s"))
        first, *others = lines or ["nothing was measured"]
        return View(
            "Reliability of functions",
            Answer(first),
            [
                Facts([("", line) for line in others]),
                Sheet(
                    ("id", "category", "name", "rate", "own", "random", "undefined", "errors"),
                    rows,
                    title="Functions",
                    terminal=0,
                ),
                Sheet(("category", "answered by", "figure", "value", "low", "high", "n"), means, title="By category"),
                *([Text(told, bullets=True, title="Those that follow their rule least")] if told else []),
                *([Text(self.caveats)] if self.caveats else []),
                *([Facts(facts)] if facts else []),
            ],
        )


# People and evaluators who took the same unit tests of descriptions: Table A4 of the FIND paper.

UNIT_TESTS_FILE = "unit_tests.json"
#: What was read: the interpreter's description, or the truth in words. In `matching` three truths are offered for one
#: description, in the other two three examples.
Task = Literal["interpretation", "ground-truth", "matching"]
TakerKind = Literal["person", "model", "executable"]


class TestTaker(Record):
    """One who took tests: the mean score over functions with its interval, and how many tests were left open, which
    count as wrong.
    """

    __test__ = False

    name: str
    kind: TakerKind
    task: Task
    accuracy: Metric
    n_tests: int
    unanswered: int = 0


class TestedFunction(Record):
    """The share of a function's tests that each taker got right."""

    __test__ = False

    function: str
    task: Task
    scores: FrozenMap[str, float]


class ScoreCorrelation(Record):
    """Spearman's correlation over functions between the mean of the people and an evaluator.

    The interval is a percentile bootstrap over functions. All is None where one of the two is constant or fewer than
    three functions have both scores.
    """

    evaluator: str
    task: Task
    rho: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int


class UnitTests(ResultDocument, kind="unit_tests"):
    """The unit tests of one run as people and evaluators took them."""

    FILE = UNIT_TESTS_FILE
    RANK = None
    REMEDY = "run `vesalius functions unit-tests` again"

    run: str
    category: str
    interpreter: str
    files: tuple[str, ...]
    takers: tuple[TestTaker, ...]
    correlations: tuple[ScoreCorrelation, ...]
    functions: FrozenList[TestedFunction]

    def view(self) -> View:
        """Who got how much right, and how far people and evaluators order the functions alike."""
        people = len({taker.name for taker in self.takers if taker.kind == "person"})
        rhos = [
            f"{one.evaluator}, {one.task}: {'-' if one.rho is None else f'{one.rho:.3f}'} (n {one.n})"
            for one in self.correlations
        ]
        rows = [
            (
                taker.name,
                taker.kind,
                taker.task,
                taker.accuracy.value,
                taker.accuracy.low,
                taker.accuracy.high,
                taker.accuracy.n,
                taker.n_tests,
            )
            for taker in self.takers
        ]
        said = [
            f"Spearman of people and {one.evaluator}, {one.task}: "
            + ("not defined" if one.rho is None else f"{one.rho:.3f} [{one.low:.3f}, {one.high:.3f}], p {one.p:.2g}")
            + f", n {one.n}"
            for one in self.correlations
        ]
        return View(
            f"Unit tests of {self.run}",
            Answer(f"Unit tests of {self.run} by {people} people"),
            [
                Facts([("Spearman", "; ".join(rhos) or "nothing to compare")]),
                Sheet(("taker", "kind", "task", "accuracy", "low", "high", "functions", "tests"), rows, title="Takers"),
                *([Text(said)] if said else []),
            ],
        )
