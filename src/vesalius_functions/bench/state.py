"""What the ledger of the functions benchmark says: which functions are interpreted, graded and evaluated."""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict

from vesalius.backbones import Totals
from vesalius.runs.ledger import LedgerState, LedgerStep, Record

INTERPRET, GRADE, EVALUATE = "interpret", "grade", "evaluate"
#: What the language model behind a function used so far, over all steps of the case: a field of every record.
FUNCTION_USED = "function_used"
#: The event of drawing a grading seed.
GRADING_SEED = "grading_seed"


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class InterpretedResult(_Result):
    """What an interpretation took; counts are None where they make no sense for the interpreter."""

    seconds: float
    overlap: int | None = None
    queries: int | None = None
    rounds: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    hallucinated: int | None = None


class GradedResult(_Result):
    """The figures of a graded answer, and why its code could not be run, if so."""

    metrics: dict[str, float | None]
    fault: str | None = None
    seconds: float


class EvaluatedResult(_Result):
    """What an evaluator made of a description: how many unit tests, the score, and how many it left unanswered."""

    tests: int
    score: float | None
    unanswered: int


class FunctionState(LedgerState):
    """The state of the functions benchmark."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        records = list(records)
        super().__init__(
            [
                LedgerStep(INTERPRET, "interpreted", InterpretedResult.model_validate),
                LedgerStep(GRADE, "graded", GradedResult.model_validate),
                LedgerStep(EVALUATE, "evaluated", EvaluatedResult.model_validate),
            ],
            records,
        )

        seeds = [record.get("seed") for record in records if record["event"] == GRADING_SEED]
        #: The grading seed that was drawn, if one was.
        self.grading_seed: int | None = seeds[-1] if seeds else None

    def note(self, record: Record) -> None:
        """Take one record in."""
        super().note(record)
        if record.get(FUNCTION_USED):
            self.used[self.key(record), FUNCTION_USED] = Totals.model_validate(record[FUNCTION_USED])

    @property
    def interpreted(self) -> Mapping[str, InterpretedResult]:
        """The functions that are interpreted."""
        return self.results[INTERPRET]

    @property
    def graded(self) -> Mapping[str, GradedResult]:
        """The functions whose answers are graded."""
        return self.results[GRADE]

    @property
    def evaluated(self) -> Mapping[str, EvaluatedResult]:
        """The functions whose descriptions an evaluator has read."""
        return self.results[EVALUATE]
