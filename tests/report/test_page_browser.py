"""The pages in a real browser, at desktop and phone width: content, console, overflow, keyboard, colours."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from tests.report.browser import chromium, needs_browser, probe, screenshot
from tests.report.explanations import frac_prevs, index_rows, invert_if_sorted, natural
from vesalius.api import load
from vesalius.report.pages import render_index, render_page

pytestmark = [needs_browser, pytest.mark.slow]
DESKTOP, PHONE = 1280, 390
WIDTHS = (DESKTOP, PHONE)

#: Everything unfolded, so that nothing that overflows can hide.
LOOK = """
document.querySelectorAll("details").forEach(function (d) { d.open = true; });
var wide = Array.from(document.querySelectorAll("main *")).filter(function (e) {
  return !e.closest(".scroll, pre, svg, .unseen, .claims thead") && e.getBoundingClientRect().right > innerWidth + 0.5;
}).map(function (e) { return e.tagName + "." + e.className; });
var reachable = Array.from(document.querySelectorAll("a, button, summary, pre, .scroll[tabindex]"));
var button = document.getElementById("theme"), before = getComputedStyle(document.body).backgroundColor;
var label = button.textContent;
button.click();
var after = getComputedStyle(document.body).backgroundColor;
return {
  wide: wide, text: document.body.innerText, title: document.title, before: before, after: after, label: label,
  unreachable: reachable.filter(function (e) { return e.tabIndex < 0; }).length,
  broken: Array.from(document.querySelectorAll('a[href^="#"]')).filter(function (a) {
    return !document.getElementById(a.getAttribute("href").slice(1));
  }).length,
  boxes: document.querySelectorAll(".circuit a").length,
  drawn: Array.from(document.querySelectorAll(".circuit a rect.box")).every(function (r) {
    return r.getBoundingClientRect().width > 60;
  }),
  swatches: new Set(Array.from(document.querySelectorAll(".legend .swatch")).map(function (s) {
    return getComputedStyle(s).backgroundColor;
  })).size
};
"""
SORT = """
function column(n) { return Array.from(document.querySelectorAll("tbody tr")).map(function (r) {
  return r.cells[n].textContent.trim(); }); }
function state() { return Array.from(document.querySelectorAll("thead th")).map(function (h) {
  return h.getAttribute("aria-sort"); }); }
var buttons = document.querySelectorAll("thead button");
buttons[1].click(); var down = column(1), downState = state();
buttons[0].click(); var names = column(0);
buttons[5].click(); var up = column(5); buttons[5].click(); var agreement = column(5);
return { down: down, downState: downState, names: names, up: up, agreement: agreement,
  status: document.getElementById("sorted").textContent,
  unreachable: Array.from(buttons).filter(function (b) { return b.tabIndex < 0 || b.tagName !== "BUTTON"; }).length };
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        explanation.specimen: render_page(
            explanation, folder / f"{explanation.specimen}.html", specimen=load(explanation.specimen)
        )
        for explanation in (frac_prevs(), invert_if_sorted())
    }
    made["natural"] = render_page(natural(), folder / "natural.html")
    return made | {"index": render_index(index_rows(), folder / "index.html")}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "boxes"), [("frac_prevs", 2), ("invert_if_sorted", 10)])
def test_evidence_page(pages: dict[str, Path], name: str, boxes: int, width: int) -> None:
    found = probe(pages[name], LOOK, width=width)
    assert found["errors"] == []
    assert found["width"] == width
    assert found["scrollWidth"] <= width
    assert found["wide"] == []
    assert (found["boxes"], found["drawn"], found["swatches"]) == (boxes, True, 5)
    assert (found["broken"], found["unreachable"]) == (0, 0)
    for words in (name, "Information flow", "Hypotheses tried and refuted", f"vesalius explain {name} --seed"):
        assert words in found["text"]
    assert (found["before"], found["after"]) == ("rgb(255, 255, 255)", "rgb(21, 24, 28)")


@pytest.mark.parametrize("width", WIDTHS)
def test_page_of_a_natural_model(pages: dict[str, Path], width: int) -> None:
    roles = """return Object.assign((function () { %s })(), { spilling:
      Array.from(document.querySelectorAll(".circuit a")).filter(function (a) {
        var box = a.querySelector("rect.box").getBoundingClientRect();
        return a.querySelector(".box-role").getBoundingClientRect().right > box.right - 1; }).length,
      bars: document.querySelectorAll(".bars svg rect").length });"""
    found = probe(pages["natural"], roles % LOOK, width=width)
    assert (found["errors"], found["wide"], found["scrollWidth"] <= width) == ([], [], True)
    assert (found["boxes"], found["spilling"], found["bars"]) == (3, 0, 7)
    for words in ("previous-token head, necessary upstream", "What it is worth", "--behaviour induction --n 16"):
        assert words in found["text"]


def test_dark_by_preference(pages: dict[str, Path]) -> None:
    found = probe(pages["frac_prevs"], LOOK, width=DESKTOP, dark=True)
    assert (found["before"], found["label"], found["after"]) == ("rgb(21, 24, 28)", "Light", "rgb(255, 255, 255)")


@pytest.mark.parametrize("width", WIDTHS)
def test_index_sorts(pages: dict[str, Path], width: int) -> None:
    found = probe(pages["index"], SORT, width=width)
    assert found["errors"] == []
    assert found["scrollWidth"] <= width
    assert found["down"] == ["113", "20", "3"]
    assert found["downState"] == ["none", "descending", *["none"] * 5]
    assert found["names"] == ["<b>frac</b> & co", "invert_if_sorted", "spam_message_detector"]
    assert found["up"] == ["0.870", "0.998", "–"]
    assert found["agreement"] == ["0.998", "0.870", "–"]
    assert found["status"] == "Sorted by Program agrees, descending"
    assert found["unreachable"] == 0


@pytest.mark.parametrize("name", ["frac_prevs", "invert_if_sorted", "index"])
def test_untouched_page_runs_under_its_own_policy(pages: dict[str, Path], name: str) -> None:
    document, console = chromium(pages[name], "--dump-dom", "--virtual-time-budget=1000")
    assert console == []
    assert 'aria-label="Switch to dark colours"' in document, "the page's own script did not run"


def test_foreign_script_in_a_page_does_not_run(pages: dict[str, Path], tmp_path: Path) -> None:
    spoiled = tmp_path / "spoiled.html"
    text = pages["frac_prevs"].read_text(encoding="utf-8")
    spoiled.write_text(text.replace("<main", "<script>document.title='taken'</script><main"), encoding="utf-8")
    document, console = chromium(spoiled, "--dump-dom", "--virtual-time-budget=1000")
    assert "<title>taken</title>" not in document
    assert any("Content Security Policy" in line for line in console)


@pytest.mark.parametrize(("width", "dark"), [(DESKTOP, False), (DESKTOP, True), (PHONE, False)])
def test_screenshots_show_a_page(pages: dict[str, Path], tmp_path: Path, width: int, dark: bool) -> None:
    picture = matplotlib.image.imread(
        screenshot(pages["invert_if_sorted"], tmp_path / "page.png", width=width, height=1400, dark=dark)
    )
    assert picture.shape[:2] == (1400, max(width, 500))
    page = picture[:, :width, :3]
    lightness = page.mean(-1)
    assert (np.median(lightness) > 0.9) != dark
    assert np.ptp(lightness) > 0.7, "text stands out from its ground"
    coloured = np.ptp(page, axis=-1) > 0.3
    assert coloured.sum() > 500, "tag colours are there"
