"""Results in a notebook: short to look at, whole as a table, with pandas and without it."""

import json
import pickle
import random
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import vesalius as ves
from vesalius.components import all_components
from vesalius.documents import Circuit, Discovery, Explanation, Metric, Request, Scorecard, Sweep, SweepRow, Trace
from vesalius.documents.behaviour_report import report as report_on
from vesalius.documents.metric import Figure
from vesalius.documents.scorecard import CircuitRow
from vesalius.documents.view import Rows, Several, Viewable
from vesalius.intervene.edges import EdgeGraph
from vesalius_bench.survey.documents import CellSweep, Survey, SurveyCell

GOLDEN = Path(__file__).parent / "golden"
SMOLLM = EdgeGraph(30, 9)


def largest_circuit() -> Circuit:
    """As large as SmolLM2's: 300 components and 1,000 edges."""
    rng = random.Random(0)
    components = {part: rng.gauss(0, 1) for part in all_components(SMOLLM)}
    circuit = Circuit.scored(SMOLLM, 576, components, {edge: rng.gauss(0, 1) for edge in SMOLLM.edges[:1000]})
    assert (len(circuit.components), len(circuit.edge_scores)) == (300, 1000)
    return circuit


def largest_discovery() -> Discovery:
    checks = Discovery.read(GOLDEN / "discovery_natural" / "discovery.json").checks
    assert checks is not None
    missing = {f"a check of a rather long name {number}": "a long reason " * 20 for number in range(6)}
    request = Request(command="discover", specimen="some/rather/long/path/to/a/model/" * 5, behaviour="greater-than")
    return Discovery(
        request=request,
        circuit=largest_circuit(),
        unit="logit difference",
        forwards=1.0,
        seconds=1.0,
        checks=checks.model_copy(update={"missing": missing}),
    )


def largest_scorecard() -> Scorecard:
    metric = Metric(value=0.5, low=0.25, high=0.75, n=163, baseline=0.1)
    row = CircuitRow(
        id="1",
        name="x",
        components=2,
        tags_right=2,
        supported=2,
        iia=1.0,
        iia_changed=1.0,
        task_agreement=1.0,
        task_exact=True,
        cost=0.0,
        seconds=1.0,
    )
    return Scorecard(
        benchmark="circuits",
        subject="my_package.my_module:my_scientist",
        seed=0,
        n=84,
        n_error=0,
        metrics={f"metric_of_a_long_name_{number}": metric for number in range(40)},
        cost=None,
        seconds=1e5,
        specimens=(row,) * 84,
    )


def long_explanation() -> Explanation:
    whole = Explanation.read(GOLDEN / "explanation_natural.json")
    return whole.model_copy(update={"components": whole.components * 100, "task_description": "very " * 1000})


def largest_survey() -> Survey:
    """Ten models on ten behaviours, every cell with 300 components."""
    rng = random.Random(0)
    rows = tuple(
        SweepRow(id=str(part), effect=rng.gauss(0, 1), ci_low=-1.0, ci_high=1.0) for part in all_components(SMOLLM)
    )
    clean = Figure(value=4.0, low=3.0, high=5.0, n=32)
    swept = CellSweep(baseline=clean, unit="logits", components=rows, agreement=None, layers=30, heads=9, forwards=1.0)
    models, behaviours = (
        [f"some/rather/long/path/to/model_{i}" for i in range(10)],
        [f"behaviour_{i}" for i in range(10)],
    )
    cells = [
        SurveyCell(id=f"{model}{name}", model=model, behaviour=name, status="performed", metric=clean, sweep=swept)
        for model in models
        for name in behaviours
    ]
    asked = Request(command="survey", options={"models": [*models], "behaviour": [*behaviours]})
    return Survey(request=asked, cells=tuple(cells))


