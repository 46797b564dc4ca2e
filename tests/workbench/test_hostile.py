"""A directory that somebody else filled, and requests that somebody else sends: nothing is executed, nothing outside is
read, and the server goes on answering.
"""

import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, serving
from tests.workbench.graphs import large_discovery
from vesalius.documents import Explanation
from vesalius.errors import BadInput
from vesalius_workbench import reading
from vesalius_workbench.reading import Reader
from vesalius_workbench.store import Store

SCRIPT = "<img src=x onerror=\"document.title='executed'\"><script>document.title='executed'</script>"
NAME = "<img src=x onerror=alert(1)>"
SECRET = "a-text-that-lies-outside"
CLAIMS = 100_000
VERDICTS = ("supported", "refuted", "untested")


def write_hostile(place: Path) -> None:
    """Script in names and notes, a megabyte in a note, very many claims, links outward, broken files."""
    outside = place.parent / "outside"
    frac_prevs().model_copy(update={"task_description": SECRET}).save(outside)
    frac_prevs().model_copy(update={"task_description": SCRIPT}).save(place / NAME)
    explained = frac_prevs().as_data()
    first = explained["components"][0]
    first["note"] = SCRIPT + "n" * 1_000_000
    first["claims"] = [
        {"kind": SCRIPT, "text": f"claim {i}", "verdict": VERDICTS[i % 3], "evidence": []} for i in range(CLAIMS)
    ]
    (place / "many").mkdir()
    (place / "many" / "explanation.json").write_text(json.dumps(explained), encoding="utf-8")
    os.symlink(outside, place / "link")
    (place / "within").mkdir()
    os.symlink(outside / "explanation.json", place / "within" / "explanation.json")
    os.symlink(outside, place / "what-ifs")
    large_discovery(5, layers=2, heads=2).save(outside / "found")
    large_discovery(5, layers=2, heads=2).save(place / "found")
    (place / "found" / "circuit.json").unlink()
    os.symlink(outside / "found" / "circuit.json", place / "found" / "circuit.json")
    (place / "deep").mkdir()
    (place / "deep" / "explanation.json").write_text("[" * 200_000, encoding="utf-8")
    (place / "torn").mkdir()
    (place / "torn" / "sweep.json").write_bytes(b'{"schema": 1, "components": [\xff')


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("all") / "results"
    place.mkdir()
    write_hostile(place)
    return place


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    with serving(place) as server:
        yield server


class Visitor:
    """A client that was let in."""

    def __init__(self, served: Served) -> None:
        self.base = served.base
        self.cookie = "=".join(served.session)

    def ask(self, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        """Status and text of an answer."""
        data = None if body is None else json.dumps(body).encode()
        own: dict[str, str] = {"content-type": "application/json", "origin": self.base} if data else {}
        request = urllib.request.Request(self.base + path, data, {"cookie": self.cookie} | own | headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def of(path: str) -> str:
    return urllib.parse.urlencode({"path": path})


def test_fifty_requests_at_once_leak_nothing_and_are_all_answered(served: Served) -> None:
    visitor = Visitor(served)
    what_if = {"specimen": "frac_prevs", "components": ["L1H2"], "n": 4}
    asked: list[tuple[str, object, dict[str, str], set[int]]] = [
        ("/api/results", None, {}, {200}),
        (f"/api/result?{of('many')}", None, {}, {200}),
        (f"/api/claims?{of('many')}&start=99900", None, {}, {200}),
        (f"/api/result?{of('link')}", None, {}, {400}),
        (f"/api/result?{of('within')}", None, {}, {400}),
        (f"/api/result?{of('../outside')}", None, {}, {400}),
        (f"/api/result?{of('many/../../outside/explanation.json')}", None, {}, {400}),
        ("/api/diff?a=many&b=within", None, {}, {400}),
        (f"/api/result?{of('found')}", None, {}, {400}),
        (f"/api/circuit?{of('found')}", None, {}, {400}),
        ("/static/..%2f..%2fserver.py", None, {}, {404}),
        ("/../../etc/passwd", None, {}, {404}),
        ("/api/what-if", what_if, {}, {200, 503}),
        ("/api/what-if/save", what_if, {}, {400, 503}),
        ("/api/what-if", what_if, {"origin": "http://elsewhere.example"}, {403}),
        ("/api/results", None, {"cookie": "vesalius=guess"}, {401}),
        ("/?token=guess", None, {"cookie": ""}, {401}),
        (f"/api/result?{of('deep')}", None, {}, {400}),
        (f"/api/result?{of('torn')}", None, {}, {400}),
    ]
    fifty = (asked * 3)[:50]
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda one: visitor.ask(one[0], one[1], **one[2]), fifty))
    for (path, _, _, expected), (status, text) in zip(fifty, answers, strict=True):
        assert status in expected, (path, status, text[:200])
        assert SECRET not in text
        assert "Traceback" not in text
    status, text = visitor.ask("/api/results")
    assert status == 200
    listed = {row["path"]: row["state"] for row in json.loads(text)["results"]}
    assert listed["many"] == "finished"
    assert listed["torn"] == listed["deep"] == "unreadable"
    assert "link" not in listed
    assert served.process.poll() is None


