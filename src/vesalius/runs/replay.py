"""A run done again from its records: no network, no key, and the same scorecard, or a list of what differs.

Every case is explained, graded and judged again in a temporary directory; language models are their recorded calls,
and code that was executed is what it gave then, unless it is to be executed again.
Everything in the scorecard is compared except how long things took and how it was asked for.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.runs.directory import CALLS, EXECUTIONS, RUN, Run, read_run, read_scorecard
from vesalius.runs.engine import Engine
from vesalius.runs.kinds import kind_of_run
from vesalius.runs.ledger import REMEDY
from vesalius.runs.settings import RunLimits
from vesalius.runs.steps import StepProgress
from vesalius.runs.work import ModelAccess

#: What is not compared.
NOT_COMPARED = ("seconds", "request")
MOST = 20


@dataclass(frozen=True)
class Replayed:
    """What replay found: the new scorecard, and where it differs from the stored one; of a run that is a record of
    calls, how many were made again.
    """

    scorecard: Scorecard | None
    differences: tuple[str, ...]
    calls: int | None = None

    @property
    def equal(self) -> bool:
        """Whether the scorecard, or every result of a call, was reproduced."""
        return not self.differences

    @property
    def sentence(self) -> str:
        """What came out, in words."""
        if self.calls is not None:
            same = f"{self.calls} calls give the same results again"
            return same if self.equal else "the calls do not give the same results"
        return f"the scorecard is {'' if self.equal else 'not '}reproduced{' from the records' if self.equal else ''}"


def replay(
    directory: Path,
    *,
    jobs: int = 2,
    execute: bool = False,
    engine: Engine | None = None,
    progress: Callable[[StepProgress], None] | None = None,
) -> Replayed:
    """Do a finished run again from its records and compare the scorecards; with `execute` code is run again."""
    asked = read_run(directory)
    kind = kind_of_run(asked)
    if (repeated := kind.replay(directory)) is not None:
        return repeated
    stored = read_scorecard(directory)
    try:
        settings = kind.settings_of(directory, asked)
    except BadInput as error:
        raise error if str(error).startswith(str(directory)) else BadInput(f"{directory}: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise BadInput(f"{directory / RUN}: the settings cannot be read ({error}); {REMEDY}") from None
    unsafe = bool(asked.get("limits", {}).get("sandbox_unsafe"))

    def recorded(access: ModelAccess) -> ModelAccess:
        calls = (directory / CALLS / access.calls.name).resolve()
        return replace(access, calls=calls, cap=None, cap_file=None, replay=True)

    with (
        tempfile.TemporaryDirectory(prefix="vesalius-replay-") as place,
        Run(Path(place), settings=settings.as_data()) as run,
    ):
        limits = RunLimits(sandbox_unsafe=unsafe)
        if not execute and (directory / EXECUTIONS).is_dir():
            shutil.copytree(directory / EXECUTIONS, Path(place) / EXECUTIONS)
        benchmark = kind.steps(run, settings, limits=limits, engine=engine, access=recorded)
        for event in benchmark.work(jobs=jobs):
            if progress is not None:
                progress(event)
        card = benchmark.scorecard()
    return Replayed(card, tuple(differences(stored.as_data(), card.as_data()))[:MOST])


def differences(stored: Any, replayed: Any, where: str = "") -> Iterator[str]:
    """Every place at which two scorecards differ, times left out."""
    if isinstance(stored, dict) and isinstance(replayed, dict):
        for name in dict.fromkeys([*stored, *replayed]):
            if name not in NOT_COMPARED:
                yield from differences(stored.get(name), replayed.get(name), f"{where}.{name}" if where else str(name))
    elif isinstance(stored, list) and isinstance(replayed, list) and len(stored) == len(replayed):
        for index, (one, other) in enumerate(zip(stored, replayed, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif not _same(stored, replayed):
        yield f"{where}: {stored!r:.80} is stored, {replayed!r:.80} came out"


def _same(stored: Any, replayed: Any) -> bool:
    """Whether two values are equal; figures may be rounded by another library or machine."""
    if isinstance(stored, float) and isinstance(replayed, float):
        return isclose(stored, replayed, rel_tol=1e-6, abs_tol=1e-9)
    return stored == replayed
