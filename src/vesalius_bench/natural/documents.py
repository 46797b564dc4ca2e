"""How explanations of natural models compare: `natural-bench.json`."""

from collections.abc import Sequence
from typing import Literal

from vesalius.documents.base import Answered, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.proposal import RunProposal
from vesalius.documents.request import Request
from vesalius.documents.running import ALL_BOS, COUNTERFACTUAL, FROZEN, RANDOM, SHUFFLED
from vesalius.documents.scorecard import CaseError
from vesalius.documents.view import Answer, Bars, Facts, Group, Sheet, Text, View, duration
from vesalius.documents.whole import TOO_MUCH
from vesalius_bench.survey.documents import short_name

BENCH_FILE = "natural-bench.json"
NULL = "null"
Beyond = Literal["beyond the controls", "no more than a control", "more than the model", "no program"]


class StandInFigures(Record):
    """Whether an explanation says which components can stand in for each other. Of `pairs` pairs that were replaced
    together `interchangeable` cost more than the sum of each; `chance` is that share. `precision`: of the pairs that it
    names those that do; `recall`: of the pairs that do those that it names.
    """

    pairs: int
    interchangeable: int
    chance: Metric
    precision: Metric
    recall: Metric


class PlantedFigures(Record):
    """Beside what was planted: of the components that are named those that were planted (`precision`), of the planted
    ones those that are named (`recall`), of the planted heads those whose program looks where they do (`programs`), of
    the planted variables and groups of stand-ins those that are named rightly.
    """

    precision: Metric
    recall: Metric
    programs: Metric
    variables: Metric
    stand_ins: Metric


class NaturalFigures(Record):
    """One scientist's explanation of one model on one behaviour, run in the model's place. `variables` is the mean
    accuracy of the variables that it names between the embedding and the output; `forwards` (None: not counted) and
    `cpu_seconds` are what the explanation cost, not its grading.
    """

    ABSENT_IF_DEFAULT = ("planted",)

    case: str
    scientist: str
    model: str
    behaviour: str
    run: RunProposal
    variables: Metric
    stand_ins: StandInFigures
    planted: PlantedFigures | None = None
    forwards: float | None
    cpu_seconds: float

    @property
    def beyond(self) -> Beyond:
        """Whether the programs keep clearly more than every control of the ladder, and not far more than the model."""
        running = self.run.running
        if running is None or not running.heads:
            return "no program"
        if (running.claimed.kept.value or 0.0) > TOO_MUCH:
            return "more than the model"
        return "no more than a control" if running.beaten_by else "beyond the controls"

    def control(self, name: str) -> float | None:
        """What a control keeps."""
        found = None if self.run.running is None else self.run.running.rung(name)
        return None if found is None else found.kept.value


_KEPT = ("case", "scientist", "kept", "low", "high", "own patterns", "shuffled", "random", "all BOS", "counterfactual")
_SAID = (
    "case",
    "scientist",
    "rules",
    "variables",
    "n",
    "pairs named",
    "precision",
    "recall",
    "chance",
    "passes",
    "CPU s",
)
_PLANTED = ("case", "scientist", "named and planted", "planted and named", "programs", "variables", "stand-ins")


