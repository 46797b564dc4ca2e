"""One program in the sandbox against a fresh interpreter that imports torch and loads the same specimen.

    python -m benchmarks.sandbox --out benchmarks/results/sandbox.json

Both run `result = 1 + 1` with the specimen's model at hand, and so, in a second row, one forward pass of it. CPU time
is that of the program, of the warm process on its behalf and of the caller; for the fresh interpreter, that of its
process. Wall time stands beside it. The start of the warm process, paid once, is not in the ratio and is reported.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.measure import report
from vesalius.sandbox import Sandbox

SPECIMEN = "frac_prevs"
PROGRAMS = {
    "a trivial program": "result = 1 + 1",
    "a forward pass": "result = model(tokenize([examples[0]])).shape",
}
FRESH = """
from benchmarks.sandbox import names
scope = names({specimen!r})
exec({code!r}, scope)
print(scope["result"])
"""
FORKS, STARTS = 40, 5


def names(specimen: str) -> dict[str, Any]:
    """What a program about a specimen starts with."""
    from vesalius.api import load

    found = load(specimen)
    examples = [example["input"] for example in found.examples]
    return {"model": found.model, "tokenize": found.tokenize, "decode": found.decode, "examples": examples}


def in_the_sandbox(sandbox: Sandbox, code: str) -> tuple[float, float]:
    """CPU and wall seconds of one call."""
    own, began = time.process_time(), time.perf_counter()
    outcome = sandbox.execute(code)
    wall, own = time.perf_counter() - began, time.process_time() - own
    if not outcome.ok:
        raise SystemExit(f"the program failed: {outcome.error}")
    return own + outcome.cpu_seconds, wall


def afresh(code: str) -> tuple[float, float]:
    """CPU and wall seconds of one new interpreter."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FRESH.format(specimen=SPECIMEN, code=code)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - began


def compare(name: str, code: str, sandbox: Sandbox) -> dict[str, Any]:
    """Medians of both, turn about, after one warm-up of each."""
    in_the_sandbox(sandbox, code)
    afresh(code)
    ours, theirs = [], []
    for _ in range(STARTS):
        ours += [in_the_sandbox(sandbox, code) for _ in range(FORKS // STARTS)]
        theirs.append(afresh(code))
    cpu, wall = (statistics.median(column) for column in zip(*ours, strict=True))
    fresh_cpu, fresh_wall = (statistics.median(column) for column in zip(*theirs, strict=True))
    return {
        "name": f"{name}, {SPECIMEN}",
        "ours": cpu,
        "theirs": fresh_cpu,
        "ratio": fresh_cpu / cpu,
        "wall_ours": wall,
        "wall_theirs": fresh_wall,
        "wall_ratio": fresh_wall / wall,
    }


if __name__ == "__main__":
    start = time.perf_counter()
    with Sandbox("benchmarks.sandbox:names", SPECIMEN) as open_sandbox:
        started = time.perf_counter() - start
        rows = [compare(name, code, open_sandbox) for name, code in PROGRAMS.items()]
        rows.append({"name": "start of the warm process, once", "wall_ours": started})
        rows.append({"name": "isolation", "layers": str(open_sandbox.isolation)})
    report("sandbox", rows)
