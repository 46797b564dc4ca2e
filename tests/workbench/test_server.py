"""The server of the workbench: who is let in, what is answered, and that nothing outside the directory is read."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

import vesalius as ves
from tests.report.explanations import frac_prevs
from vesalius.documents.claims import Claims
from vesalius.documents.view import (
    Answer,
    Bars,
    Chart,
    Code,
    Facts,
    Graph,
    Grid,
    Group,
    HeadMap,
    Node,
    Sheet,
    Text,
    Tokens,
    View,
)
from vesalius.errors import BadInput
from vesalius_workbench.guard import MOST_BYTES, cookie_name
from vesalius_workbench.reading import sent
from vesalius_workbench.server import VIEWS, create_app
from vesalius_workbench.showing import view_data
from vesalius_workbench.start import find_place

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    frac_prevs().save(place / "explained")
    frac_prevs().model_copy(update={"task_description": HOSTILE}).save(place / "hostile")
    frac_prevs().save(place.parent / "secret")
    os.symlink(place.parent / "secret", place / "link")
    return place


def browser(directory: Path, **options: Any) -> TestClient:
    app = create_app(directory, token="the-token", hosts={HOST}, **options)
    return TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)


@pytest.fixture(scope="module")
def client(directory: Path) -> TestClient:
    entered = browser(directory)
    answer = entered.get("/runs?token=the-token&kind=sweep")
    assert answer.status_code == 200
    assert 'content="0;url=/runs?kind=sweep"' in answer.text
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]
    return entered


def test_nobody_enters_without_the_token(directory: Path) -> None:
    stranger = browser(directory)
    for path in ("/", "/api/results", "/static/app.js", "/api/result?path=explained"):
        assert stranger.get(path).status_code == 401
    assert stranger.get("/?token=wrong").status_code == 401
    assert "set-cookie" not in stranger.get("/?token=wrong").headers
    stranger.cookies.set(cookie_name(HOST), "guess")
    assert stranger.get("/").status_code == 401


def test_two_servers_on_one_machine_do_not_lock_each_other_out(client: TestClient) -> None:
    """A browser sends the cookies of 127.0.0.1 to all ports, so each port has a name of its own."""
    (name,) = client.cookies
    assert name == cookie_name(HOST) == "vesalius-4321"
    assert cookie_name("127.0.0.1:8000") == cookie_name("[::1]:8000") == "vesalius-8000"


def test_other_names_of_this_machine_are_refused(client: TestClient) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}, {"origin": "null"}])
def test_questions_from_other_pages_are_refused(headers: dict[str, str], client: TestClient) -> None:
    answer = client.post("/api/look", json={"specimen": "3", "prompt": ["a"]}, headers=headers)
    assert answer.status_code == 403


def test_forms_and_large_requests_are_refused(client: TestClient) -> None:
    form = client.post("/api/look", data={"specimen": "3"}, headers=HERE)
    assert form.status_code == 415
    large = client.post("/api/look", json={"specimen": "3", "prompt": "x" * MOST_BYTES}, headers=HERE)
    assert large.status_code == 413


def test_every_answer_forbids_foreign_scripts(client: TestClient) -> None:
    for path in ("/", *(f"/{view}" for view in VIEWS), "/static/app.js", "/api/results", "/nothing"):
        policy = client.get(path).headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_the_page_is_served_for_every_view(client: TestClient) -> None:
    for view in VIEWS:
        page = client.get(f"/{view}")
        assert page.status_code == 200
        assert "/static/app.js" in page.text
    assert client.get("/static/..%2fserver.py").status_code == 404
    assert client.get("/static/none.js").status_code == 404
    # Browsers ask for an icon on pages that name none; an answer of 404 would stand in their log of errors.
    assert client.get("/favicon.ico").status_code == 204


def test_results_and_one_of_them(client: TestClient) -> None:
    listed = client.get("/api/results").json()["results"]
    assert sorted(row["path"] for row in listed) == ["explained", "hostile"]
    shown = client.get("/api/result", params={"path": "explained"}).json()
    assert shown["kind"] == "explanation"
    assert shown["view"]["names"] == shown["claims"]["components"] == ["L0_MLP", "L1H2"]
    hostile = client.get("/api/result", params={"path": "hostile"})
    assert hostile.headers["content-type"] == "application/json"
    assert hostile.json()["view"]["answer"].startswith(f"{HOSTILE} Its program agrees with the model on ")


def test_a_discovery_is_sent_with_intervals_controls_and_rivals() -> None:
    discovery = ves.discover("frac_prevs", "eap", n=8, rivals=1, progress=False)
    answer = sent(discovery)
    assert answer["subject"] == {"specimen": "frac_prevs", "behaviour": ""}
    view = answer["view"]
    assert view["command"] == discovery.request.command_line()
    facts = {label: text for one in view["sections"] if one["kind"] == "facts" for label, text in one["rows"]}
    assert facts["method"] == "eap, seed 0, 8 prompts"
    by_title = {section["title"]: section for section in view["sections"]}

    def parts(title: str, kind: str) -> list[dict[str, Any]]:
        """The sections of a kind below a title."""
        inside = by_title[title].get("sections", [by_title[title]])
        return [one for one in inside if one["kind"] == kind]

    def texts(title: str) -> list[list[str]]:
        """The cells of the first table below a title."""
        return [[cell["text"] for cell in row] for row in parts(title, "sheet")[0]["rows"]]

    assert texts("Which components")[0][0] == discovery.components[0].id
    assert "<svg" in parts("Can it be trusted?", "chart")[0]["svg"]
    assert discovery.checks is not None
    assert f"Checked on {discovery.checks.n} prompts" in parts("Can it be trusted?", "text")[0]["words"][0]
    figures = {row[0]: row for row in texts("Can it be trusted?")}
    curve, control = discovery.checks.faithfulness, discovery.checks.faithfulness_random
    assert curve is not None
    assert control is not None
    value, low, high, chance = (f"{x:.3f}" for x in (curve.cmd, curve.cmd_low, curve.cmd_high, control.cmd))
    assert figures["CMD"][1:4] == [value, f"[{low}, {high}]", chance]
    assert texts("Rival circuits")[0][0] == "best"
    assert discovery.rivals is not None
    assert f"on {discovery.rivals.n} held-out prompts" in parts("Rival circuits", "text")[0]["words"][0]


def test_the_static_page_of_a_result_may_run_our_scripts_alone(client: TestClient, directory: Path) -> None:
    address = client.get("/api/result", params={"path": "hostile"}).json()["page"]
    assert address == "/page/hostile"  # no page was written, so that it is laid out now
    page = client.get(address)
    assert page.headers["content-type"].startswith("text/html")
    assert HOSTILE not in page.text
    written = directory / "explained" / "report.html"
    written.write_text(f"<p>ours</p>{HOSTILE}", encoding="utf-8")
    address = client.get("/api/result", params={"path": "explained"}).json()["page"]
    assert address == "/page/explained/report.html"
    page = client.get(address)
    assert page.text.startswith("<p>ours</p>")
    policy = dict(one.split(" ", 1) for one in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert all(word.startswith("'sha256-") for word in policy["script-src"].split())
    assert client.get("/page/../secret").status_code == 404
    for outside in ("/page/link", "/page/%2e%2e/secret", "/page/explained/none.html"):
        assert client.get(outside).status_code == 400
    written.unlink()


def test_every_kind_of_section_is_sent(client: TestClient) -> None:
    sections = [
        Facts([("edge_auroc_all", "1")]),
        Text(["words"]),
        Code("x = 1"),
        Sheet(("metric", "low", "high"), [("tag_accuracy", 0.5, 1.0)]),
        Chart({"one": [(0.0, 0.0, "first"), (1.0, 1.0, "last")]}, "x", "y"),
        Bars([("one", 0.5, 0.4, 0.6)]),
        HeadMap({"L0H0": 1.0, "L0H1": 0.5}, 1, 2, unit="u", intervals={"L0H1": (-1.0, 2.0)}),
        Graph([Node("L0H0", address="#L0H0")], [("tokens", "L0H0", 1.0)]),
        Tokens([("row", [("a", 1.0)])]),
        Grid([[0.5]], ["a"], ["b"], "one cell"),
        Claims("L0H0", frac_prevs().components[0].claims),
        Group([Text(["inside"])], title="Group", name="L0H0"),
    ]
    view = view_data(View("title", Answer("answer", "yes"), [*sections, Text(["not here"], terminal_only=True)]))
    json.dumps(view)
    sent = {one["kind"]: one for one in view["sections"]}
    assert list(sent) == [type(one).__name__.lower() for one in sections]
    assert sent["facts"]["rows"] == [("edge AUROC all", "1")]
    assert [cell["text"] for cell in sent["sheet"]["rows"][0]] == ["tag accuracy", "[0.500, 1.000]"]
    assert sent["headmap"]["unclear"] == ["L0H1"]
    assert all(sent[kind]["svg"].startswith("<svg ") for kind in ("chart", "graph", "grid"))
    assert sent["group"]["id"] == "component-L0H0"


@pytest.mark.parametrize("path", ["../secret", "/etc", "link", "..", "explained/../../secret", "x\0y", "~/x", "none"])
def test_paths_that_lead_outside_are_refused(path: str, client: TestClient) -> None:
    answer = client.get("/api/result", params={"path": path})
    assert answer.status_code == 400
    assert "components" not in answer.text
    assert client.get("/api/diff", params={"a": "explained", "b": path}).status_code == 400


def test_two_results_are_compared(client: TestClient) -> None:
    found = client.get("/api/diff", params={"a": "explained", "b": "hostile"}).json()
    assert found["kind"] == "explanation"
    assert found["claims_flipped"] == []


def test_questions_are_answered_as_the_composer_does(client: TestClient) -> None:
    asked = {"specimen": "frac_prevs"}
    about = client.post("/api/specimen", json=asked, headers=HERE).json()
    assert (about["layers"], about["heads"]) == (2, 4)
    seen = client.post("/api/look", json={**asked, "prompt": ["a", "x"]}, headers=HERE).json()
    assert seen["tokens"] == ["BOS", "a", "x"]
    heads = client.post("/api/attention", json={**asked, "prompt": ["a", "x"], "layer": 1}, headers=HERE).json()
    assert len(heads["heads"]) == 4
    question = {**asked, "components": ["L1H2"], "kind": "mean", "n": 4, "seed": 1}
    answer = client.post("/api/what-if", json=question, headers=HERE).json()
    expected = ves.what_if("frac_prevs", ["L1H2"], kind="mean", n=4, seed=1)
    assert answer["document"]["effect"]["value"] == pytest.approx(expected.effect.value)
    assert answer["command"] == expected.request.command_line()
    swept = client.post("/api/sweep", json={**asked, "n": 2}, headers=HERE).json()
    assert len(swept["components"]) == 10


@pytest.mark.parametrize(
    ("path", "question", "message"),
    [
        ("what-if", {"components": ["L9H9"]}, "L9H9"),
        ("what-if", {"components": []}, "components"),
        ("what-if", {"components": ["L0H0"], "n": -1}, "n:"),
        ("what-if", {"components": ["L0H0"], "n": 99999}, "at most 256"),
        ("what-if", {"components": ["L0H0"], "kind": "x"}, "kind 'x'"),
        ("what-if", {"components": ["L0H0"], "unknown": 1}, "unknown"),
        ("look", {"prompt": ["zzz"]}, "zzz"),
        ("attention", {"prompt": ["a"], "layer": 77}, "layer 77"),
        ("look", {"prompt": ["a"], "specimen": "../secret"}, "not below"),
        ("look", {"prompt": ["a"], "specimen": "/etc"}, "not below"),
        ("look", {"prompt": ["a"], "specimen": "banana"}, "banana"),
        ("specimen", {"specimen": ""}, "specimen"),
    ],
)
def test_bad_questions_get_one_line(path: str, question: dict[str, Any], message: str, client: TestClient) -> None:
    answer = client.post(f"/api/{path}", json={"specimen": "frac_prevs", **question}, headers=HERE)
    assert answer.status_code in (400, 422)
    error = answer.json()["error"]
    assert message in error
    assert "\n" not in error
    assert "Traceback" not in error


def test_what_open_is_given(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_place(str(directory)) == (directory, None, "/runs")
    place, opened, first = find_place(str(directory / "explained"))
    assert (place, opened, first) == (directory.resolve(), None, "/result?path=explained")
    (directory / "begun").mkdir()
    (directory / "begun" / "calls.jsonl").touch()
    assert find_place(str(directory / "begun"))[2] == "/agent?path=begun"
    (directory / "begun" / "calls.jsonl").unlink()
    frac_prevs().save(directory / "two & #2")
    assert find_place(str(directory / "two & #2"))[2] == "/result?path=two%20%26%20%232"
    shutil.rmtree(directory / "two & #2")
    assert find_place("frac_prevs")[1:] == ("frac_prevs", "/specimen?specimen=frac_prevs")
    assert find_place(str(directory / "explained" / "explanation.json")) == find_place(str(directory / "explained"))
    assert find_place("org/model")[1] == "org/model"
    (directory / "notes.txt").touch()
    for nothing in ("no-such-run", str(directory / "typo"), str(directory / "notes.txt")):
        with pytest.raises(BadInput, match="is neither a run, a directory of results nor a specimen"):
            find_place(nothing)
    (directory / "notes.txt").unlink()
    monkeypatch.chdir(directory)
    assert find_place(None)[0] == Path.cwd()