class NaturalBench(Answered, ResultDocument, kind="natural_bench"):
    """Scientists on models and behaviours: what their explanations keep of a behaviour when they are run in the model's
    place, on `n` prompts that no explanation has seen. `errors` are cases that have no figures, with the reason.
    """

    FILE = BENCH_FILE
    RANK = 90
    OWNS_DIRECTORY = True
    COMMAND = "bench natural"
    REMEDY = "give the command of the run again"
    ABSENT_IF_DEFAULT = ("directory",)

    request: Request
    scientists: tuple[str, ...]
    n: int
    seed: int
    rows: tuple[NaturalFigures, ...]
    errors: tuple[CaseError, ...] = ()
    seconds: float
    directory: str | None = None

    def of(self, scientist: str) -> list[NaturalFigures]:
        """The rows of one scientist."""
        return [row for row in self.rows if row.scientist == scientist]

    def row(self, scientist: str, model: str, behaviour: str) -> NaturalFigures:
        """One row."""
        return next(row for row in self.of(scientist) if (row.model, row.behaviour) == (model, behaviour))

    def answered(self) -> Answer:
        """How often the first scientist's programs keep more than every control, and what a null keeps."""
        judged = [name for name in self.scientists if name != NULL]
        if not self.rows or not judged:
            return Answer("no explanation was graded" if not self.rows else self._kept(NULL), "no")
        first = judged[0]
        cases = len(self.of(first)) + self._without(first)
        beyond = sum(row.beyond == "beyond the controls" for row in self.of(first))
        verdict = "yes" if cases and beyond == cases else "partly" if beyond else "no"
        others = [self._kept(name) for name in self.scientists if name != first]
        said = f"programs of {first} keep more than every control in {beyond} of {cases} cases"
        return Answer("; ".join([f"{said} ({self._kept(first)})", *others]), verdict)

    def _without(self, scientist: str) -> int:
        """The cases of a scientist that have no figures."""
        return len({one.case for one in self.errors if one.method == scientist})

    def _kept(self, scientist: str) -> str:
        """What the explanations of a scientist keep, over its cases, and how many have no figures."""
        known = [row.run.kept.value for row in self.of(scientist) if row.run.kept and row.run.kept.value is not None]
        text = f"{scientist}: no program"
        if known:
            text = f"{scientist}: mean share kept {sum(known) / len(known):.2f} over {len(known)} cases"
        return text if not (without := self._without(scientist)) else f"{text}, {without} without figures"

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return "bench natural"

    def view(self) -> View:
        """The answer, what is kept, what is said, what was planted, and every explanation."""
        planted = [row for row in self.rows if row.planted is not None]
        return View(
            "Explanations of natural models, run in their place",
            self.answered(),
            [
                Facts(
                    [
                        ("scientists", ", ".join(self.scientists)),
                        ("graded on", f"{self.n} prompts of the test split, which no explanation has seen"),
                        ("cost", duration(self.seconds)),
                    ]
                ),
                Group(
                    [
                        Bars([(f"{_case(row)}: {row.scientist}", *_ends(row)) for row in self.rows]),
                        Sheet(_KEPT, [_kept(row) for row in self.rows]),
                    ],
                    title="Share kept with the words in the model's place",
                ),
                Sheet(
                    _SAID,
                    [_said(row) for row in self.rows],
                    title="What is said: variables, components that stand in for each other, size and cost",
                ),
                *(
                    [Sheet(_PLANTED, [_planted(row) for row in planted], title="Beside what was planted (shares)")]
                    if planted
                    else []
                ),
                *(
                    [
                        Text(
                            [f"{one.method or ''} {one.case}: {one.reason}".strip() for one in self.errors],
                            bullets=True,
                            title="Without figures",
                        )
                    ]
                    if self.errors
                    else []
                ),
                Group(
                    [
                        Group(row.run.sections(), title=f"{_case(row)}: {row.scientist}", folded=True)
                        for row in self.rows
                    ],
                    title="Every explanation",
                    pages_only=True,
                ),
            ],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{self.PAGE}",
            note="docs/how-to/bench-natural.md says what each figure is.",
        )


def _case(row: NaturalFigures) -> str:
    return f"{short_name(row.model)}, {row.behaviour.partition(':')[0]}"


def _ends(row: NaturalFigures) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if row.run.kept is None else row.run.kept.ends


def _kept(row: NaturalFigures) -> tuple[str | float | None, ...]:
    controls = [row.control(name) for name in (FROZEN, SHUFFLED, RANDOM, ALL_BOS, COUNTERFACTUAL)]
    return (_case(row), row.scientist, *_ends(row), *controls)


def _said(row: NaturalFigures) -> tuple[str | float | None, ...]:
    pairs = row.stand_ins
    return (
        _case(row),
        row.scientist,
        row.run.rules,
        row.variables.value,
        row.variables.n,
        pairs.precision.n,
        pairs.precision.value,
        pairs.recall.value,
        pairs.chance.value,
        None if row.forwards is None else round(row.forwards),
        round(row.cpu_seconds, 1),
    )


def _planted(row: NaturalFigures) -> tuple[str | float | None, ...]:
    planted = row.planted
    assert planted is not None
    parts: Sequence[Metric] = (
        planted.precision,
        planted.recall,
        planted.programs,
        planted.variables,
        planted.stand_ins,
    )
    return (_case(row), row.scientist, *(one.value for one in parts))
