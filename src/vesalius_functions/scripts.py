"""Published function scripts, run in the sandbox and nowhere else.

    with ScriptRunner(dataset) as runner:
        runner.replies(dataset / "f00470" / "function_code.py", [0.5, 1.5], category="numeric")

A published script reads its inputs from the command line and prints `(input, output)` pairs. Here a warm process that
has numpy and scipy loaded runs it once per input, so an input that makes it raise, print ten megabytes or never end
costs its own reply and no other. Nothing is imported from a script and no pickle of its folder is opened outside.

`calls` asks the function that a script defines, without the command-line part, whatever that part prints.

Within `recorded(function, executions)` replies are kept, and those that have been kept are not asked for again.
"""

import ast
import math
import random
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput
from vesalius.sandbox import CallResult, Executions, Sandbox
from vesalius.sandbox.libraries import PRELOAD
from vesalius_functions.box import LONGEST_OUTPUT, Category, Function, Reply

SCRIPT = "function_code.py"
PER_INPUT_SECONDS = 2.0
#: What a runner may take to start beside its inputs' own time.
_SLACK_SECONDS = 30.0
#: Weights beside a script: then torch is loaded as well.
_WEIGHTS = "*/*.pt"

#: Runs inside the sandbox: the whole script for one input. Returns what it printed.
_RUN_ONCE = """
import contextlib, io, random, sys
import numpy as np

def run(job):
    random.seed(job["seed"])
    np.random.seed(job["seed"])
    sys.argv = [job["path"], job["input"]]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(job["source"], job["path"], "exec"), {"__name__": "__main__", "__file__": job["path"]})
    text = printed.getvalue()
    if len(text) > job["most"]:
        raise ValueError(f"the output has {len(text)} characters, more than can be read")
    return text
"""


#: Runs inside the sandbox: the script's function alone, for one input.
_CALL_ONCE = """
{definitions}

import random as _random

def _call(job):
    _random.seed(job["seed"])
    return {entry}(job["input"])
"""


