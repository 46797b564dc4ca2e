"""The functions benchmark on a category small enough to work out by hand: figures, failures, kills, money, replay."""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.closeness import assert_same_document
from tests.functions.fakes import asks
from vesalius.errors import BadInput, Failed
from vesalius.runs.comparing import replay
from vesalius.runs.directory import Run
from vesalius.runs.engine import attempt
from vesalius.sandbox import Sandbox
from vesalius_backbones.runs.steps import RunLimits
from vesalius_functions import suite as suites
from vesalius_functions.agents import DialogueLimits as Talk
from vesalius_functions.bench.benchmark import FunctionsBenchmark
from vesalius_functions.bench.scorecard import metrics_of
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.bench.work import baselines
from vesalius_functions.box import json_value
from vesalius_functions.page import render_functions
from vesalius_functions.suite import CATEGORIES, Suite

#: Asks once, then names the slope it saw; the third function it gets wrong.
SCRIPT = f"""
import re

def reply(request):
    if request.label.startswith("unit test"):
        return '{{"example": 2}}' if "times x" in request.messages[-1].text else '{{"example": 1}}'
    said = request.messages[-1].text
    slope = re.search(r"f\\\\(1\\\\) = (-?\\\\d+)", said)
    if slope is None:
        return {asks(1)!r}
    slope = int(slope[1]) if int(slope[1]) > 0 else 5
    code = f"```python\\\\ndef f(x):\\\\n    return {{slope}} * x\\\\n```"
    return f"[DESCRIPTION]: {{slope}} times x\\\\n[DOMAIN]: all\\\\n[CODE]:\\\\n{{code}}"
""".replace("\\\\", "\\")
PRICES = {"schema": 1, "date": "2026-11-01", "models": {"scripted:*": {"input": 1000.0, "output": 2000.0}}}


