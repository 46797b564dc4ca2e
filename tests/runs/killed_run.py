"""A run of the stand-in agent to be killed: `python -m tests.runs.killed_run`, then one command per line on stdin.

The imports that take seconds are made once; each command is served by a fork, whose worker is a fork again, so that
fifty lives fit in a minute. A command is JSON: where the run is, the model's script, the prices. Printed are the fork's
process id and, when it ended, how.
"""

import json
import os
import sys
from pathlib import Path

CASES = 10
CAP = 1000.0


def perform(directory: Path, script: Path, prices: Path) -> None:
    """The whole run, or what is left of it; grading is a stand-in too."""
    from tests.runs import stand_in
    from tests.runs.test_circuits import grade_stub
    from vesalius.runs import engine
    from vesalius.runs.directory import Run
    from vesalius_backbones.runs.steps import RunLimits
    from vesalius_bench.circuits import benchmark as circuits
    from vesalius_bench.circuits.selection import benchmark_circuits, first
    from vesalius_bench.circuits.settings import BenchmarkSettings

    engine.START_METHOD = "fork"  # pyrefly: ignore[bad-assignment]  # a server, or a fresh worker, would import everything again in every life

    circuits.grade_case = grade_stub  # pyrefly: ignore[bad-assignment]
    settings = BenchmarkSettings(
        circuits=tuple(first(benchmark_circuits(), CASES)),
        scientist=stand_in.NAME,
        backbone=f"scripted:{script}",
        prices=str(prices),
    )
    limits = RunLimits(max_cost=CAP)
    with Run(directory, settings=settings.as_data(), notes=settings.notes(), limits=limits.as_data()) as run:
        benchmark = circuits.CircuitsBenchmark(run, settings, limits=limits, engine=engine.map_cases)
        for _ in benchmark.work(jobs=1):
            pass
        benchmark.scorecard()


def main() -> None:
    """Serve commands until stdin ends."""
    from tests.runs import test_circuits  # noqa: F401 - what every fork needs

    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        places = [Path(command[name]) for name in ("directory", "script", "prices")]
        places[0].mkdir(exist_ok=True)
        child = os.fork()
        if child == 0:
            perform(*places)
            os._exit(0)
        print(child, flush=True)
        ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        print(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status, flush=True)
        sys.stdin.readline()  # until now its process id is nobody else's, so that a late kill hits nobody
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
