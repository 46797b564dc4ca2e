"""A what-if with the keyboard alone, from the first page to the saved answer."""

from collections.abc import Iterator

import pytest

from tests.report.browser import needs_browser

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, Window, serving

pytestmark = needs_browser
FOCUSED = """() => { const one = document.activeElement;
  return one.getAttribute('aria-label') || one.labels?.[0]?.innerText || one.innerText || one.tagName }"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("results")) as server:
        yield server


def tab_to(window: Window, name: str) -> None:
    """Press the tab key until the element of this name has the focus, which must be visible."""
    for _ in range(80):
        window.page.keyboard.press("Tab")
        if window.page.evaluate(FOCUSED) == name:
            assert window.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"the tab key does not lead to {name!r}")


def test_a_what_if_with_the_keyboard_alone(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("")
        press = page.keyboard.press
        tab_to(window, "Specimens")
        press("Enter")
        page.get_by_text("Models that need no download").wait_for()
        tab_to(window, "frac_prevs")
        press("Enter")
        page.get_by_role("heading", name="frac_prevs").wait_for()
        tab_to(window, "What if a component were not there?")
        press("Enter")
        page.get_by_text("Without L0_MLP").wait_for()
        tab_to(window, "prompts")
        press("ControlOrMeta+a")
        page.keyboard.type("4")
        tab_to(window, "Choose none")
        press("Enter")
        page.get_by_text("Choose one or more components").wait_for()
        tab_to(window, "L0H0")
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Space"):
            press(key)
        page.get_by_role("heading", name="Without L1H2").wait_for()
        assert page.evaluate(FOCUSED) == "L1H2"
        press("ArrowDown")
        press("Enter")
        page.get_by_role("heading", name="Without L1H2, L1H3").wait_for()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"):
            press(key)
        assert page.evaluate(FOCUSED) == "L1_MLP"
        page.get_by_text("outputs changed").wait_for()
        tab_to(window, "Save among the results")
        press("Space")
        page.get_by_text("Saved as").wait_for()
        tab_to(window, "what-ifs/frac_prevs-zero-L1H2-L1H3")
        press("Enter")
        page.get_by_text("Ask it again").wait_for()
        window.check()