@pytest.fixture(autouse=True)
def fake_category(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in CATEGORIES:
        monkeypatch.setitem(CATEGORIES, name, "tests.functions.fakes")
    suites._made.cache_clear()
    yield
    suites._made.cache_clear()


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "model.py"
    path.write_text(SCRIPT)
    return f"scripted:{path}"


def serial(work: Callable[[Any], Any], cases: Iterable[Any], *, jobs: int = 2) -> Iterator[tuple[Any, Any]]:
    """An engine in this process, where the fake category is known."""
    for case in cases:
        yield case, attempt(work, case)


def settings(**options: Any) -> FunctionSettings:
    return FunctionSettings(suite=Suite("numeric", seed=0, count=3), **options)


def carried_out(place: Path, asked: FunctionSettings, *, limits: RunLimits | None = None) -> dict[str, Any]:
    with Run(place, settings=asked.as_data(), notes=asked.notes(), limits=(limits or RunLimits()).as_data()) as run:
        benchmark = FunctionsBenchmark(run, asked, limits=limits, engine=serial)  # type: ignore[arg-type]
        for _ in benchmark.work(jobs=1):
            pass
        return benchmark.scorecard().as_data()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


def test_the_builtin_interpreter_finds_every_line(place: Path) -> None:
    card = carried_out(place, settings())
    assert {name: card[name] for name in ("benchmark", "subject", "category", "n", "n_error", "cost")} == {
        "benchmark": "functions",
        "subject": "builtin",
        "category": "numeric",
        "n": 3,
        "n_error": 0,
        "cost": 0.0,
    }
    success = card["metrics"]["success"]
    assert (success["value"], success["n"], success["baseline"]) == (1.0, 3, 0.25)
    assert success["low"] == pytest.approx(0.438, abs=1e-3)  # Wilson, 3 of 3
    assert card["metrics"]["queries"] == {"value": 1.0, "low": 1.0, "high": 1.0, "n": 3, "statistic": "mean"}
    assert card["metrics"]["family_named"]["value"] == 1.0
    assert card["failures"] == []
    assert "grammar that contains the generator's families" in card["caveats"][0]
    kept = json.loads((place / "explanations" / "f00000.json").read_text())
    assert kept["log"] == [[1, 2]]
    assert kept["truth"]["slope"] == 2


def test_the_grading_seed_is_drawn_after_the_answers_and_written_down(place: Path, tmp_path: Path) -> None:
    card = carried_out(place, settings())
    events = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
    (drawn,) = [number for number, event in enumerate(events) if event["event"] == "grading_seed"]
    assert [event["event"] for event in events[:drawn]] == ["interpreted"] * 3
    seed = card["request"]["options"]["grading_seed"]
    assert seed == events[drawn]["seed"]
    other = tmp_path / "other"
    other.mkdir()
    again = carried_out(other, settings(grading_seed=seed))
    assert again["request"]["options"]["grading_seed"] == seed
    assert again["metrics"] == card["metrics"]


def test_two_runs_draw_different_grading_seeds(tmp_path: Path) -> None:
    """One chance in 2^31 that they agree."""
    seeds = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        seeds.add(carried_out(tmp_path / name, settings())["request"]["options"]["grading_seed"])
    assert len(seeds) == 2


def test_the_oracle_asks_nothing(place: Path) -> None:
    card = carried_out(place, settings(interpreter="oracle"))
    assert (card["metrics"]["success"]["value"], card["metrics"]["queries"]["value"]) == (1.0, 0.0)


def test_the_table_predicts(place: Path) -> None:
    card = carried_out(place, settings(interpreter="table", budget=7))
    assert card["metrics"]["queries"]["value"] == 7.0
    assert json.loads((place / "explanations" / "f00000.json").read_text())["answer"]["table"] is True


@pytest.mark.parametrize("interpreter", ["aia", "milan", "aia+milan"])
def test_language_models(place: Path, script: str, interpreter: str) -> None:
    card = carried_out(place, settings(interpreter=interpreter, backbone=script))
    asked = interpreter != "milan"
    metrics = card["metrics"]
    assert metrics["queries"]["value"] == {"aia": 1.0, "milan": 10.0, "aia+milan": 11.0}[interpreter]
    assert metrics["rounds"]["value"] == (2.0 if asked else 3.0)
    if asked:
        assert metrics["success"]["value"] == pytest.approx(2 / 3)
        assert card["failures"] == [{"id": "f00002", "family": "flat", "success": 0.0, "fault": None}]
        assert card["families"]["flat"] == {"n": 2, "failed": 1, "value": 0.5}
    assert ("exemplar_overlap" in metrics) == (interpreter != "aia")
    assert card["usage"]["calls"]["calls"] == (6 if asked else 9)
    assert card["backbone"] == "scripted:model.py"


def test_an_evaluator_reads_descriptions(place: Path, script: str) -> None:
    chosen = Suite("relations", seed=0, count=3)
    card = carried_out(place, FunctionSettings(suite=chosen, evaluator=script))
    unit_test = card["metrics"]["unit_test"]
    assert (unit_test["value"], unit_test["baseline"]) == (1.0, pytest.approx(1 / 3))
    assert card["metrics"]["unit_test_unanswered"]["value"] == 0.0
    assert card["evaluator"] == "scripted:model.py"


def test_a_function_whose_evaluation_failed_is_in_no_figure(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "def reply(request):\n"
        "    said = request.messages[-1].text\n"
        "    return {'fail': 'bad_key'} if '3 times x' in said else '{\"example\": 1}'\n"
    )
    chosen = Suite("relations", seed=0, count=3)
    card = carried_out(place, FunctionSettings(suite=chosen, evaluator=f"scripted:{path}"))
    assert (card["n"], card["n_error"]) == (2, 1)
    assert [(error["case"], error["step"]) for error in card["errors"]] == [("f00001", "evaluate")]
    assert {(metric["n"]) for metric in card["metrics"].values()} == {2}
    assert card["metrics"]["unit_test"]["value"] == 0.0
    assert sum(family["n"] for family in card["families"].values()) == 2


def test_failures_of_the_machinery_are_counted_apart(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"replies": [{"match": "x", "fail": "bad_key"}]}))
    with pytest.raises(Failed, match="no function could be interpreted"):
        carried_out(place, settings(interpreter="aia", backbone=f"scripted:{path}"))
    events = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["kind"]) for event in events] == [("failed", "bad_key")] * 3


