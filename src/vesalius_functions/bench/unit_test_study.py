"""People's answers to the unit tests of a run beside those of evaluators: accuracy and Spearman's correlation."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vesalius.backbones import Backbone
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.runs.scorecard import model_name
from vesalius.statistics import spearman, spearman_interval, spearman_p
from vesalius_functions.agents import take_unit_tests
from vesalius_functions.bench.scorecard import Figures, metrics_of
from vesalius_functions.bench.unit_tests import TASKS, Choice, Item, TestedRun, read_sheet, score_by_function
from vesalius_functions.bench.work import ToGrade, grade_answer
from vesalius_functions.documents.unit_tests import (
    ScoreCorrelation,
    TakerKind,
    Task,
    TestedFunction,
    TestTaker,
    UnitTests,
)
from vesalius_functions.unit_tests import UnitTest

EXECUTABLE = "executable grader"
#: Fewer functions have no correlation.
FEWEST = 3

Key = tuple[str, Task]
Scores = dict[Key, float]


def unit_test_study(run: TestedRun, files: Sequence[Path], evaluator: Backbone | None = None) -> UnitTests:
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
    run: TestedRun, keys: Sequence[Key], tests: Mapping[Key, Sequence[UnitTest]], model: Backbone | None
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
            part = model.within(f"{function}/{task}")
            given[key] = take_unit_tests(part, said, tests[key], matching=task == "matching").score
    named = str(model_name(run.settings.evaluator))
    parts: list[tuple[str, TakerKind, Scores]] = [(EXECUTABLE, "executable", executable), (named, "model", own)]
    if model is not None:
        parts.append((model.name if model.name != named else f"{named} again", "model", given))
    return {(name, kind): scores for name, kind, scores in parts if scores}


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
