"""The rows of MIB's causal variable localization track, as pairs of a base and its counterfactuals.

A row is what MIB's datasets hold: `prompt`, perhaps `choices` and `answerKey`, `metadata`, `split`, and fields
`NAME_counterfactual`, each a row of its own (or its prompt). NAME is the kind of the pair. What a program reads of a
row, and the token positions, follow the task that the folder of a submission names:

    task             a program reads                            token positions              variables
    arithmetic       op1_tens, op1_ones, op2_tens, op2_ones     op1_last, op2_last, last     ones_carry
    4_answer_MCQA    key, labels                                correct_symbol, last_token   answer_pointer, answer
    ARC_easy         key, labels                                correct_symbol, last_token   answer_pointer, answer
    any other        number1, number2, ..., and `metadata`      number1, number2, ..., last  those of its program

A position is the last token of what it names. Answers are one token; they follow the prompt after a space where it does
not end in one.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.behaviours.files import read_rows
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.variables.algorithms import Algorithm, find_algorithm, parse_algorithm
from vesalius.explanations.variables.sides import Case, Side, Sources
from vesalius.intervene.exchanging import END
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.tokenizer import Tokenizer

KIND = "_counterfactual"
TRAIN, TEST = "train", ("test", "validation")

ADDITION = """
VARIABLES = ["ones_carry"]

def ones_carry(op1_ones, op2_ones):
    return int(op1_ones + op2_ones > 9)

def answer(op1_tens, op2_tens, op1_ones, op2_ones, ones_carry):
    return 10 * (op1_tens + op2_tens + ones_carry) + (op1_ones + op2_ones) % 10
"""
POINTER = """
VARIABLES = ["answer_pointer", "answer"]

def answer_pointer(key):
    return key

def answer(answer_pointer, labels):
    return labels[answer_pointer]
"""


class _Unreadable(Exception):
    """What makes a row unusable."""


@dataclass(frozen=True)
class Read:
    """What a task reads of one row: a program's inputs, and where each position's text ends in the prompt."""

    inputs: Mapping[str, Any]
    ends: Mapping[str, int]


@dataclass(frozen=True)
class Task:
    """How a task's rows are read, what MIB calls the last position, its program (None: none ships), and variables."""

    last: str
    read: Callable[[Mapping[str, Any]], Read]
    program: str | None = None
    variables: tuple[str, ...] = ()


def _prompt(row: Mapping[str, Any]) -> str:
    prompt = row.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise _Unreadable("has no prompt")
    return prompt


def _addition(row: Mapping[str, Any]) -> Read:
    """The last two numbers of the prompt, of at most two digits."""
    found = list(re.finditer(r"\d+", _prompt(row)))[-2:]
    if len(found) < 2 or any(len(number[0]) > 2 for number in found):
        raise _Unreadable("has no two numbers of at most two digits")
    inputs: dict[str, Any] = {}
    for name, number in zip(("op1", "op2"), found, strict=True):
        inputs |= {f"{name}_tens": int(number[0]) // 10, f"{name}_ones": int(number[0]) % 10}
    return Read(inputs, {"op1_last": found[0].end(), "op2_last": found[1].end()})


def _choice(row: Mapping[str, Any]) -> Read:
    """The symbols of the choices, which of them is right, and where its symbol stands last in the prompt."""
    prompt, given, key = _prompt(row), row.get("choices"), row.get("answerKey")
    labels = given.get("label") if isinstance(given, Mapping) else given
    if not isinstance(labels, Sequence) or isinstance(labels, str) or not labels:
        raise _Unreadable("has no choices")
    labels = [str(label) for label in labels]
    if isinstance(key, str) and key in labels:
        key = labels.index(key)
    if not isinstance(key, int) or isinstance(key, bool) or not 0 <= key < len(labels):
        raise _Unreadable("has an answerKey that is none of its choices")
    stands = list(re.finditer(rf"(?<!\w){re.escape(labels[key])}(?!\w)", prompt))
    if not stands:
        raise _Unreadable(f"does not name its choice {labels[key]}")
    return Read({"key": key, "labels": labels}, {"correct_symbol": stands[-1].end()})


def _any(row: Mapping[str, Any]) -> Read:
    """The numbers of the prompt in order, and what the row says of itself."""
    numbers = list(re.finditer(r"\d+", _prompt(row)))
    known = row.get("metadata")
    said = dict(known) if isinstance(known, Mapping) else {}
    inputs = said | {f"number{place}": int(number[0]) for place, number in enumerate(numbers, 1)}
    return Read(inputs, {f"number{place}": number.end() for place, number in enumerate(numbers, 1)})


TASKS = {
    "4_answer_MCQA": Task("last_token", _choice, POINTER, ("answer_pointer", "answer")),
    "ARC_easy": Task("last_token", _choice, POINTER, ("answer_pointer", "answer")),
    "arithmetic": Task("last", _addition, ADDITION, ("ones_carry",)),
}
#: Tasks of the track that are not scored here, and why.
UNSCORED = {
    "ioi_task": "its score is the squared error of a logit difference with coefficients that MIB fits",
    "ravel_task": "its variables are looked up in a table of places that no row holds",
}
OTHER = Task("last", _any)


def task_named(name: str) -> Task:
    """How the rows of a task are read; tasks that are not MIB's are read by their numbers and metadata."""
    if name in UNSCORED:
        raise BadInput(f"task {name}: it is not scored here, for {UNSCORED[name]}; name one of {choices(TASKS)}")
    return TASKS.get(name, OTHER)


def algorithm_of(task: str, given: str | Path | None) -> Algorithm:
    """The program that says what a task's variables are: the one that is given, or the task's own."""
    program = task_named(task).program
    if given is not None:
        return find_algorithm(given, behaviour=task)
    if program is None:
        raise BadInput(f"task {task}: no program ships with it; name a program file with --algorithm")
    return parse_algorithm(program, name=task, shipped=True)


@dataclass(frozen=True)
class TaskRows:
    """Rows of one task from a file or a directory."""

    task: str
    source: str
    rows: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, path: str | Path, task: str) -> "TaskRows":
        """Read them; what is no row of the track is refused."""
        task_named(task)
        rows = read_rows(path)
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping) or not any(str(name).endswith(KIND) for name in row):
                raise BadInput(f"{path}: row {number} has no field such as random{KIND}; give rows of MIB's datasets")
        return cls(task, str(path), tuple(rows))  # type: ignore[arg-type]

    def sources(self, specimen: Specimen, *, train: bool) -> "TaskSources":
        """The pairs of the rows that train, or of those that grade: split `test`, else `validation`; rows that name no
        split all grade.
        """
        if not isinstance(specimen.vocabulary, TextVocabulary):
            raise BadInput(f"specimen {specimen.name!r} reads no text; name a natural model, such as smollm2-135m")
        splits = {str(row.get("split") or "") for row in self.rows}
        wanted = (TRAIN,) if train else next(((one,) for one in TEST if one in splits), ("",))
        rows = [row for row in self.rows if str(row.get("split") or "") in wanted]
        if not rows:
            raise BadInput(
                f"{self.source}: no row has the split {wanted[0] or TEST[0]}; name it in a field `split`, so that what "
                "is trained on is not graded on"
            )
        return TaskSources.of(self, rows, specimen)