def test_claims_come_page_by_page(served: Served) -> None:
    visitor = Visitor(served)
    _, whole = visitor.ask(f"/api/result?{of('many')}")
    told = json.loads(whole)
    assert told["claims"]["counts"][0] == CLAIMS
    assert len(whole) < 2_000_000
    assert "claim 99" not in whole
    query = f"{of('many')}&component=L0_MLP&verdict=refuted"
    pages = [json.loads(visitor.ask(f"/api/claims?{query}&start={start}")[1]) for start in (0, 200)]
    refuted = [f"claim {i}" for i in range(1, CLAIMS, 3)]
    assert [claim["text"] for page in pages for claim in page["claims"]] == refuted[:400]
    assert pages[0]["matching"] == len(refuted)
    assert visitor.ask(f"/api/claims?{of('many')}&start=-1")[0] == 422


@needs_browser
def test_very_many_claims_and_long_notes_do_not_stop_the_page(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=many")
        assert page.locator(".claim").count() == 200
        page.get_by_role("button", name="Show more").click()
        page.get_by_text("the first 400 are shown").wait_for()
        assert page.locator(".claim").count() == 400
        page.get_by_label("component").select_option("L1H2")
        page.locator(".claim").first.wait_for()
        assert page.get_by_role("button", name="Show more").count() == 0
        assert len(page.locator("main").inner_text()) < 100_000
        page.get_by_role("button", name="Show all").click()
        assert len(page.locator("main").inner_text()) > 1_000_000
        assert page.title() != "executed"
        window.check()


@needs_browser
def test_names_are_text(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("runs")
        page.get_by_role("link", name=NAME).click()
        page.get_by_text(SCRIPT).first.wait_for()
        assert page.locator("main img").count() == 0
        assert page.title() != "executed"
        window.check()


def test_many_windows_read_a_file_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, reads, gate = Reader(), [], threading.Barrier(8)
    original = Explanation.read
    monkeypatch.setattr(Explanation, "read", classmethod(lambda cls, path: reads.append(path) or original(path)))
    file = place / NAME / "explanation.json"

    def read(_: int) -> Explanation:
        gate.wait()
        return reader.read(file, Explanation)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(8)))
    assert reads == [file]
    assert all(one is found[0] for one in found)
    frac_prevs().model_copy(update={"task_description": "another"}).write(file)
    assert reader.read(file, Explanation).task_description == "another"
    frac_prevs().model_copy(update={"task_description": SCRIPT}).write(file)


def test_many_windows_list_the_results_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads, gate = Store(place), [], threading.Barrier(8)
    original = Explanation.read
    monkeypatch.setattr(Explanation, "read", classmethod(lambda cls, path: reads.append(path) or original(path)))

    def results(_: int) -> int:
        gate.wait()
        return len(store.results()["results"])

    with ThreadPoolExecutor(8) as pool:
        counts = set(pool.map(results, range(8)))
    assert len(counts) == 1
    assert len(reads) == len(set(reads)) > 0


def test_what_is_kept_is_bounded(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    for name in "abc":
        frac_prevs().save(tmp_path / name)
    size = (tmp_path / "a" / "explanation.json").stat().st_size
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * size)
    for name in "abc":
        reader.read(tmp_path / name / "explanation.json", Explanation)
    assert len(reader._kept) == 2
    monkeypatch.setattr(reading, "MOST_BYTES", size - 1)
    with pytest.raises(BadInput, match="the page reads results of"):
        reader.read(tmp_path / "a" / "explanation.json", Explanation)


def test_files_elsewhere_are_not_even_named(tmp_path: Path) -> None:
    for name in ("open/one/explanations", "outside"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / f"{SECRET}.json").touch()
    for name in ("one", "two"):
        frac_prevs().save(tmp_path / "open" / name)
    os.symlink(tmp_path / "outside", tmp_path / "open" / "two" / "explanations")
    store = Store(tmp_path / "open")
    assert store.document("one")["cases"] == [f"{SECRET}.json"]
    assert "cases" not in store.document("two")


def test_a_comparison_reads_nothing_elsewhere(place: Path) -> None:
    store = Store(place)
    for one in ("within", "link", "../outside"):
        with pytest.raises(BadInput, match=r"elsewhere|not below"):
            store.difference(NAME, one)
    found = store.difference(NAME, "many")
    assert len(found["claims_only"]) == 500
    assert found["totals"]["claims_only"] > CLAIMS - 1