def test_a_run_goes_on_where_it_stopped(place: Path, tmp_path: Path) -> None:
    asked = settings(grading_seed=5)
    whole = carried_out(place, asked)
    lines = (place / "events.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        part = Path(shutil.copytree(place, tmp_path / f"part{kept}"))
        (part / "scorecard.json").unlink()
        (part / "events.jsonl").write_bytes(b"".join(lines[:kept]) + b'{"event": "interp')
        again = carried_out(part, asked)
        assert_same_document(again, whole)
        assert len((part / "events.jsonl").read_bytes().splitlines()) == len(lines)


def test_another_question_does_not_take_the_run_up(place: Path) -> None:
    carried_out(place, settings())
    with pytest.raises(BadInput, match="holds a run with budget None, not 9"):
        carried_out(place, settings(budget=9))


def test_the_cap_holds_and_the_run_goes_on_with_a_higher_one(place: Path, script: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(PRICES))
    asked = settings(interpreter="aia", backbone=script, prices=str(prices))
    with pytest.raises(Failed, match=r"cap \$12.00.* of 3 functions are interpreted"):
        carried_out(place, asked, limits=RunLimits(max_cost=12.0))
    card = carried_out(place, asked, limits=RunLimits(max_cost=1000.0))
    assert card["n"] == 3
    assert 0 < card["cost"] < 1000


def test_replay_needs_no_model(place: Path, script: str) -> None:
    carried_out(place, settings(interpreter="aia", backbone=script))
    Path(script.removeprefix("scripted:")).unlink()
    again = replay(place, engine=serial)  # type: ignore[arg-type]
    assert again.equal, again.differences


def test_the_system_prompt_is_kept_only_where_it_is_not_the_usual_one() -> None:
    asked = {"interpreter": "aia", "backbone": "a:b", "suite": Suite("numeric", count=3, mode="published")}
    usual, strict = FunctionSettings(**asked), FunctionSettings(**asked, talk=Talk(system="llama-2"))
    assert usual.as_data()["talk"] == {"rounds": 20, "inputs": 64, "repairs": 2}
    assert strict.as_data()["talk"]["system"] == "llama-2"
    for one in (usual, strict):
        assert FunctionSettings.of_run({"settings": one.as_data()}) == one


def test_the_page_shows_failures_first(place: Path, script: str) -> None:
    carried_out(place, settings(interpreter="aia", backbone=script, grading_seed=5))
    page = render_functions(place)
    text = page.read_text(encoding="utf-8")
    assert page == place / "report.html"
    assert text.index('id="component-f00002"') < text.index('id="component-f00000"')
    assert text.count('<svg class="curves"') == 3
    assert "vesalius bench functions --interpreter aia --backbone scripted:" in text
    assert "--category numeric --count 3 --mode fixed --rounds 20 --grading-seed 5 --seed 0" in text
    assert "https://" not in text.replace("http://www.w3.org", "")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"interpreter": "galen"}, "interpreter 'galen' does not exist; use builtin, oracle, table, aia"),
        ({"interpreter": "tests.functions.fakes:nobody"}, "has no attribute 'nobody'"),
        ({"interpreter": "aia"}, "needs a language model"),
        ({"backbone": "openai:gpt-5.4"}, "asks no language model"),
        ({"budget": 0}, "budget 0"),
        ({"interpreter": "aia", "backbone": "a:b", "talk": Talk(system="llama-2")}, "use it with `mode` published"),
        ({"prices": "prices.json"}, "no language model is asked"),
        ({"evaluator": "openai:gpt-5.4"}, "numeric functions are graded by their code"),
    ],
)
def test_bad_settings(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        settings(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"category": "colours"}, "category 'colours' does not exist; choose one of numeric"),
        ({"category": "numeric", "count": 0}, "count 0"),
        ({"category": "numeric", "count": 10**9}, "count 1000000000"),
        ({"category": "numeric", "mode": "loose"}, "mode 'loose' does not exist"),
        ({"category": "numeric", "seed": -1}, "seed -1"),
        ({"category": "numeric", "dataset": "/nowhere"}, "dataset /nowhere: no such directory"),
        ({"category": "numeric", "ids": ("f00001",), "count": 3}, "`ids` and `count`: give one of them"),
        ({"category": "numeric", "ids": ()}, "`ids`: is empty"),
        ({"category": "numeric", "ids": ("g7",)}, "function 'g7': drawn functions are called f00000 to f19999"),
        ({"category": "numeric", "ids": ("f99999",)}, "function 'f99999': drawn functions are called"),
    ],
)
def test_bad_suites(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        Suite(**options)


def test_a_custom_interpreter(place: Path) -> None:
    card = carried_out(place, settings(interpreter="tests.functions.fakes:interpret"))
    assert (card["subject"], card["metrics"]["success"]["value"]) == ("tests.functions.fakes:interpret", 1.0)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("def f(:", "importing theirs raises SyntaxError"),
        ("1 / 0", "importing theirs raises ZeroDivisionError: division by zero; fix that module"),
        ("raise SystemExit(3)", "importing theirs raises SystemExit: 3; fix that module"),
        (None, "put its folder on PYTHONPATH"),
    ],
)
def test_an_interpreter_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str | None, said: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if module is not None:
        (tmp_path / "theirs.py").write_text(module)
    with pytest.raises(BadInput) as refusal:
        settings(interpreter="theirs:f")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_an_interpreter_returns_is_checked_and_can_be_written(place: Path) -> None:
    for name in "ab":
        (place / name).mkdir(parents=True)
    with pytest.raises(Failed, match=r"fakes:careless returned a str; it must return an Answer"):
        carried_out(place / "a", settings(interpreter="tests.functions.fakes:careless"))
    card = carried_out(place / "b", settings(interpreter="tests.functions.fakes:odd"))
    assert card["metrics"]["success"]["value"] == 0.0
    assert "half a character: ?" in render_functions(place / "b").read_text(encoding="utf-8")


