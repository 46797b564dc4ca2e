"""The page of a functions run: what it draws and lists, what it never contains, how it looks in a browser."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functions.fakes import Line
from tests.report.browser import needs_browser, probe
from tests.report.test_page import EVIL, read
from tests.report.test_page_browser import WIDTHS
from vesalius.documents import Request
from vesalius.report.charts import FUNCTION_HEIGHT, FUNCTION_LEFT, FUNCTION_WIDTH, draw_curves
from vesalius_backbones import Scripted, open_backbone
from vesalius_functions.agents import interpret_with
from vesalius_functions.bench.work import Graded, Interpreted
from vesalius_functions.box import Answer, Box
from vesalius_functions.page import SHOWN_FAILURES, SHOWN_OTHERS, render_functions

METRIC = {"value": 0.5, "low": 0.2, "high": 0.8, "n": 2, "baseline": 0.1}
X = [float(x) for x in range(-8, 9)]


def case(directory: Path, name: str, picture: dict[str, Any], log: list[tuple[Any, Any]], **said: Any) -> None:
    answer = Answer(description=said.pop("description", "a line"), code=said.pop("code", "def f(x): return x"))
    kept = Interpreted(id=name, family="linear", truth={"formula": "2*x"}, answer=answer, log=log, seconds=0.1)
    grade = Graded(id=name, metrics={"success": 0.0}, picture=picture, seconds=0.1, **said)
    (directory / "explanations" / f"{name}.json").write_text(kept.model_dump_json())
    (directory / "grades" / f"{name}.json").write_text(grade.model_dump_json())


def run_of(directory: Path, failures: list[str], *, category: str = "numeric") -> Path:
    for folder in ("explanations", "grades"):
        (directory / folder).mkdir()
    settings = {"benchmark": "functions", "category": category, "interpreter": "aia", "seed": 1}
    card = {
        "benchmark": "functions",
        "subject": "aia",
        "category": category,
        "suite": f"2 {category} functions drawn under seed 1",
        "mode": "fixed",
        "backbone": "scripted:x.py",
        "evaluator": None,
        "seed": 1,
        "schema": 2,
        "n": 2,
        "n_error": 1,
        "metrics": {"success": METRIC, "queries": {**METRIC, "value": 40.0}},
        "families": {"linear": {"n": 2, "failed": 1, "value": 0.5}},
        "failures": [{"id": name, "family": "linear", "success": 0.0, "fault": None} for name in failures],
        "caveats": [EVIL],
        "cost": None,
        "seconds": 3.0,
    }
    (directory / "run.json").write_text(json.dumps({"schema": 1, "settings": settings}))
    (directory / "scorecard.json").write_text(json.dumps(card))
    return directory


@pytest.fixture
def numeric(tmp_path: Path) -> Path:
    directory = run_of(tmp_path, ["f00001"])
    picture = {"x": X, "truth": [2 * x for x in X], "answer": list(X)}
    log: list[tuple[Any, Any]] = [(1.0, 2.0), (2.0, "(4+1j)"), (3.0, {"error": EVIL}), (4.0, "nan")]
    case(directory, "f00000", picture, log)
    case(directory, "f00001", {**picture, "answer": [None] * len(X)}, log, description=EVIL, code=EVIL, fault=EVIL)
    return directory


@pytest.fixture
def words(tmp_path: Path) -> Path:
    directory = run_of(tmp_path, ["f00001"], category="entities")
    triplet = {"words": ["sun", "fuel", EVIL], "true": 0, "credit": 1.0}
    case(directory, "f00000", {"triplets": [triplet, {**triplet, "credit": 0.0}]}, [("sun", 0.9)])
    rows = [{"input": "abc", "truth": "cba", "answer": "abc"}, {"input": "w" * 300, "truth": "x", "answer": "x"}]
    case(directory, "f00001", {"examples": rows}, [("sun", 0.9)])
    return directory


def test_numeric_cases_are_drawn_failures_first(numeric: Path) -> None:
    page = render_functions(numeric)
    reader, text = read(page)
    assert [a["id"] for tag, a in reader.tags if tag == "article"] == ["component-f00001", "component-f00000"]
    assert sum(tag == "svg" and a.get("class") == "curves" for tag, a in reader.tags) == 2
    wrong, right = [a["d"] for tag, a in reader.tags if tag == "path" and a.get("class") == "answered"][1:]
    assert wrong == ""
    assert (right or "").startswith("M")
    assert text.count(EVIL.replace("\n", " ")) >= 3
    assert not any(tag == "img" for tag, _ in reader.tags)
    for words in ("1 error, in no figure", "cost unknown", "1 of the 1 that are less than right", "40.0"):
        assert words in text


def test_other_cases_are_listed(words: Path) -> None:
    _, text = read(render_functions(words))
    assert "Entity functions interpreted by aia" in text
    assert f"sun fuel {EVIL} right" in " ".join(text.split())  # the three offered, then where the answer led
    assert f"sun fuel {EVIL} another" in " ".join(text.split())
    assert "another" in text
    assert "abc (differs)" in text
    assert "… (300 characters)" in text


def test_the_dialogue_stands_with_its_case(words: Path) -> None:
    """Recorded by the package's own agent: the prompt, what the model said, what it got back, what it said then."""
    said = iter(['Let me see.\nASK ["sun"]', f"[DESCRIPTION]: about the sky {EVIL}"])
    script = Scripted(lambda _: next(said))
    with open_backbone(script, record=words / "calls" / "f00000.jsonl") as backbone:
        answer = interpret_with(backbone.within("f00000"), Box(Line(0, category="entities")))
    assert answer.queries == 1
    _, text = read(render_functions(words))
    assert "Dialogue, 2 calls" in text
    told, asked, replied, answered = (
        text.index(part) for part in ("Told", "Let me see.", "nus", "[DESCRIPTION]: about the sky")
    )
    assert told < asked < replied < answered  # the function of the fakes gives "sun" back reversed
    assert text.count("Dialogue,") == 1  # no other case has calls


