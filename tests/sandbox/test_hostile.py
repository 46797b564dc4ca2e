"""Hostile programs: 0 escapes, the caller and the warm process alive, every one of them stopped."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import PRELOAD, SECRET, SMALL, Target, family
from tests.sandbox.programs import ATTEMPTS, NUISANCES, STEALS, STOPPED
from vesalius.sandbox import Limits, Outcome, Sandbox

pytestmark = pytest.mark.slow  # a minute or two: many programs are meant to use up their time

#: A program that fails in one of these ways has a bug and proves nothing.
BUGS = ("NameError", "SyntaxError", "AttributeError", "IndentationError", "TypeError", "KeyError")


#: For programs that run into a limit of time: the least of it, so that they do not use up the suite's.
TIMED = {"wall": dataclasses.replace(SMALL, wall_seconds=0.5), "cpu": dataclasses.replace(SMALL, cpu_seconds=1)}
#: Seconds that a busy machine may take to notice that a limit is reached; the programs would wait 1,000.
BUSY = 60
PROCESSES = ("fork", "subprocess", "shell", "spawn", "multiprocessing", "a thread")


def run(sandbox: Sandbox, code: str, target: Target, *, limits: Limits = SMALL) -> Outcome:
    """Run a hostile program and check what must hold after every one of them."""
    before = family(sandbox.process_id)
    outcome = sandbox.execute(code, target.values, limits=limits)
    assert outcome.seconds < limits.wall_seconds + BUSY
    text = f"{outcome.result} {outcome.stdout} {outcome.error}"
    assert "ESCAPED" not in text.replace("result = 'ESCAPED'", "").replace("'ESCAPED' if", "")
    assert SECRET not in text
    assert target.untouched()
    assert family(sandbox.process_id) == before, "a process was left behind"
    assert sandbox.execute("result = 6 * 7").result == 42
    assert sandbox.restarts == 0
    return outcome


def test_there_are_enough_programs() -> None:
    assert len({**STEALS, **ATTEMPTS, **STOPPED, **NUISANCES}) >= 60


@pytest.mark.parametrize("name", [*STEALS, *ATTEMPTS])
def test_nothing_gets_out(name: str, sandbox: Sandbox, target: Target) -> None:
    outcome = run(sandbox, {**STEALS, **ATTEMPTS}[name], target)
    assert outcome.error is not None or outcome.result == "held"
    if name not in ("fetch a page",):
        assert not any(bug in (outcome.error or "") for bug in BUGS), outcome.error


@pytest.mark.parametrize("name", STOPPED)
def test_limits_stop(name: str, sandbox: Sandbox, target: Target) -> None:
    reason, code = STOPPED[name]
    outcome = run(sandbox, code, target, limits=TIMED.get(reason, SMALL))
    assert (outcome.stopped_by or outcome.reported_limit, outcome.result) == (reason, None), outcome.error
    assert outcome.error


@pytest.mark.parametrize("name", NUISANCES)
def test_nuisances_do_no_harm(name: str, sandbox: Sandbox, target: Target) -> None:
    limits = TIMED["wall"] if name == "stop itself" else SMALL
    outcome = run(sandbox, NUISANCES[name], target, limits=limits)
    assert "late" not in outcome.stdout
    assert len(repr(outcome)) < 4 * (SMALL.output_bytes + SMALL.result_bytes) + 100_000


@pytest.fixture(scope="module")
def unisolated(toolbox: Path) -> Iterator[Sandbox]:
    """No isolation at all."""
    options = {"unsafe": True, "layers": (), "toolbox": toolbox, "limits": SMALL}
    with Sandbox(PRELOAD, **options) as sandbox:
        assert not sandbox.isolation.contained
        yield sandbox


@pytest.mark.parametrize("name", STEALS)
def test_the_programs_would_get_out_without_isolation(name: str, unisolated: Sandbox, target: Target) -> None:
    """Each theft succeeds where nothing contains it, so its failure in the sandbox means something."""
    if name == "write to shared memory" and not Path("/dev/shm").is_dir():
        pytest.skip("this machine has no /dev/shm")
    if name in PROCESSES and os.geteuid():
        pytest.skip("the limit on processes holds for ordinary users even without isolation")
    outcome = unisolated.execute(STEALS[name], target.values)
    assert outcome.result == "ESCAPED", outcome.error
