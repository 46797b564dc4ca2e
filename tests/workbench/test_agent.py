"""The views Agent and Functions in a real browser: a run is started, watched, stopped, killed and resumed, and ends as
it should; nothing that a run wrote is executed.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.closeness import assert_same_document
from tests.processes import alive, until_gone
from tests.report.browser import needs_browser
from tests.runs.conversations import write_conversation
from tests.runs.function_runs import SECRET, write_function_run

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

import vesalius as ves
from tests.workbench.browsing import Browser, Served, serving

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=\"document.title='executed'\"><script>document.title='executed'</script>"
#: Studies L0_MLP with one claim, and waits before the classification until the gate is there.
SCRIPT = """
import time
from pathlib import Path

GATE = Path(__file__).with_name("gate")
PROGRAM = {
    "variables": [
        {"name": "is_x", "op": "map", "of": ["tokens"], "formula": "x == 'x'"},
        {"name": "so_far", "op": "select", "of": ["indices", "indices"], "comparison": "LEQ"},
        {"name": "share", "op": "aggregate", "of": ["so_far", "is_x"], "numerical": True},
    ],
    "output": "share",
}
CLAIM = {"kind": "depends_only_on", "component": "L0_MLP", "program": PROGRAM, "variables": ["is_x"]}
SAID = {
    "L0_MLP observation": {"observation": "It marks x.", "hypothesis": "L0_MLP says where x is."},
    "L0_MLP validation 1": {"explanation": "The engine supports it."},
    "classification": {"L0_MLP": {"tag": "INDICATOR", "description": "Marks x."}},
    "summary": {"information_flow": "From L0_MLP to the output.", "derived_task_description": "The share of x."},
}

def reply(request):
    spoken = sum(message.role == "assistant" for message in request.messages)
    if request.label == "L0_MLP validation 1" and not spoken:
        return {"tool_calls": [{"id": "1", "name": "check_claim", "arguments": {"claim": CLAIM}}]}
    while request.label == "classification" and not GATE.exists():
        time.sleep(0.02)
    return {"json": SAID[request.label]}
