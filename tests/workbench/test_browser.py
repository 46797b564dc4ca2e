"""The page in a real browser: every view answers from its address, at a phone's width and a desk's, light and dark."""

from collections.abc import Iterator

import pytest

from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, serving

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=\"document.title='executed'\">"
VIEWS = {
    "runs": ["explained", "hostile", "2 of 2 results"],
    "result?path=explained": ["L1H2", " claims", "AGGREGATOR"],
    "specimens": ["frac_prevs", "smollm2-135m"],
    "specimen?specimen=frac_prevs&layer=1": ["2 layers of 4 heads", "L1H3", "Outputs"],
    "what-if?specimen=frac_prevs&components=L0_MLP,L1H2&n=4": [
        "Without L0_MLP, L1H2",
        "outputs changed",
        "vesalius what-if",
    ],
    "compare?a=explained&b=hostile": ["Two explanations", "Claims that flipped: 0"],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on results, one of them hostile."""
    place = tmp_path_factory.mktemp("results")
    frac_prevs().save(place / "explained")
    frac_prevs().model_copy(update={"task_description": HOSTILE}).save(place / "hostile")
    with serving(place) as server:
        yield server


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_answers(view: str, served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        shown = window.open(view).content()
        window.check()
    for text in VIEWS[view]:
        assert text in shown


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("what-if?specimen=frac_prevs&components=L9H9", "component L9H9 is not in this model"),
        ("result?path=../secret", "is not below the directory"),
    ],
)
def test_a_refusal_is_told(view: str, expected: str, served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        assert expected in window.open(view).content()
        window.check(refusals=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_every_view_fits_and_is_accessible(width: int, scheme: str, served: Served, browser: Browser) -> None:
    with browser.window(served, width=width, scheme=scheme) as window:  # type: ignore[arg-type]
        faults, wide = [], []
        for view in VIEWS:
            page = window.open(view)
            faults += [f"{view}: {fault}" for fault in window.faults()]
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(view)
        window.check()
    assert faults == []
    assert wide == []


def test_nothing_of_a_result_is_executed(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=hostile")
        assert "&lt;img src=x" in page.content()
        assert page.title() != "executed"
        window.check()
