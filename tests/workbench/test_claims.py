"""Claims tested again from the page: the server's answer, hostile questions, and the button in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

import vesalius as ves
from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs, of_specimen
from vesalius.documents import Explanation
from vesalius.documents.base import FrozenDict
from vesalius_workbench.server import create_app

HOST = "127.0.0.1:4321"
HERE = {"origin": f"http://{HOST}"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    explained = ves.explain("frac_prevs", ["L0_MLP"])
    explained.save(place / "explained")
    assert explained.request is not None
    asked = explained.request.model_copy(update={"options": FrozenDict({"n": 100_000})})
    explained.model_copy(update={"request": asked}).save(place / "long")
    frac_prevs().save(place / "by_hand")
    of_specimen("/etc/passwd").save(place / "hostile")
    of_specimen("no_such_model").save(place / "unknown")
    return place


@pytest.fixture(scope="module")
def client(directory: Path) -> TestClient:
    app = create_app(directory, token="the-token", hosts={HOST})
    entered = TestClient(app, base_url=f"http://{HOST}", follow_redirects=False)
    entered.get("/?token=the-token")
    return entered


def ask(client: TestClient, **question: Any) -> Any:
    usual = {"path": "explained", "component": "L0_MLP", "claim": 1, "seed": 4}
    return client.post("/api/retest", json={**usual, **question}, headers=HERE)


def test_a_claim_is_decided_as_the_composer_does(client: TestClient, directory: Path) -> None:
    explained = Explanation.read(directory / "explained" / "explanation.json")
    number = [claim.kind for claim in explained.components[0].claims].index("necessary") + 1
    answer = ask(client, claim=number).json()
    expected = ves.retest(explained, "L0_MLP", number, seed=4)
    assert answer["document"]["after"]["verdict"] == expected.after.verdict
    found = [one["value"] for one in answer["document"]["after"]["evidence"]]
    assert found == pytest.approx([one.value for one in expected.after.evidence])
    assert answer["document"]["before"] == explained.components[0].claims[number - 1].as_data()
    assert answer["command"].startswith(f"vesalius retest {directory / 'explained' / 'explanation.json'}")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"component": "L9H9"}, "is not explained here"),
        ({"component": "<script>"}, "is not explained here"),
        ({"claim": 99}, "claims about L0_MLP"),
        ({"claim": 0}, "claim"),
        ({"claim": "necessary"}, "claim"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**40}, "seed"),
        ({"path": "../explained"}, "not below"),
        ({"path": "."}, "holds no explanation"),
        ({"path": "x\0y"}, "null"),
        ({"path": "by_hand"}, "saved without its prediction"),
        ({"path": "hostile"}, "is not below the directory"),
        ({"path": "unknown"}, "no_such_model"),
        ({"path": "long"}, "was tested on 100,000 prompts, and at most 256 are drawn here"),
        ({"verdict": "supported"}, "verdict"),
    ],
)
def test_bad_questions_get_one_line(question: dict[str, Any], message: str, client: TestClient) -> None:
    answer = ask(client, **question)
    assert answer.status_code in (400, 422)
    assert message in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Any]:
    pytest.importorskip("uvicorn")
    pytest.importorskip("playwright")
    from tests.workbench.browsing import serving

    with serving(directory) as server:
        yield server


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1600, "light")])
def test_a_claim_is_tested_again_on_the_page(width: int, scheme: str, served: Any, browser: Any) -> None:
    with browser.window(served, width=width, scheme=scheme) as window:
        page = window.open("result?path=explained&kind=necessary")
        page.get_by_label("seed for claim").fill("4")
        page.get_by_label("seed for claim").press("Enter")
        page.locator(".outcome").wait_for()
        assert page.locator(".outcome").inner_text() == "The same verdict."
        before, after = (page.locator(f".sides .{side} h4").inner_text() for side in ("before", "after"))
        assert before == "seed 0, in the explanation: ✓ supported"
        assert after == "seed 4: ✓ supported"
        assert page.locator(".sides .after .strip").count() > 0
        assert window.faults() == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        window.check()


@needs_browser
def test_a_claim_that_cannot_be_decided_says_why(served: Any, browser: Any) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=by_hand")
        assert page.locator(".claim").count() == 5
        assert page.get_by_role("button", name="again").count() == 0
        assert "saved without its prediction" in page.locator(".claim .refusal").first.inner_text()
        window.check()
