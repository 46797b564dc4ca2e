"""People and evaluators who took the same unit tests of descriptions: Table A4 of the FIND paper."""

from typing import Literal

from vesalius.documents.base import FrozenList, FrozenMap, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Facts, Sheet, Text, View

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
