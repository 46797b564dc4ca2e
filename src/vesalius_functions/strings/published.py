"""The published string functions: test pairs for a thousand, sources for next to none.

There are two generations. The first (June 2023, `eval_data_strings.json`) knows no number words; the second
(`strings/unit_test_data.json` with `test_data.json`) is full of them, and only five of its sources were published.
Tests of one generation say nothing about functions of the other, so the loader says which it found, by content, and
refuses scripts that do not reproduce the pairs beside them.

A function without a script is replaced by a stand-in: a program of up to two operations that agrees with all its stored
pairs, where there is one. It is found when first asked. Answers are graded on the stored pairs alone, never on what the
stand-in says.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from vesalius.errors import BadInput
from vesalius_functions.box import Category, Mode, Reply, UnitTest
from vesalius_functions.published import Loaded, Unusable, folder_of, name_in, read_records, usable
from vesalius_functions.scripts import SCRIPT, ScriptRunner, entry, read_script
from vesalius_functions.strings.faulty import WORDS
from vesalius_functions.strings.program import Step, StringProgram, library, strings, varied
from vesalius_functions.strings.search.solve import recover
from vesalius_functions.strings.suite import TESTS, Pair, StringFunction, functions, run

Generation = Literal["v0", "v1"]
SECOND, FIRST = "unit_test_data.json", "eval_data_strings.json"
#: A file with so many functions and no number word among their outputs is of the first generation, whatever its name.
_MANY = 50
_CHECKED_SCRIPTS = 3


class _Record(BaseModel):
    name: str
    test_vec: list[tuple[tuple[str, str, str], tuple[str, str, str]]]
    correct_inx: list[Literal[1, 2, 3]]


class _Prose(BaseModel):
    name: str
    description: str


@dataclass(frozen=True)
class PublishedFunction:
    """A function of the published dataset: its pairs, its unit tests, and its script where there is one."""

    id: str
    generation: Generation
    triplets: tuple[UnitTest, ...]
    #: What GPT-4 said of the true code, where published.
    description: str = ""
    script: str | None = field(default=None, repr=False)
    #: Asks the script; all functions of a dataset share it.
    runner: ScriptRunner | None = field(default=None, repr=False, compare=False)
    mode: Mode = "published"
    category: Category = "strings"

    @property
    def family(self) -> str:
        """The generation: the operations of most are not known."""
        return f"published {self.generation}"

    @property
    def source(self) -> Literal["script", "missing"]:
        """Whether its script was published."""
        return "missing" if self.script is None else "script"

    @property
    def stand_in(self) -> StringProgram | None:
        """For a missing source: the simplest program that agrees with all stored pairs; None where there is none."""
        return None if self.script is not None else _recovered(self.tests)

    @property
    def why_silent(self) -> str | None:
        """Why it cannot be asked for more than its stored inputs; None where it can."""
        if self.script is not None or self.stand_in is not None:
            return None
        known = f"no program of two operations agrees with all its {len(self.tests)} stored pairs"
        return f"published without its source, and {known}: it cannot be asked"

    @property
    def tests(self) -> tuple[Pair, ...]:
        """The stored pairs: the true members of the unit tests."""
        return tuple((test.right.input, test.right.output) for test in self.triplets)

    def truth(self) -> dict[str, Any]:
        """What is known: a description in words, and whether its source was published."""
        return {"description": self.description, "generation": self.generation, "source": self.source}

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        """The script's answers, from the sandbox; without a script, the stored outputs and what the stand-in says."""
        if self.script is None:
            return [self._from_pairs(value, first_call + number) for number, value in enumerate(inputs)]
        assert self.runner is not None
        texts = [value if isinstance(value, str) else "" for value in inputs]
        replies = self.runner.calls(self.script, texts, seed_text=self.id, first_call=first_call)
        return [
            reply if isinstance(value, str) else _no_text(value) for value, reply in zip(inputs, replies, strict=True)
        ]

    def _from_pairs(self, value: object, call: int) -> Reply:
        if not isinstance(value, str):
            return _no_text(value)
        program, stored = self.stand_in, dict(self.tests)
        if value in stored and not (program and program.random):
            return Reply(stored[value])
        if program is None:
            return Reply(error=self.why_silent)
        return run(program.draw(Random(f"{self.id} call {call}")), value)

    def fresh(self, count: int, *, seed: object) -> list[Pair]:
        """Pairs on random inputs; none where the source is missing, because a stand-in's are not the function's."""
        if self.script is None:
            return []
        source = varied(Random(f"{self.id} pairs {seed}"), count)
        inputs = [next(source) for _ in range(count)]
        replies = self.replies(inputs)
        return [(s, reply.value) for s, reply in zip(inputs, replies, strict=True) if isinstance(reply.value, str)]


@cache
def _recovered(pairs: tuple[Pair, ...]) -> StringProgram | None:
    return recover(pairs)


def _no_text(value: object) -> Reply:
    return Reply(error=f"the input is a {type(value).__name__}; this function takes a string")


