"""The circuit in a real browser: threshold, pin, prune, undo, faithfulness, by mouse and by keyboard."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs
from tests.workbench.graphs import large_discovery

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

import vesalius as ves
from tests.workbench.browsing import Browser, Served, serving
from vesalius.documents import Circuit, Discovery

pytestmark = needs_browser
VIEWS = {
    "circuit?path=found": ["circuit by eap", "Recompute the faithfulness", "dotted end"],
    "circuit?path=scored": ["circuit by sweep", "No edges were measured"],
    "circuit?path=explained": [
        "explained by builtin",
        "on request the rest is cut",
        "cut every edge that is not drawn",
    ],
    "component?specimen=frac_prevs&component=L1H2&prompt=a+x": ["L1H2 of frac_prevs", "is attended to from"],
    "component?specimen=frac_prevs&component=L0_MLP&path=explained": ["reads at its own position", "computes is_x"],
    "component": ["Choose a component"],
    "circuit": ["Choose a discovery or an explanation"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    ves.discover("frac_prevs", "eap", n=4, checks=False).save(place / "found")
    ves.discover("frac_prevs", "sweep", n=4, checks=False).save(place / "scored")
    frac_prevs().save(place / "explained")
    large_discovery(10_000).save(place / "large")
    return place


@pytest.fixture(scope="module")
def found(place: Path) -> Discovery:
    return Discovery.read(place / "found" / "discovery.json")


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    with serving(place) as server:
        yield server


def drawn(page: Any) -> int:
    return int(page.locator(".stage").get_attribute("data-edges"))


def query(page: Any) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize("view", VIEWS)
def test_a_circuit_is_shown(view: str, served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        shown = window.open(view).content()
        window.check()
    for text in VIEWS[view]:
        assert text in shown


def choose_a_box(page: Any) -> None:
    """Its panel is part of what is looked at."""
    if page.locator(".box").count():
        page.locator(".box").nth(1).click()


@pytest.mark.parametrize("width", [390, 1600])
def test_circuits_fit_and_are_accessible(width: int, served: Served, browser: Browser) -> None:
    with browser.window(served, width=width) as window:
        window.check_views(VIEWS, before=choose_a_box)


def test_the_threshold_moves_edges_and_the_address_keeps_it(served: Served, browser: Browser, found: Discovery) -> None:
    scores = [abs(score) for _, score in found.circuit.ranked_edges() if score]
    with browser.window(served) as window:
        page = window.open(f"circuit?path=found&least={scores[4]!r}")
        assert drawn(page) == sum(score >= scores[4] for score in scores)
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("End")
        page.wait_for_function(f"document.querySelector('.stage').dataset.edges === '{len(scores)}'")
        assert float(query(page)["least"][0]) == pytest.approx(scores[-1])
        page.keyboard.press("Home")
        page.wait_for_function("document.querySelector('.stage').dataset.edges === '0'")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("button", name="Undo").click()
        assert drawn(page) == sum(score >= scores[4] for score in scores)
        window.check()


def test_pinned_parts_stay_and_pruned_ones_go(served: Served, browser: Browser, found: Discovery) -> None:
    ranked = [(str(edge), abs(score)) for edge, score in found.circuit.ranked_edges()]
    weakest, strongest = ranked[7][0], ranked[0][0]
    with browser.window(served) as window:
        page = window.open(f"circuit?path=found&least={ranked[9][1]!r}")
        before = drawn(page)
        sender = found.circuit.ranked_edges()[7][0].sender
        page.locator(f".box[data-name='{sender or 'input'}']").click()
        page.get_by_role("button", name=f"pin {weakest}", exact=True).click()
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        page.wait_for_function("document.querySelector('.stage').dataset.edges === '1'")
        page.get_by_role("button", name="Undo").click()
        sender = found.circuit.ranked_edges()[0][0].sender
        page.locator(f".box[data-name='{sender or 'input'}']").click()
        page.get_by_role("button", name=f"prune {strongest}", exact=True).click()
        assert drawn(page) == before - 1
        assert (query(page)["pin"], query(page)["prune"]) == ([weakest], [strongest])
        page.reload()
        page.wait_for_load_state("networkidle")
        assert drawn(page) == before - 1
        page.get_by_role("button", name=f"restore {strongest}", exact=True).click()
        assert drawn(page) == before
        window.check()


def test_buttons_keep_the_keyboards_place(served: Served, browser: Browser) -> None:
    focused = "document.activeElement.innerText"
    with browser.window(served) as window:
        page = window.open("circuit?path=scored&least=0")
        page.locator(".box:not(.end)").first.click()
        page.get_by_role("button", name="Pin", exact=True).focus()
        for word in ("Unpin", "Pin"):
            page.keyboard.press("Enter")
            assert page.evaluate(focused) == word
        page.get_by_role("button", name="Prune", exact=True).focus()
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == "Restore"
        page.locator(".chip").focus()
        page.keyboard.press("Enter")
        assert page.evaluate(focused) == "Undo"
        window.check()


def test_the_faithfulness_shown_is_the_composers(served: Served, browser: Browser, found: Discovery) -> None:
    ranked = found.circuit.ranked_edges()
    least, pruned = abs(ranked[11][1]), str(ranked[0][0])
    expected = ves.faithfulness("frac_prevs", found, least=least, prune=[pruned], n=6, seed=2)
    plain = ves.faithfulness("frac_prevs", found, least=least, n=6, seed=2)
    with browser.window(served) as window:
        page = window.open(f"circuit?path=found&least={least!r}&prune={pruned.replace('>', '%3E')}&n=6&seed=2")
        page.get_by_role("button", name="Recompute the faithfulness").click()
        rows = page.locator(".measured tbody tr")
        rows.first.wait_for()
        values = [
            float(value)
            for value in rows.locator("[data-value]").evaluate_all("all => all.map(one => one.dataset.value)")
        ]
        figures = (expected.faithfulness.value, expected.random.value, plain.faithfulness.value)
        assert values == pytest.approx(figures, abs=1e-5)
        assert f"{expected.size} of {expected.candidates} edges" in rows.first.inner_text()
        assert f"[{expected.faithfulness.low:.3f}, {expected.faithfulness.high:.3f}]" in rows.first.inner_text()
        assert "vesalius faithfulness frac_prevs" in page.locator("pre").first.inner_text()
        page.locator(".box[data-name='L1H2']").press("x")
        assert page.locator(".measured .current").count() == 0
        window.check()


def test_pruning_by_keyboard_alone(served: Served, browser: Browser, found: Discovery) -> None:
    with browser.window(served) as window:
        page = window.open("circuit?path=found&least=0")
        page.locator(".box[tabindex='0']").focus()
        first = page.evaluate("document.activeElement.dataset.name")
        page.keyboard.press("ArrowDown")
        second = page.evaluate("document.activeElement.dataset.name")
        assert first != second
        page.keyboard.press("p")
        assert query(page)["pin"] == [second]
        assert page.evaluate("document.activeElement.dataset.name") == second
        page.keyboard.press("x")
        assert query(page)["prune"] == [second]
        assert "pin" not in query(page)
        assert page.locator(f".box[data-name='{second}']").count() == 0
        page.keyboard.press("Control+z")
        assert query(page)["pin"] == [second]
        page.keyboard.press("Control+Shift+Z")
        assert query(page)["prune"] == [second]
        page.keyboard.press("Enter")
        assert page.locator(".panel h2").inner_text() == page.evaluate("document.activeElement.textContent")
        window.check()


def test_single_keys_act_only_while_their_setting_is_on(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("circuit?path=found&least=0")
        box = page.locator(".box[data-name='L1H2']")
        page.get_by_label("single keys act").uncheck()
        for key in ("p", "x"):
            box.press(key)
        assert not {"pin", "prune"} & query(page).keys()
        page.reload()
        page.get_by_label("single keys act").wait_for()
        assert not page.get_by_label("single keys act").is_checked()
        page.get_by_label("single keys act").check()
        box.press("x")
        assert query(page)["prune"] == ["L1H2"]
        window.check()


def test_the_box_cuts_every_edge_that_is_not_drawn(served: Served, browser: Browser) -> None:
    """An explanation's circuit is its components; with the box ticked it is the paths that were measured."""
    explanation, specimen = frac_prevs(), ves.load("frac_prevs")
    paths = ves.explained_circuit(explanation, specimen)
    names = [part.id for part in explanation.components]
    by_components, by_paths = (
        ves.faithfulness("frac_prevs", components=components, n=4, seed=1) for components in (names, paths)
    )
    assert by_components.size == len(names) < by_paths.candidates
    with browser.window(served) as window:
        for tick, what, expected in ((False, "components", by_components), (True, "edges", by_paths)):
            page = window.open("circuit?path=explained&n=4&seed=1")
            page.get_by_label("cut every edge that is not drawn").set_checked(tick)
            page.get_by_role("button", name="Recompute the faithfulness").click()
            row = page.locator(".measured tbody tr").first
            row.wait_for()
            assert f"{expected.size} of {expected.candidates} {what}" in row.inner_text()
            shown = float(row.locator("[data-value]").first.get_attribute("data-value"))
            assert shown == pytest.approx(expected.faithfulness.value, abs=1e-5)
        assert query(page)["paths"] == ["yes"]
        window.check()


