"""The server while texts are rated: nothing but the export says who wrote them, and raters do not get in each other's
way.
"""

import csv
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

from tests.runs.annotated import RUNS, write_runs
from vesalius_bench.ratings.annotation import Annotating, annotate
from vesalius_bench.ratings.documents import Annotation
from vesalius_workbench.server import VIEWS, create_annotation_app

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}
#: Two circuits, two runs: 2 * (3 components + 2 tasks).
TOTAL = 10


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Annotating]:
    with annotate(write_runs(tmp_path / "runs", ("3", "8")), reference=True, out=tmp_path / "ratings") as opened:
        yield opened


@pytest.fixture
def client(texts: Annotating) -> TestClient:
    app = create_annotation_app(texts, token="the-token", hosts={HOST})
    entered = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    assert 'content="0;url=/annotate"' in entered.get("/annotate?token=the-token").text
    return entered


def text(client: TestClient, rater: str, number: int) -> dict[str, Any]:
    return client.get("/api/annotation/text", params={"rater": rater, "number": number}).json()["text"]


def rate(client: TestClient, rater: str, id: str, score: int | None, comment: str = "") -> Any:
    asked = {"rater": rater, "id": id, "score": score, "comment": comment}
    return client.post("/api/annotation/rate", json=asked, headers=HERE)


def test_nothing_but_the_export_says_who_wrote_a_text(client: TestClient, texts: Annotating) -> None:
    answers = [client.get(path) for path in ("/annotate", "/annotate?rater=ann", "/", "/api/annotation")]
    for rater in ("ann", "ben"):
        for number in range(1, TOTAL + 1):
            answers.append(client.get("/api/annotation/text", params={"rater": rater, "number": number}))
            answers.append(rate(client, rater, answers[-1].json()["text"]["id"], number % 2, "yes"))
        answers.append(client.post("/api/annotation/undo", json={"rater": rater}, headers=HERE))
    answers.append(client.get("/api/annotation"))
    assert client.get("/api/annotation/ratings.csv").status_code == 400  # the undo left two texts without a score
    exported = client.get("/api/annotation/ratings.csv?rater=ann")
    answers.append(client.post("/api/annotation/import", json={"csv": exported.text, "rater": "ann"}, headers=HERE))
    secret = Annotation.read(texts.directory / "annotation.json").secret
    hidden = [*RUNS, *RUNS.values(), "model-a", "model-b", "openai", "hyve", secret, str(texts.directory), "digest"]
    for answer in answers:
        sent = f"{answer.text} {dict(answer.headers)} {answer.url}".lower()
        assert [word for word in hidden if word.lower() in sent] == [], answer.url
    assert all(name in exported.text for name in (*RUNS, *RUNS.values()))


def test_two_texts_of_one_component_differ_in_nothing_but_the_text(client: TestClient) -> None:
    """Same fields, in the same order, with the same values: an answer's shape tells no author either."""
    cards = [text(client, "ann", number) for number in range(1, TOTAL + 1)]
    assert len({tuple(card) for card in cards}) == 1
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for card in cards:
        own = {name: value for name, value in card.items() if name not in ("id", "number", "text")}
        by_place.setdefault((card["specimen"], card["component"]), []).append(own)
    assert [len(group) for group in by_place.values()] == [2] * 5
    assert all(first == second for first, second in by_place.values())
    assert len({len(card["id"]) for card in cards}) == 1


@pytest.mark.parametrize("path", [*(f"/{view}" for view in VIEWS), "/api/results", "/api/start", "/api/specimens"])
def test_the_other_views_are_closed(path: str, client: TestClient) -> None:
    assert client.get(path).status_code == 404


def test_the_first_address_leads_to_the_texts(client: TestClient) -> None:
    assert client.get("/").headers["location"] == "/annotate"
    assert "/static/app.js" in client.get("/annotate?rater=ann").text


def test_raters_have_their_own_order_scores_and_progress(client: TestClient) -> None:
    raters = ("ann", *(f"rater {number}" for number in range(9)))
    orders = {rater: [text(client, rater, n)["text"] for n in range(1, TOTAL + 1)] for rater in raters}
    # There are 2 * 2 * 2 ** 5 orders at least, so that ten raters hardly ever share fewer than three.
    assert len({tuple(order) for order in orders.values()}) >= 3
    assert {tuple(sorted(order)) for order in orders.values()} == {tuple(sorted(orders["ann"]))}
    rate(client, "ann", text(client, "ann", 1)["id"], 1)
    answer = client.get("/api/annotation/text", params={"rater": "ann"}).json()
    assert answer["progress"] == {"rater": "ann", "rated": 1, "total": TOTAL, "next": 2}
    assert answer["text"]["number"] == 2
    assert client.get("/api/annotation").json()["raters"] == [answer["progress"]]
    assert text(client, "ben", 1)["score"] is None