def test_figures_of_a_case_stand_beside_the_published_verdict_and_what_was_left_out_is_listed(numeric: Path) -> None:
    path = numeric / "grades" / "f00001.json"
    grade = json.loads(path.read_text())
    path.write_text(json.dumps({**grade, "metrics": {"success": 0.0, "nmse": 0.98765, "r2": 1.0, "understood": 1.0}}))
    card = json.loads((numeric / "scorecard.json").read_text())
    card["metrics"]["rule_named"] = card["metrics"]["success"]
    (numeric / "scorecard.json").write_text(json.dumps({**card, "left_out": {"record 7 (f00007)": EVIL}}))
    _, text = read(render_functions(numeric))
    assert "NMSE 0.988, R² 1, understood" in text
    assert f"record 7 (f00007) {EVIL}" in " ".join(text.split())
    assert "rule named" not in text  # it is the family named, under a category's own name


def test_a_page_shows_a_limited_number(tmp_path: Path) -> None:
    names = [f"f{number:05d}" for number in range(SHOWN_FAILURES + SHOWN_OTHERS + 30)]
    failed = names[: SHOWN_FAILURES + 10]
    directory = run_of(tmp_path, failed)
    for name in names:
        case(directory, name, {}, [])
    reader, _ = read(render_functions(directory))
    shown = [a["id"] for tag, a in reader.tags if tag == "article"]
    assert len(shown) == SHOWN_FAILURES + SHOWN_OTHERS


def test_damaged_files_leave_a_gap_and_no_error(numeric: Path) -> None:
    (numeric / "grades" / "f00000.json").write_text("{")
    reader, _ = read(render_functions(numeric))
    assert sum(tag == "article" for tag, _ in reader.tags) == 1


def test_the_command_is_the_one_that_was_given(numeric: Path) -> None:
    card = json.loads((numeric / "scorecard.json").read_text())
    request = Request(command="bench functions", method="milan", options={"count": 2}, seed=1)
    data = {**card, "schema": 2, "request": request.model_dump(mode="json")}
    (numeric / "scorecard.json").write_text(json.dumps(data))
    _, text = read(render_functions(numeric))
    assert "vesalius bench functions --interpreter milan --count 2 --seed 1" in text


def test_curves_keep_to_their_frame() -> None:
    truth = [1 / x if x else None for x in X]
    drawn = draw_curves(X, truth, [1e12 * x for x in X], samples=[(1.0, 1.0), (500.0, 1.0)])
    assert drawn.truth.count("M") == 2  # the pole breaks the line
    places = [tuple(map(float, part.split())) for part in drawn.answer.replace("M", "L").split("L") if part]
    assert all(FUNCTION_LEFT <= x <= FUNCTION_WIDTH and 0 <= y <= FUNCTION_HEIGHT for x, y in places)
    assert drawn.samples.count("M") == 1


def test_the_range_leaves_out_a_few_extreme_values_only() -> None:
    pole = draw_curves(X * 20, [1e9 if i == 7 else float(i % 5) for i in range(20 * len(X))], [None] * 20 * len(X))
    assert float(pole.labels[0].text) < 10
    step = draw_curves(X, [0.0] * 16 + [1.0], [None] * 17)
    assert float(step.labels[0].text) > 1


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["numeric", "words"])
def test_in_a_browser(which: str, width: int, request: pytest.FixtureRequest) -> None:
    look = """
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
    return { wide: Array.from(document.querySelectorAll("main *")).filter(function (e) {
      return !e.closest(".scroll, pre, svg, .unseen") && e.getBoundingClientRect().right > innerWidth + 0.5;
    }).map(function (e) { return e.tagName + "." + e.className; }),
    drawn: Array.from(document.querySelectorAll("svg.curves")).map(function (s) {
      return s.getBoundingClientRect().width > 200; }) };"""
    found = probe(render_functions(request.getfixturevalue(which)), look, width=width)
    assert (found["errors"], found["wide"]) == ([], [])
    assert found["scrollWidth"] <= width
    assert found["drawn"] == ([True, True] if which == "numeric" else [])
