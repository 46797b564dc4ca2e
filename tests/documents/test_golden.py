"""Recorded files load, and are written back as they are.

They were made on the benchmark circuit frac_prevs (`explain`, `discover --method eap-ig`, `sweep`, the scripted HyVE
agent), on the induction model of the tests (the natural ones), on arithmetic (`sweep --sites`, `complete`), on its
model of sums (`align`), and by benchmarks of two circuits or four functions.
"""

import copy
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from vesalius.documents import (
    Alignment,
    Circuit,
    Completion,
    Discovery,
    Document,
    Explanation,
    Ladder,
    Request,
    Scorecard,
    Sweep,
    Trace,
)
from vesalius.documents.explanation import _circuit
from vesalius.documents.view import Sheet
from vesalius.errors import BadInput
from vesalius_mechrl.documents import HeadSets
from vesalius_session.documents import Improvement

GOLDEN = Path(__file__).parent / "golden"
FILES: dict[str, type[Document]] = {
    "explanation.json": Explanation,
    "explanation_natural.json": Explanation,
    "ladder.json": Ladder,
    "improvement.json": Improvement,
    "trace.json": Trace,
    "sweep.json": Sweep,
    "sweep_sites.json": Sweep,
    "completion.json": Completion,
    "alignment.json": Alignment,
    "discovery/discovery.json": Discovery,
    "discovery_natural/discovery.json": Discovery,
    "scorecard_circuits.json": Scorecard,
    "scorecard_discovery.json": Scorecard,
    "scorecard_functions.json": Scorecard,
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_written_back_as_it_was_read(name: str, tmp_path: Path) -> None:
    kind, recorded = FILES[name], json.loads((GOLDEN / name).read_text())
    document = kind.read(GOLDEN / name)
    if isinstance(document, Discovery):
        path = document.save(tmp_path)
        circuit = json.loads((GOLDEN / name).with_name("circuit.json").read_text())
        assert json.loads((tmp_path / "circuit.json").read_text()) == {"schema": 1, **circuit}
    else:
        path = tmp_path / "document.json"
        document.write(path)
    written = json.loads(path.read_text())
    given = {"circuit": None, **({} if "answer" in recorded else {"answer": None})}  # files of before had no answer
    assert {**written, **given} == {**recorded, **given}
    again = kind.read(path)
    assert again.as_data() == {
        **document.as_data(),
        **({"circuit": written["circuit"]} if "circuit" in written else {}),
    }
    if not isinstance(document, Discovery):
        assert again == document


@pytest.mark.parametrize("name", [name for name, kind in FILES.items() if kind.SCHEMA > 1])
def test_a_file_of_an_earlier_schema_is_refused(name: str) -> None:
    recorded = json.loads((GOLDEN / name).read_text())
    version = "schema" if "schema" in recorded else "schema_version"
    with pytest.raises(BadInput, match="schema 1 is older than 2"):
        FILES[name].from_data({**recorded, version: 1})


def test_requests_and_circuits_of_files_without_a_version(tmp_path: Path) -> None:
    """Until they had one, neither said which schema it was: both are read as the first."""
    old = {"command": "sweep", "specimen": "3", "options": {"n": 4}, "seed": 1, "versions": {}}
    request = Request.from_data(old)
    assert (request.schema_version, request.options, request.backbone) == (1, {"n": 4}, None)
    request.write(tmp_path / "request.json")
    assert json.loads((tmp_path / "request.json").read_text())["schema_version"] == 1
    assert Request.read(tmp_path / "request.json") == request
    circuit = Circuit.read(GOLDEN / "discovery" / "circuit.json")
    circuit.write(tmp_path / "circuit.json")
    assert json.loads((tmp_path / "circuit.json").read_text())["schema"] == 1
    assert Circuit.read(tmp_path / "circuit.json") == circuit
    for kind, data in ((Request, old), (Circuit, circuit.as_data())):
        with pytest.raises(BadInput, match="schema 2 is newer than 1"):
            kind.from_data({**data, "schema": 2})


def test_sets_of_heads_that_were_a_dict() -> None:
    """Written when the search returned plain data, without a type."""
    old = json.loads((GOLDEN / "sets.json").read_text())
    sets = HeadSets.read(GOLDEN / "sets.json")
    later = ("request", "answer")
    assert {name: value for name, value in sets.as_data().items() if name not in later} == {
        name: value for name, value in old.items() if name not in later
    }
    assert (sets.search, sets.n, sets.sets[0].heads) == (old["search"], old["n"], tuple(old["sets"][0]["heads"]))
    assert sets.pool == tuple(old["pool"])


def test_what_a_document_holds_cannot_be_changed() -> None:
    discovery = Discovery.read(GOLDEN / "discovery" / "discovery.json")
    mappings: list[Any] = [
        discovery.metrics,
        discovery.request.options,
        discovery.circuit.nodes,
        discovery.circuit.edges,
    ]
    for held in mappings:
        first = next(iter(held))
        for change, *given in ((held.update, {}), (held.pop, first), (held.clear,), (held.popitem,)):
            with pytest.raises(TypeError, match="cannot be changed"):
                change(*given)
        with pytest.raises(TypeError, match="cannot be changed"):
            held[first] = None  # type: ignore[index]
        with pytest.raises(TypeError, match="cannot be changed"):
            del held[first]  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(discovery)) == discovery
    assert copy.deepcopy(discovery) == discovery
    assert {**discovery.metrics, "more": 1.0}.keys() - discovery.metrics.keys() == {"more"}


