"""The atlas in the workbench: its map leads to each head, and a component's page says what it is and does where."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
from starlette.testclient import TestClient

import vesalius as ves
from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs
from vesalius.documents import Explanation
from vesalius.documents.atlas import Atlas
from vesalius_workbench.server import create_app

HOST = "127.0.0.1:4321"


def explained(behaviour: str) -> Explanation:
    """The explanation of a circuit, as if it were one of a behaviour."""
    explanation = frac_prevs()
    assert explanation.request is not None
    request = explanation.request.model_copy(update={"behaviour": behaviour})
    return explanation.model_copy(update={"behaviour": behaviour, "request": request})


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    ves.atlas("frac_prevs", out=place / "atlas")
    explained("induction").save(place / "induction")
    explained("ioi").save(place / "ioi")
    frac_prevs().model_copy(update={"request": None, "specimen": "another"}).save(place / "another")
    return place


@pytest.fixture(scope="module")
def client(directory: Path) -> TestClient:
    entered = TestClient(create_app(directory, token="the-token", hosts={HOST}), base_url=f"http://{HOST}")
    entered.get("/?token=the-token")
    return entered


def about(client: TestClient, component: str, **query: str) -> dict[str, Any]:
    asked = {"specimen": "frac_prevs", "component": component, **query}
    return client.get("/api/component", params=asked).json()


@pytest.mark.parametrize("query", [{}, {"path": "atlas"}])
def test_a_head_is_told_with_its_part_in_every_behaviour(
    query: dict[str, str], client: TestClient, directory: Path
) -> None:
    told = about(client, "L1H2", **query)["atlas"]
    kept = Atlas.read(directory / "atlas" / "atlas.json").head("L1H2")
    role = {part.id: part.role or part.tag for part in frac_prevs().components}["L1H2"]
    assert (told["path"], told["said"], told["explanations"]) == ("atlas", kept.said(), 2)
    assert {(part["path"], part["behaviour"], part["role"]) for part in told["parts"]} == {
        ("induction", "induction", role),
        ("ioi", "ioi", role),
    }


def test_a_head_without_a_part_and_a_model_without_an_atlas(client: TestClient) -> None:
    assert about(client, "L0H0")["atlas"]["parts"] == []
    assert about(client, "L0_MLP")["atlas"]["said"] is None
    assert about(client, "L1H2", specimen="another")["atlas"] is None


def test_an_explanation_is_told_beside_the_atlas(client: TestClient) -> None:
    told = about(client, "L1H2", path="ioi")
    assert [one["path"] for one in told["results"]] == ["ioi"]
    assert told["atlas"]["path"] == "atlas"
    assert about(client, "L1H2", path="atlas")["results"] == []


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[Any]:
    pytest.importorskip("uvicorn")
    pytest.importorskip("playwright")
    from tests.workbench.browsing import serving

    with serving(directory) as server:
        yield server


@needs_browser
@pytest.mark.slow
def test_the_map_leads_to_a_head_and_that_to_its_behaviours(served: Any, browser: Any) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=atlas")
        page.locator(".headmap [data-component='L1H2']").first.click()
        assert page.evaluate("document.activeElement.closest('article').id") == "component-L1H2"
        page.locator("#component-L1H2").get_by_role("link", name="Look at it").click()
        page.get_by_text("Its part in behaviours").wait_for()
        page.get_by_role("link", name="induction", exact=True).first.click()
        page.get_by_role("heading", name="Claims").wait_for()
        window.check()
