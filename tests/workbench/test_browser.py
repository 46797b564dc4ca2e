"""The page in a real browser: every view answers from its address, at a phone's width and a desk's, light and dark."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, serving
from vesalius import api
from vesalius.documents import Retest, Sweep
from vesalius.documents.request import Request
from vesalius.report.html import macro, package_text
from vesalius.report.layout import plot
from vesalius.report.maps import shade

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=\"document.title='executed'\">"
VIEWS = {
    "runs": ["explained", "hostile", "5 of 5 results"],
    "result?path=explained": ["L1H2", " claims", "AGGREGATOR"],
    "result?path=swept": ["frac_prevs: zero ablation", "L0H0", "arrow keys move"],
    "result?path=kept": ["faithfulness of a circuit", "2 of 10 components", "random circuits of its size"],
    "result?path=again": ["a claim about L1H2 tested again", "supported", "seed 2"],
    "specimens": ["frac_prevs", "smollm2-135m"],
    "specimen?specimen=frac_prevs&layer=1": ["2 layers of 4 heads", "L1H3", "Outputs"],
    "what-if?specimen=frac_prevs&components=L0_MLP,L1H2&n=4": [
        "Without L0_MLP, L1H2",
        "outputs changed",
        "vesalius what-if",
    ],
    "compare?a=explained&b=hostile": ["Two explanations compared", "0 claims flipped"],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results, one of them hostile."""
    place = tmp_path_factory.mktemp("results")
    frac_prevs().save(place / "explained")
    frac_prevs().model_copy(update={"task_description": HOSTILE}).save(place / "hostile")
    api.sweep_report("frac_prevs", n=2, out=place / "swept", progress=False)
    api.faithfulness("frac_prevs", ["L1H2", "L0_MLP"], n=2, out=place / "kept", progress=False)
    claim = frac_prevs().components[1].claims[0]
    decided = {"before": claim, "before_seed": 0, "after": claim, "seconds": 0.5}
    asked = Request(command="retest", specimen="explained", seed=2)
    (place / "again").mkdir()
    Retest(request=asked, specimen="frac_prevs", component="L1H2", claim=1, **decided).write(
        place / "again" / "retest.json"
    )
    return place


@pytest.fixture(scope="module")
def served(results: Path) -> Iterator[Served]:
    with serving(results) as server:
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


@pytest.mark.parametrize("width", [390, 1600])
def test_every_view_fits_and_is_accessible(width: int, served: Served, browser: Browser) -> None:
    with browser.window(served, width=width) as window:
        window.check_views(VIEWS)


def test_a_long_question_shows_how_far_it_is_and_is_cancelled(served: Served, browser: Browser) -> None:
    """The server's side of it is in `test_working`; here its answers are held back until the button is pressed."""
    work = {"waiting": False, "step": "interventions", "done": 3, "total": 12, "seconds": 4.0}
    with browser.window(served) as window:
        page = window.page
        held = []
        page.route("**/api/what-if", lambda route: held.append(route))
        page.route("**/api/work?*", lambda route: route.fulfill(json={"work": work}))

        def cancelled(route: Any) -> None:
            assert route.request.post_data_json["name"] == held[0].request.headers["x-vesalius-work"]
            held[0].fulfill(json={"stopped": "it was cancelled"})
            route.fulfill(json={"found": True})

        page.route("**/api/work/cancel", cancelled)
        page.goto(served.address("what-if?specimen=frac_prevs&components=L0_MLP"))
        page.get_by_text("interventions 3 of 12, 4.0 s").wait_for()
        assert page.locator(".work progress").evaluate("(bar) => [bar.value, bar.max]") == [3, 12]
        assert window.faults() == []
        page.get_by_role("button", name="Cancel").press("Enter")
        page.get_by_text("Cancelled.").wait_for()
        assert page.locator(".work progress").count() == 0
        page.unroute("**/api/what-if")
        page.get_by_label("seed").fill("3")
        page.get_by_label("seed").press("Tab")
        page.get_by_text("outputs changed").wait_for()
        window.check()


def test_nothing_of_a_result_is_executed(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=hostile")
        assert "&lt;img src=x" in page.content()
        assert page.title() != "executed"
        window.check()


def test_strips_are_those_of_the_static_page(served: Served, browser: Browser) -> None:
    """Every path and circle of every strip, as the template draws it."""
    claims = [claim for part in frac_prevs().components for claim in part.claims]
    expected = [macro("parts.html", "forest", plot(line)) for claim in claims for line in claim.evidence]
    with browser.window(served) as window:
        page = window.open("result?path=explained")
        page.locator(".claim").first.wait_for()
        strips = page.locator(".strip").evaluate_all(
            "(all) => all.map((one) => [one.getAttribute('viewBox'), ...[...one.children].map((part) => "
            "part.getAttribute('d') || part.getAttribute('cx') + ' ' + part.getAttribute('r'))])"
        )
    drawn = [
        [re.findall(r'viewBox="([^"]+)"', text)[0]]
        + [d or f"{x} {r}" for d, x, r in re.findall(r' d="([^"]+)"|<circle cx="([^"]+)" cy="9" r="([^"]+)"', text)]
        for text in expected
        if text.strip()
    ]
    assert strips == drawn


def test_shades_are_those_of_the_static_page(served: Served, browser: Browser, results: Path) -> None:
    rows = Sweep.read(results / "swept" / "sweep.json").components
    reach = max(abs(row.effect) for row in rows)
    with browser.window(served) as window:
        page = window.open("result?path=swept")
        found = page.locator(".cell").evaluate_all("(all) => all.map((one) => [one.dataset.component, one.className])")
    classes = dict(found)
    for row in rows:
        assert f"shade{shade(row.effect, reach)} " in classes[row.id]


def test_both_style_sheets_give_shared_names_one_colour() -> None:
    """`light-dark(A, B)` of the static pages against the two blocks of the workbench."""
    shared = set(re.findall(r"var\((--[a-z]+)\)", package_text("parts.css")))
    pages = dict(re.findall(r"(--[a-z]+): light-dark\(([^)]+)\)", package_text("style.css")))
    own = (resources.files("vesalius_workbench") / "static" / "style.css").read_text(encoding="utf-8")
    values: dict[str, list[str]] = {}
    for name, value in re.findall(r"(--[a-z]+): (#[0-9a-f]+);", own):
        values.setdefault(name, []).append(value)
    assert {"--ink", "--paper", "--quiet", "--line", "--ground", "--link", "--heat", "--combiner"} <= shared
    for name in shared:
        light, dark = pages[name].split(", ")
        assert values[name] == [light, dark, dark], name
