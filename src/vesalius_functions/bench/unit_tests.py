"""The unit tests of a run for people: written to a sheet, read back, and held against what evaluators scored.

Three tasks, all of which offer three choices: examples for the interpreter's description, examples for the truth in
words (what a perfect description would earn), and truths in words for the interpreter's description. The sheet is
blind: rows are shuffled, and an item's name is a digest that says neither the task nor the function. No key is written;
the run makes the tests again from its grading seed.
"""

import csv
import difflib
import hashlib
import io
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from vesalius.api.door import directory_for, verb, written
from vesalius.api.runs import require_run
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.files import write_text
from vesalius.options import Out, Paid
from vesalius.runs.directory import EVENTS, EXECUTIONS, EXPLANATIONS, calls_path, document_or_none, require_benchmark
from vesalius.runs.ledger import read_ledger
from vesalius.runs.steps import six_places
from vesalius.sandbox import Executions
from vesalius.statistics import spearman, spearman_interval, spearman_p
from vesalius_backbones import Backbone
from vesalius_backbones.runs.access import ModelAccess
from vesalius_functions.agents import Tested, take_unit_tests
from vesalius_functions.agents.commands import said_input
from vesalius_functions.bench.benchmark import stored_seed
from vesalius_functions.bench.reliability import check_model, model_access
from vesalius_functions.bench.scorecard import Figures, metrics_of
from vesalius_functions.bench.settings import FunctionSettings, FunctionState
from vesalius_functions.bench.work import Interpreted, ToGrade, askable, grade_answer
from vesalius_functions.box import Answer, Example, Function, UnitTest
from vesalius_functions.documents import (
    UNIT_TESTS_FILE,
    ScoreCorrelation,
    TakerKind,
    Task,
    TestedFunction,
    TestTaker,
    UnitTests,
)
from vesalius_functions.evaluators.naming import is_trained
from vesalius_functions.evaluators.trained import (
    TrainedEvaluator,
    evaluator_name,
    findable_evaluator,
    open_trained,
)
from vesalius_functions.knowledge.scoring import REPLY_TOKENS
from vesalius_truth.grading.ratings import plain_cell, safe_cell

TASKS: tuple[Task, ...] = ("interpretation", "ground-truth", "matching")
COLUMNS = ("item", "description", "choice_1", "choice_2", "choice_3", "answer", "rater")
#: Functions on a sheet, as published.
FUNCTIONS = 25
#: No function has more tests than this.
MOST_TESTS = 100


@dataclass(frozen=True)
class Item:
    """One test: of which function, in which task, and which of its tests."""

    function: str
    task: Task
    number: int


@dataclass(frozen=True)
class Choice:
    """The choice of one rater: 0 to 2, None where nothing was chosen."""

    rater: str
    item: Item
    chosen: int | None


