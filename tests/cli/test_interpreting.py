"""`vesalius functions sample` and `vesalius bench functions`: what they print, how a run goes on, what they refuse."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "functions_aia.py"
BENCH = ["bench", "functions", "--category", "numeric", "--seed", 1]
#: Each answer is code that does harm or nothing; none of it may cost more than its own answer.
MISCHIEF = """
HARM = [
    "import os\\ndef f(x):\\n    os.system('touch /tmp/vesalius-was-here')\\n    return 0.0",
    "def f(x):\\n    while True:\\n        pass",
    "import builtins\\nbuiltins.float = builtins.len = None\\ndef f(x):\\n    return float(x)",
    "def f(x):\\n    return 'a' * 10_000_000",
    "raise SystemExit",
    "def g(",
]

def reply(request):
    said = request.messages[-1].text
    if "f(" not in said.split("inputs", 1)[-1] or "OUTPUTS" not in said:
        return "ASK [1]"
    harm = HARM[hash(said) % len(HARM)]
    return f"[DESCRIPTION]: harm\\n[CODE]:\\n```python\\n{harm}\\n```"
"""


def card_of(vesalius: Vesalius, *options: object) -> dict[str, Any]:
    got = vesalius(*BENCH, *options, "--jobs", 1, "--json")
    assert got.code == 0, got.err
    return json.loads(got.out)


def test_sample(vesalius: Vesalius) -> None:
    got = vesalius("functions", "sample", "--category", "numeric", "--seed", 1, "--count", 2, "--json")
    rows = json.loads(got.out)
    assert [row["id"] for row in rows] == ["f00000", "f00001"]
    for row in rows:
        assert set(row) == {"id", "category", "family", "truth", "examples"}
        assert row["category"] == "numeric"
        assert all({"input", "output", "text"} <= set(example) for example in row["examples"])
    assert "f00001" in vesalius("functions", "sample", "--category", "numeric", "--seed", 1, "--count", 2).out


def test_the_scorecard_keeps_the_contract(vesalius: Vesalius) -> None:
    card = card_of(vesalius, "--interpreter", "oracle", "--count", 4, "--out", "run")
    assert {"benchmark", "subject", "n", "n_error", "metrics", "cost", "seconds", "schema"} <= set(card)
    assert (card["benchmark"], card["subject"], card["n"], card["n_error"]) == ("functions", "oracle", 4, 0)
    for metric in card["metrics"].values():
        assert {"value", "low", "high", "n"} <= set(metric)
        assert metric["low"] <= metric["value"] <= metric["high"]
    assert {"success", "family_named", "queries"} <= set(card["metrics"])
    assert json.loads(Path("run/scorecard.json").read_text()) == card
    assert json.loads(vesalius("report", "run", "--json").out) == {"page": "run/report.html"}
    shown = vesalius(*BENCH, "--interpreter", "oracle", "--count", 4, "--out", "run").out
    assert "success" in shown
    assert "page: run/report.html" in shown


def test_the_example_script_runs_end_to_end(vesalius: Vesalius) -> None:
    options = ["--interpreter", "aia", "--backbone", f"scripted:{EXAMPLE}", "--count", 3, "--out", "run"]
    card = card_of(vesalius, *options)
    assert (card["n"], card["n_error"]) == (3, 0)
    assert card["metrics"]["rounds"]["value"] == 2.0
    assert card["metrics"]["hallucinated"]["value"] == 0.0
    assert json.loads(vesalius("replay", "run", "--jobs", 1, "--json").out)["equal"] is True


def test_harmful_code_costs_its_own_answer(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "harm.py").write_text(MISCHIEF.replace("hash(said)", "len(said)"))
    options = ["--interpreter", "aia", "--backbone", f"scripted:{tmp_path / 'harm.py'}", "--count", 6]
    card = card_of(vesalius, *options)
    assert (card["n"], card["n_error"]) == (6, 0)
    assert card["metrics"]["success"]["value"] < 1
    assert not Path("/tmp/vesalius-was-here").exists()
    assert any(failure["fault"] for failure in card["failures"])


@pytest.mark.skipif(sys.platform != "linux", reason="workers of a killed run end with it on Linux")
def test_killed_half_way_it_loses_the_cases_under_way_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "vesalius", *map(str, BENCH), "--interpreter", "oracle", "--count", "12"]
    command += ["--jobs", "1", "--out", str(run), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    events = run / "events.jsonl"
    deadline = time.monotonic() + 120
    while not (events.exists() and events.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = events.read_bytes().splitlines()[:3]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (0, "")
    assert json.loads(again.stdout)["n"] == 12
    after = events.read_bytes().splitlines()
    assert after[:3] == before
    interpreted = [json.loads(line)["case"] for line in after if json.loads(line)["event"] == "interpreted"]
    assert len(interpreted) == len(set(interpreted)) == 12


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["functions", "sample"], "Missing option '--category'"),
        (["functions", "sample", "--category", "colours"], "category 'colours' does not exist; choose one of numeric"),
        (["functions", "sample", "--category", "numeric", "--count", 0], "--count"),
        (["functions", "sample", "--category", "numeric", "--count", 10**9], "count 1000000000: give between 1 and"),
        (["functions", "sample", "--category", "numeric", "--mode", "loose"], "mode 'loose' does not exist"),
        (["functions", "sample", "--category", "numeric", "--dataset", "nowhere"], "nowhere: no such directory"),
        (["functions", "sample", "--category", "numeric", "--seed", "-1"], "--seed"),
        ([*BENCH, "--interpreter", "galen"], "interpreter 'galen' does not exist; use builtin"),
        ([*BENCH, "--interpreter", "aia"], "needs a language model"),
        ([*BENCH, "--interpreter", "aia", "--backbone", "delphi:pythia"], "no such provider"),
        ([*BENCH, "--interpreter", "aia", "--backbone", "scripted:nowhere.json"], "could not be read"),
        ([*BENCH, "--backbone", "openai:gpt-5.4"], "asks no language model"),
        (["bench", "functions", "--category", "strings", "--interpreter", "table"], "--category numeric"),
        ([*BENCH, "--budget", 0], "--budget"),
        ([*BENCH, "--count", 0], "--count"),
        ([*BENCH, "--count", 10**9], "count 1000000000"),
        ([*BENCH, "--rounds", 0], "--rounds"),
        ([*BENCH, "--jobs", 0], "--jobs"),
        ([*BENCH, "--engine", "steam"], "engine 'steam' does not exist"),
        ([*BENCH, "--dataset", "EMPTY"], "empty"),
    ],
)
def test_bad_input(vesalius: Vesalius, tmp_path: Path, arguments: list[object], reason: str) -> None:
    (tmp_path / "empty").mkdir()
    refused(vesalius, [tmp_path / "empty" if a == "EMPTY" else a for a in arguments], reason)
