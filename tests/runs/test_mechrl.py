"""`bench mechrl` on the ledger of a run."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.forked import forked
from vesalius.runs.kinds import kind_of_directory
from vesalius.runs.ledger import read_ledger

pytestmark = pytest.mark.slow


def live(directory: Path, *moment: int, whole: bool = False) -> subprocess.CompletedProcess[str]:
    """One life of the benchmark, killed at a moment; a `whole` one has modules and a hash seed of its own."""
    words = ["-m", "tests.runs.killed_mechrl", str(directory), *map(str, moment)]
    command = [sys.executable, *words] if whole else forked(*words)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def events(directory: Path) -> list[dict[str, Any]]:
    return [dict(record) for record in read_ledger(directory / "events.jsonl")]


def test_a_benchmark_killed_again_and_again_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for directory in (killed, whole):
        directory.mkdir()
    for moment in (2, 10, 15):  # in the first matrix, in the second, and when the first policy is trained
        assert live(killed, moment).returncode == -signal.SIGKILL
    assert kind_of_directory(killed).listed(killed, {"specimen": "tiny"})["state"] == "unfinished"
    before = events(killed)
    assert {record["event"] for record in before} >= {"measured", "trained"}
    last, once = live(killed), live(whole, whole=True)
    assert (last.returncode, once.returncode) == (0, 0), last.stderr + once.stderr
    assert json.loads(last.stdout) == json.loads(once.stdout)
    done = Counter((record["event"], record["case"]) for record in events(killed))
    assert set(done.values()) == {1}, "nothing that was finished is done again"
    assert done.keys() == {(record["event"], record["case"]) for record in events(whole)}
    assert {event for event, _ in done} == {"measured", "trained", "played"}
    assert events(killed)[: len(before)] == before