class TestedRun:
    """A graded run of the functions benchmark whose tests can be made again."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        data = require_benchmark(directory, "functions")
        self.settings = FunctionSettings.of_run(data)
        self.state = FunctionState(read_ledger(directory / EVENTS))
        if not self.state.graded:
            raise BadInput(
                f"run {directory}: nothing is graded yet; the same command of `bench functions` continues it"
            )
        self.seed = stored_seed(directory, self.settings)

    @cached_property
    def functions(self) -> dict[str, tuple[int, Function]]:
        """The graded functions by name, with their places in the suite."""
        suite = self.settings.suite.functions()
        return {one.id: (place, one) for place, one in enumerate(suite) if one.id in self.state.graded}

    def answer(self, function: str) -> Answer:
        """What the interpreter said."""
        interpreted = document_or_none(Interpreted, self.directory / EXPLANATIONS / f"{function}.json")
        if interpreted is None:
            raise BadInput(f"{self.directory / EXPLANATIONS / function}.json: is missing or damaged")
        return interpreted.answer

    def truth(self, function: str) -> Answer:
        """The true description: the answer of the oracle."""
        return self.settings.suite.module.oracle(self.functions[function][1])

    def description(self, item: Item) -> str:
        """The description of an item."""
        return in_full(self.truth(item.function) if item.task == "ground-truth" else self.answer(item.function))

    def tests(self, function: str, task: Task) -> list[UnitTest]:
        """The tests of a task: those that grading took, or the matching of descriptions."""
        if task == "matching":
            return [self._matching(function)] if len(self.functions) >= 3 else []
        place, _ = self.functions[function]
        suite = self.settings.suite
        executions = Executions(self.directory / EXECUTIONS / f"{function}.jsonl")
        with askable(suite, place, access=self.access(function), executions=executions) as asked:
            return suite.unit_tests(asked, grading_seed=self.seed)

    def access(self, function: str) -> ModelAccess | None:
        """The record of the language model behind a function, where there is one."""
        model = self.settings.suite.function_backbone
        if model is None:
            return None
        calls = calls_path(self.directory, function, "function").resolve()
        return ModelAccess(model, calls, replay=True, max_tokens=REPLY_TOKENS)

    def name(self, item: Item) -> str:
        """The name of an item on the sheet."""
        text = f"{self.seed}/{item.function}/{item.task}/{item.number}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def items(self) -> dict[str, Item]:
        """Every item that a sheet can have, by its name."""
        possible = (
            Item(function, task, number)
            for function in self.functions
            for task in TASKS
            for number in range(MOST_TESTS if task != "matching" else 1)
        )
        return {self.name(item): item for item in possible}

    def _matching(self, function: str) -> UnitTest:
        """The truth between that of the function most like it and that of another."""
        own = in_full(self.truth(function))
        others = {name: in_full(self.truth(name)) for name in self.functions if name != function}
        different = {text: name for name, text in others.items() if text != own}
        if len(different) < 2:
            raise BadInput(f"run {self.directory}: matching needs three functions that differ; this run has fewer")
        dice = random.Random(f"matching/{self.seed}/{function}")
        nearest = max(sorted(different), key=lambda text: difflib.SequenceMatcher(None, own, text).ratio())
        offered = [own, nearest, dice.choice(sorted(different.keys() - {nearest}))]
        dice.shuffle(offered)
        return UnitTest(tuple(Example(text) for text in offered), offered.index(own))


def in_full(answer: Answer) -> str:
    """A description with the part of the domain that it names, as evaluators read it."""
    return answer.description if not answer.domain else f"{answer.description}\n{answer.domain}"


def sheet(run: TestedRun, *, count: int = FUNCTIONS, seed: int = 0) -> str:
    """A CSV file for people: `answer` is to be filled with 1, 2 or 3 and `rater` with a name."""
    dice = random.Random(f"sheet/{run.seed}/{seed}")
    names = sorted(run.functions)
    chosen = sorted(dice.sample(names, min(count, len(names))))
    rows = [row for function in chosen for task in TASKS for row in _rows(run, function, task)]
    dice.shuffle(rows)
    written = io.StringIO(newline="")
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([safe_cell(cell) for cell in row] for row in rows)
    return written.getvalue()


def _rows(run: TestedRun, function: str, task: Task) -> Iterator[list[str]]:
    for number, test in enumerate(run.tests(function, task)):
        item = Item(function, task, number)
        offered = [one.input if task == "matching" else _said(one) for one in test.examples]
        yield [run.name(item), run.description(item), *offered, "", ""]


def _said(example: Example) -> str:
    if example.output is None:
        return said_input(example.input)
    return f"{said_input(example.input)} → {said_input(example.output)}"


def read_sheet(run: TestedRun, path: Path) -> list[Choice]:
    """What people filled in; the first slip is refused in one line that names its row."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"answers {path}: cannot be read as a text ({error})") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if missing := {"item", "answer"} - set(reader.fieldnames or ()):
        raise BadInput(f"answers {path}: has no column {' or '.join(sorted(missing))}; fill in an exported sheet")
    choices: dict[tuple[str, Item], Choice] = {}
    for number, row in enumerate(reader, 2):
        where = f"answers {path}, row {number}"
        item = run.items.get(plain_cell((row["item"] or "").strip()))
        if item is None:
            raise BadInput(f"{where}: item {row['item']!r:.40} is not of this run; fill in a sheet exported from it")
        said = (row["answer"] or "").strip()
        if said not in ("", "1", "2", "3"):
            raise BadInput(f"{where}: answer {said!r:.40} is not 1, 2 or 3; leave it empty for none")
        rater = plain_cell((row.get("rater") or "").strip()) or path.stem
        if (rater, item) in choices:
            raise BadInput(f"{where}: {rater} has already answered this item; keep one row per rater and item")
        choices[rater, item] = Choice(rater, item, int(said) - 1 if said else None)
    return list(choices.values())


