"""One life of a small `bench mechrl`: `python -m tests.runs.killed_mechrl DIRECTORY [MOMENT]`.

A moment is an event of the run or a block of a matrix; at the given one the process kills itself. A life that comes to
its end prints the figures.
"""

import json
import os
import signal
import sys
from pathlib import Path

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.runs.directory import Run
from vesalius_mechrl.benchmark import MechrlBenchmark
from vesalius_mechrl.suite import SuitePlan
from vesalius_mechrl.trainings import Scope

POOLS = {"train": 4, "validation": 3, "test": 4}
PLAN = SuitePlan(POOLS, POOLS, rows=3, control_length=8, held_out=(), block=2)
SCOPE = Scope(seeds=1, steps=64, episodes=2, budgets=(1, 4), picks=8)


def live(directory: Path, killed_at: int | None) -> None:
    moments = 0

    def moment(*_: object) -> None:
        nonlocal moments
        moments += 1
        if moments == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    specimen = as_specimen(induction_model(word_tokenizer().size))
    with Run(directory, settings={"benchmark": "mechrl"}) as run:
        work = MechrlBenchmark(run, specimen, PLAN, SCOPE, corpus=corpus, progress=moment)
        for _ in work.work(jobs=1):
            moment()
        print(json.dumps(work.figures(), sort_keys=True))


if __name__ == "__main__":
    live(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
