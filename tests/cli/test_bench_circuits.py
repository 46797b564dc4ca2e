"""`vesalius bench circuits`: what it prints, what it leaves behind, how it goes on, what it refuses."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.closeness import assert_same_document
from tests.forked import forked
from tests.processes import PATIENCE, heed_interrupts, until
from vesalius.circuits.specimens import benchmark_directory
from vesalius.runs.ledger import Ledger
from vesalius_bench.circuits.benchmark import CircuitsBenchmark

pytestmark = pytest.mark.slow

IDS = "8,46"
COMMAND = ["-m", "vesalius", "bench", "circuits", "--ids", IDS, "--json"]
METRICS = {"tag_accuracy", "tag_accuracy_experiment_only", "tag_accuracy_supported", "component_iia"} | {
    "component_iia_changed",
    "component_iia_changed_mean",
    "task_exact",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One run in two processes, as a user starts it."""
    directory = tmp_path_factory.mktemp("bench") / "run"
    got = subprocess.run(forked(*COMMAND, "--out", directory), capture_output=True, text=True, check=False)
    assert (got.returncode, got.stderr) == (0, "")
    return directory, json.loads(got.stdout)


@pytest.fixture
def run(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of the finished run, free to be damaged."""
    return Path(shutil.copytree(finished[0], tmp_path / "run"))


def test_the_scorecard_keeps_the_contract(finished: tuple[Path, dict[str, Any]]) -> None:
    directory, card = finished
    assert {"benchmark", "subject", "n", "n_error", "metrics", "cost", "seconds", "schema"} <= set(card)
    assert (card["benchmark"], card["subject"], card["n"], card["n_error"]) == ("circuits", "builtin", 2, 0)
    assert set(card["metrics"]) >= METRICS
    for metric in card["metrics"].values():
        assert {"value", "low", "high", "n"} <= set(metric)
        assert metric["low"] <= metric["value"] <= metric["high"]
    for name in ("empty", "generic"):
        assert card["nulls"][name]["component_iia"]["value"] == 0.0
    assert json.loads((directory / "scorecard.json").read_text()) == card
    index = (directory / "report.html").read_text()
    for page in ("8", "46"):
        assert f'href="pages/{page}.html"' in index
        assert (directory / "pages" / f"{page}.html").exists()
        assert (directory / "explanations" / f"{page}.json").exists()


def test_a_finished_run_is_not_repeated_and_its_pages_can_be_made_again(vesalius: Vesalius, run: Path) -> None:
    before = {name: (run / name).read_bytes() for name in ("scorecard.json", "events.jsonl", "run.json")}
    again = vesalius("bench", "circuits", "--ids", "identity, 46", "--jobs", 1, "--out", run)
    assert again.code == 0, again.err
    assert "tag_accuracy" in again.out
    assert "not measured here" in " ".join(again.out.split())
    assert {name: (run / name).read_bytes() for name in before} == before
    shutil.rmtree(run / "pages")
    (run / "report.html").unlink()
    assert json.loads(vesalius("report", run, "--json").out) == {"page": str(run / "report.html")}
    assert sorted(path.name for path in (run / "pages").iterdir()) == ["46.html", "8.html"]
    (run / "scorecard.json").unlink()
    refused(vesalius, ["report", run], "the run is not finished")


def test_another_command_does_not_take_the_run_up(vesalius: Vesalius, run: Path) -> None:
    bench = ["bench", "circuits", "--out", run]
    refused(
        vesalius, [*bench, "--ids", IDS, "--seed", 1], "holds a run with seed 0, not 1; repeat its command or choose"
    )
    refused(vesalius, [*bench, "--ids", "8"], "holds a run with specimens '46'")
    refused(vesalius, [*bench, "--ids", IDS, "--leave-out", "tables"], "holds a run with leave_out None, not 'tables'")
    with Ledger(run / "events.jsonl"):
        held = vesalius(*bench, "--ids", IDS)
    assert (held.code, held.err.count("\n")) == (1, 1)
    assert "another process is working on this run" in held.err
    lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
    (run / "events.jsonl").write_bytes(lines[0] + b"?\n" + b"".join(lines[1:]))
    refused(vesalius, [*bench, "--ids", IDS], "line 2: not a record")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--scientist", "galen"], "scientist 'galen' does not exist; use builtin"),
        (["--jobs", "0"], "--jobs"),
        (["--limit", "0"], "--limit"),
        (["--ids", "3,nosuch"], "benchmark circuit 'nosuch' does not exist"),
        (["--ids", ","], "--ids names no circuit"),
        (["--specimens", "EMPTY"], "holds no specimen; make one with: vesalius train"),
        (["--specimens", "nowhere"], "no such directory"),
        (["--specimens", "KEYLESS"], "holds no answer_key/spec.py"),
        (["--specimens", "EMPTY", "--ids", "3"], "leave it out with --specimens"),
        (["--ids", "8", "--out", "FULL"], "holds notes.txt and no run; choose another directory"),
    ],
)
def test_bad_input(vesalius: Vesalius, tmp_path: Path, arguments: list[str], reason: str) -> None:
    places = {name: tmp_path / name.lower() for name in ("EMPTY", "KEYLESS", "FULL")}
    for place in places.values():
        place.mkdir()
    shutil.copytree(str(benchmark_directory("8")), places["KEYLESS"] / "mine")
    (places["FULL"] / "notes.txt").write_text("mine")
    refused(vesalius, ["bench", "circuits", *(places.get(a, a) for a in arguments), "--json"], reason)


def test_a_full_disk_is_one_line(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    def one_event(self: CircuitsBenchmark, *, jobs: int) -> Any:
        yield self.run.ledger.append("explained", case="8")

    monkeypatch.setattr(CircuitsBenchmark, "work", one_event)
    monkeypatch.setattr(os, "write", full)
    got = vesalius("bench", "circuits", "--ids", "8", "--out", "here", "--json")
    monkeypatch.undo()
    assert (got.code, got.out, got.err.count("\n")) == (1, "", 1)
    assert "could not be written (No space left on device)" in got.err


def test_ctrl_c_is_one_line_and_keeps_what_is_finished(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: CircuitsBenchmark, *, jobs: int) -> Any:
        yield from ()
        raise KeyboardInterrupt

    monkeypatch.setattr(CircuitsBenchmark, "work", interrupted)
    got = vesalius("bench", "circuits", "--ids", "8", "--out", "here", "--json")
    assert (got.code, got.out) == (130, "")
    assert got.err == "vesalius: interrupted; the same command continues from what was written by now\n"
    Ledger(Path("here/events.jsonl")).close()  # the lock is free


@pytest.mark.slow
def test_a_real_run_continues_after_it_was_ended(finished: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """One process instead of two, interrupted after its first circuit and killed after its second: the same figures."""
    command = [*forked(*COMMAND), "--jobs", "1", "--out", str(tmp_path / "run")]
    events = tmp_path / "run" / "events.jsonl"
    for records, (end, code) in enumerate([(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], 1):
        begun = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
        )
        until(lambda: (events.exists() and events.read_bytes().count(b"\n") >= records) or begun.poll() is not None)  # noqa: B023
        begun.send_signal(end)
        out, err = begun.communicate(timeout=PATIENCE)
        assert (begun.returncode, out) == (code, ""), err
        assert end == signal.SIGKILL or err.count("\n") == 1, err
    resumed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_document(json.loads(resumed.stdout), finished[1])
    records = [json.loads(line) for line in events.read_text().splitlines()]
    assert sorted((record["event"], record["case"]) for record in records) == [
        ("explained", "46"),
        ("explained", "8"),
        ("graded", "46"),
        ("graded", "8"),
    ]
