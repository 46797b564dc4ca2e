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
    write_dialogue,
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
from vesalius_bench.papers.documents import PaperTable
from vesalius_bench.papers.published import PAPERS, number, printed
from vesalius_bench.papers.rows import FROM_CODE
from vesalius_bench.papers.sources import RECORDED, Sources, recorded_sources
from vesalius_bench.papers.tables import filled
from vesalius_functions.knowledge.geography import installed

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
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
    write_dialogue(place)
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
    entry = next(entry for entry in PAPERS[paper].entries if entry.id == id)
    assert table.recorded == bool(table.measured and entry.reads)
    given = {row.source.partition(":")[0] for row in table.measured}
    assert given <= ({"measured"} if entry.reads else {FROM_CODE})


@pytest.mark.parametrize(("paper", "id"), ENTRIES)
def test_a_measured_row_names_its_run_and_its_model(
    results: Path, monkeypatch: pytest.MonkeyPatch, paper: str, id: str
) -> None:
    """Both where recorded results fill a table and where runs do; what the code counts has neither."""
    entry = next(entry for entry in PAPERS[paper].entries if entry.id == id)
    monkeypatch.chdir(results.parent)
    runs = {f"vesalius-runs/{place.relative_to(results)}" for place in (results, *results.rglob("*")) if place.is_dir()}
    for table in (ves.api.paper_table(paper, **asked(id)), recorded(paper, id)):
        for row in table.measured:
            if not entry.reads:
                assert (row.run, row.model, row.source) == ("", "", FROM_CODE)
                continue
            place = row.run.partition(", ")[0]
            assert place in RECORDED if table.recorded else place in runs
            assert row.model
            assert row.source.startswith(f"measured: {row.run}, {row.model}")


def recorded(paper: str, id: str) -> PaperTable:
    """What recorded results alone give."""
    tables = PAPERS[paper]
    entry = next(entry for entry in tables.entries if entry.id == id)
    table = filled(tables, entry, recorded_sources().filling(id, entry.reads))
    return table.model_copy(update={"recorded": True})


#: What recorded results fill, beside what is counted in the code.
FILLED = {
    "hyve": {"Figure 1", "Figure 2", "Figure 4", "Table 1", "Table 2", "Table 5", "Table 11", "Table 13", "Table 14"},
    "mechrl": {"Table 1", "Table 2", "Table 3", "Table 4", "Figure learning", "Figure regret"} | {"Figure collapse"},
    "find": {"Figure 1", "Figure 2", "Figure 4", "Figure 5", "Figure A1", "Figure A2", "Figure A3", "Figure A4"}
    | {"Table 1", "Table 2", "Table A1", "Table A3", "Table A4"},
}


@pytest.mark.parametrize("paper", PAPERS)
def test_a_fresh_checkout_prints_what_was_ever_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paper: str
) -> None:
    monkeypatch.chdir(tmp_path)
    contents = ves.api.paper_contents(paper)
    assert {entry.id for entry in contents.entries if entry.measured} >= FILLED[paper]
    models = {entry.id: entry.models for entry in contents.entries}
    if paper == "mechrl":
        assert all(sorted(named) == ["smollm2-135m", "standin"] for named in models.values())
    if paper == "hyve":
        assert models["Table 13"] == ("arithmetic",)
        # One circuit by a model that is too small says what that took, and not how often its tags are right.
        assert (models["Table 11"], models["Table 2"]) == (("local:smollm2-135m",), ("builtin, no language model",))


@needs_facts
def test_the_page_of_rows_counts_the_entries_of_a_fresh_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = " ".join((RESULTS.parents[1] / "docs/background/papers-row-by-row.md").read_text(encoding="utf-8").split())
    monkeypatch.chdir(tmp_path)
    shown = {
        paper: [bool(entry.measured) for entry in ves.api.paper_contents(paper).entries] for paper in ("hyve", "find")
    }
    assert f"in {sum(shown['hyve'])} of the {len(shown['hyve'])} tables and figures of HyVE" in page
    assert f"{sum(shown['find'])} of the {len(shown['find'])} of FIND" in page
    assert all(entry.measured for entry in ves.api.paper_contents("mechrl").entries)
    assert f"in all {len(PAPERS['mechrl'].entries)} of MechRL" in page


