"""What the page keeps: a view as one file that needs nothing else, and a what-if as a result of the directory."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, Window, serving
from vesalius import api

pytestmark = needs_browser
HOSTILE = "</main></style><img src=x onerror=\"document.title='executed'\"><script>document.title='executed'</script>"
VIEWS = [
    "runs",
    "result?path=explained",
    "result?path=hostile",
    "specimens",
    "specimen?specimen=frac_prevs&layer=1&component=L1H2",
    "what-if?specimen=frac_prevs&components=L1H2&n=4",
    "compare?a=explained&b=hostile",
]
#: What a reader sees: the text and the colours of every element with text of its own, controls that only act left out.
LOOK = """(place) => [...place.querySelectorAll('h1, h2, h3, p, td, th, .cell, .token, pre, select, textarea')]
  .filter((one) => !one.closest('.not-saved') && !one.querySelector('button:not([class])'))
  .filter((one) => one.textContent || one.value || one.className)
  .map((one) => { const s = getComputedStyle(one);
    const text = one.value || one.textContent;
    return [one.tagName, text, s.color, s.backgroundColor, s.borderTopColor, s.fontSize, s.opacity] })"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    frac_prevs().save(place / "explained")
    frac_prevs().model_copy(update={"task_description": HOSTILE}).save(place / "hostile")
    return place


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    with serving(place) as server:
        yield server


def saved(window: Window, view: str, directory: Path) -> Path:
    """The file that the button makes of a view."""
    page = window.open(view)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save this view").click()
    file = directory / waiting.value.suggested_filename
    waiting.value.save_as(file)
    return file


@pytest.mark.parametrize(("scheme", "views"), [("light", VIEWS), ("dark", VIEWS[1:5:3])])
def test_a_saved_view_looks_the_same_and_fetches_nothing(
    scheme: Any, views: list[str], served: Served, browser: Browser, tmp_path: Path
) -> None:
    with browser.window(served, scheme=scheme) as window:
        for view in views:
            file = saved(window, view, tmp_path)
            shown = window.page.locator("main").evaluate(LOOK)
            assert len(shown) > 3
            text = file.read_text(encoding="utf-8")
            assert re.search(rf"{re.escape(served.token)}|127\.0\.0\.1|localhost", text) is None
            assert text.index("Content-Security-Policy") < text.index("<style>")
            window.page.goto("about:blank")
            window.hosts.clear()
            window.page.goto(file.as_uri())
            assert window.page.locator("main").evaluate(LOOK) == shown, view
            assert window.hosts == {""}
            assert window.page.title() != "executed"
            assert window.page.locator("main img, main script, main a[href^='/']").count() == 0
            window.check()
        assert window.faults() == []


def test_the_button_of_a_saved_view_changes_its_colours(served: Served, browser: Browser, tmp_path: Path) -> None:
    with browser.window(served) as window:
        file = saved(window, "result?path=explained", tmp_path)
        page = window.page
        page.goto(file.as_uri())
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        page.get_by_role("button", name="Switch to dark").click()
        assert page.evaluate(ground) != light
        window.check()


def test_drawings_and_typed_values_are_kept(served: Served, browser: Browser, tmp_path: Path) -> None:
    with browser.window(served) as window:
        page = window.open("runs")
        page.get_by_label("words").fill("expl")
        page.evaluate("""() => { const canvas = document.createElement('canvas'); canvas.width = canvas.height = 8;
          canvas.setAttribute('aria-label', 'a drawing'); const pen = canvas.getContext('2d');
          pen.fillStyle = 'rgb(10, 200, 30)'; pen.fillRect(0, 0, 8, 8);
          document.querySelector('main').append(canvas) }""")
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Save this view").click()
        waiting.value.save_as(tmp_path / "runs.html")
        page.goto((tmp_path / "runs.html").as_uri())
        assert page.get_by_label("words").input_value() == "expl"
        assert page.get_by_label("words").is_disabled()
        picture = page.get_by_role("img", name="a drawing")
        colour = picture.evaluate("""(image) => { const canvas = document.createElement('canvas');
          const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0);
          return [...pen.getImageData(4, 4, 1, 1).data] }""")
        assert colour == [10, 200, 30, 255]
        window.check()


def test_a_what_if_is_saved_listed_and_asked_again(served: Served, browser: Browser, place: Path) -> None:
    with browser.window(served) as window:
        page = window.page
        for _ in range(2):
            window.open("what-if?specimen=frac_prevs&components=L0_MLP,L1H2&n=4&seed=3")
            page.get_by_role("button", name="Save among the results").click()
            page.get_by_text("Saved as").wait_for()
        page.get_by_role("link", name="frac_prevs-zero-L0_MLP-L1H2-2").click()
        page.get_by_role("link", name="Ask it again").click()
        page.get_by_text("Without L0_MLP, L1H2").wait_for()
        assert page.get_by_label("seed").input_value() == "3"
        assert "frac_prevs-zero-L0_MLP-L1H2-2" in window.open("runs").content()
        window.check()
    files = sorted((place / "what-ifs").glob("*/what_if.json"))
    assert [file.parent.name for file in files] == ["frac_prevs-zero-L0_MLP-L1H2", "frac_prevs-zero-L0_MLP-L1H2-2"]
    again = api.what_if_again(files[1])
    assert again.request.components == ("L0_MLP", "L1H2")
    assert again.request.seed == 3
    assert [row.prompt for row in again.rows] == [row.prompt for row in api.what_if_again(files[0]).rows]
