"""What a trained evaluator is and how well it chooses: the file beside its adapter."""

from pydantic import JsonValue, field_validator

from vesalius.documents.base import FrozenList, FrozenMap, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Facts, Sheet, View
from vesalius_functions.box import CHANCE
from vesalius_functions.evaluators.naming import EVALUATOR_FILE

#: All categories together, beside their own names.
ALL = "all"


class TakenTests(Record):
    """The share of tests that was right, by category and in all, and over how many concepts, relations or programs."""

    form: str
    accuracy: FrozenMap[str, Metric]
    groups: FrozenMap[str, int]

    @field_validator("accuracy")
    @classmethod
    def _has_all(cls, accuracy: FrozenMap[str, Metric]) -> FrozenMap[str, Metric]:
        if ALL not in accuracy:
            raise ValueError(f"the accuracy over {ALL!r} categories together is missing")
        return accuracy


class TrainedForm(Record):
    """One form on the validation split: the accuracy at every check, and the step of the one that was kept."""

    step: int
    accuracy: float
    checks: tuple[tuple[int, float], ...]


class Validation(Record):
    """The validation split, as means over categories: what was kept, each form untuned, and each form trained."""

    accuracy: float
    untuned: FrozenMap[str, float]
    trained: FrozenMap[str, TrainedForm]


class EvaluatorTraining(ResultDocument, kind="evaluator"):
    """A trained evaluator: its base and adapter by digest, how it was made, and its accuracy on unseen functions.

    `untuned` and `trained` are of the test split, which was read once. `seen` marks what it was trained and chosen on.
    """

    FILE = EVALUATOR_FILE
    RANK = None
    REMEDY = "train it again with `vesalius functions evaluator-train`"

    base: str
    base_sha256: str
    data_sha256: str
    form: str
    adapter_sha256: str
    adapter_bytes: int
    parameters: int
    recipe: FrozenMap[str, JsonValue]
    tests: FrozenMap[str, int]
    validation: Validation
    untuned: TakenTests
    trained: TakenTests
    device: str
    seconds: float
    seen: FrozenList[str]

    def view(self) -> View:
        """The accuracy on unseen functions before and after, chance beside it."""
        before, after = self.untuned.accuracy[ALL], self.trained.accuracy[ALL]
        rows = [
            (name, category, one.value, one.low, one.high, one.n, taken.groups.get(category))
            for name, taken in (("untuned", self.untuned), ("trained", self.trained))
            for category, one in taken.accuracy.items()
        ]
        facts = [
            ("form", f"{self.form}, validation {self.validation.accuracy:.3f}"),
            ("adapter", f"{self.parameters} numbers, {self.adapter_bytes / 1e6:.1f} MB"),
            ("tests", ", ".join(f"{split} {n}" for split, n in self.tests.items())),
            ("seconds", f"{self.seconds:g} ({self.device})"),
        ]
        return View(
            f"Evaluator trained on {self.base}",
            Answer(
                f"{self.base} on unseen functions: {_share(after)} trained, {_share(before)} untuned, "
                f"{CHANCE:.3f} by chance"
            ),
            [
                Sheet(("evaluator", "category", "accuracy", "low", "high", "tests", "groups"), rows, title="Unseen"),
                Facts(facts),
            ],
        )


def _share(metric: Metric) -> str:
    if metric.value is None or metric.low is None or metric.high is None:
        return "-"
    return f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}]"