def test_many_windows_at_once_lose_nothing(client: TestClient, texts: Annotating) -> None:
    raters = [f"rater {number}" for number in range(4)]
    asked = [(rater, text(client, rater, n)["id"]) for rater in raters for n in range(1, TOTAL + 1)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: rate(client, one[0], one[1], 1).status_code, asked))
    assert answers == [200] * len(asked)
    assert len(texts.ratings()) == len(asked)
    lines = (texts.directory / "events.jsonl").read_text().splitlines()
    assert len(lines) == len(asked)


def test_the_export_is_a_file_with_safe_cells(client: TestClient) -> None:
    rate(client, "=ann", text(client, "=ann", 1)["id"], 0, "=1+1")
    answer = client.get("/api/annotation/ratings.csv", params={"rater": "=ann"})
    assert answer.headers["content-disposition"] == 'attachment; filename="ratings.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert (row["rater"], row["comment"], row["score"]) == ("'=ann", "'=1+1", "0")
    again = client.post("/api/annotation/import", json={"csv": answer.text, "rater": "=ann"}, headers=HERE)
    assert again.json() == {"added": 0, "replaced": 0, "unchanged": 1}


def exported(client: TestClient, rater: str | None) -> Any:
    return client.get("/api/annotation/ratings.csv", params={} if rater is None else {"rater": rater})


def raters_in(answer: Any) -> set[str]:
    return {row["rater"] for row in csv.DictReader(io.StringIO(answer.text, newline=""))}


def rate_everything(client: TestClient, rater: str, score: int) -> None:
    for number in range(1, TOTAL + 1):
        rate(client, rater, text(client, rater, number)["id"], score)


def test_a_rater_sees_the_scores_of_others_once_they_have_finished(client: TestClient) -> None:
    rate_everything(client, "ann", 1)
    rate(client, "ben", text(client, "ben", 1)["id"], 0)
    assert raters_in(exported(client, "ben")) == {"ben"}
    assert raters_in(exported(client, "carla")) == set()
    assert raters_in(exported(client, "ann")) == {"ann", "ben"}
    assert "not everybody has finished" in exported(client, None).json()["error"]
    assert client.get("/api/annotation").json()["finished"] is False
    rate_everything(client, "ben", 0)
    for rater in ("ben", None, "carla"):
        assert raters_in(exported(client, rater)) == {"ann", "ben"}


def test_an_import_says_the_same_whatever_others_have_scored(client: TestClient) -> None:
    """A file with a guess for somebody else is refused in the same words, right or wrong, with or without a score."""
    rate_everything(client, "ann", 1)
    rows = exported(client, "ann").text
    head, *lines = rows.splitlines()
    said = set()
    for rater in ("ben", ""):
        for score in (0, 1):
            for replace in (False, True):
                file = "\n".join([head, lines[0].replace(",1,", f",{score},")])
                asked = {"csv": file, "rater": rater, "replace": replace}
                answer = client.post("/api/annotation/import", json=asked, headers=HERE)
                assert answer.status_code == 400
                said.add(answer.text)
    assert len(said) == 1
    assert "ann rates here" in said.pop()
    assert exported(client, "ann").text == rows
    new = "\n".join([head, lines[0].replace("ann", "dora")])
    answer = client.post("/api/annotation/import", json={"csv": new, "rater": "ben"}, headers=HERE)
    assert answer.json() == {"added": 1, "replaced": 0, "unchanged": 0}


@pytest.mark.parametrize(
    ("path", "asked", "message"),
    [
        ("rate", {"rater": "ann", "id": "x", "score": 1}, "not one that is rated here"),
        ("rate", {"rater": "ann", "id": "x", "score": 3}, "score"),
        ("rate", {"rater": "ann", "id": "x"}, "score"),
        ("rate", {"rater": "", "id": "x", "score": 1}, "rater"),
        ("rate", {"rater": " ", "id": "x", "score": 1}, "give a name"),
        ("rate", {"rater": "ann", "id": "x", "score": 1, "agent": "a"}, "agent"),
        ("undo", {"rater": "a" * 300}, "rater"),
        ("import", {"csv": "nothing"}, "lacks"),
    ],
)
def test_bad_requests_get_one_line(path: str, asked: dict[str, Any], message: str, client: TestClient) -> None:
    answer = client.post(f"/api/annotation/{path}", json=asked, headers=HERE)
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize("headers", [{}, {"origin": "http://evil.example"}])
def test_ratings_from_other_pages_are_refused(headers: dict[str, str], client: TestClient, texts: Annotating) -> None:
    asked = {"rater": "ann", "id": text(client, "ann", 1)["id"], "score": 1}
    assert client.post("/api/annotation/rate", json=asked, headers=headers).status_code == 403
    assert texts.ratings() == []