"""
VIEWS = {
    "agent": ["Start a run", "Keys are read from the environment"],
    "agent?path=recorded": ["L0_MLP validation 1", "❙❙ stopped", "It reads y.", "cost not known", "By component"],
    "agent?path=hostile": ["Show the first", "&lt;script&gt;"],
    "runs": ["recorded", "unfinished"],
    "functions": ["graded", "ungraded"],
    "functions?path=graded&function=f00001": ["quadratic", "A line.", "f(0) = 3", "the answer's code", "1 of 3"],
    "functions?path=graded&function=f00002": ["&lt;script&gt;"],
    "functions?path=ungraded": ["when the whole run is graded", "A parabola.", "not graded yet"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("agent")
    (top / "model.py").write_text(SCRIPT)
    for name in ("recorded", "hostile", "broken"):
        (top / "results" / name).mkdir(parents=True)
    write_conversation(top / "results" / "recorded" / "calls.jsonl")
    note = HOSTILE + "n" * 1_000_000
    write_conversation(top / "results" / "hostile" / "calls.jsonl", note=note, result=HOSTILE, code=HOSTILE)
    write_function_run(top / "results" / "graded", description=HOSTILE)
    write_function_run(top / "results" / "ungraded", graded=False)
    (top / "results" / "broken" / "calls.jsonl").write_text('{"kind": "outcome"\n[[[\n')
    return top


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    with serving(place / "results", "--allow-backbone", f"scripted:{place / 'model.py'}") as server:
        yield server


def shown_state(page: Any, state: str) -> None:
    page.wait_for_selector(f".state.{state}")


def worker(run: Path) -> int:
    """The process that says it works on a run."""
    return json.loads((run / "under_way.json").read_text())["pid"]


def answers(run: Path) -> int:
    return sum(b'"kind":"outcome"' in line for line in (run / "calls.jsonl").read_bytes().splitlines())


@pytest.mark.slow
def test_a_run_is_started_stopped_killed_and_resumed(place: Path, served: Served, browser: Browser) -> None:
    run, gate = place / "results" / "mine", place / "gate"
    arguments = (place / "results", "--allow-backbone", f"scripted:{place / 'model.py'}", "--leave-runs")
    with serving(*arguments) as server, browser.window(server) as window:
        page = window.open("agent")
        # By keyboard alone: every field has its label.
        page.get_by_label("specimen").fill("frac_prevs")
        page.get_by_label("components, comma-separated").fill("L0_MLP")
        page.get_by_label("directory").fill("mine")
        page.keyboard.press("Enter")
        page.wait_for_url("**/agent?path=mine")
        shown_state(page, "running")
        page.wait_for_selector("section[aria-label='L0_MLP observation'] >> text=It marks x.")
        page.wait_for_selector("section[aria-label='L0_MLP validation 1'] >> text=✓ supported")
        page.wait_for_selector("tr:has-text('L0_MLP says where x is.') >> text=engine")
        page.get_by_role("button", name="Stop").press("Enter")
        shown_state(page, "stopped")
        before = answers(run)
        page.get_by_role("button", name="Resume").press("Enter")
        assert "vesalius explain --out=" in page.locator(".confirm pre").inner_text()
        assert window.faults() == []
        page.keyboard.press("Enter")  # the button that starts it has the focus
        shown_state(page, "running")
        page.wait_for_selector(".state:has-text('classifying')")
        child = worker(run)
        window.check()
        server.process.kill()
    assert answers(run) == before  # what was recorded is not asked again
    assert alive(child)  # with --leave-runs a server that is killed takes no run with it
    with browser.window(served) as window:  # another server on the same directory
        page = window.open("agent?path=mine")
        shown_state(page, "running")
        os.kill(child, signal.SIGKILL)
        shown_state(page, "stopped")
        until_gone(child)
        assert answers(run) == before
        gate.touch()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Start it").click()
        shown_state(page, "finished")
        page.get_by_role("link", name="The result").click()
        page.wait_for_selector("text=The share of x.")
        window.check()
    twin = ves.explain("frac_prevs", ["L0_MLP"], backbone=f"scripted:{place / 'model.py'}", out=place / "whole")
    finished = json.loads((run / "explanation.json").read_text())
    assert_same_document(
        finished, json.loads((place / "whole" / "explanation.json").read_text()), leave_out=("seconds", "next")
    )
    assert finished["components"][0]["verdict"] == twin.components[0].verdict == "supported"
    assert answers(run) == answers(place / "whole")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_answers(view: str, served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        shown = window.open(view).content()
        window.check()
    for text in VIEWS[view]:
        assert text in shown


@pytest.mark.parametrize("width", [390, 1600])
def test_every_view_fits_and_is_accessible(width: int, served: Served, browser: Browser) -> None:
    with browser.window(served, width=width) as window:
        window.check_views(["agent", "agent?path=recorded", "functions?path=graded&function=f00001"])


def test_nothing_of_a_record_is_executed_and_long_texts_are_shown_on_request(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("agent?path=hostile")
        assert len(page.content()) < 200_000
        button = page.get_by_role("button", name="Show the first 1,000,000 of")
        button.click()
        button.wait_for(state="detached")
        assert page.evaluate("document.querySelector('.answer dd').textContent.length") == 1_000_000
        assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert page.title() != "executed"
        window.check()


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("agent?path=broken", "calls.jsonl, line 1: not a record of a call"),
        ("agent?path=nothing", "there is nothing to watch"),
        ("agent?path=../secret", "is not below the directory"),
        ("functions?path=recorded", "no run there"),
        ("functions?path=graded&function=../x", "not interpreted in this run"),
    ],
)
def test_what_cannot_be_read_is_told(view: str, expected: str, served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        assert expected in window.open(view).content()
        window.check(refusals=True)


def test_functions_by_keyboard_and_no_truth_before_the_grades(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("functions?path=graded&function=f00000")
        page.locator("[data-function=f00000]").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector("article[aria-label=f00001]")
        assert "function=f00001" in page.url
        assert SECRET in page.content()
        page.get_by_label("answers").select_option("right")
        assert page.locator(".functions-list button").count() == 1
        assert SECRET not in window.open("functions?path=ungraded").content()
        window.check()


def test_a_program_that_was_not_allowed_is_refused(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("agent")
        page.get_by_label("specimen").fill("frac_prevs")
        page.get_by_label("backbone, as PROVIDER:MODEL").fill("scripted:/tmp/evil.py")
        page.get_by_role("button", name="Start").click()
        page.wait_for_selector(".problem:has-text('--allow-backbone scripted:/tmp/evil.py')")
        window.check(refusals=True)
