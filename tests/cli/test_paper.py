"""`vesalius paper`: what is printed beside the published figures, the plan of `--run`, and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vesalius
from tests.runs.paper_results import metric, write_run
from vesalius_bench.papers import filling
from vesalius_bench.papers.published import PAPERS, printed
from vesalius_bench.papers.sources import Sources
from vesalius_functions.knowledge.geography import installed


@pytest.mark.parametrize("paper", PAPERS)
def test_without_a_number_everything_is_listed(vesalius: Vesalius, paper: str) -> None:
    got = vesalius("paper", paper, "--json")
    listing = json.loads(got.out)
    assert [entry["id"] for entry in listing["entries"]] == [entry.id for entry in PAPERS[paper].entries]
    assert all(entry["command"].startswith("vesalius ") and entry["differs"] for entry in listing["entries"])
    assert ("not here" in vesalius("paper", paper).out) == any(not entry["measured"] for entry in listing["entries"])


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_not_measured_says_what_it_needs(
    vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch, paper: str
) -> None:
    """Without recorded results: people, judges or a language model; what needs none of them has a command alone."""
    monkeypatch.setattr("vesalius_bench.papers.tables.recorded_sources", Sources)
    listing = json.loads(vesalius("paper", paper, "--json").out)["entries"]
    needs = {entry["id"]: entry.get("needs", "") for entry in listing if not entry["measured"]}
    asks = {entry.id for entry in PAPERS[paper].entries if entry.by_hand or entry.filled_by in filling.ASKING}
    assert {id for id, text in needs.items() if text} == asks
    if paper == "hyve":
        assert needs["Table 6"] == "needs ratings by people"
        assert "not here: needs ratings by people  " in vesalius("paper", paper).out


@pytest.mark.parametrize(
    ("paper", "id"), [(paper, entry.id) for paper, tables in PAPERS.items() for entry in tables.entries]
)
def test_every_published_figure_is_printed_in_its_row(vesalius: Vesalius, paper: str, id: str) -> None:
    kind, number = id.split(" ", 1)
    got = vesalius("paper", paper, f"--{kind.lower()}", number)
    assert got.code == 0, got.err
    lines = [" ".join(line.split()) for line in got.out.splitlines()]
    for name, row in printed(paper, id).rows.items():
        figures = " ".join(f"{name} published {' '.join(row.values())}".split())
        assert any(line == figures or line.startswith(f"{figures} ") for line in lines), figures
    entry = next(entry for entry in PAPERS[paper].entries if entry.id == id)
    from_code = not entry.reads and all(map(installed, entry.data))
    kept = "recorded with the code; to measure yours: vesalius" in got.out
    assert ("not measured here; to measure: vesalius" in got.out) == (not from_code and not kept)


def test_without_the_data_packages_a_table_says_what_to_install(
    vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("tables", "rows"):
        monkeypatch.setattr(f"vesalius_bench.papers.{module}.installed", lambda module: False)
    got = vesalius("paper", "find", "--table", "A2")
    assert got.code == 0
    command = "vesalius paper find --table A2, after pip install 'vesalius[functions]'"
    assert f"not measured here; to measure: {command}\n" in got.out


def test_a_run_stands_below_the_published_rows(vesalius: Vesalius, tmp_path: Path) -> None:
    run = write_run(tmp_path, "mine", metrics={"tag_accuracy": metric(0.9375)})
    lines = [" ".join(line.split()) for line in vesalius("paper", "hyve", run, "--table", "2").out.splitlines()]
    assert "GPT-5.4 published 0.74 0.46 0.63 0.52" in lines
    assert "mine ours 0.938 – – –" in lines
    assert f"measured: {run}, builtin, no language model, n = 2, n_error = 0" in lines


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("hyve", "--table", "0"), "vesalius: table '0' of hyve does not exist; there are 1, 2,"),
        (("hyve", "--table", "2", "--figure", "3"), "vesalius: --table and --figure both name what to print;"),
        (("hyve", "--out", "there"), "vesalius: --out: name what to write with --table or --figure"),
        (("hyve", "--table", "2", "--limit", "1"), "vesalius: --backbone, --judge, --model, --limit and --max-cost go"),
        (
            ("hyve", "--table", "6", "--run"),
            "vesalius: Table 6 of hyve cannot be run like this: needs ratings by people",
        ),
        (("mechrl", "--figure", "1"), "vesalius: figure '1' of mechrl does not exist; there are learning, regret, "),
        (("find", "--table", "A5"), "vesalius: table 'A5' of find does not exist; there are 1, 2, A1, A2, A3, A4"),
        (("hyve", "--table", "11", "--run"), "vesalius: Table 11 of hyve cannot be run like this: it asks a language"),
        (
            ("hyve", "--table", "11", "--run", "--backbone", "openai:gpt-5.4"),
            "vesalius: Table 11 of hyve cannot be run like this: openai:gpt-5.4 is not known to be free; set "
            "a spending cap with --max-cost",
        ),
        (
            ("hyve", "--table", "9", "--run", "--backbone", "local:smollm2-135m"),
            "vesalius: Table 9 of hyve cannot be run like this: it needs judges; name them with --judge",
        ),
        # Without a language model a run has no dialogue.
        (
            ("find", "--figure", "A5", "--run"),
            "vesalius: Figure A5 of find cannot be run like this: it asks a language",
        ),
        (
            ("hyve", "--table", "11", "--run", "--backbone", "gpt"),
            "vesalius: backbone 'gpt': name it as PROVIDER:MODEL",
        ),
    ],
)
def test_refusals_are_one_line(vesalius: Vesalius, arguments: tuple[str, ...], reason: str) -> None:
    got = vesalius("paper", *arguments)
    assert (got.code, got.out, got.err.count("\n")) == (2, "", 1)
    assert got.err.startswith(reason)


def test_the_plan_has_the_cost_by_the_papers_tokens(vesalius: Vesalius) -> None:
    options = ("--backbone", "openai:gpt-5.4", "--max-cost", "100")
    plan = json.loads(vesalius("paper", "hyve", "--table", "11", "--plan", *options, "--json").out)
    # 84 circuits by the published tokens and the price of GPT-5.4 cost what the paper reports, $77.47.
    assert plan["cost"] == pytest.approx(77.47, rel=0.01)
    half = json.loads(vesalius("paper", "hyve", "--table", "11", "--plan", *options, "--limit", "42", "--json").out)
    assert half["cost"] == pytest.approx(plan["cost"] / 2)
    assert half["steps"][0]["work"] == "42 circuits"


def test_run_prints_its_plan_and_runs_what_is_missing(
    vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []

    def circuits(options: dict[str, Any], jobs: int, progress: Any) -> str:
        asked.append(options)
        return str(write_run(tmp_path / "vesalius-runs", "made", metrics={"tag_accuracy": metric(0.5)}))

    monkeypatch.setitem(filling._CALLS, "bench circuits", circuits)
    got = vesalius("paper", "hyve", "--table", "2", "--run", "--limit", "2")
    assert asked == [{"limit": 2}]
    assert got.err.startswith("run: vesalius bench circuits --limit 2\n  fills Table 2; 2 circuits; asks no language")
    assert "made ours 0.500" in " ".join(got.out.split())
    again = vesalius("paper", "hyve", "--table", "2", "--run", "--limit", "2")
    assert len(asked) == 1
    assert again.err == "nothing is run\n"