def test_the_explanation_of_frac_prevs() -> None:
    explanation = Explanation.read(GOLDEN / "explanation.json")
    assert (explanation.specimen, explanation.scientist, explanation.request) == ("3", "builtin", None)
    first, second = explanation.components
    assert (first.id, first.tag, first.verdict) == ("L0_MLP", "INDICATOR", "supported")
    assert (second.id, second.tag, second.verdict) == ("L1H2", "AGGREGATOR", "supported")
    assert [claim.kind for claim in second.claims] == ["computes", "aggregates", "necessary"]
    assert explanation.program is not None
    assert explanation.program.endswith("output = L1H2")


def test_scores_of_the_search_are_not_called_measured_edges() -> None:
    edges = (("tokens", "L0_MLP", 0.5), ("indices", "L1H2", 0.9))
    told = Explanation.read(GOLDEN / "explanation.json").model_copy(update={"edges": edges, "scientist": "builtin"})
    assert told.executable is not None
    measured, searched = (_circuit(one)[-1] for one in (told, told.model_copy(update={"executable": None})))
    assert isinstance(measured, Sheet)
    assert isinstance(searched, Sheet)
    assert (measured.title, list(measured.rows)) == ("All 1 measured edges", [edges[0]])
    assert searched.title == "All 2 edges of the search, none of them measured"
    assert searched.columns[-1] == "score"


def test_the_explanation_of_the_induction_model() -> None:
    explanation = Explanation.read(GOLDEN / "explanation_natural.json")
    assert explanation.behaviour == "induction"
    roles = {part.id: part.role for part in explanation.components}
    assert roles["L1H0"] == "induction head, primary mover"
    assert roles["L0H0"] == "previous-token head, necessary upstream"
    assert explanation.edges[0] == ("L0H0", "L1H0", 0.9746)


def test_the_trace_of_the_agent() -> None:
    trace = Trace.read(GOLDEN / "trace.json")
    assert (trace.protocol, trace.usage.calls, trace.usage.malformed) == ("typed", 26, 1)
    assert {part.component: part.resolved_at for part in trace.components} == {"L0_MLP": 1, "L1H2": 2}


def test_the_sweep_of_frac_prevs() -> None:
    sweep = Sweep.read(GOLDEN / "sweep.json")
    assert (sweep.kind, sweep.n, sweep.baseline, sweep.unit) == ("zero", 8, 1.0, "share of outputs")
    assert [(row.id, row.effect) for row in sweep.components[:2]] == [("L0_MLP", 1.0), ("L1H2", 0.96875)]
    assert sweep.request.command_line().startswith("vesalius sweep frac_prevs --components L0H0,L0H1,")


def test_the_discovery_in_frac_prevs() -> None:
    discovery = Discovery.read(GOLDEN / "discovery" / "discovery.json")
    assert discovery.circuit == Circuit.read(GOLDEN / "discovery" / "circuit.json")
    assert [str(part) for part in discovery.circuit.chosen()] == ["L0_MLP", "L1H2"]
    assert discovery.components[0].id == "L1H2"
    assert (len(discovery.components), discovery.n_edges, len(discovery.edges)) == (10, 110, 110)
    checks = discovery.checks
    assert checks is not None
    assert checks.faithfulness is not None
    assert checks.faithfulness_random is not None
    assert (checks.faithfulness.cpr, checks.n, checks.size) == (0.85, 12, 2)
    assert checks.faithfulness.cmd < checks.faithfulness_random.cmd
    assert checks.stability is not None
    assert checks.stability.value == 1.0
    assert set(checks.missing) == {"specificity", "detectors"}
    assert checks.metrics.items() <= discovery.metrics.items()
    assert discovery.checks_forwards == pytest.approx(313.333 / 8, abs=1e-3)
    assert discovery.request.command_line() == "vesalius discover frac_prevs --method eap-ig --n 8 --seed 0"


