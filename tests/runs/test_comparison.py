"""Runs beside the published tables."""

import json
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.runs.models import perform, settings
from vesalius.errors import BadInput
from vesalius_backbones import Prices, TokenUsage
from vesalius_bench.papers import published
from vesalius_bench.papers.comparison import ComparedTable, compare_runs
from vesalius_functions.bench.scorecard import Figures, figures_by_kind
from vesalius_functions.numeric import sample


def finished(directory: Path, **card: Any) -> Path:
    """A run directory with this scorecard."""
    directory.mkdir()
    (directory / "run.json").write_text(json.dumps({"schema": 1, "settings": {}}))
    fields = {
        "benchmark": "circuits",
        "subject": "builtin",
        "n": 84,
        "n_error": 0,
        "metrics": {"tag_accuracy": {"value": 0.95, "low": 0.9, "high": 0.97, "n": 163}},
        "seed": 0,
        "cost": 0.0,
        "seconds": 1.0,
        "schema": 2,
    }
    (directory / "scorecard.json").write_text(json.dumps({**fields, **card}))
    return directory


def figures(sheet: ComparedTable) -> dict[str, dict[str, float | None]]:
    return {name: row for name, _, row in sheet.rows}


def test_the_published_costs_fit_their_tokens_and_cases() -> None:
    """Table 11 by its own arithmetic: total over 84 cases, and tokens times the price of the package's table."""
    named = {
        published.GPT: "openai:gpt-5.4",
        published.CLAUDE: "anthropic:claude-sonnet-4-6",
        published.GEMINI: "google:gemini-3.1-pro",
    }
    for name, model in named.items():
        row = {column: value for column, value in published.TABLE_11[name].items() if value is not None}
        assert row["cost"] / 84 == pytest.approx(row["cost_per_case"], abs=0.006)
        price = Prices.load().of(*model.split(":"))
        assert price is not None
        tokens = TokenUsage(input=int(row["input_tokens"]), output=int(row["output_tokens"]))
        flat = price.model_copy(update={"long": None})
        assert flat.cost(tokens) == pytest.approx(row["cost"], rel=0.01)
    for table in (published.TABLE_2, published.TABLE_9, published.TABLE_10):
        assert list(table) == [published.GPT, published.CLAUDE, published.GEMINI, published.QWEN]
    assert all(row["fully"] + row["partial"] == pytest.approx(1.0) for row in published.TABLE_9.values())  # type: ignore[operator]


def test_a_run_without_a_model_has_empty_cells(tmp_path: Path) -> None:
    tables = {sheet.id: sheet for sheet in compare_runs([finished(tmp_path / "mine")])}
    assert list(tables) == ["Table 2", "Table 9", "Table 10", "Table 11", "Figure 3", "Figure 4"]
    results = figures(tables["Table 2"])
    assert results["mine"] == {
        "tag_accuracy": 0.95,
        "description_quality": None,
        "task_accuracy": None,
        "execution_success": None,
    }
    assert results["Claude-Sonnet-4.6"]["tag_accuracy"] == 0.79
    assert results["GPT-5.4"]["execution_success"] == 0.52
    sources = {name: source for name, source, _ in tables["Table 2"].rows}
    assert sources["mine"] == "measured: builtin, n = 84, n_error = 0"
    assert "not measured here" in sources["GPT-5.4"]
    assert figures(tables["Table 11"])["mine"] == {}
    assert tables["Figure 3"].columns == ()


def test_a_run_with_a_model_fills_them(tmp_path: Path) -> None:
    perform(tmp_path / "one", settings(tmp_path, cases=2, judges=2))
    two = finished(tmp_path / "two", n=1, n_error=1)
    tables = {sheet.id: sheet for sheet in compare_runs([tmp_path / "one", two])}
    card = json.loads((tmp_path / "one" / "scorecard.json").read_text())
    used = card["usage"]["scientist"]
    assert figures(tables["Table 11"])["one"] == {
        "input_tokens": used["input_tokens"],
        "output_tokens": used["output_tokens"],
        "cost": used["cost"],
        "cost_per_case": used["cost"] / 2,
    }
    assert figures(tables["Table 9"])["one"] == {"grounding": 1.0, "fully": 0.0, "partial": 1.0}
    assert figures(tables["Table 10"])["one"] == {"plan_soundness": 1.0}
    assert figures(tables["Figure 4"])["one"] == {"1": 1.0, "2": 0.0, "3": 0.0, "unresolved": 0.0}
    assert figures(tables["Figure 4"])["two"] == {}
    json.dumps([sheet.as_data() for sheet in tables.values()], allow_nan=False)


def test_two_runs_of_one_name_and_runs_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runs = [finished(tmp_path / place / "run") for place in ("a", "b")]
    assert list(figures(compare_runs(runs)[0]))[:2] == [str(run) for run in runs]
    with pytest.raises(BadInput, match="a run of 'discovery'; the tables are for circuits and functions"):
        compare_runs([finished(tmp_path / "c", benchmark="discovery")])


