"""Queries per second of a box against one interpreter start per call, as the published harness asks its functions.

    python -m benchmarks.functions --out benchmarks/results/functions.json

Both answer the same inputs, ten at a time, as a language model asks. "Theirs" is a script in the published frame (numpy
and scipy imported, inputs from the command line, pairs printed) that holds the same formula; its outputs are compared
with the box's before anything is timed. CPU seconds of one query, wall seconds beside them. A third row is such a
script in our sandbox, one run per input: what published functions cost here that have no formula we know.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import agree, report
from vesalius_functions import Box, category
from vesalius_functions.box import Function
from vesalius_functions.scripts import SCRIPT, ScriptRunner, printed_output

INPUTS: dict[str, list[Any]] = {
    "numeric": [-120.5, -64.0, -10.25, -1.0, 0.5, 1.0, 2.5, 10.0, 64.5, 127.0],
    "strings": ["apple", "Banana", "river", "x9", "Level", "rhythm", "Tokyo", "house7", "queue", "zebra"],
}
#: The published frame in our words.
FRAME = """
import sys
import numpy as np
import scipy.signal
from scipy.special import erf, factorial, gamma
{code}
if __name__ == "__main__":
    outputs = ""
    for arg in sys.argv[1:]:
        outputs += "(%s, %s) " % (arg, str(f({read}(arg))))
    print("Pairs: " + outputs)
"""
BATCHES, STARTS = 400, 5
Timed = tuple[float, float]


def deterministic(name: str) -> tuple[Function, str]:
    """A function of a category that answers the same every time, and its truth as code."""
    rooms = category(name)
    for function in rooms.sample(40, seed=1):
        code = rooms.oracle(function).code
        plain = not any(function.truth().get(part) for part in ("noise", "interval"))
        if code and plain and all(reply.error is None for reply in function.replies(INPUTS[name])):
            return function, code
    raise SystemExit(f"no {name} function answers all inputs")


def timed(ask: Callable[[], object], repeats: int) -> Timed:
    """Median CPU and wall seconds of a call; children count."""
    ask()
    cpu, wall = [], []
    for _ in range(repeats):
        before, began = _cpu(), time.perf_counter()
        ask()
        cpu.append(_cpu() - before)
        wall.append(time.perf_counter() - began)
    return statistics.median(cpu), statistics.median(wall)


def _cpu() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def afresh(script: Path, inputs: list[Any]) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, str(script), *map(str, inputs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def same_outputs(name: str, function: Function, script: Path) -> None:
    """Refuse to time two functions that differ."""
    for value, reply in zip(INPUTS[name], function.replies(INPUTS[name]), strict=True):
        printed = printed_output(str(value), afresh(script, [value]))
        if name == "strings":
            agree(f"{name} {value!r}", float(printed != reply.value), 0.0)
        else:
            agree(f"{name} {value!r}", abs(float(printed or "nan") - reply.value), 1e-6 * (1 + abs(reply.value)))


def compare(name: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of one category."""
    function, code = deterministic(name)
    place = folder / name / function.id
    place.mkdir(parents=True)
    script = place / SCRIPT
    script.write_text(FRAME.format(code=code, read="float" if name == "numeric" else "str"), encoding="utf-8")
    same_outputs(name, function, script)
    inputs = INPUTS[name]
    n = len(inputs)

    def many() -> None:  # one batch is too short for the clock
        box = Box(function)
        for _ in range(BATCHES):
            box.ask(inputs)

    ours = tuple(seconds / (BATCHES * n) for seconds in timed(many, STARTS))
    theirs = tuple(seconds / n for seconds in timed(lambda: afresh(script, inputs), STARTS))
    with ScriptRunner(folder / name) as runner:
        in_sandbox = timed(lambda: runner.replies(script, inputs, category=function.category), STARTS)
    return [
        _row(f"{name}, ten inputs a call: box against interpreter start", ours, theirs),
        _row(f"{name}, a published script in the sandbox, wall time", (in_sandbox[1] / n,) * 2, (theirs[1],) * 2),
    ]


def _row(name: str, ours: tuple[float, ...], theirs: tuple[float, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "ours": ours[0],
        "theirs": theirs[0],
        "ratio": theirs[0] / ours[0],
        "wall_ratio": theirs[1] / ours[1],
        "queries_per_second_ours": 1 / ours[1],
        "queries_per_second_theirs": 1 / theirs[1],
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o755)
        report("functions", [row for name in INPUTS for row in compare(name, Path(temporary))])
