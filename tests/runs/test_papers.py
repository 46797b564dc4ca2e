"""Tables and figures of the papers from small results: what is printed as published is what the papers print."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from scripts import make_paper_page

import vesalius as ves
from tests.functions.needs import FACTS, needs_facts
from tests.runs.paper_results import (
    metric,
    write_judged_run,
    write_mechrl,
    write_ratings,
    write_reliability,
    write_run,
    write_study,
    write_trace,
    write_unit_tests,
)
from vesalius.errors import BadInput
from vesalius_bench.papers.published import PAPERS, number, printed
from vesalius_functions.knowledge.geography import installed

ENTRIES = [(paper, entry.id) for paper, tables in PAPERS.items() for entry in tables.entries]
#: Every figure that the papers print in a table, read out of their text: paper, table, row, column, value.
FIGURES = list(csv.reader((Path(__file__).parent / "paper_figures.csv").open(encoding="utf-8")))[1:]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory like `vesalius-runs` with a result of every kind."""
    place = tmp_path_factory.mktemp("results") / "vesalius-runs"
    write_judged_run(place / "agent")
    write_study(place)
    write_ratings(place)
    write_trace(place)
    write_mechrl(place)
    write_reliability(place)
    write_unit_tests(place)
    functions = {"benchmark": "functions", "families": {"plain": {"n": 2, "failed": 1, "value": 0.5}}}
    write_run(place, "truths", **functions, subject="oracle", category="entities", metrics={"unit_test": metric(0.75)})
    write_run(place, "asked", **functions, subject="aia", category="relations", metrics={"unit_test": metric(0.5)})
    shares = {"tensor shapes": metric(0.75), "python": metric(0.25)}
    levels = {"1": metric(0.5), "2": metric(0.25), "3": metric(0.0), "unresolved": metric(0.25)}
    write_run(place, "counted", execution_errors=shares, convergence_by_iteration=levels)
    return place