def test_recorded_files_are_results_when_they_are_named() -> None:
    table = ves.api.paper_table("mechrl", 1, runs=[RESULTS / "mechrl_paper.json"])
    assert (len(table.measured), table.recorded) == (10, False)
    # Of a directory of recorded files the table takes those that it reads.
    below = ves.api.paper_table("mechrl", 1, runs=[RESULTS])
    kinds = ("paper", "corrected", "standin", "standin_seeds", "standin_context", "smollm2_batches")
    assert {row.run.rsplit("/", 1)[1] for row in below.measured} == {f"mechrl_{kind}.json" for kind in kinds}
    with pytest.raises(BadInput, match=r"sweep.json: not a result; the tables read those of"):
        ves.api.paper_table("mechrl", 1, runs=[RESULTS / "sweep.json"])


def test_hypotheses_about_other_tasks_are_no_af1_heads(results: Path) -> None:
    assert ves.api.paper_table("hyve", 12, runs=[results / "explained"]).measured == ()


def test_dialogues_and_answers_are_shown(results: Path) -> None:
    talk = ves.api.paper_table("find", figure="A5", runs=[results / "talked"])
    assert [row.values["who"] for row in talk.measured][1:] == ["The model", "Told", "The model"]
    assert all("1 outputs invented" in row.source for row in talk.measured)
    (answer,) = ves.api.paper_table("find", figure="A3", runs=[results / "talked"]).measured
    assert (answer.values["answer"], answer.values["score"]) == ("it reverses the input", 0.75)


def test_printed_figures_as_numbers() -> None:
    texts = {"0.74": 0.74, "34.49M": 34_490_000, "94.1%": 0.941, "$0.40": 0.40, "−4.750": -4.75, "–": None}
    assert {text: number(text) for text in texts} == texts
    assert printed("hyve", "Figure 3").rows == {}


def measured(paper: str, id: str, runs: list[Path]) -> dict[str, dict]:
    entry = asked(id) if " " in id else {"table": id}
    return {row.name: dict(row.values) for row in ves.api.paper_table(paper, **entry, runs=runs).measured}


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
    traced = measured("hyve", "12", [results / "added"])
    assert traced["L0_MLP"]["iteration_1"].startswith("supported: ")


def test_mechrl_stands_under_the_published_names(results: Path) -> None:
    run = [results / "mechrl"]
    assert measured("mechrl", "1", run) == {
        name: dict.fromkeys(("policy", "oracle", "gap"), "1.500 [1.000, 2.000]")
        for name in ("induction", "docstring (held out)")
    }
    assert measured("mechrl", "2", run) == {"L5H5": {"policy_rank": "2, –", "oracle_rank": 1.0}}
    assert measured("mechrl", "3", run) == {
        "Induction": {"heads": 4, "overlap": "1, 2"},
        "S-Inhibition": {"heads": 4, "overlap": "not told by attention"},
    }
    assert measured("mechrl", "4", run) == {
        "primed induction": dict.fromkeys(("K=1", "K=5"), "1.500 [1.000, 2.000]"),
        "oracle": dict.fromkeys(("K=1", "K=5"), "1.500 [1.000, 2.000]"),
        "capitals, no label": {"K=1": "1.500 [1.000, 2.000]"},
    }


def test_a_single_environment_is_shown_as_undecided_as_it_is(results: Path) -> None:
    """Near the 2,000 steps of which the paper speaks, and at the end, each seed alone; four heads alike have log 4."""
    assert measured("mechrl", "Figure collapse", [results / "mechrl"]) == {
        "single environment": {
            "step": 1900,
            "nats_then": "1.25, 1.38",
            "last_step": 2500,
            "nats_at_the_end": "0.5, 0.25",
            "any_head_alike": 1.39,
        }
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
    ("hyve", lambda _: {"figure": "5"}, "figure '5' of hyve does not exist; there are 1, 2, 3, 4"),
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
    gaps = next(entry for entry in PAPERS["mechrl"].entries if entry.id == "Table 1")
    # Five tasks, each with two policies: K = 1 and K = 5 as published, one-hot and per-head corrected.
    cell = make_paper_page.measured(PAPERS["mechrl"], gaps, recorded_sources())
    assert cell.startswith("10 rows from `benchmarks/results/mechrl_paper.json` (smollm2-135m), ")
    assert make_paper_page.measured(PAPERS["mechrl"], gaps, Sources()) == "no"
