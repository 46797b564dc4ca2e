"""Circuits of results on the page: what is drawn, how faithful a pruned one is, files, and hostile questions."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

import vesalius as ves
from tests.report.explanations import frac_prevs, of_specimen
from tests.workbench.graphs import large_discovery
from vesalius.components import Component
from vesalius.documents import Circuit, Discovery, Explanation
from vesalius.documents.base import FrozenDict
from vesalius_workbench.circuits import MOST_EDGES, MOST_PROMPTS, RESERVED, graph
from vesalius_workbench.server import create_app

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Discovery:
    place = tmp_path_factory.mktemp("results")
    ves.discover("frac_prevs", "eap", n=4, checks=False).save(place / "found")
    ves.discover("frac_prevs", "sweep", n=4, checks=False).save(place / "scored")
    frac_prevs().save(place / "explained")
    (place / "bench" / "explanations").mkdir(parents=True)
    frac_prevs().write(place / "bench" / "explanations" / "3.json")
    seen = large_discovery(5, layers=2, heads=2)
    asked = seen.request.model_copy(update={"options": FrozenDict({"n": 5_000})})
    seen.model_copy(update={"request": asked}).save(place / "seen")
    of_specimen("/etc").save(place / "hostile")
    return Discovery.read(place / "found" / "discovery.json")


@pytest.fixture(scope="module")
def directory(found: Discovery) -> Path:
    assert found.directory is not None
    return Path(found.directory).parent


@pytest.fixture(scope="module")
def client(directory: Path) -> TestClient:
    app = create_app(directory, token="the-token", hosts={HOST})
    entered = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    entered.get("/?token=the-token")
    return entered


def ask(client: TestClient, route: str, **question: Any) -> Any:
    return client.post(f"/api/{route}", json=question, headers=HERE)


def test_the_graph_of_a_discovery(client: TestClient, found: Discovery) -> None:
    graph = client.get("/api/circuit", params={"path": "found"}).json()
    assert (graph["by"], graph["specimen"]) == ("edges", "frac_prevs")
    edges = [edge for edge in found.circuit.ranked_edges() if edge[1] != 0]
    assert graph["n_edges"] == len(edges)
    assert graph["edges"] == [[str(edge), pytest.approx(score)] for edge, score in edges]
    parts = client.get("/api/circuit", params={"path": "scored"}).json()
    assert (parts["by"], parts["edges"]) == ("components", [])
    assert found.directory is not None
    scored = Discovery.read(Path(found.directory).parent / "scored" / "discovery.json")
    assert [node["id"] for node in parts["nodes"]] == [str(part) for part, score in scored.circuit.ranked() if score]


def test_what_is_not_in_the_circuit_is_not_counted_as_kept() -> None:
    parts = {Component(0, 0): 0.5, Component(0, 1): 0.0, Component(1, 0): -0.25}
    discovery = large_discovery(5, layers=2, heads=2)
    circuit = Circuit.scored(discovery.circuit, 4, parts, {})
    drawn = graph(discovery.model_copy(update={"circuit": circuit}))
    kept = circuit.pruned(least=0.0).nodes
    inside = [str(part) for part in parts if kept[part].in_graph]
    assert [node["id"] for node in drawn["nodes"]] == inside == ["L0H0", "L1H0"]


def test_the_graph_of_an_explanation(client: TestClient) -> None:
    graph = client.get("/api/circuit", params={"path": "explained"}).json()
    assert (graph["kind"], graph["by"]) == ("explanation", "components")
    assert graph["edges"][0] == ["L1H2->logits", 0.97]
    assert [node["id"] for node in graph["nodes"]] == ["L0_MLP", "L1H2"]


def test_the_paths_of_an_explanation_are_a_circuit_that_is_measured_and_saved(
    client: TestClient, directory: Path
) -> None:
    specimen, explained = ves.load("frac_prevs"), Explanation.read(directory / "explained" / "explanation.json")
    circuit = ves.explained_circuit(explained, specimen)
    assert {str(edge) for edge in circuit.edges} >= {"a1.h2->logits", "m0->a1.h2<k>"}
    for edges, expected in ((True, circuit), (False, ves.explained_circuit(explained, specimen, edges=False))):
        answer = ask(client, "faithfulness", path="explained", n=4, edges=edges).json()
        wanted = ves.faithfulness(specimen, expected, n=4)
        assert answer["document"]["by"] == ("edges" if edges else "components")
        assert answer["document"]["size"] == wanted.size
        assert answer["document"]["faithfulness"]["value"] == pytest.approx(wanted.faithfulness.value)
        assert (answer["command"] is None) == edges
        saved = ask(client, "circuit/save", path="explained", edges=edges, name=f"mine{edges}.json").json()
        assert saved["command"].startswith(f"vesalius faithfulness frac_prevs --circuit {saved['file']}")
        assert Circuit.read(saved["file"]) == expected
        again = ves.faithfulness(specimen, circuit=saved["file"], n=4)
        assert again.faithfulness.value == pytest.approx(wanted.faithfulness.value)


def test_no_more_edges_than_a_page_can_draw(tmp_path: Path) -> None:
    large_discovery(MOST_EDGES + 100).save(tmp_path / "large")
    app = create_app(tmp_path, token="t", hosts={HOST})
    entered = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    entered.get("/?token=t")
    graph = entered.get("/api/circuit", params={"path": "large"}).json()
    assert (len(graph["edges"]), graph["n_edges"]) == (MOST_EDGES, MOST_EDGES + 100)
    sizes = [abs(score) for _, score in graph["edges"]]
    assert sizes == sorted(sizes, reverse=True)
    refused = ask(entered, "faithfulness", path="large", least=0.5)
    assert refused.status_code == 400
    assert "in a terminal: vesalius faithfulness gpt2" in refused.json()["error"]


def test_faithfulness_is_what_the_composer_says(client: TestClient, found: Discovery) -> None:
    (first, score), (second, _) = found.circuit.ranked_edges()[:2]
    edits: dict[str, Any] = {"least": abs(score) / 3, "pin": [str(second)], "prune": [str(first)]}
    answer = ask(client, "faithfulness", path="found", **edits, n=4, seed=3).json()
    expected = ves.faithfulness("frac_prevs", found, **edits, n=4, seed=3)
    assert answer["document"]["size"] == expected.size
    assert answer["document"]["faithfulness"]["value"] == pytest.approx(expected.faithfulness.value)
    assert answer["document"]["random"]["value"] == pytest.approx(expected.random.value)
    assert answer["command"].startswith("vesalius faithfulness frac_prevs --circuit ")
    explained = ask(client, "faithfulness", path="explained", prune=["L0_MLP"], n=4).json()["document"]
    assert (explained["by"], explained["size"], explained["candidates"]) == ("components", 1, 10)
    case = ask(client, "faithfulness", path="bench/explanations/3.json", prune=["L0_MLP"], n=4).json()["document"]
    assert (case["size"], case["request"]["components"]) == (1, ["L0_MLP", "L1H2"])
    assert case["score"] == pytest.approx(explained["score"])


def test_a_pruned_circuit_is_saved_once_and_explained(client: TestClient, directory: Path, found: Discovery) -> None:
    edits: dict[str, Any] = {"least": abs(found.circuit.ranked_edges()[5][1]), "prune": ["L1_MLP"]}
    saved = ask(client, "circuit/save", path="found", **edits, name="mine.json").json()
    assert saved["path"] == "found/mine.json"
    read = Circuit.read(directory / "found" / "mine.json")
    assert read.as_data() == found.circuit.pruned(**edits).as_data()
    assert saved["command"] == f"vesalius explain frac_prevs --circuit {directory / 'found' / 'mine.json'}"
    again = ask(client, "circuit/save", path="found", name="mine.json")
    assert (again.status_code, "is there already" in again.json()["error"]) == (400, True)
    fetched = client.get("/api/circuit/file", params={"path": "found", "least": edits["least"], "prune": "L1_MLP"})
    assert fetched.json() == read.as_data()
    assert "attachment" in fetched.headers["content-disposition"]


@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "/tmp/x.json",
        "x",
        "x.json/..",
        ".json",
        "a b.json",
        "circuit.json",
        "discovery.json",
        "",
        *RESERVED,
    ],
)
def test_files_are_written_beside_the_result_only(name: str, client: TestClient, directory: Path) -> None:
    before = sorted(directory.rglob("*"))
    assert ask(client, "circuit/save", path="found", name=name).status_code == 400
    assert sorted(directory.rglob("*")) == before


@pytest.mark.parametrize(
    ("route", "question", "message"),
    [
        ("faithfulness", {"prune": ["L9H9"]}, "L9H9 is not in this circuit"),
        ("faithfulness", {"pin": ["<script>"]}, "is not a name"),
        ("faithfulness", {"pin": ["L1H2"], "prune": ["L1H2"]}, "pinned and pruned"),
        ("faithfulness", {"prune": ["a0.h0->a1.h1<q>"] * 5_001}, "prune"),
        ("faithfulness", {"prune": "L1H2"}, "prune"),
        ("faithfulness", {"prune": [["L1H2"]]}, "prune"),
        ("faithfulness", {"least": -1}, "least"),
        ("faithfulness", {"least": "much"}, "least"),
        ("faithfulness", {"n": MOST_PROMPTS + 1}, "n:"),
        ("faithfulness", {"seed": -1}, "seed"),
        ("faithfulness", {"edges": []}, "edges"),
        ("faithfulness", {"path": "../found"}, "not below"),
        ("faithfulness", {"path": "x\0y"}, "null"),
        ("faithfulness", {"path": "."}, "holds no circuit"),
        ("faithfulness", {"path": "hostile"}, "is not below the directory"),
        ("faithfulness", {"path": "seen"}, "saw 5,000 prompts, and at most 4,096 are told apart here"),
        ("circuit/save", {"path": "found/circuit.json"}, "holds no circuit"),
    ],
)
def test_bad_questions_get_one_line(route: str, question: dict[str, Any], message: str, client: TestClient) -> None:
    answer = ask(client, route, **{"path": "found", **question})
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def about(client: TestClient, **query: str) -> Any:
    return client.get("/api/component", params={"specimen": "frac_prevs", "component": "L1H2", **query})


def test_what_results_say_about_a_component(client: TestClient, found: Discovery) -> None:
    one = about(client, path="explained").json()["results"][0]
    assert [claim["verdict"] for claim in one["claims"]] == ["supported", "refuted", "untested"]
    assert one["edges"] == [["L0_MLP", "L1H2", 0.91], ["L1H2", "logits", 0.97], ["tokens", "L1H2", 0.04]]
    all_of_them = {row["path"]: row for row in about(client).json()["results"]}
    assert set(all_of_them) == {"explained", "found", "scored"}
    ranked = [str(part) for part, _ in found.circuit.ranked()]
    assert all_of_them["found"]["rank"] == 1 + ranked.index("L1H2")
    edges = [score for edge, score in found.circuit.ranked_edges() if score and "a1.h2" in str(edge)]
    assert all_of_them["found"]["n_edges"] == len(edges)
    assert about(client, behaviour="ioi").json()["results"] == []


@pytest.mark.parametrize(
    "query", [{"component": "<b>"}, {"path": "../found"}, {"path": "none"}, {"specimen": "x" * 3_000}]
)
def test_bad_questions_about_a_component_are_refused(query: dict[str, str], client: TestClient) -> None:
    assert about(client, **query).status_code in (400, 422)


def test_a_circuit_of_a_million_edges_is_too_large_a_question(client: TestClient) -> None:
    answer = ask(client, "faithfulness", path="found", prune=["a0.h0->m0"] * 1_000_000)
    assert answer.status_code == 413


@pytest.mark.parametrize("query", [{"least": "nan"}, {"least": "inf"}, {"prune": "banana"}, {"path": "../found"}])
def test_bad_downloads_are_refused(query: dict[str, str], client: TestClient) -> None:
    answer = client.get("/api/circuit/file", params={"path": "found", **query})
    assert answer.status_code in (400, 422)