@pytest.fixture
def beside(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that has them as its runs."""
    monkeypatch.chdir(results.parent)
    return results


def asked(id: str) -> dict[str, str]:
    kind, number_ = id.split(" ", 1)
    return {kind.lower(): number_}


@pytest.mark.parametrize(("paper", "id"), ENTRIES)
def test_every_table_and_figure_is_filled(beside: Path, tmp_path: Path, paper: str, id: str) -> None:
    table = ves.api.paper_table(paper, **asked(id), out=tmp_path)
    assert table.measured or (id == "Table A2" and not all(map(installed, FACTS))), table.command
    assert all(set(row.values) <= set(table.columns) for row in (*table.published, *table.measured))
    assert type(table).read(tmp_path / f"{table.file_name}.json") == table
    assert [Path(picture).suffix for picture in table.pictures] == ([".svg", ".png"] if id.startswith("F") else [])
    assert all(Path(picture).stat().st_size > 1_000 for picture in table.pictures)


@pytest.mark.parametrize(("paper", "id"), ENTRIES)
def test_published_rows_are_those_of_the_paper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paper: str, id: str
) -> None:
    """Without any run nothing but the published figures and what the code counts is there."""
    monkeypatch.chdir(tmp_path)
    table = ves.api.paper_table(paper, **asked(id))
    given = {(row.name, column): value for row in table.published for column, value in row.values.items()}
    theirs = {(row, column): value for of, table_, row, column, value in FIGURES if (of, table_) == (paper, id)}
    assert {place: given[place] for place in theirs} == theirs
    # Tables that the paper has in prose are not in the list; every other published figure is.
    if theirs:
        assert {place for place, value in given.items() if value != "–"} <= set(theirs)
    assert not table.measured or not PAPERS[paper].entries[[e.id for e in PAPERS[paper].entries].index(id)].reads


def test_printed_figures_as_numbers() -> None:
    texts = {"0.74": 0.74, "34.49M": 34_490_000, "94.1%": 0.941, "$0.40": 0.40, "−4.750": -4.75, "–": None}
    assert {text: number(text) for text in texts} == texts
    assert printed("hyve", "Figure 3").rows == {}


def measured(paper: str, table: str, runs: list[Path]) -> dict[str, dict]:
    return {row.name: dict(row.values) for row in ves.api.paper_table(paper, table, runs=runs).measured}


def test_our_benchmark_has_the_published_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = ves.api.paper_table("hyve", 1)
    ours = {row.name: row.values["count"] for row in table.measured}
    assert ours == {row.name: number(str(row.values["count"])) for row in table.published}


def test_studies_fill_their_tables(results: Path) -> None:
    study = [results / "study"]
    assert measured("hyve", "4", study) == {"builtin": {"correct": 1, "partial": 0, "wrong": 0}}
    heads, late = measured("hyve", "13", study), measured("hyve", "14", study)
    assert {name: row["value"] for name, row in heads.items()} == {
        "L0H1: attention to A": 0.75,
        "L0H1: accuracy without it": 0.375,
        "L0H1: accuracy without its edge to A": 0.25,
        "L0H1: answers switched by another A": 0.5,
        "L0H1: accuracy without L0H2": 0.875,
        "L0H1: accuracy without L0H2 and it": 0.0625,
        "L0H1: answer in the lens top 5": 0.125,
    }
    assert late["L1_MLP: accuracy without it"] == {"value": 0.625}


def test_judged_runs_give_examples_and_traces_their_hypotheses(results: Path) -> None:
    examples = ves.api.paper_table("hyve", 3, runs=[results / "agent"]).measured
    assert {(row.values["grounding"], row.values["plan_soundness"]) for row in examples} == {("partially", "partially")}
    traced = measured("hyve", "12", [results / "explained"])
    assert traced["L0_MLP"]["iteration_1"].startswith("supported: ")
    row, *_ = ves.api.paper_table("hyve", 12, runs=[results / "explained"]).measured
    assert row.source == "measured: explained, specimen 60, local:smollm2-135m, protocol paper", "no model that adds"


def test_mechrl_stands_under_the_published_names(results: Path) -> None:
    run = [results / "mechrl"]
    assert measured("mechrl", "1", run) == {
        name: {"policy": 1.5, "oracle": 1.5, "gap": "1.500 [1.000, 2.000]"}
        for name in ("induction", "docstring (held out)")
    }
    assert measured("mechrl", "2", run) == {"L5H5": {"policy_rank": "2, –", "oracle_rank": 1.0}}
    assert measured("mechrl", "3", run) == {
        "Induction": {"heads": 4, "overlap": "1, 2"},
        "S-Inhibition": {"heads": 4, "overlap": "not told by attention"},
    }
    assert measured("mechrl", "4", run) == {
        "primed induction": {"K=1": 1.5, "K=5": 1.5},
        "oracle": {"reward": 1.5},
        "capitals, no label": {"K=1": 1.5},
    }


def test_functions_runs_and_reliability_fill_find(results: Path) -> None:
    runs = [results / "truths", results / "asked"]
    assert measured("find", "A3", runs) == {"our executable grader": {"entities": 0.75}}
    # The oracle interprets nothing: its run is not a success rate.
    assert {
        row: {name: value for name, value in figures.items() if value is not None}
        for row, figures in measured("find", "2", runs).items()
    } == {"asked": {"relations_aia": 0.5}}
    agreement = ves.api.paper_table("find", "A4", runs=runs).measured
    assert [dict(row.values) for row in agreement] == [
        {"entities_ground_truth": 0.75},
        {"relations_interpretation": 0.5},
    ]
    people = measured("find", "A4", [results / "unit-tests"])
    assert people == {
        "alice": {"entities_ground_truth": 1.0, "entities_interpretation": 0.75},
        "Spearman's rho, people and P:M": {"entities_interpretation": 0.5},
    }
    reliable = [results / "reliability"]
    assert measured("find", "A1", reliable) == {
        "climate": {"same": 0.75, "random": 0.25},
        "coffee": {"same": 0.5, "random": 0.25},
        "average": {"same": 0.625, "random": 0.25},
    }
    grid = ves.api.paper_table("find", figure="A4", runs=reliable).measured
    assert [dict(row.values) for row in grid] == [{"own": 0.75, "others": 0.25}, {"own": 0.5, "others": 0.125}]


@needs_facts
def test_our_relations_are_as_many_as_published() -> None:
    table = ves.api.paper_table("find", "A2")
    assert len(table.measured) == len(table.published) == 25
    assert all(row.values["except_1"] and row.values["except_2"] for row in table.measured)


REFUSED: list[tuple[str, Callable[[Path], dict], str]] = [
    ("hyve", lambda _: {"table": "99"}, "table '99' of hyve does not exist; there are 1, 2, 3, 4"),
    ("hyve", lambda _: {"figure": "5"}, "figure '5' of hyve does not exist; there are 3, 4"),
    ("banana", lambda _: {"table": "1"}, "paper 'banana' does not exist; choose one of hyve"),
    ("hyve", lambda _: {}, "name one table or one figure"),
    ("hyve", lambda place: {"table": "1", "runs": [place / "study"]}, "is computed from the code and reads no run"),
    (
        "hyve",
        lambda place: {"table": "2", "runs": [place / "study"]},
        "study: a result of `vesalius study af1`; Table 2 of hyve reads those of `vesalius bench circuits`$",
    ),
    ("hyve", lambda place: {"table": "2", "runs": [place / "nowhere"]}, "nowhere: there is no such directory"),
    ("hyve", lambda place: {"table": "2", "runs": [place / "study" / ".." / "empty"]}, "no finished result there"),
]


@pytest.mark.parametrize(("paper", "options", "reason"), REFUSED)
def test_refusals(results: Path, paper: str, options: Callable[[Path], dict], reason: str) -> None:
    (results / "empty").mkdir(exist_ok=True)
    with pytest.raises(BadInput, match=reason):
        ves.api.paper_table(paper, **options(results))


def test_the_page_counts_what_recorded_results_fill() -> None:
    written = make_paper_page.PAGE.read_text(encoding="utf-8")
    assert written == make_paper_page.page(written), "run python scripts/make_paper_page.py"
    results = make_paper_page.recorded()
    gaps = next(entry for entry in PAPERS["mechrl"].entries if entry.id == "Table 1")
    # Five tasks, each with two policies: K = 1 and K = 5 as published, one-hot and per-head corrected.
    assert make_paper_page.measured(PAPERS["mechrl"], gaps, results).startswith("10 rows from")
    assert make_paper_page.measured(PAPERS["mechrl"], gaps, {}) == "no"
