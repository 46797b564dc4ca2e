"""The page of a discovered circuit in a real browser, at desktop and phone width: errors, overflow, drawings."""

from pathlib import Path

import pytest

from tests.report.browser import chromium, needs_browser, probe
from tests.report.test_discovery import written
from vesalius.report.pages import render_discovery

pytestmark = [needs_browser, pytest.mark.slow]

LOOK = """
var wide = Array.from(document.querySelectorAll("main *")).filter(function (e) {
  return !e.closest(".scroll, pre, svg, .unseen") && e.getBoundingClientRect().right > innerWidth + 0.5;
}).map(function (e) { return e.tagName + "." + e.className; });
var drawings = Array.from(document.querySelectorAll("main svg[role=img]"));
return {
  wide: wide, text: document.body.innerText,
  unnamed: drawings.filter(function (s) { return !s.getAttribute("aria-label"); }).length,
  sizes: drawings.map(function (s) { return s.getBoundingClientRect().width > 100; }),
  spilling: Array.from(document.querySelectorAll("main svg text")).filter(function (t) {
    var box = t.getBoundingClientRect(), frame = t.ownerSVGElement.getBoundingClientRect();
    return box.right > frame.right + 1 || box.left < frame.left - 1 || box.bottom > frame.bottom + 1;
  }).map(function (t) { return t.textContent; }),
  broken: Array.from(document.querySelectorAll('a[href^="#"]')).filter(function (a) {
    return !document.getElementById(a.getAttribute("href").slice(1)); }).length
};
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_page(tmp_path: Path, width: int) -> None:
    page = render_discovery(written(tmp_path))
    found = probe(page, LOOK, width=width)
    assert (found["errors"], found["wide"], found["scrollWidth"] <= width) == ([], [], True)
    assert (found["unnamed"], found["spilling"], found["broken"]) == (0, [], 0)
    assert found["sizes"] == [True, True, True]
    assert "Can it be trusted?" in found["text"]


def test_pictures_stand_alone(tmp_path: Path) -> None:
    render_discovery(written(tmp_path))
    for name in ("heads.svg", "circuit.svg", "curve.svg"):
        _, console = chromium(tmp_path / name, "--dump-dom", "--virtual-time-budget=500")
        assert console == []