class ScriptRunner:
    """Runs the scripts of one dataset folder. Its sandbox starts at the first query and ends with `close` or us.

    Args:
        dataset: the folder; scripts can read in it.
        unsafe: run where the kernel offers no isolation.
        plain: the scripts import no libraries, so that the sandbox starts without them, and fast.
    """

    def __init__(self, dataset: Path, *, unsafe: bool = False, plain: bool = False) -> None:
        if not dataset.is_dir():
            raise BadInput(f"dataset {dataset}: no such directory")
        self.dataset = dataset.resolve()
        self._unsafe, self._plain = unsafe, plain
        self._sandbox: Sandbox | None = None
        #: Where replies are kept.
        self.executions: Executions | None = None

    def replies(
        self,
        script: Path,
        inputs: Sequence[object],
        *,
        category: Category,
        seed_text: str = "",
        first_call: int = 0,
    ) -> list[Reply]:
        """One reply per input; random draws of call number `first_call + i` are seeded by that and `seed_text`."""
        source = read_script(script)
        arguments = [_argument(value) for value in inputs]
        jobs = [
            {
                "path": str(script.resolve()),
                "source": source,
                "input": argument,
                "seed": _seed(seed_text, first_call + number),
                "most": len(argument) + 2 * LONGEST_OUTPUT,
            }
            for number, argument in enumerate(arguments)
        ]
        answers = self._call(_RUN_ONCE, "run", jobs)
        return [_reply(*pair, category=category) for pair in zip(arguments, answers, strict=True)]

    def calls(self, source: str, inputs: Sequence[object], *, seed_text: str = "", first_call: int = 0) -> list[Reply]:
        """One reply per input from the function that the script's text defines; draws are seeded as in `replies`."""
        jobs = [{"input": value, "seed": _seed(seed_text, first_call + number)} for number, value in enumerate(inputs)]
        code = _CALL_ONCE.format(definitions=definitions(source), entry=entry(source))
        answers = self._call(code, "_call", jobs)
        return [Reply(answer.value, _last_line(answer.error)) for answer in answers]

    def _call(self, code: str, function: str, jobs: Sequence[Mapping[str, object]]) -> list[CallResult]:
        """The results of all jobs: recorded, or else run. Where the dataset is stored is not part of a record."""

        def run() -> list[CallResult]:
            total = _SLACK_SECONDS + 2 * PER_INPUT_SECONDS * len(jobs)
            return self._open().call_many(code, function, jobs, per_call_seconds=PER_INPUT_SECONDS, total_seconds=total)

        if self.executions is None:
            return run()
        inputs = [{name: value for name, value in job.items() if name != "path"} for job in jobs]
        return self.executions.results({"code": code, "function": function, "inputs": inputs}, run)

    def close(self) -> None:
        """End the sandbox; a later query starts another."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Sandbox:
        if self._sandbox is None:
            needs = {"torch": not self._plain and next(self.dataset.glob(_WEIGHTS), None) is not None}
            preload = None if self._plain else PRELOAD
            sandbox = Sandbox(preload, needs, toolbox=self.dataset, unsafe=self._unsafe)
            self._sandbox = sandbox.__enter__()
            weakref.finalize(self, sandbox.close)
        return self._sandbox


class ScriptFunction:
    """A function that is a published script: what is known of it, and a runner that asks it."""

    def __init__(
        self,
        id: str,
        category: Category,
        family: str,
        script: Path,
        runner: ScriptRunner,
        *,
        truth: Mapping[str, object] | None = None,
    ) -> None:
        read_script(script)
        self.id, self.family = id, family
        self.category: Category = category
        self._script, self.runner = script, runner
        self._truth = dict(truth or {})

    def truth(self) -> dict[str, Any]:
        """What the dataset says about the function, and its source."""
        return {**self._truth, "source": read_script(self._script)}

    def replies(self, inputs: Sequence[object], *, first_call: int = 0) -> list[Reply]:
        """One reply per input, each from a run of the script of its own."""
        return self.runner.replies(
            self._script, inputs, category=self.category, seed_text=self.id, first_call=first_call
        )


@contextmanager
def recorded(function: Function, executions: Executions) -> Iterator[None]:
    """Keep in `executions` what the function's script replies; a function that is not a script replies as always."""
    runner = getattr(function, "runner", None)
    if not isinstance(runner, ScriptRunner):
        yield
        return
    before, runner.executions = runner.executions, executions
    try:
        yield
    finally:
        runner.executions = before


def read_script(script: Path) -> str:
    """The text of a script; reading runs nothing."""
    try:
        return script.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"script {script}: {error.strerror}; the dataset folder is not whole") from None
    except UnicodeDecodeError:
        raise BadInput(f"script {script}: not a text; the dataset folder is not whole") from None


def printed_output(argument: str, printed: str) -> str | None:
    """The output in `... (argument, output) `, whatever brackets and commas either holds; None if there is no pair."""
    start = printed.find(f"({argument}, ")
    whole = printed.removesuffix("\n").removesuffix(" ")
    if start < 0 or not whole.endswith(")"):
        return None
    return whole[start + len(argument) + 3 : -1]


def _reply(argument: str, answer: CallResult, *, category: Category) -> Reply:
    if answer.error is not None:
        return Reply(error=_last_line(answer.error))
    output = printed_output(argument, str(answer.value))
    if output is None:
        return Reply(error="the script printed no pair for this input")
    return Reply(output) if category in ("strings", "relations") else _number(output)


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
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadInput(f"a published {SCRIPT} is not Python ({error}); it begins {script[:40]!r}") from None


def _last_line(error: str | None) -> str | None:
    return None if error is None else (error.strip().splitlines() or ["it failed"])[-1]


def _number(text: str) -> Reply:
    for kind in (float, complex):
        try:
            value = kind(text.strip("[] "))
        except ValueError:
            continue
        return Reply(value)
    return Reply(error="undefined here" if text == "None" else f"{text[:60]!r} is not a number")


def _argument(value: object) -> str:
    """An input as the command line would carry it: numbers in the shortest form that is read back as the same."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _seed(text: str, call: int) -> int:
    return random.Random(f"{text}:{call}").randrange(2**32)
