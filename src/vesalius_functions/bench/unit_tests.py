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
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vesalius.errors import BadInput
from vesalius.grading.ratings import plain_cell, safe_cell
from vesalius.runs.directory import EVENTS, EXECUTIONS, EXPLANATIONS, calls_path, document_or_none, require_benchmark
from vesalius.runs.ledger import read_ledger
from vesalius.runs.work import ModelAccess
from vesalius.sandbox import Executions
from vesalius_functions.agents.invention import said_input
from vesalius_functions.answer import Answer
from vesalius_functions.bench.benchmark import stored_seed
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.bench.state import FunctionState
from vesalius_functions.bench.work import Interpreted, askable
from vesalius_functions.box import Function
from vesalius_functions.documents.unit_tests import Task
from vesalius_functions.knowledge.models import REPLY_TOKENS
from vesalius_functions.unit_tests import Example, UnitTest

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
