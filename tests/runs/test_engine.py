"""Cases in processes: every end a case can come to, and no process left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PATIENCE, alive, heed_interrupts, until, until_gone
from tests.runs import stub_work
from vesalius.errors import BadInput
from vesalius.runs.engine import Failure, engine_named, in_process, map_cases

#: Runs in another process: two workers that stay.
LINGERING = """
import sys
from pathlib import Path
from tests.runs import stub_work
from vesalius.runs.engine import map_cases
list(map_cases(stub_work.linger, [Path(name) for name in sys.argv[1:]], jobs=2))
"""


def test_results_do_not_depend_on_the_number_of_processes() -> None:
    expected = {number: number * number for number in range(5)}
    for jobs in (1, 3):
        pairs = list(map_cases(stub_work.square, range(5), jobs=jobs))
        assert len(pairs) == 5
        assert dict(pairs) == expected
    assert list(map_cases(stub_work.square, [], jobs=2)) == []
    with pytest.raises(BadInput, match="jobs=0"):
        next(map_cases(stub_work.square, [1], jobs=0))


def test_every_end_of_a_case() -> None:
    cases = [("fine", 1), ("refused", 2), ("failed", 3), ("broke", 4), ("exits", 5), ("killed", 6), ("fine", 7)]
    found = dict(map_cases(stub_work.awkward, cases, jobs=1))
    assert len(found) == len(cases)
    assert found["fine", 1] == 1
    assert found["fine", 7] == 7
    assert found["refused", 2] == Failure("refused", "colour 'x' does not exist")
    assert found["failed", 3] == Failure("failed", "out of paper")
    broke = found["broke", 4]
    assert isinstance(broke, Failure)
    assert broke.kind == "broke"
    assert broke.reason.startswith("ZeroDivisionError at stub_work.py:")
    assert found["exits", 5] == Failure("killed", "its process ended with exit code 3, 2 times")
    assert found["killed", 6] == Failure("killed", "its process ended with SIGKILL, 2 times")


def test_a_case_can_follow_from_a_result() -> None:
    """None says that there is no case before another one has finished."""
    found: dict[int, int] = {}

    def cases() -> Iterator[int | None]:
        yield 3
        while 3 not in found:
            yield None
        yield found[3]

    for engine in (map_cases, in_process):
        found.clear()
        for number, result in engine(stub_work.square, cases(), jobs=2):  # type: ignore[arg-type]
            found[number] = result
        assert found == {3: 9, 9: 81}


def test_whoever_gives_cases_can_stop_giving() -> None:
    """Cases are taken one by one: an engine that read ahead would not notice that the money ran out."""
    given: list[int] = []
    found: list[int] = []

    def cases() -> Iterator[int]:
        for number in range(9):
            if len(found) >= 2:
                return
            given.append(number)
            yield number

    for number, _ in map_cases(stub_work.square, cases(), jobs=1):
        found.append(number)
    assert given == found == [0, 1]


def test_engines_by_name() -> None:
    assert engine_named("local") is map_cases
    with pytest.raises(BadInput, match="engine 'slurm' does not exist; use local, ray"):
        engine_named("slurm")


def test_a_case_whose_worker_was_killed_is_tried_once_more(tmp_path: Path) -> None:
    assert dict(map_cases(stub_work.killed_the_first_time, [tmp_path / "a"], jobs=1)) == {tmp_path / "a": "a"}


def test_workers_have_one_thread_and_do_not_hear_interrupts() -> None:
    ((_, found),) = map_cases(stub_work.settings_of_worker, [0], jobs=2)
    assert found == ("1", 1, 1, True)


def test_a_worker_has_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are forks of a process that may have been started earlier."""
    for value in ("first", "second"):
        monkeypatch.setenv("VESALIUS_TEST", value)
        assert list(map_cases(stub_work.variable_of_worker, ["VESALIUS_TEST"], jobs=1)) == [("VESALIUS_TEST", value)]
    monkeypatch.delenv("VESALIUS_TEST")
    assert list(map_cases(stub_work.variable_of_worker, ["VESALIUS_TEST"], jobs=1)) == [("VESALIUS_TEST", None)]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    """Ctrl-C ends the workers; those of a killed parent are ended by the kernel."""
    marks = [tmp_path / "a", tmp_path / "b"]
    command = [sys.executable, "-c", LINGERING, *map(str, marks)]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts)
    until(lambda: all(mark.exists() and mark.read_text() for mark in marks))
    workers = [int(mark.read_text()) for mark in marks]
    assert all(map(alive, workers))
    parent.send_signal(end)
    parent.wait(timeout=PATIENCE)
    if end == signal.SIGKILL and sys.platform != "linux":
        for pid in workers:
            os.kill(pid, signal.SIGKILL)  # they sleep for long; nobody waits that long
    until_gone(*workers)
