"""The notebook widget: what it is given in Python, and what its script draws of that in a browser, without Jupyter."""

import json
import sys
from typing import Any

import pytest

import vesalius as ves
from tests.report.browser import needs_browser
from tests.report.explanations import frac_prevs
from tests.workbench.graphs import large_discovery
from vesalius.errors import BadInput, Note
from vesalius.report.widgets import SCRIPT, shown_of

#: A page that runs the script as a notebook would: `render` with a model that holds the traits.
PAGE = """<!doctype html><html lang="en"><head><title>widget</title></head><body data-jp-theme-light="true">
<main><h1>notebook</h1><p>text</p><div id="out"></div></main><script type="module">
const traits = {shown: %s, chosen: []}, listeners = {};
const model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; (listeners[`change:${name}`] || []).forEach((one) => one()) },
  save_changes: () => { window.saved = [...traits.chosen] },
  on: (event, changed) => { (listeners[event] ||= []).push(changed) },
  off: (event, changed) => { listeners[event] = listeners[event].filter((one) => one !== changed) },
};
const script = new Blob([document.getElementById("script").textContent], {type: "text/javascript"});
const widget = (await import(URL.createObjectURL(script))).default;
window.model = model;
window.leave = widget.render({model, el: document.getElementById("out")});
window.listeners = listeners;
</script><script id="script" type="text/plain">%s</script></body></html>"""


def drawn(window: Any, shown: dict[str, Any]) -> Any:
    """The page after `render`."""
    page = window.page
    page.set_content(PAGE % (json.dumps(shown).replace("<", "\\u003c"), SCRIPT.read_text(encoding="utf-8")))
    page.wait_for_function("window.leave !== undefined")
    return page


def test_maps_hold_every_component() -> None:
    effects = ves.sweep("frac_prevs", n=2, progress=False)
    shown = shown_of(effects)
    assert (shown["kind"], shown["layers"], shown["heads"]) == ("headmap", 2, 4)
    assert len(shown["values"]) == 10
    ranked = {str(members[0]): effect for members, effect in effects.ranked()}
    assert shown["values"] == pytest.approx(ranked)
    json.dumps(shown)
    explained = shown_of(frac_prevs())
    assert explained["marked"] == ["L0_MLP", "L1H2"]
    assert (explained["layers"], explained["heads"], explained["values"]) == (2, 3, {})
    specimen = shown_of(ves.load("frac_prevs"))
    assert (specimen["layers"], specimen["heads"], specimen["marked"]) == (2, 4, ["L0_MLP", "L1H2"])


def test_attention_is_handed_over_whole() -> None:
    look = ves.attention("frac_prevs", ["a", "x", "b"], layer=1)
    shown = shown_of(look)
    assert shown["tokens"] == ["BOS", "a", "x", "b"]
    assert [head["head"] for head in shown["heads"]] == ["L1H0", "L1H1", "L1H2", "L1H3"]
    assert shown["heads"][2]["pattern"] == [list(row) for row in look.heads[2].pattern]


def test_what_has_no_map_says_so() -> None:
    with pytest.raises(BadInput, match="a Look has no widget"):
        ves.look("frac_prevs", ["a"]).widget()
    with pytest.raises(BadInput, match="pairs has no map"):
        shown_of(ves.api.sweep_report("frac_prevs", n=1, pairs=True, progress=False))


def test_without_anywidget_the_table_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from vesalius.report import widgets

    monkeypatch.setitem(sys.modules, "anywidget", None)
    widgets._widget_class.cache_clear()
    result = frac_prevs()
    with pytest.warns(Note, match=r"needs anywidget: pip install 'vesalius\[notebook\]'"):
        assert result.widget() is result
    widgets._widget_class.cache_clear()


def test_traits_of_the_widget() -> None:
    pytest.importorskip("anywidget", reason="the package anywidget is not installed")
    made = frac_prevs().widget()
    state = made.get_state()
    assert state["shown"] == shown_of(frac_prevs())
    assert state["chosen"] == []
    assert "render" in state["_esm"]
    made.chosen = ["L0H0"]
    with pytest.raises(Exception, match="unicode"):
        made.chosen = [3]


@needs_browser
def test_a_map_is_drawn_and_choices_come_back(browser: Any) -> None:
    shown = {"kind": "headmap", "title": "<b>map</b>", "layers": 2, "heads": 2}
    shown |= {"values": {"L0H0": 0.5, "L0H1": -0.125, "L1_MLP": 0.25}, "marked": ["L1H0"]}
    with browser.bare_window() as window:
        page = drawn(window, shown)
        assert page.get_by_text("<b>map</b>").count() == 1
        cells = page.locator(".cell")
        assert cells.count() == 6
        classes = dict(cells.evaluate_all("(all) => all.map((one) => [one.dataset.component, one.className])"))
        assert "shade9 positive" in classes["L0H0"]
        assert "shade5 negative" in classes["L0H1"]
        assert "marked" in classes["L1H0"]
        cells.and_(page.locator("[data-component=L0H1]")).click()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert page.evaluate("window.saved") == ["L0H1", "L1H1"]
        page.evaluate("window.model.set('chosen', ['L1H1'])")
        assert page.locator("[aria-pressed=true]").evaluate_all("(all) => all.map((one) => one.dataset.component)") == [
            "L1H1"
        ]
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == "32px"
        assert window.faults() == []
        page.evaluate("window.leave()")
        assert page.evaluate("Object.values(window.listeners).flat().length") == 0
        assert window.errors == []
        assert window.hosts <= {""}


@needs_browser
def test_attention_is_drawn(browser: Any) -> None:
    shown = shown_of(ves.attention("frac_prevs", ["a", "x", "b"], layer=1))
    with browser.bare_window() as window:
        page = drawn(window, shown)
        assert page.locator(".head").count() == 4
        assert page.locator(".token").count() == 4
        page.get_by_role("button", name="L1H2").click()
        assert "L1H2 from “b” (position 3)" in page.locator(".large").inner_text()
        page.locator(".token").nth(2).focus()
        page.keyboard.press("Enter")
        assert "L1H2 from “x” (position 2)" in page.locator(".large").inner_text()
        assert page.locator(".token.query:focus").count() == 1
        assert window.errors == []


@needs_browser
def test_the_graph_of_a_circuit_is_drawn(browser: Any) -> None:
    circuit = large_discovery(60, layers=3, heads=2).circuit
    shown = shown_of(circuit)
    assert [id for id, _ in shown["edges"]] == [edge.format() for edge, _ in circuit.ranked_edges()]
    with browser.bare_window() as window:
        page = drawn(window, shown)
        assert page.locator(".picture path.edge:not(.hot)").count() == 40
        page.get_by_label("edges by score").fill("1000")
        assert page.locator(".picture path.edge:not(.hot)").count() == 60
        page.get_by_role("button", name="L1H0").click()
        assert page.evaluate("window.saved") == ["L1H0"]
        assert page.locator(".box[aria-pressed=true]").inner_text() == "L1H0"
        assert page.locator(".picture path.edge:not(.hot)").count() == 60
        focused = "document.querySelector('#out > div').shadowRoot.activeElement.dataset.name"
        for pressed in ("false", "true"):
            page.keyboard.press("Enter")  # everything is drawn again, and the keyboard stays where it was
            assert page.evaluate(focused) == "L1H0"
            assert page.locator(".box[data-name=L1H0]").get_attribute("aria-pressed") == pressed
        page.keyboard.press("ArrowDown")
        assert page.evaluate(focused) != "L1H0"
        assert window.faults() == []
        assert window.errors == []
