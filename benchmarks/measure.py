"""CPU seconds of two rivals, turn about, and where the report goes."""

import argparse
import json
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

#: Seconds from which on a single run is reported as it ends.
LONG = 2.0


def rivals(
    ours: Callable[[], object], theirs: Callable[[], object], *, repeats: int, warm_up: bool = True
) -> dict[str, float]:
    """Median CPU seconds of each over `repeats` alternating runs after one warm-up, and theirs / ours.

    `warm_up=False` is for callers that have run both already, to compare what they return.
    """
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for function in (ours, theirs) if warm_up else ():
        function()
    for repeat in range(repeats):
        for name, function in (("ours", ours), ("theirs", theirs)):
            start = time.process_time()
            function()
            times[name].append(time.process_time() - start)
            if times[name][-1] > LONG:
                progress(f"  run {repeat + 1} of {repeats}, {name}: {times[name][-1]:.1f} s of CPU time")
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {**medians, "ratio": medians["theirs"] / medians["ours"]}


def progress(line: str) -> None:
    """Say on stderr what is being measured: stdout is for the document."""
    print(line, file=sys.stderr, flush=True)


def peak_mb() -> float:
    """Highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows as JSON and write them where `--out` says."""
    parser = argparse.ArgumentParser(description=name)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    machine = {
        "processor": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    document = {
        "benchmark": name,
        "unit": "CPU seconds of one thread, median",
        "machine": machine,
        "rows": rows,
        "peak_mb": peak_mb(),
    }
    text = json.dumps(document, indent=2)
    print(text)
    if out:
        out.write_text(text + "\n")


def agree(what: str, difference: float, limit: float) -> float:
    """Refuse to time results that differ."""
    if not difference <= limit:
        raise SystemExit(
            f"{what}: results differ by {difference:.2e}, more than {limit:.0e}; a fast wrong answer is not timed"
        )
    return difference