def score_by_function(
    run: TestedRun, choices: Sequence[Choice], tests: Mapping[tuple[str, Task], Sequence[UnitTest]]
) -> dict[str, dict[tuple[str, Task], float]]:
    """For each rater the share of right answers by function and task."""
    right: dict[str, dict[tuple[str, Task], list[bool]]] = {}
    for choice in choices:
        item = choice.item
        offered = tests[item.function, item.task]
        if item.number >= len(offered):
            raise BadInput(f"answers: item {run.name(item)} is not among the tests of {item.function}; export again")
        scores = right.setdefault(choice.rater, {}).setdefault((item.function, item.task), [])
        scores.append(choice.chosen == offered[item.number].correct)
    return {
        rater: {key: sum(scores) / len(scores) for key, scores in of_rater.items()} for rater, of_rater in right.items()
    }


# People's answers to the unit tests of a run beside those of evaluators: accuracy and Spearman's correlation.

EXECUTABLE = "executable grader"
#: Fewer functions have no correlation.
FEWEST = 3

Evaluator = Backbone | TrainedEvaluator
Key = tuple[str, Task]
Scores = dict[Key, float]


def unit_test_study(run: TestedRun, files: Sequence[Path], evaluator: Evaluator | None = None) -> UnitTests:
    """What people and evaluators scored on the tests that people took.

    Evaluators are the executable grader and, for interpretations, the run's own language model; `evaluator` takes the
    tests of all three tasks as well.
    """
    choices: list[Choice] = []
    for file in files:
        given = read_sheet(run, file)
        if twice := {(one.rater, one.item) for one in given} & {(one.rater, one.item) for one in choices}:
            rater, item = min(twice, key=str)
            raise BadInput(f"answers {file}: {rater} has answered {run.name(item)} in two files; give each file once")
        choices += given
    if not choices:
        raise BadInput("answers: hold no row; give sheets that people filled in")
    keys: list[Key] = sorted({(choice.item.function, choice.item.task) for choice in choices})
    tests = {key: run.tests(*key) for key in keys}
    people = score_by_function(run, choices, tests)
    evaluators = _evaluators(run, keys, tests, evaluator)
    takers = [_person(name, scores, choices, task) for name, scores in people.items() for task in TASKS]
    takers += [
        _evaluator(name, kind, scores, tests, task) for (name, kind), scores in evaluators.items() for task in TASKS
    ]
    together = {key: _mean([scores[key] for scores in people.values() if key in scores]) for key in keys}
    everyone = people | {name: scores for (name, _), scores in evaluators.items()}
    return UnitTests(
        run=run.directory.resolve().name,
        category=run.settings.suite.category,
        interpreter=run.settings.interpreter,
        files=tuple(map(str, files)),
        takers=tuple(taker for taker in takers if taker.accuracy.n),
        correlations=tuple(
            correlation
            for (name, _), scores in evaluators.items()
            for task in TASKS
            if (correlation := _correlation(name, task, together, scores)) is not None
        ),
        functions=tuple(
            TestedFunction(
                function=key[0], task=key[1], scores={name: one[key] for name, one in everyone.items() if key in one}
            )
            for key in keys
        ),
    )


def _evaluators(
    run: TestedRun,
    keys: Sequence[Key],
    tests: Mapping[Key, Sequence[UnitTest]],
    model: Evaluator | None,
) -> dict[tuple[str, TakerKind], Scores]:
    executable: Scores = {}
    own: Scores = {}
    given: Scores = {}
    for key in keys:
        function, task = key
        if (score := _by_running(run, function, task)) is not None:
            executable[key] = score
        if task == "interpretation" and function in run.state.evaluated:
            evaluated = run.state.evaluated[function].score
            own |= {} if evaluated is None else {key: evaluated}
        if model is not None and tests[key]:
            said = run.description(Item(function, task, 0))
            given[key] = _taken(model, key, said, tests[key]).score
    named = str(evaluator_name(run.settings.evaluator))
    parts: list[tuple[str, TakerKind, Scores]] = [(EXECUTABLE, "executable", executable), (named, "model", own)]
    if model is not None:
        own_name = str(evaluator_name(model.name))
        parts.append((own_name if own_name != named else f"{named} again", "model", given))
    return {(name, kind): scores for name, kind, scores in parts if scores}