LARGEST = {
    "survey": largest_survey,
    "circuit": largest_circuit,
    "discovery": largest_discovery,
    "scorecard": largest_scorecard,
    "explanation": long_explanation,
    "checks": lambda: largest_discovery().checks,
}
SMALL = {
    "circuit": (Circuit, "discovery/circuit.json", "L1H2 +0.998"),
    "discovery": (Discovery, "discovery/discovery.json", "frac_prevs by eap-ig on 8 prompts"),
    "explanation": (Explanation, "explanation.json", "L0_MLP INDICATOR (supported), L1H2 AGGREGATOR (supported)"),
    "scorecard": (Scorecard, "scorecard_circuits.json", "tag_accuracy 1.000 [0.342, 1.000], n 6, baseline 0.500"),
    "sweep": (Sweep, "sweep.json", "L1H2 +0.969 [+0.906, +1]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGEST)
def test_the_repr_of_the_largest_is_short(name: str) -> None:
    result = LARGEST[name]()
    assert 60 < len(repr(result)) < 500
    assert str(result) == repr(result)
    assert f"{result}" == repr(result)


@pytest.mark.parametrize("name", SMALL)
def test_the_repr_says_what_was_found(name: str) -> None:
    kind, file, words = SMALL[name]
    result: Any = kind.read(GOLDEN / file)
    assert words in repr(result)
    assert len(repr(result)) < 500


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fields: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fields += attrs


@pytest.mark.parametrize("name", LARGEST)
def test_the_html_is_short_and_runs_nothing(name: str) -> None:
    text = LARGEST[name]()._repr_html_()
    reader = Reader()
    reader.feed(text)
    assert len(text) < 12_000
    assert set(reader.tags) <= {"div", "p", "br", "b", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    assert {field for field, _ in reader.fields} <= {"style"}
    assert not any("color" in (value or "") or "url" in (value or "") for _, value in reader.fields)  # any theme
    assert reader.tags.count("tr") <= 1 + 12


def test_hostile_names_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    sweep = Sweep.read(GOLDEN / "sweep.json")
    row = sweep.components[0].model_copy(update={"id": evil})
    text = sweep.model_copy(update={"components": (row,)})._repr_html_()
    assert "&lt;script&gt;" in text
    assert evil not in text


def test_tables_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # importing it fails
    table = Circuit.read(GOLDEN / "discovery" / "circuit.json").table()
    assert isinstance(table, Rows)
    assert table[0] == {"component": "L1H2", "score": pytest.approx(0.99814, abs=1e-5), "chosen": True}
    assert repr(table).splitlines()[:2] == ["component  score      chosen", "L1H2       0.9981     True"]
    assert "<td" in table._repr_html_()
    assert len(largest_circuit().table()) == 300
    assert len(largest_circuit().table(edges=True)) == 1000
    assert repr(largest_circuit().table()).endswith("... 288 more rows")
    assert len(largest_scorecard().table(cases=True)) == 84
    assert repr(Rows()) == "no rows"


def test_tables_with_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pandas is installed: a stand-in keeps what a DataFrame would be made of."""
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows, columns: (rows, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    rows, columns = Sweep.read(GOLDEN / "sweep.json").table()
    assert columns == ["component", "effect", "low", "high", "n"]
    assert rows[1] == {"component": "L1H2", "effect": 0.96875, "low": 0.90625, "high": 1.0, "n": 8}


def test_columns_that_only_some_rows_have_are_kept() -> None:
    rows = Rows([{"a": 1}, {"a": 2.5, "b": None}, {"b": "x" * 200}])
    assert repr(rows).splitlines()[0] == "a    b"
    assert max(map(len, repr(rows).splitlines())) <= 3 + 2 + 80


def test_checks_are_rows_with_controls() -> None:
    checks = Discovery.read(GOLDEN / "discovery" / "discovery.json").checks
    assert checks is not None
    rows = {row["check"]: row for row in checks.view().sheet().records()}
    assert list(rows) == ["cmd", "cpr", "edge_cmd", "edge_cpr", "jaccard"]
    assert rows["cpr"]["value"] == 0.85
    assert rows["cmd"]["control"] == pytest.approx(0.909, abs=1e-3)


@pytest.mark.slow
def test_looking_at_a_result_draws_nothing() -> None:
    code = (
        "import sys; from vesalius.documents import Circuit;"
        f"c = Circuit.read({str(GOLDEN / 'discovery' / 'circuit.json')!r}); repr(c); c._repr_html_(); c.table();"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'jinja2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_result_without_words_says_so() -> None:
    with pytest.raises(NotImplementedError):
        repr(Viewable())


def test_parts_of_results_are_short_too() -> None:
    """What a notebook shows of a field: whole lists of SmolLM2's 300 components, claims, a trace."""
    discovery, explanation = largest_discovery(), Explanation.read(GOLDEN / "explanation.json")
    trace, sweep = Trace.read(GOLDEN / "trace.json"), Sweep.read(GOLDEN / "sweep.json")
    part = explanation.components[0]
    shown = [discovery.components, discovery.edges, discovery.circuit.components, discovery.circuit.edge_scores]
    shown += [discovery.circuit.nodes, explanation.components, part, part.claims[0], part.claims[0].evidence[0]]
    shown += [trace, trace.components, trace.components[0], trace.components[0].attempts[0], sweep.components]
    shown += [discovery.request, discovery.checks.faithfulness if discovery.checks else None]
    for one in shown:
        assert len(repr(one)) < 500, repr(one)
        assert len(str(one)) < 500
    tables: list[Any] = [discovery.components, part, part.claims[0], trace, trace.components[0], discovery.request]
    for one in tables:
        assert "<table" in one._repr_html_()
        assert len(one._repr_html_()) < 20_000
    assert repr(discovery.components).endswith("... 300 in all)")
    assert repr(part).startswith("L0_MLP INDICATOR (supported): L0_MLP computes")
    assert repr(part.claims[0]).startswith("supported: L0_MLP computes which of 2 classes")
    assert repr(trace).startswith("Trace of 3 by scripted:")
    assert [row["component"] for row in trace.view().sheet().records()] == ["L0_MLP", "L1H2"]


def test_a_long_tuple_is_a_tuple() -> None:
    several = Several(range(1000))
    assert several == tuple(range(1000))
    assert several[3:5] == (3, 4)
    assert (several[3], len(several), hash(several)) == (3, 1000, hash(tuple(range(1000))))
    assert repr(Several(["a"])) == "('a',)"
    assert repr(Several()) == "()"
    assert repr(several).startswith("(0, 1, 2")
    assert repr(several).endswith("... 1000 in all)")
    assert pickle.loads(pickle.dumps(several)) == several


def test_listings_are_short_to_look_at_and_whole_as_data() -> None:
    for listing, field in ((ves.specimens(), "id"), (ves.models(), "family"), (ves.behaviours(), "name")):
        assert len(repr(listing)) < 500
        rows = listing.as_data()
        assert json.loads(json.dumps(listing)) == rows == listing
        assert pickle.loads(pickle.dumps(listing)) == listing
        assert [row[field] for row in rows] == [entry[field] for entry in listing]
        assert len(listing.table()) == len(listing) == len(rows)
        assert listing[:2].as_data() == rows[:2]
        assert getattr(listing[0], field) == rows[0][field]
    assert set(ves.specimens()[0].keys()) == {"id", "name", "kind", "components", "layers", "heads", "d_model"}
    assert set(ves.models()[0].keys()) == {"family", "model_types", "exact"}


def test_a_report_of_a_behaviour_is_a_dictionary() -> None:
    figure = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}
    rows = [{"row": place, "kept": place > 1, "reason": None} for place in range(1, 41)]
    low = {"value": 0.25, "low": 0.1, "high": 0.4, "n": 8}
    data = {
        "behaviour": "here/mine.jsonl", "n_rows": 40, "n_kept": 39, "rows": rows, "splits": {"test": {"n": 8}},
        "accuracy": low, "top1": low, "metric": None, "metric_name": "logit difference", "unit": "logits",
        "performs": False, "note": None, "says_instead": [{"text": " was", "n": 6}], "doubts": [],
        "contrast": {"full": figure, "replaced": figure, "range": figure, "against": 0.0, "verdict": "clear"},
    }  # fmt: skip
    report = report_on(data, model="m", bos=None)
    assert repr(report).startswith(
        "No: mine on m cannot be explained: the model prefers the right answer on 0.25 [0.10, 0.40] of 8 prompts only"
    )
    assert (report["accuracy"]["value"], report["rows"][1]["kept"], "note" in report) == (0.25, True, True)
    assert {**report}["n_kept"] == 39
    with pytest.raises(KeyError):
        report["nothing"]
    with pytest.raises(AttributeError, match="BehaviourReport has no 'nothing'"):
        report.nothing  # noqa: B018
    with pytest.raises(TypeError, match="cannot be changed"):
        report["n_kept"] = 3
    assert json.loads(json.dumps(report)) == report.as_data()
    assert len(report.table()) == 40
    chance = {"value": 0.52, "low": 0.42, "high": 0.62, "n": 96}
    nothing = {**data["contrast"], "range": {"value": 0.0, "low": -0.02, "high": 0.03, "n": 96}, "verdict": "empty"}
    at_chance = report_on({**data, "accuracy": chance, "contrast": nothing}, model="m", bos=None)
    assert "the model prefers the right answer on 0.52 [0.42, 0.62] of 96 prompts only" in repr(at_chance)
    assert at_chance["next"] == "choose another behaviour or model"
