"""The benchmark of kills: what it compares; one command killed twice. `tests/runs/test_kills.py` kills fifty times."""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from benchmarks import kills
from benchmarks.kills import COMMANDS, attack, comparable, left_behind, left_over, started_by
from benchmarks.writing import SPEC, WRITING

from tests.forked import forked


def test_times_and_places_are_not_compared() -> None:
    document = {"value": 1, "seconds": 2.0, "rows": [{"directory": "x", "name": "y"}]}
    assert comparable(document) == {"value": 1, "rows": [{"name": "y"}]}


def test_what_is_left_behind_is_compared_without_its_place(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        out = tmp_path / name
        out.mkdir()
        (out / "scorecard.json").write_text(json.dumps({"value": 1, "page": str(out / "report.html")}))
        (out / "run.json").write_text(json.dumps({"asked": name}))
        (out / "model.safetensors").write_bytes(b"weights")
        found.append(left_behind(out))
    assert found[0] == found[1]
    assert sorted(found[0]) == ["model.safetensors", "scorecard.json: .page", "scorecard.json: .value"]
    (tmp_path / "two" / "model.safetensors").write_bytes(b"weighty")
    assert left_behind(tmp_path / "two") != found[0]


def test_every_command_that_writes_is_killed_and_four_more() -> None:
    assert set(COMMANDS) == {*WRITING, "agent", "workbench", "mcp", "serve"}


def test_what_outlives_a_kill_is_an_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "ENDING", 0.3)
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as left:
        processes = started_by(os.getpid())
        assert left.pid in processes
        assert [line.split()[0] for line in left_over({left.pid: processes[left.pid]})] == ["sleep"]
        left.kill()
        left.wait()
        assert left_over({left.pid: processes[left.pid]}) == []


@pytest.mark.slow
def test_a_training_that_is_killed_twice_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "PYTHON", forked())
    (tmp_path / "spelt.py").write_text(SPEC)
    tally = attack(COMMANDS["train"], tmp_path, inputs=tmp_path, kills=2, dice=random.Random(3))
    assert (tally.kills, tally.different, tally.orphans, tally.left_out) == (2, [], [], "")
