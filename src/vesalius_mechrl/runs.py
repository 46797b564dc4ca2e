"""The policies of `bench mechrl`, trained a few at a time in separate processes.

A policy is trained on one thread from tables that lie on the disk, so neither its weights nor what is found with it
depend on how many are trained at once. A killed process is resumed from its last checkpoint.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vesalius.errors import BadInput, Failed
from vesalius.runs.engine import Engine, Failure, map_cases
from vesalius_mechrl.study import Training
from vesalius_mechrl.suite import SuitePlan, load_suite


@dataclass(frozen=True)
class TrainingCase:
    """A policy to train, and the measured suite it is trained on."""

    training: Training
    matrices: Path
    plan: SuitePlan


def train_case(case: TrainingCase) -> None:
    """Train one policy into its directory."""
    case.training.run(load_suite(case.matrices, plan=case.plan))


def train_apart(
    trainings: Sequence[Training], matrices: Path, plan: SuitePlan, *, jobs: int = 2, engine: Engine | None = None
) -> Generator[Training]:
    """Train every policy into its directory, `jobs` at a time; each is yielded when it is there."""
    cases = [TrainingCase(training, matrices, plan) for training in trainings]
    with closing((engine or map_cases)(train_case, cases, jobs=jobs)) as results:
        for case, result in results:
            if isinstance(result, Failure):
                if result.kind == "refused":
                    raise BadInput(result.reason)
                raise Failed(f"{case.training.directory}: the policy could not be trained: {result.reason}")
            yield case.training
