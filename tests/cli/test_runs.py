"""`bench circuits` with a language model, `replay` and `compare`, as a user gives them."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.runs import stand_in
from tests.runs.models import write_model
from tests.runs.test_comparison import finished
from tests.runs.test_usage import benchmark_run, explanation_in


def command(place: Path, *more: object) -> list[object]:
    """A benchmark of the stand-in agent over two circuits."""
    model, prices = write_model(place)
    asked = ["--scientist", stand_in.NAME, "--backbone", model, "--prices", prices]
    return ["bench", "circuits", "--ids", "8,24", *asked, "--out", "here", *more]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--scientist", "hyve"], "hyve needs a language model"),
        (["--scientist", "builtin", "--backbone", "openai:gpt-5.4"], "asks no language model; add --scientist hyve"),
        (["--scientist", "hyve", "--backbone", "oracle:delphi"], "no such provider; choose from openai"),
        (["--scientist", "hyve", "--backbone", "openai"], "name a model after the provider"),
        (["--scientist", "hyve", "--backbone", "openai:gpt-5.4"], "no key; set OPENAI_API_KEY in the environment"),
        (["--scientist", "hyve", "--backbone", "openai:gpt-5.4", "--max-cost", "0"], "cap 0: no call could be made"),
        (["--scientist", "hyve", "--backbone", "x:y", "--protocol", "free"], "--protocol 'free' does not exist"),
        (["--judge", "oracle:delphi"], "no such provider"),
        (["--judge", "openai:gpt-5.4", "--timeout", "0"], "timeout 0: give a positive number of seconds"),
        (["--engine", "slurm"], "engine 'slurm' does not exist; use local, ray"),
        (["--prices", "nowhere.json", "--judge", "openai:gpt-5.4"], "nowhere.json: could not be read"),
    ],
)
def test_bad_input(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    refused(vesalius, ["bench", "circuits", "--ids", "8", *arguments, "--out", "here"], reason)
    assert not Path("here").exists()  # refused before anything is made


def test_the_cap_is_one_line_and_exit_code_one(vesalius: Vesalius, tmp_path: Path) -> None:
    got = vesalius(*command(tmp_path, "--max-cost", 0.5))
    assert (got.code, got.out, got.err.count("\n")) == (1, "", 1)
    assert "cap $0.50: $0.0000 is spent" in got.err
    assert "raise --max-cost" in got.err
    assert json.loads(Path("here/run.json").read_text())["limits"] == {
        "max_cost": 0.5,
        "sandbox_unsafe": False,
        "timeout": 120.0,
    }
    refused(vesalius, [*command(tmp_path), "--seed", 3], "holds a run with seed 0, not 3")
    refused(vesalius, ["replay", "here", "--trusted"], "the run is not finished")


def test_runs_that_are_none(vesalius: Vesalius, tmp_path: Path) -> None:
    for name in ("replay", "compare"):
        refused(vesalius, [name, "nowhere"], "run nowhere: no run there")


def test_compare(vesalius: Vesalius, tmp_path: Path) -> None:
    mine = finished(tmp_path / "mine")
    printed = json.loads(vesalius("compare", mine, "--json").out)
    assert set(printed) == {"runs", "tables", "usage"}
    assert [table["id"] for table in printed["tables"]] == [
        "Table 2",
        "Table 9",
        "Table 10",
        "Table 11",
        "Figure 3",
        "Figure 4",
    ]
    row = printed["tables"][0]["rows"][0]
    assert (row["name"], row["tag_accuracy"], row["task_accuracy"]) == ("mine", 0.95, None)
    shown = vesalius("compare", mine).out
    assert "mine: measured: builtin, n = 84, n_error = 0" in shown
    assert "$147.55" in shown
    assert "34.49M" in shown
    assert "published, not measured here" in shown
    assert "without numbers" in shown


def test_compare_prints_the_calls(vesalius: Vesalius, tmp_path: Path) -> None:
    asked = benchmark_run(tmp_path / "asked")
    words = [line.split() for line in vesalius("compare", asked).out.splitlines()]
    assert ["asked", "validate", "2", "410", "300", "41", "$1.00", "4.2"] in words
    assert ["asked", "all", "9", "2127", "970", "215", "$5.12", "20.2"] in words
    assert ["asked", "3", "L0H1", "5", "1010", "450", "101", "$1.88", "7.8"] in words
    assert ["asked", "3", "(all)", "2", "1007", "500", "103", "$2.00", "8.5"] in words
    alone = vesalius("compare", explanation_in(tmp_path / "alone", scientist="builtin")).out
    assert "Table 2" not in alone
    assert ["alone", "all", "0", "0", "0", "0", "$0.00", "0.0"] in [line.split() for line in alone.splitlines()]


@pytest.mark.slow
def test_a_run_with_a_model_is_capped_taken_up_replayed_and_compared(vesalius: Vesalius, tmp_path: Path) -> None:
    assert vesalius(*command(tmp_path, "--max-cost", 0.5)).code == 1
    got = vesalius(*command(tmp_path, "--max-cost", 100, "--json"))
    assert got.code == 0, got.err
    card = json.loads(got.out)
    assert (card["n"], card["n_error"], card["usage"]["scientist"]["calls"]) == (2, 0, 12)
    Path("model.py").unlink()
    again = vesalius("replay", "here", "--trusted", "--json")
    assert (again.code, json.loads(again.out)) == (0, {"run": "here", "equal": True, "differences": []})
    stored = json.loads(Path("here/scorecard.json").read_text())
    stored["n"] = 3
    Path("here/scorecard.json").write_text(json.dumps(stored))
    differs = vesalius("replay", "here", "--trusted")
    assert (differs.code, differs.out) == (1, "")
    assert "n: 3 is stored, 2 came out" in differs.err