def test_a_dataset_folder(place: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data.json is missing"):
        Suite("numeric", dataset=str(tmp_path)).functions()
    (tmp_path / "data.json").write_text("[]")
    suites._made.cache_clear()
    chosen = Suite("numeric", dataset=str(tmp_path), count=2, mode="published")
    assert [function.id for function in chosen.functions()] == ["f00000", "f00001"]
    chosen = Suite("numeric", dataset=str(tmp_path), ids=("f00001",), mode="published")
    assert [function.id for function in chosen.functions()] == ["f00001"]
    with pytest.raises(BadInput, match=r"function 'f00077': not in dataset .*; it has f00000"):
        Suite("numeric", dataset=str(tmp_path), ids=("77",)).functions()


def test_functions_chosen_by_id(place: Path) -> None:
    chosen = Suite("numeric", seed=0, ids=("2", "f00000", "f00002"))
    assert [(one.id, one.truth()) for one in chosen.functions()] == [
        (one.id, one.truth()) for one in Suite("numeric", seed=0, count=3).functions() if one.id != "f00001"
    ]
    card = carried_out(place, FunctionSettings(suite=chosen))
    assert (card["n"], card["request"]["options"]["ids"]) == (2, ["f00002", "f00000"])
    assert card["suite"] == "2 numeric functions drawn under seed 0: f00002, f00000"
    assert FunctionSettings.of_run(json.loads((place / "run.json").read_text())).suite == chosen


def test_baselines_by_hand() -> None:
    # A constant c is off by 1 - (sum f)^2 / (n sum f^2): 1 - 16 / (2 * 10) = 0.2 for 1, 3, and 0.0025 for 9, 10.
    assert baselines({"truth": [1.0, 3.0]}) == {"success_baseline": 0.0}
    assert baselines({"truth": [9.0, 10.0, None]}) == {"success_baseline": 1.0}
    pairs = [{"input": "a", "truth": "a"}, {"input": "b", "truth": "c"}]
    assert baselines({"examples": pairs}) == {"exact_match_baseline": 0.5}
    assert baselines({"triplets": []}) == {}


def test_metrics_keep_their_counts() -> None:
    rows = [{"success": 1.0, "r2": 0.5, "queries": 3}, {"success": 0.0, "r2": None, "queries": 5}]
    found = metrics_of(rows)
    assert (found["success"].value, found["success"].n, found["success"].statistic) == (0.5, 2, "share")
    assert (found["r2"].value, found["r2"].n, found["r2"].statistic) == (0.5, 1, "mean")
    assert found["queries"].value == 4.0


def test_what_json_does_not_have_becomes_text() -> None:
    assert json_value({"a": (float("nan"), 1 + 2j, float("inf"), None, True, 2)}) == {
        "a": ["nan", "(1+2j)", "inf", None, True, 2]
    }
    assert json_value(["\ud800", 10**400, 10**18]) == ["?", "an integer of 1329 bits", 10**18]


def test_replay_reads_what_code_gave(place: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes grade by running code; with the sandbox gone only the record can answer."""
    carried_out(place, settings(interpreter="aia", backbone=script))
    recorded = sorted(path.name for path in (place / "executions").iterdir())
    assert recorded == ["f00000.jsonl", "f00001.jsonl", "f00002.jsonl"]

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("code was run")

    monkeypatch.setattr(Sandbox, "call_many", refuse)
    again = replay(place, engine=serial)  # type: ignore[arg-type]
    assert again.equal, again.differences
    with pytest.raises(Failed, match="code was run"):
        replay(place, engine=serial, execute=True)  # type: ignore[arg-type]
