"""The published string functions: test pairs for a thousand, sources for next to none.

Two generations are about. The first (June 2023, `eval_data_strings.json`) knows no number words; the second
(`strings/unit_test_data.json` with `test_data.json`) is full of them, and only five of its sources were published.
Tests of one generation tell nothing about functions of the other, so the loader says which it found, by content, and
refuses scripts that do not reproduce the pairs beside them.

A function without a script is passive: it answers the inputs whose outputs are stored, and says so for all others.
"""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from vesalius.errors import BadInput
from vesalius.functions.answer import Mode
from vesalius.functions.box import Category, Reply
from vesalius.functions.strings.faulty import WORDS
from vesalius.functions.strings.function import Pair
from vesalius.functions.strings.inputs import varied
from vesalius.functions.unit_tests import UnitTest
from vesalius.sandbox import Sandbox

Generation = Literal["v0", "v1"]
SECOND, FIRST = "unit_test_data.json", "eval_data_strings.json"
SCRIPT = "function_code.py"
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
    mode: Mode = "published"
    category: Category = "strings"

    @property
    def family(self) -> str:
        """The generation: the operations of most are not known."""
        return f"published {self.generation}"

    @property
    def passive(self) -> bool:
        """Whether only its stored pairs are known."""
        return self.script is None

    @property
    def tests(self) -> tuple[Pair, ...]:
        """The stored pairs: the true members of the unit tests."""
        return tuple((test.right.input, test.right.output) for test in self.triplets)

    def truth(self) -> dict[str, Any]:
        """What is known: a description in words, and whether more than the stored pairs can be asked."""
        return {"description": self.description, "generation": self.generation, "passive": self.passive}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """The script's answers, run in a sandbox; without a script, the stored outputs."""
        if self.script is not None:
            with Sandbox() as sandbox:
                answers = sandbox.call_many(definitions(self.script), entry(self.script), list(inputs))
            return [Reply(answer.value, _last_line(answer.error)) for answer in answers]
        stored = dict(self.tests)
        missing = f"{self.id} was published without its source: only its {len(stored)} stored inputs have outputs"
        return [Reply(stored[s]) if isinstance(s, str) and s in stored else Reply(error=missing) for s in inputs]

    def fresh(self, count: int, *, seed: object) -> list[Pair]:
        """Pairs on random inputs; none for a passive function."""
        if self.passive:
            return []
        source = varied(Random(f"{self.id} pairs {seed}"), count)
        inputs = [next(source) for _ in range(count)]
        replies = self.replies(inputs)
        return [(s, reply.value) for s, reply in zip(inputs, replies, strict=True) if isinstance(reply.value, str)]


def load_published(directory: Path, *, mode: Mode = "published") -> list[PublishedFunction]:
    """The string functions of a published dataset folder (the folder itself, or its `strings`), with their tests."""
    path = _pairs_file(Path(directory))
    records = _read(path, list[_Record])
    prose_file = path.with_name("test_data.json")
    prose = {said.name: said for said in _read(prose_file, list[_Prose])} if prose_file.exists() else {}
    triplets = {record.name: _triplets(record, path) for record in records}
    found = generation(triplets.values(), named=path.name)
    functions = []
    for name, tests in triplets.items():
        said = prose.get(name)
        script = path.parent / name / SCRIPT
        functions.append(
            PublishedFunction(
                name,
                found,
                tests,
                description=said.description.lstrip(": ").strip() if said else "",
                script=script.read_text(encoding="utf-8") if script.is_file() else None,
                mode=mode,
            )
        )
    _check_scripts(functions, path)
    return functions


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


def definitions(script: str) -> str:
    """A script without what it does when it is run from a command line: imports, functions and constants."""
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    tree = _parsed(script)
    body: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, kept) and not any(isinstance(n, ast.Name) and n.id == "sys" for n in ast.walk(node))
    ]
    return ast.unparse(ast.Module(body=body, type_ignores=[]))


def entry(script: str) -> str:
    """The function that a script is about: the one named `function`, or else the last."""
    names = [node.name for node in _parsed(script).body if isinstance(node, ast.FunctionDef)]
    if not names:
        raise BadInput(f"a published {SCRIPT} defines no function; it begins {script[:40]!r}")
    return "function" if "function" in names else names[-1]


def _parsed(script: str) -> ast.Module:
    try:
        return ast.parse(script)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"a published {SCRIPT} is not Python ({error}); it begins {script[:40]!r}") from None


def _pairs_file(directory: Path) -> Path:
    places = [directory / "strings" / SECOND, directory / SECOND, directory / "strings" / FIRST, directory / FIRST]
    for place in places:
        if place.is_file():
            return place
    raise BadInput(f"{directory} holds no published string functions: neither strings/{SECOND} nor {FIRST} is there")


def _read(path: Path, kind: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path} cannot be read as JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path} is not in the published layout: at {where}: {first['msg']}") from None


def _triplets(record: _Record, path: Path) -> tuple[UnitTest, ...]:
    if len(record.test_vec) != len(record.correct_inx):
        counts = f"{len(record.test_vec)} tests and {len(record.correct_inx)} answers"
        raise BadInput(f"{path}: {record.name} has {counts}; every test needs its answer")
    tests = zip(record.test_vec, record.correct_inx, strict=True)
    return tuple(UnitTest.of_pairs([*zip(*three, strict=True)], right - 1) for three, right in tests)


def _check_scripts(functions: Sequence[PublishedFunction], path: Path) -> None:
    """Refuse scripts of another generation; a few differences are random operations."""
    checked = [function for function in functions if not function.passive][:_CHECKED_SCRIPTS]
    same = total = 0
    for function in checked:
        replies = function.replies([s for s, _ in function.tests])
        same += sum(reply.value == out for reply, (_, out) in zip(replies, function.tests, strict=True))
        total += len(replies)
    if same < total / 2:
        raise BadInput(
            f"{path}: the scripts beside it give {same} of {total} stored outputs: they are of another generation; "
            f"put the pairs and the scripts of one generation into a folder"
        )


def _last_line(error: str | None) -> str | None:
    return None if error is None else error.strip().splitlines()[-1]
