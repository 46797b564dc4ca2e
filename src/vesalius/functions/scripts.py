"""Published function scripts, run in the sandbox and nowhere else.

    with ScriptRunner(dataset) as runner:
        runner.replies(dataset / "f00470" / "function_code.py", [0.5, 1.5], category="numeric")

A published script reads its inputs from the command line and prints `(input, output)` pairs. Here a warm process that
has numpy and scipy loaded runs it once per input, so an input that makes it raise, print ten megabytes or never end
costs its own reply and no other. Nothing is imported from a script and no pickle of its folder is opened outside.
"""

import math
import random
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vesalius.errors import BadInput
from vesalius.functions.box import LONGEST_OUTPUT, Category, Reply
from vesalius.sandbox import Answer, Sandbox

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


def libraries(argument: dict[str, bool]) -> dict[str, Any]:
    """What published scripts import, loaded once in the warm process."""
    import scipy.signal
    import scipy.special  # noqa: F401

    if argument["torch"]:
        import torch  # noqa: F401
    return {}


class ScriptRunner:
    """Runs the scripts of one dataset folder. Its sandbox starts at the first query and ends with `close` or us."""

    def __init__(self, dataset: Path, *, unsafe: bool = False) -> None:
        if not dataset.is_dir():
            raise BadInput(f"dataset {dataset}: no such directory")
        self.dataset = dataset.resolve()
        self._unsafe = unsafe
        self._sandbox: Sandbox | None = None

    def replies(
        self,
        script: Path,
        inputs: Sequence[Any],
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
        answers = self._open().call_many(
            _RUN_ONCE,
            "run",
            jobs,
            per_call_seconds=PER_INPUT_SECONDS,
            total_seconds=_SLACK_SECONDS + 2 * PER_INPUT_SECONDS * len(jobs),
        )
        return [_reply(*pair, category=category) for pair in zip(arguments, answers, strict=True)]

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
            needs = {"torch": next(self.dataset.glob(_WEIGHTS), None) is not None}
            preload = f"{__name__}:{libraries.__name__}"
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
        truth: dict[str, Any] | None = None,
    ) -> None:
        read_script(script)
        self.id, self.family = id, family
        self.category: Category = category
        self._script, self._runner = script, runner
        self._truth = dict(truth or {})

    def truth(self) -> dict[str, Any]:
        """What the dataset says about the function, and its source."""
        return {**self._truth, "source": read_script(self._script)}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        """One reply per input, each from a run of the script of its own."""
        return self._runner.replies(
            self._script, inputs, category=self.category, seed_text=self.id, first_call=first_call
        )


def read_script(script: Path) -> str:
    """The text of a script; reading runs nothing."""
    try:
        return script.read_text(encoding="utf-8")
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


def _reply(argument: str, answer: Answer, *, category: Category) -> Reply:
    if answer.error is not None:
        return Reply(error=answer.error.splitlines()[-1] if answer.error else "it failed")
    output = printed_output(argument, str(answer.value))
    if output is None:
        return Reply(error="the script printed no pair for this input")
    return Reply(output) if category in ("strings", "relations") else _number(output)


def _number(text: str) -> Reply:
    for kind in (float, complex):
        try:
            value = kind(text.strip("[] "))
        except ValueError:
            continue
        return Reply(value)
    return Reply(error="undefined here" if text == "None" else f"{text[:60]!r} is no number")


def _argument(value: Any) -> str:
    """An input as the command line would carry it: numbers in the shortest form that is read back as the same."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _seed(text: str, call: int) -> int:
    return random.Random(f"{text}:{call}").randrange(2**32)