def load_published(directory: Path, *, mode: Mode = "published") -> Loaded[PublishedFunction]:
    """The string functions of a published dataset folder (the dataset, or its `strings`), with their tests."""
    path = _pairs_file(Path(directory))
    tests: dict[str, tuple[UnitTest, ...]] = {}
    left_out: dict[str, str] = {}
    for number, record in enumerate(read_records(path)):
        named = record.get("name") if isinstance(record, dict) else None
        try:
            name = name_in(named)
            if name in tests:
                raise Unusable("an earlier record has the same `name`")
            tests[name] = _triplets(record)
        except Unusable as wrong:
            left_out[f"record {number} ({named!s:.60})"] = str(wrong)
    by_name, runner = generation(tests.values(), named=path.name), ScriptRunner(path.parent, plain=True)
    prose = _prose(path.with_name("test_data.json"))
    functions = []
    for name, triplets in tests.items():
        said = prose.get(name)
        try:
            script = _script(path.parent / name / SCRIPT)
        except BadInput as wrong:
            left_out[name] = str(wrong)
            continue
        functions.append(
            PublishedFunction(
                name,
                by_name,
                triplets,
                description=said.description.lstrip(": ").strip() if said else "",
                script=script,
                runner=runner,
                mode=mode,
            )
        )
    _check_scripts(functions, path)
    runner.close()
    return usable(functions, left_out, path)


def _script(path: Path) -> str | None:
    """The text of a function's script, if it has one that defines a function; reading runs nothing."""
    if not path.is_file():
        return None
    text = read_script(path)
    entry(text)
    return text


def _prose(path: Path) -> dict[str, _Prose]:
    """What was written about the functions, where that was published and can be read."""
    by_name: dict[str, _Prose] = {}
    with suppress(BadInput):
        for record in read_records(path) if path.is_file() else []:
            with suppress(ValidationError, Unusable):
                said = _Prose.model_validate(record)
                by_name[name_in(said.name)] = said
    return by_name


def generation(tests: Any, *, named: str) -> Generation:
    """Which generation unit tests are of: only the second has outputs that spell numbers their inputs do not."""
    triplets = [triplet for function in tests for triplet in function]
    spelled = [_spells(test.right.input, test.right.output) for test in triplets]
    if any(spelled):
        return "v1"
    return "v0" if named == FIRST or len(triplets) >= 10 * _MANY else "v1"


def _spells(s: str, out: str) -> bool:
    words = out.split()
    return bool(words) and set(words) <= set(WORDS) and not any(word in s for word in words)


def _pairs_file(directory: Path) -> Path:
    folder = folder_of(directory, "strings", holding=[SECOND, FIRST])
    return folder / (SECOND if (folder / SECOND).is_file() else FIRST)


def _triplets(record: object) -> tuple[UnitTest, ...]:
    try:
        read = _Record.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Unusable(f"not in the published layout: at {where}: {first['msg']}") from None
    if len(read.test_vec) != len(read.correct_inx) or not read.test_vec:
        counts = f"{len(read.test_vec)} tests and {len(read.correct_inx)} answers"
        raise Unusable(f"it has {counts}; every test needs its answer")
    tests = zip(read.test_vec, read.correct_inx, strict=True)
    return tuple(UnitTest.of_pairs([*zip(*three, strict=True)], right - 1) for three, right in tests)


def _check_scripts(functions: Sequence[PublishedFunction], path: Path) -> None:
    """Refuse scripts of another generation; a few differences are random operations, and what fails says nothing."""
    checked = [function for function in functions if function.script is not None][:_CHECKED_SCRIPTS]
    same = total = 0
    for function in checked:
        for reply, (_, out) in zip(function.replies([s for s, _ in function.tests]), function.tests, strict=True):
            same += reply.value == out
            total += reply.error is None
    if same < total / 2:
        raise BadInput(
            f"{path}: the scripts beside it give {same} of {total} stored outputs: they are of another generation; "
            f"put the pairs and the scripts of one generation into a folder"
        )


# Unit tests: three input-output pairs, one of which is the function's own; the right answer picks it.


def unit_tests(function: StringFunction | PublishedFunction, *, seed: int = 0) -> list[UnitTest]:
    """Ten, or as many as a published function has."""
    if isinstance(function, PublishedFunction):
        return list(function.triplets)
    rng = Random(f"{function.seed} unit tests {seed}")
    unrelated = _unrelated(function, rng)
    related = _related(function, rng) if function.mode == "fixed" else unrelated
    return [_unit_test(own, [next(unrelated), next(related)], rng) for own in function.tests[:TESTS]]


def _unit_test(own: Pair, wrong: list[Pair], rng: Random) -> UnitTest:
    correct = rng.randrange(3)
    return UnitTest.of_pairs([*wrong[:correct], own, *wrong[correct:]], correct)


def _unrelated(function: StringFunction, rng: Random) -> Iterator[Pair]:
    """Pairs of other functions that are wrong for this one."""
    for other in functions(f"beside {function.seed} {rng.random()}", function.mode):
        pair = rng.choice(other.tests)
        if _wrong(function, pair):
            yield pair


def _related(function: StringFunction, rng: Random) -> Iterator[Pair]:
    """Pairs of functions that share all but one operation with this one, and are wrong for it."""
    source = strings(rng, letters=function.letters)
    while True:
        s, relative = next(source), _relative(function.program, rng)
        reply = run(relative, s)
        if reply.error is None and _wrong(function, (s, reply.value)):
            yield s, reply.value


def _relative(program: StringProgram, rng: Random) -> StringProgram:
    """One step exchanged for another; a single operation gets a second beside it instead."""
    operation = rng.choice(list(library("fixed").values()))
    other = Step(operation, operation.kind.draw(rng))
    steps = [*program.steps]
    if len(steps) == 1:
        steps.insert(rng.randrange(2), other)
    else:
        steps[rng.randrange(len(steps))] = other
    return StringProgram(tuple(steps))


def _wrong(function: StringFunction, pair: Pair) -> bool:
    return function.replies([pair[0]])[0].value != pair[1]
