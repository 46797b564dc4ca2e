"""Kills at random moments: every run goes on, ends the same, and pays for at most one call twice per kill."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.killed_run import CAP, CASES
from tests.runs.stand_in import CALLS
from vesalius_backbones.runs.access import totals

#: `python -m benchmarks.kills` makes a hundred.
KILLS = 6
#: The model: says something that depends on the question, and writes down who asked, as a provider's bill would.
SCRIPT = """
import hashlib, os, time
from pathlib import Path

BILL = Path(__file__).with_name("bill")

def reply(request):
    said = request.messages[-1].text
    with open(BILL, "a") as bill:
        bill.write(hashlib.sha256(said.encode()).hexdigest() + "\\n")
    time.sleep(0.01)
    return "answer " + hashlib.sha256(said.encode()).hexdigest()[:12]
"""
PRICES = {"schema": 1, "date": "2026-11-01", "models": {"scripted:*": {"input": 1000.0, "output": 2000.0}}}


class Driver:
    """The process that serves lives."""

    def __init__(self, place: Path) -> None:
        self.place = place
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runs.killed_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self._line() == "ready"

    def live(self, run: Path, *, kill_after: float | None, worker: bool = False) -> tuple[int, int]:
        """One life of a run; how it ended, and how many processes were killed."""
        assert self.process.stdin is not None
        places = {"directory": run, "script": run.parent / "model.py", "prices": self.place / "prices.json"}
        self.process.stdin.write(json.dumps({name: str(path) for name, path in places.items()}) + "\n")
        self.process.stdin.flush()
        pid, victims = int(self._line()), []
        if kill_after is not None:
            time.sleep(kill_after)
            victims = _workers(pid) if worker else [pid]
            for victim in victims:
                os.kill(victim, signal.SIGKILL)
        code = int(self._line())
        self.process.stdin.write("\n")
        return code, len(victims) if worker else int(code == -signal.SIGKILL)

    def close(self) -> None:
        self.process.communicate("")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def _workers(pid: int) -> list[int]:
    """The processes in which a run has its cases."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))
    driver = Driver(tmp_path)
    yield driver
    driver.close()


def begin(place: Path) -> Path:
    """A place for one run, with a model and its bill of its own."""
    place.mkdir()
    (place / "model.py").write_text(SCRIPT)
    return place / "run"


def results(run: Path) -> dict[str, bytes]:
    """Every file that says what came out; the place of the run, which the request names, is the same for all."""
    files = [run / "scorecard.json", *run.glob("explanations/*"), *run.glob("traces/*")]
    place = str(run.parent).encode()
    return {str(path.relative_to(run)): path.read_bytes().replace(place, b"PLACE") for path in files}


def bill(run: Path) -> Counter[str]:
    """How often the model was asked each thing."""
    return Counter((run.parent / "bill").read_text().split())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the workers of a killed run end with it on Linux")
def test_kills_at_random_moments(driver: Driver, tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole")
    started = time.monotonic()
    assert driver.live(whole, kill_after=None) == (0, 0)
    lifetime = time.monotonic() - started
    expected = results(whole)
    assert len(expected) == 1 + 2 * CASES
    assert bill(whole).total() == len(bill(whole)) == CASES * CALLS
    dice, kills, repeated, runs = random.Random(20), 0, 0, 0
    while kills < KILLS:
        run = begin(tmp_path / f"run{runs}")
        runs += 1
        here = 0
        for life in range(100):
            whom = life % 4 == 3  # every fourth time the worker, which loses one case and not the run
            code, killed = driver.live(run, kill_after=dice.uniform(0, lifetime), worker=whom)
            here += killed
            if code == 0:
                break
        assert results(run) == expected
        assert set(bill(run)) == set(bill(whole))
        extra = bill(run).total() - CASES * CALLS
        assert extra <= here
        kills, repeated = kills + here, repeated + extra
        check_money(run, extra=extra)
    print(f"{kills} kills over {runs} runs, {repeated} calls repeated")


def check_money(run: Path, *, extra: int) -> None:
    """The ledger, the records and the scorecard agree on the cost; the cap counts what was paid twice, at its most."""
    records = [totals(path) for path in sorted((run / "calls").glob("*.jsonl"))]
    cost = sum(record.cost or 0.0 for record in records)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    last = {event["case"]: event["used"]["cost"] for event in events if event["event"] == "explained"}
    card = json.loads((run / "scorecard.json").read_text())
    assert sum(last.values()) == pytest.approx(cost, abs=1e-9)
    assert card["cost"] == pytest.approx(cost, abs=1e-6)
    assert card["usage"]["scientist"]["calls"] == CASES * CALLS
    at_most = sum(record.at_most for record in records)
    assert (at_most > cost + 1e-9) or extra == 0
    assert at_most <= CAP