def _taken(model: Evaluator, key: Key, said: str, tests: Sequence[UnitTest]) -> Tested:
    if isinstance(model, TrainedEvaluator):
        return model.take(said, tests)
    function, task = key
    return take_unit_tests(model.within(f"{function}/{task}"), said, tests, matching=task == "matching")


def _by_running(run: TestedRun, function: str, task: Task) -> float | None:
    """What the executable grader gives: of an interpretation from the run, of the truth by grading it now."""
    if task == "matching":
        return None
    if task == "interpretation":
        return run.state.graded[function].metrics.get("unit_test")
    place, _ = run.functions[function]
    case = ToGrade(function, place, run.settings.suite, None, run.seed, function_access=run.access(function))
    return grade_answer(case, run.truth(function)).metrics.get("unit_test")


def _person(name: str, scores: Scores, choices: Sequence[Choice], task: Task) -> TestTaker:
    own = [choice for choice in choices if choice.rater == name and choice.item.task == task]
    open_tests = sum(choice.chosen is None for choice in own)
    return _taker(name, "person", scores, task, n_tests=len(own), unanswered=open_tests)


def _evaluator(
    name: str, kind: TakerKind, scores: Scores, tests: Mapping[Key, Sequence[UnitTest]], task: Task
) -> TestTaker:
    return _taker(name, kind, scores, task, n_tests=sum(len(tests[key]) for key in scores if key[1] == task))


def _taker(name: str, kind: TakerKind, scores: Scores, task: Task, *, n_tests: int, unanswered: int = 0) -> TestTaker:
    rows: list[Figures] = [{"unit_test": score} for (_, which), score in scores.items() if which == task]
    accuracy = metrics_of(rows).get("unit_test", Metric.of_share(0, 0))
    return TestTaker(name=name, kind=kind, task=task, accuracy=accuracy, n_tests=n_tests, unanswered=unanswered)


def _correlation(name: str, task: Task, people: Scores, scores: Scores) -> ScoreCorrelation | None:
    keys = [key for key in people if key[1] == task and key in scores]
    if not keys:
        return None
    a, b = (np.array([one[key] for key in keys]) for one in (people, scores))
    rho = spearman(a, b) if len(keys) >= FEWEST else math.nan
    if math.isnan(rho):
        return ScoreCorrelation(evaluator=name, task=task, rho=None, n=len(keys))
    low, high = spearman_interval(a, b)
    return ScoreCorrelation(
        evaluator=name, task=task, rho=rho, low=low, high=high, p=spearman_p(rho, len(keys)), n=len(keys)
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def export_unit_tests(run: str | Path, file: str | Path, *, count: int = FUNCTIONS, seed: int = 0) -> Path:
    """Write the unit tests of a graded functions run as a blind sheet that people fill in; `count` functions of it."""
    if count < 1:
        raise BadInput(f"`count` {count}: give 1 or more functions")
    tested, path = TestedRun(require_run(run)), Path(file)
    if path.exists():
        raise BadInput(f"`export` {path}: is there already, perhaps filled in; name another file")
    write_text(path, sheet(tested, count=count, seed=seed))
    return path


@verb
def unit_tests(
    run: str | Path,
    answers: str | Path | Iterable[str | Path],
    *,
    evaluator: str | None = None,
    paid: Paid,
    out: Out = None,
) -> UnitTests:
    """Hold the answers of people against evaluators: accuracy of each, and Spearman's correlation over functions.

    `answers` are sheets that `export_unit_tests` wrote and people filled in. `evaluator` is a language model, or
    `trained:DIR`, that takes the same tests now; its calls and the document are written to `out`.
    """
    files = [Path(answers)] if isinstance(answers, str | Path) else [Path(one) for one in answers]
    tested, model = TestedRun(require_run(run)), findable_evaluator(evaluator)
    if not is_trained(model):
        check_model(model, paid)
    directory = directory_for(out, "unit-tests", tested.directory.resolve().name)
    with ExitStack() as stack:
        opened: Evaluator | None = None
        if model is not None and is_trained(model):
            opened = open_trained(model)
        elif model is not None:
            opened = stack.enter_context(model_access(model, directory, paid).open())
        study = unit_test_study(tested, files, opened)
    return written(UnitTests.from_data(six_places(study.as_data())), directory, UNIT_TESTS_FILE)