def test_an_edge_is_chosen_with_the_mouse(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("circuit?path=explained")
        upper, lower = (page.locator(f".box[data-name='{name}']").bounding_box() for name in ("L0_MLP", "L1H2"))
        middle = (upper["y"] + upper["height"] + lower["y"]) / 2
        page.mouse.click(upper["x"] + upper["width"] / 2, middle)
        assert page.locator(".panel h2").inner_text() == "L0_MLP → L1H2"
        window.check()


def test_a_pruned_circuit_is_saved_and_downloaded(served: Served, browser: Browser, place: Path) -> None:
    with browser.window(served) as window:
        page = window.open("circuit?path=found&least=0.05&prune=L1_MLP")
        page.get_by_label("file beside the result").fill("kept.json")
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_text(re.compile("Written: ")).wait_for()
        with page.expect_download() as fetched:
            page.get_by_role("link", name="Download the circuit file").click()
        downloaded = json.loads(Path(fetched.value.path()).read_text())
        window.check()
    assert downloaded == Circuit.read(place / "found" / "kept.json").as_data()


def test_ten_thousand_edges_are_drawn_on_a_canvas(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("circuit?path=large")
        assert page.locator(".stage").get_attribute("data-drawn") == "svg"
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        page.wait_for_function("document.querySelector('.stage').dataset.edges === '10000'")
        assert page.locator(".stage").get_attribute("data-drawn") == "canvas"
        painted = (
            "(canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(one => one))"
        )
        assert page.evaluate(f"{painted}(document.querySelector('.stage canvas'))")
        page.locator(".box[data-name='L5H3']").press("x")
        assert drawn(page) < 10_000
        window.check()


def test_a_refusal_is_told(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        assert "holds no circuit" in window.open("circuit?path=none").content()
        window.check(refusals=True)


def test_attention_under_the_mouse_and_by_keyboard(served: Served, browser: Browser) -> None:
    pattern = ves.attention("frac_prevs", ["a", "x", "b"], layer=1).heads[2].pattern
    with browser.window(served) as window:
        page = window.open("component?specimen=frac_prevs&component=L1H2&prompt=a+x+b")
        said = page.locator(".attention [role=status]")
        assert "“b” (position 3)" in said.inner_text()
        page.locator(".token.two").nth(1).hover()
        assert f"“a” (position 1) attends to “BOS” {100 * pattern[1][0]:.0f} %" in said.inner_text() or (
            f"“a” {100 * pattern[1][1]:.0f} %" in said.inner_text()
        )
        page.locator(".token.two").nth(1).focus()
        page.keyboard.press("ArrowRight")
        assert "“x” (position 2)" in said.inner_text()
        page.keyboard.press("Home")
        assert "“BOS” (position 0)" in said.inner_text()
        page.get_by_role("link", name="L1H0").click()
        page.get_by_role("heading", name="L1H0 of frac_prevs").wait_for()
        assert query(page)["component"] == ["L1H0"]
        window.check()


def test_a_component_is_reached_from_results_and_circuits(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("result?path=explained")
        page.locator("#component-L1H2").get_by_role("link", name="Look at it").click()
        page.get_by_role("heading", name="L1H2 of frac_prevs").wait_for()
        page.get_by_text("averages is_x").first.wait_for()
        page = window.open("circuit?path=explained")
        page.locator(".box[data-name='L0_MLP']").click()
        page.get_by_role("link", name="Look at it").click()
        page.get_by_role("heading", name="L0_MLP of frac_prevs").wait_for()
        window.check()
