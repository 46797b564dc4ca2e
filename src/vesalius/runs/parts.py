"""Parts of one specimen's work on an engine: the `Spread` that sweeps, discoveries and explanations are given.

A part is a case of the engine: its worker loads the model once and keeps it for the next part. A worker that dies takes
one part with it, which is tried once more. When a part fails, the others are still finished and kept where the caller
keeps them; then one line says what failed.
"""

import pickle
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from vesalius.behaviours.natural import Elsewhere, Work
from vesalius.behaviours.trial import Trial
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import Specimen
from vesalius.options import Parts
from vesalius.progress import Progress
from vesalius.runs.engine import Engine, Failure, chosen_engine, in_process


@dataclass(frozen=True)
class WorkPart:
    """One part of the work, where its place among all is `number`."""

    number: int
    work: Work
    elsewhere: Elsewhere
    part: Any

    @property
    def gpus(self) -> int:
        """How many GPUs its model is on."""
        return self.elsewhere.gpus


def do_part(case: WorkPart) -> Any:
    """The work of one part, in the process that has it."""
    return case.work(case.elsewhere.specimen(), case.part)


@dataclass(frozen=True)
class OnEngine:
    """Runs the parts of one specimen's work on an engine."""

    engine: Engine
    jobs: int
    elsewhere: Elsewhere
    progress: Progress

    def __call__(
        self, work: Work, parts: Sequence[object], *, step: str, keep: Callable[[int, Any], None] | None = None
    ) -> list[Any]:
        """The result of every part, in order."""
        cases = [WorkPart(number, work, self.elsewhere, part) for number, part in enumerate(parts)]
        results: dict[int, object] = {}
        failed: Failure | None = None
        self.progress(step, 0, len(cases))
        with closing(self.engine(do_part, cases, jobs=self.jobs)) as answers:
            for done, (case, result) in enumerate(answers, 1):
                if not isinstance(result, Failure):
                    results[case.number] = result
                    if keep is not None:
                        keep(case.number, result)
                elif result.kind == "refused":
                    raise BadInput(result.reason)
                else:
                    failed = failed or result
                self.progress(step, done, len(cases))
        if failed is not None:
            missing = len(cases) - len(results)
            raise Failed(f"{step}: {missing} of {len(cases)} parts could not be finished ({failed.reason})")
        return [results[number] for number in range(len(cases))]


def parts_on(parts: Parts, specimen: Specimen, progress: Progress, *, material: Trial | None = None) -> OnEngine | None:
    """What cuts the work on a specimen as `engine` and `jobs` say; None where it stays in this process. `material` of
    the caller's own stays there, because its readout may be any function.
    """
    runs_on, at_a_time = chosen_engine(parts.engine, parts.jobs)
    if runs_on is in_process:
        return None
    if material is not None:
        raise BadInput("prompts given as material are run in this process; leave out the engine and the jobs")
    elsewhere = Elsewhere.of(specimen)
    try:
        pickle.dumps(elsewhere)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(
            f"the behaviour or its metric cannot be sent to another process ({error}); define functions in a module, "
            "or leave out the engine and the jobs"
        ) from None
    return OnEngine(runs_on, at_a_time, elsewhere, progress)
