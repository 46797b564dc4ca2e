"""`vesalius functions sample` and `vesalius bench functions`: what they print, how a run goes on, what they refuse."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.forked import forked
from tests.functions.needs import needs_facts
from tests.processes import until

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


def published(folder: Path) -> Path:
    """Four numeric records, one of them broken, and two string functions without source, the second past recovery."""
    line = {"params": [2.0, 3.0], "name": "absolute((2.0, 3.0))"}
    records = [{**line, "dir": f"/data/f0000{n}"} for n in range(3)] + [{"dir": "f00003", "name": "cubic(1)"}]
    texts = ["abc", "Hello you", "x1", "Zebra crossing", "a b c", "tail'", "word", "", "12", "AbCd"]
    own = [[[s, "p", "q"], [s[::-1], "no", "nor"]] for s in texts]
    odd = [[[s, "p", "q"], [f"{number}#{s}", "no", "nor"]] for number, s in enumerate(texts)]
    tests = [{"name": f"f0000{n}", "test_vec": t, "correct_inx": [1] * 10} for n, t in enumerate((own, odd))]
    for name in ("numeric", "strings"):
        (folder / name).mkdir(parents=True)
    (folder / "numeric" / "data.json").write_text(json.dumps(records))
    scripts = {f"f0000{n}": "function_code.py" for n in range(4)}
    (folder / "numeric" / "func_name_dict.json").write_text(json.dumps(scripts))
    (folder / "strings" / "unit_test_data.json").write_text(json.dumps(tests))
    return folder


def test_a_published_folder_means_the_published_mode_and_says_what_it_leaves_out(
    vesalius: Vesalius, tmp_path: Path
) -> None:
    folder = published(tmp_path / "find")
    got = vesalius("bench", "functions", "--category", "numeric", "--dataset", folder, "--jobs", 1, "--json")
    assert "3 functions, 1 records left out; the first, record 3 (f00003): " in got.err
    card = json.loads(got.out)
    assert (card["mode"], card["n"], [*card["left_out"]]) == ("published", 3, ["record 3 (f00003)"])
    assert card["metrics"]["success"]["value"] == 1.0
    shown = vesalius("functions", "sample", "--category", "numeric", "--dataset", folder, "--mode", "fixed").out
    assert "2 * abs(x) + 3" in shown


def test_a_program_stands_in_for_a_missing_string_source(vesalius: Vesalius, tmp_path: Path) -> None:
    folder = published(tmp_path / "find")
    got = vesalius("bench", "functions", "--category", "strings", "--dataset", folder, "--jobs", 1, "--json")
    card = json.loads(got.out)
    assert (card["n"], card["n_error"], card["metrics"]["exact_match"]["value"]) == (1, 1, 1.0)
    assert "published without its source" in got.err
    assert any("2 of 2 functions were published as test pairs without source" in said for said in card["caveats"])


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
    command = ["-m", "vesalius", *map(str, BENCH), "--interpreter", "oracle", "--count", "12"]
    command += ["--jobs", "1", "--out", str(run), "--json"]
    process = subprocess.Popen(forked(*command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    events = run / "events.jsonl"
    until(lambda: (events.exists() and events.read_bytes().count(b"\n") >= 3) or process.poll() is not None)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = events.read_bytes().splitlines()[:3]
    again = subprocess.run(forked(*command), capture_output=True, text=True, check=False)
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
        ([*BENCH, "--dataset", "EMPTY"], "there is no numeric/data.json in it"),
        ([*BENCH, "--dataset", ""], "--dataset: is empty"),
        ([*BENCH, "--dataset", EXAMPLE], "functions_aia.py: is a file; give the folder that it is in"),
    ],
)
def test_bad_input(vesalius: Vesalius, tmp_path: Path, arguments: list[object], reason: str) -> None:
    (tmp_path / "empty").mkdir()
    refused(vesalius, [tmp_path / "empty" if a == "EMPTY" else a for a in arguments], reason)


@needs_facts
def test_a_language_model_answers_the_functions(vesalius: Vesalius) -> None:
    Path("always.py").write_text("def reply(request):\n    return 'Paris'\n")
    options = ["--category", "relations", "--count", 1, "--interpreter", "oracle", "--jobs", 1, "--out", "on-model"]
    got = vesalius("bench", "functions", *options, "--function-backbone", "scripted:always.py", "--json")
    assert got.code == 0, got.err
    card = json.loads(got.out)
    assert card["usage"]["calls"]["calls"] > 0  # grading asks the function for its own examples
    assert card["request"]["options"]["function_backbone"].endswith("always.py")
    assert "scripted:always.py answers the functions" in card["caveats"][0]
    assert card["metrics"]["unit_test"]["value"] < 1  # the truth is not what this model says
    assert "is reproduced from the records" in vesalius("replay", "on-model").out
    refused(vesalius, [*BENCH, "--function-backbone", "scripted:always.py"], "numeric functions are code")