@dataclass(frozen=True)
class TaskSources:
    """Cases of some rows, the sources they belong to, and why rows were left out."""

    cases: list[Case]
    sources: Sources
    roles: tuple[str, ...]
    left_out: Mapping[str, int]

    @classmethod
    def of(cls, rows: TaskRows, some: Sequence[Mapping[str, Any]], specimen: Specimen) -> "TaskSources":
        """Every row as a base with its counterfactuals; what cannot be read is counted and left out."""
        assert isinstance(specimen.vocabulary, TextVocabulary)
        task, tokenizer, n_ctx = task_named(rows.task), specimen.vocabulary.tokenizer, specimen.model.config.n_ctx
        cases: list[Case] = []
        left_out: dict[str, int] = {}
        for row in some:
            try:
                base = _side(task, row, tokenizer, n_ctx)
            except _Unreadable as why:
                left_out[str(why)] = left_out.get(str(why), 0) + 1
                continue
            sources = {}
            for name, other in row.items():
                if str(name).endswith(KIND) and other is not None:
                    try:
                        nested = other if isinstance(other, Mapping) else {"prompt": other}
                        sources[str(name).removesuffix(KIND)] = _side(task, nested, tokenizer, n_ctx)
                    except _Unreadable as why:
                        reason = f"a counterfactual {why}"
                        left_out[reason] = left_out.get(reason, 0) + 1
            if sources:
                cases.append(Case(base, sources))
        if not cases:
            most = max(left_out, key=lambda reason: left_out[reason], default="has no counterfactual")
            raise BadInput(f"{rows.source}: no row can be read as one of task {rows.task}: it {most}")
        kinds = dict.fromkeys(kind for case in cases for kind in case.sources)
        sides = [side for case in cases for side in (case.base, *case.sources.values())]
        roles = tuple(role for role in cases[0].base.roles if all(role in side.roles for side in sides))

        def draw(_: random.Random, i: int) -> Case | None:
            return cases[i] if i < len(cases) else None

        def token_of(side: Side, answer: Any) -> int | None:
            text = str(answer)
            spaced = tokenizer.piece(side.tokens[-1])[-1:].isspace() or text[:1].isspace()
            for one in (text,) if spaced else (f" {text}", text):
                if tokenizer.is_single(one):
                    return tokenizer.token(one)
            return None

        return cls(cases, Sources({kind: f"{kind}{KIND}" for kind in kinds}, draw, token_of), roles, left_out)


def _side(task: Task, row: Mapping[str, Any], tokenizer: Tokenizer, n_ctx: int) -> Side:
    """A row's prompt with its inputs and positions."""
    read, prompt = task.read(row), _prompt(row)
    tokens = tokenizer.encode(prompt)
    if len(tokens) > n_ctx:
        raise _Unreadable(f"has more than the {n_ctx} tokens that the model reads")
    places = {}
    for role, end in read.ends.items():
        before = tokenizer.encode(prompt[:end])
        if before != tokens[: len(before)]:
            raise _Unreadable(f"has no token that ends with {quoted(role)}")
        places[role] = len(before) - 1
    return Side(tuple(tokens), read.inputs, {**places, END: len(tokens) - 1})