@pytest.mark.parametrize(
    ("category", "subject", "metrics", "filled"),
    [
        ("numeric", "builtin", {"success": 0.9}, {"numeric": 0.9}),
        ("strings", "aia", {"exact_match": 0.2, "unit_test": 0.7}, {"strings_code": 0.2, "strings_unit_test": 0.7}),
        ("entities", "milan", {"unit_test": 0.8}, {"entities_milan": 0.8}),
        ("relations", "aia+milan", {"unit_test": 0.6}, {"relations_aia+milan": 0.6}),
        ("relations", "oracle", {"unit_test": 1.0}, {"relations_oracle": 1.0}),
        ("entities", "builtin", {"unit_test": 0.9}, {"entities_builtin": 0.9}),
        ("entities", "command:./mine.sh --fast", {"unit_test": 0.4}, {"entities_command": 0.4}),
    ],
)
def test_functions_runs_fill_their_columns(
    tmp_path: Path, category: str, subject: str, metrics: dict, filled: dict
) -> None:
    given = {name: {"value": value, "low": 0.0, "high": 1.0, "n": 3} for name, value in metrics.items()}
    families = {"pair": {"n": 1, "failed": 1, "value": 0.25}, "concept": {"n": 2, "failed": 0, "value": 1.0}}
    parts = {"benchmark": "functions", "category": category, "subject": subject, "families": families}
    table, figure = compare_runs([finished(tmp_path / "mine", metrics=given, **parts)])
    assert (table.id, figure.id) == ("FIND Table 2", "FIND Figure 5")
    assert {name: value for name, value in figures(table)["mine"].items() if value is not None} == filled
    assert set(filled) <= set(table.columns)
    assert figures(figure)["mine"] == ({} if category == "numeric" else {"concept": 1.0, "pair": 0.25})
    assert figures(figure)["GPT-4"] == {}


@pytest.mark.parametrize(
    ("card", "source"),
    [
        (
            {"request": {"command": "bench circuits", "options": {"specimens": "some/fresh"}}},
            "builtin, circuits of fresh",
        ),
        (
            {"benchmark": "functions", "category": "numeric", "subject": "milan", "backbone": "openai:gpt-4"},
            "openai:gpt-4, milan",
        ),
        (
            {
                "benchmark": "functions",
                "category": "entities",
                "access": "white box",
                "request": {
                    "command": "bench functions",
                    "options": {"mode": "published", "dataset": "a/find", "function_backbone": "compatible:vicuna"},
                },
            },
            "builtin, white box, functions of find, mode published, answered by compatible:vicuna",
        ),
    ],
)
def test_a_row_says_what_its_run_was_about(tmp_path: Path, card: dict, source: str) -> None:
    """A row under a published column names what sets it apart: other circuits or functions, or another interpreter."""
    _, said, _ = compare_runs([finished(tmp_path / "mine", **card)])[0].rows[0]
    assert said == f"measured: {source}, n = 84, n_error = 0"


def test_the_published_table_of_find(tmp_path: Path) -> None:
    given = {"success": {"value": 0.9, "low": 0.0, "high": 1.0, "n": 3}}
    kinds = {"clean": {"n": 2, "success": 0.5}, "mlp": {"n": 1, "success": 1.0}, "corrupted": {"n": 1, "success": 0.0}}
    run = finished(tmp_path / "mine", metrics=given, benchmark="functions", category="numeric", kinds=kinds)
    assert figures(compare_runs([run])[1])["mine"] == {"clean": 0.5, "corrupted": 0.0, "net": 1.0}
    ves.compare([run], out=tmp_path / "drawn")
    assert (tmp_path / "drawn" / "find-figure-5.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "drawn" / "find-figure-5.svg").read_text(encoding="utf-8")


def test_a_scorecard_has_means_by_kind() -> None:
    functions = sample(30, seed=5)
    given: dict[str, Figures] = {one.id: {"success": float(place % 3 == 0)} for place, one in enumerate(functions)}
    kinds = figures_by_kind(functions, given)
    assert kinds is not None
    truths = [one.truth() for one in functions]
    for kind in ("clean", "noised", "mlp"):
        places = [place for place, truth in enumerate(truths) if truth["kind"] == kind]
        assert kinds[kind] == {"n": len(places), "success": sum(place % 3 == 0 for place in places) / len(places)}
    assert kinds["clean, one family"]["n"] == sum(t["kind"] == "clean" and not t["operands"] for t in truths)


def rated_file(path: Path, rows: list[tuple[str, str, str, str, int]]) -> Path:
    lines = ["run,agent,rater,item,score", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines))
    return path


def test_ratings_stand_beside_the_figures_of_a_run(tmp_path: Path) -> None:
    judged = {"description_quality": {"value": 0.6, "low": 0.5, "high": 0.7, "n": 163}}
    runs = [finished(tmp_path / "mine", metrics=judged), finished(tmp_path / "other")]
    note, task = "description_quality:3:L0_MLP", "task_accuracy:3"
    given = [("ann", 2), ("ben", 1), ("cem", 2)]
    rows = [("mine", "gpt", rater, note, score) for rater, score in given]
    rows += [("mine", "gpt", "ann", task, 1), ("elsewhere", "gpt", "ann", task, 0)]
    comparison = ves.compare(runs, ratings=rated_file(tmp_path / "r.csv", rows))
    sheet = comparison[-1]
    assert (sheet.id, len(comparison)) == ("Ratings", 7)
    own = figures(sheet)
    # The lowest of 2, 1, 2 on a scale to 1 is a half, most gave 2; one rater of the task is no majority.
    assert own["mine, gpt"] == {
        "description_quality": 0.6,
        "description_quality_lowest": 0.5,
        "description_quality_majority": 1.0,
        "description_quality_n": 1,
        "task_accuracy": None,
        "task_accuracy_lowest": 1.0,
        "task_accuracy_majority": None,
        "task_accuracy_n": 1,
    }
    assert list(own) == ["mine, gpt", *published.TABLE_2]
    assert own[published.GPT] == {"description_quality": 0.46, "task_accuracy": 0.63}
    assert set(own["mine, gpt"]) == set(sheet.columns)


def test_ratings_of_other_runs_are_refused(tmp_path: Path) -> None:
    file = rated_file(tmp_path / "r.csv", [("elsewhere", "gpt", "ann", "task_accuracy:3", 0)])
    with pytest.raises(BadInput, match=r"none is of these runs \(mine\); rated are elsewhere"):
        ves.compare([finished(tmp_path / "mine")], ratings=[file])
