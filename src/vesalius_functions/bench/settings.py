"""What a run of the functions benchmark was asked: what decides its results."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.runs.ledger import LedgerState, LedgerStep, Record, Totals
from vesalius.version import __version__
from vesalius_functions.agents import DialogueLimits as Talk
from vesalius_functions.evaluators.naming import adapter_digest, is_trained
from vesalius_functions.interpreters import (
    ASKING,
    BUILTIN,
    WITH_EXEMPLARS,
    WITH_MODEL,
    check_interpreter,
    check_white_box,
)
from vesalius_functions.own_prompts import FunctionPrompts
from vesalius_functions.suite import GRADING_SEEDS, Suite

BENCHMARK = "functions"
#: The folder of a run that holds its grades.
GRADES = "grades"
#: Choices that run.json holds only where they were made, as runs of before there was a choice.
_LATER = ("ids", "function_backbone", "prompts")


@dataclass(frozen=True)
class FunctionSettings:
    """What decides the results of a run. `budget` is the number of queries per function; None for any number.

    `grading_seed` None means that one is drawn when the answers are written. `white_box` gives the interpreter the
    layers of functions that are nets.
    """

    suite: Suite
    interpreter: str = BUILTIN
    backbone: str | None = None
    evaluator: str | None = None
    budget: int | None = None
    talk: Talk = field(default_factory=Talk)
    prices: str | None = None
    grading_seed: int | None = None
    white_box: bool = False

    def __post_init__(self) -> None:
        check_interpreter(self.interpreter, self.suite.category, backbone=self.backbone)
        if self.budget is not None and self.budget < 1:
            raise BadInput(f"budget {self.budget}: a function must be asked to be interpreted; give 1 or more")
        if self.grading_seed is not None and not 0 <= self.grading_seed < GRADING_SEEDS:
            raise BadInput(f"grading seed {self.grading_seed}: give a number from 0 to {GRADING_SEEDS - 1}")
        if self.talk.system != "gpt" and (self.suite.mode != "published" or self.interpreter not in ASKING):
            raise BadInput(
                f"`system_prompt` {self.talk.system}: belongs to the published prompts of an interpreter that asks; "
                "use it with `mode` published and `interpreter` aia or aia+milan"
            )
        if self.prices is not None and not self.models:
            raise BadInput("`prices`: no language model is asked; leave it out")
        if self.evaluator is not None and self.suite.category == "numeric":
            raise BadInput("`evaluator`: numeric functions are graded by their code; leave it out")
        if self.white_box:
            check_white_box(self.interpreter, self.suite)
        if self.suite.prompts is not None and self.talk.system != "gpt":
            raise BadInput("`system_prompt` and `prompts`: give one of them; your own system prompt is system.md")

    @property
    def models(self) -> tuple[str, ...]:
        """Every language model that the run asks, the interpreter's first; a trained evaluator is not asked."""
        evaluator = None if is_trained(self.evaluator) else self.evaluator
        return tuple(model for model in (self.backbone, evaluator, self.suite.function_backbone) if model is not None)

    def request(self, *, grading_seed: int | None = None) -> Request:
        """What was asked, with the grading seed that was drawn, so that it can be asked again."""
        suite = self.suite
        options: dict[str, JsonValue] = {
            "category": suite.category,
            "evaluator": self.evaluator,
            "function_backbone": suite.function_backbone,
            "dataset": suite.dataset,
            "count": suite.count,
            "ids": None if suite.ids is None else list(suite.ids),
            "mode": suite.mode,
            "budget": self.budget,
            "white_box": self.white_box or None,
            "rounds": self.talk.rounds if self.interpreter in WITH_MODEL else None,
            "system_prompt": None if self.talk.system == "gpt" else self.talk.system,
            "prompts": None if suite.prompts is None else suite.prompts.folder,
            "prices": self.prices,
            "grading_seed": self.grading_seed if grading_seed is None else grading_seed,
        }
        return Request(
            command="bench functions",
            method=self.interpreter,
            options={name: value for name, value in options.items() if value is not None},
            seed=suite.seed,
            backbone=self.backbone,
        )

    def as_data(self) -> dict[str, Any]:
        """The settings as run.json holds and compares them."""
        return {
            "benchmark": BENCHMARK,
            **{name: value for name, value in asdict(self.suite).items() if name not in ("dataset", *_LATER)},
            **({} if self.suite.ids is None else {"ids": list(self.suite.ids)}),
            **({} if (model := self.suite.function_backbone) is None else {"function_backbone": model}),
            **({} if (own := self.suite.prompts) is None else {"prompts": own.digests}),
            "dataset": self.suite.dataset,
            "interpreter": self.interpreter,
            "backbone": self.backbone,
            "evaluator": self.evaluator,
            **({"adapter": adapter_digest(self.evaluator)} if self.evaluator and is_trained(self.evaluator) else {}),
            "budget": self.budget,
            **({"white_box": True} if self.white_box else {}),
            "talk": self._talk_data() if self.interpreter in WITH_MODEL else None,
            "prices": None if self.prices is None else sha256(Path(self.prices))[:16],
            "grading_seed": self.grading_seed,
            "version": __version__,
        }

    def _talk_data(self) -> dict[str, Any]:
        """The limits; the system prompt only where it is not the usual one, as in runs of before there was a choice."""
        return {name: value for name, value in asdict(self.talk).items() if (name, value) != ("system", "gpt")}

    def notes(self) -> dict[str, Any]:
        """What is only written down."""
        own = self.suite.prompts
        return {"prices": self.prices, **({} if own is None else {"prompts": own.folder})}

    @classmethod
    def of_run(cls, data: dict[str, Any]) -> "FunctionSettings":
        """The settings of a run from its run.json; refused where this version would not do the same."""
        asked = data["settings"]
        if asked.get("version") != __version__:
            raise BadInput(f"the run was made by version {asked.get('version')}, this is {__version__}; use that one")
        ids = None if asked.get("ids") is None else tuple(asked["ids"])
        chosen = {name: asked[name] for name in ("category", "seed", "count", "mode", "dataset")}
        suite = Suite(**chosen, ids=ids, function_backbone=asked.get("function_backbone"))
        kept = {name: asked[name] for name in ("interpreter", "backbone", "evaluator", "budget")}
        if (sums := asked.get("prompts")) is not None:
            place, shown = str(data.get("prompts")), asked.get("white_box", False)
            own = own_prompts(place, suite, asked["interpreter"], white_box=shown)
            if own.digests != sums:
                raise BadInput(f"`prompts` {place}: are not those of the run; put them back")
            suite = replace(suite, prompts=own)
        drawn = {"grading_seed": asked.get("grading_seed"), "prices": data.get("prices")}
        access = {"white_box": asked.get("white_box", False)}
        return cls(suite=suite, **kept, **access, talk=Talk(**asked["talk"] or {}), **drawn)


def own_prompts(folder: str | Path, suite: Suite, interpreter: str, *, white_box: bool) -> FunctionPrompts:
    """The user's own prompts, those that a run asks with."""
    return FunctionPrompts.read(
        folder,
        suite.category,
        interprets=interpreter in WITH_MODEL,
        shows=interpreter in WITH_EXEMPLARS,
        layers=white_box,
        answers=suite.function_backbone is not None,
    )


# What the ledger of the functions benchmark says: which functions are interpreted, graded and evaluated.

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
    """What an evaluator made of a description: how many unit tests, the score, and how many it left unanswered; of a
    trained one, whether it has seen nothing of the function.
    """

    tests: int
    score: float | None
    unanswered: int
    unseen: bool | None = None


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