def test_the_discovery_in_the_induction_model() -> None:
    checks = Discovery.read(GOLDEN / "discovery_natural" / "discovery.json").checks
    assert checks is not None
    assert checks.detectors is not None
    assert checks.detectors.flagged["induction"] == ("L1H0",)
    assert checks.detectors.p == pytest.approx(1 / 28)  # both of two among eight heads
    assert checks.specificity is not None
    assert checks.specificity.heads == ("L1H0", "L0H0")


def test_a_discovery_without_its_circuit_is_refused(tmp_path: Path) -> None:
    numbers = (GOLDEN / "discovery" / "discovery.json").read_text()
    (tmp_path / "discovery.json").write_text(numbers)
    with pytest.raises(BadInput, match=r"circuit\.json is not beside it; run `vesalius discover` again"):
        Discovery.read(tmp_path / "discovery.json")
    other = Circuit.read(GOLDEN / "discovery_natural" / "circuit.json")
    other.write(tmp_path / "circuit.json")
    with pytest.raises(BadInput, match=r"circuit\.json beside it has other scores"):
        Discovery.read(tmp_path / "discovery.json")


def test_the_scorecard_of_two_circuits() -> None:
    card = Scorecard.read(GOLDEN / "scorecard_circuits.json")
    assert (card.benchmark, card.subject, card.n, card.n_error) == ("circuits", "builtin", 2, 0)
    accuracy = card.metrics["tag_accuracy"]
    assert (accuracy.value, accuracy.n, accuracy.baseline, accuracy.n_error) == (1.0, 6, 0.5, 0)
    assert card.nulls is not None
    assert card.nulls["generic"].tag_accuracy.value == 0.5
    assert card.specimens is not None
    row = card.specimens[0]
    assert (row.id, row.name, row.components) == ("3", "frac_prevs", 2)


def test_the_scorecard_of_a_discovery_method_has_its_median_and_its_mean() -> None:
    figures = json.loads((GOLDEN / "scorecard_discovery.json").read_text())["methods"]["sweep"]
    card = Scorecard.read(GOLDEN / "scorecard_discovery.json")
    assert card.methods is not None
    area = card.methods["sweep"].area("cmd")
    assert area is not None
    median, mean = area
    for metric, recorded in ((median, figures["cmd"]), (mean, figures["cmd_mean"])):
        assert (metric.value, metric.low, metric.high) == tuple(recorded[end] for end in ("value", "low", "high"))
    assert (median.statistic, median.baseline, mean.statistic) == ("median", figures["cmd"]["baseline"], "mean")
    assert card.metrics["sweep.cmd"] == median
    assert card.metrics["sweep.cmd_mean"] == mean
    assert card.methods["sweep"].area("edge_cmd") is None
    assert card.cases is not None
    assert card.cases[0].methods["sweep"].chosen == ("L0_MLP", "L1H2")


def test_the_scorecard_of_four_functions() -> None:
    card = Scorecard.read(GOLDEN / "scorecard_functions.json")
    assert (card.category, card.mode, card.seed, card.n) == ("numeric", "fixed", 2309, 4)
    assert (card.metrics["success"].value, card.metrics["success"].baseline) == (1.0, 0.75)
    assert card.metrics["queries"].value == 269.0
    assert card.families is not None
    assert card.families["logarithm"].n == 2
    assert "backbone" in card.as_data()  # null in the file, and kept
    assert "methods" not in card.as_data()


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("sweep.json", ("request", "options", "n"), []),
        ("discovery/discovery.json", ("request", "options", "n"), "x"),
        ("explanation_natural.json", ("components", 0, "profile", "effects"), 1e300),
        ("explanation_natural.json", ("components", 0, "profile", "effects", "solo"), []),
        ("explanation_natural.json", ("components", 0, "profile", "clean"), "much"),
        ("explanation_natural.json", ("components", 0, "profile", "n"), {"solo": "all"}),
        ("explanation_natural.json", ("components", 0, "profile", "group"), {"members": 5}),
    ],
)
def test_what_no_reader_could_show_is_refused_when_it_is_read(
    name: str, place: tuple[str | int, ...], value: Any, tmp_path: Path
) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    data = json.loads((GOLDEN / name).read_text())
    part: Any = data
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    (tmp_path / name).write_text(json.dumps(data))
    with pytest.raises(BadInput, match=str(place[:3][-1])):
        FILES[name].read(tmp_path / name)
