"""Two people rate 34 texts by keyboard alone, the server is killed in between, and the printed kappa is the one that
was worked out by hand.
"""

import csv
import io
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Vesalius
from tests.report.browser import needs_browser
from tests.runs.annotated import RUNS, write_runs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("playwright")

from tests.workbench.browsing import Browser, Served, Window, serving

pytestmark = needs_browser
TOTAL = 34
#: What the two think of the 24 notes: score of ann, score of ben, how many notes. Distances: 3 of 1 and 1 of 2 make 5.
#: Shares of ann: 8, 8, 8 of 24; of ben: 8, 7, 9 of 24. Expected distance: (8*7 + 2*8*9 + 8*8 + 8*9 + 2*8*8 + 8*7) / 24
#: = 520 / 24. Kappa = 1 - 5 / (520 / 24) = 10 / 13.
NOTES = [(0, 0, 7), (0, 1, 1), (1, 1, 6), (1, 2, 2), (2, 2, 7), (2, 0, 1)]
NOTE_KAPPA = 10 / 13
#: And of the 10 tasks, plain kappa: they agree on 8. Ann gives 1 to 6, ben to 6. By chance (6*6 + 4*4) / 100 = 0.52.
TASKS = [(1, 1, 5), (1, 0, 1), (0, 1, 1), (0, 0, 3)]
TASK_KAPPA = (0.8 - 0.52) / (1 - 0.52)
#: Keys of the scores: wrong is 1 and correct is 3 for either measure.
NOTE_KEYS, TASK_KEYS = ("1", "2", "3"), ("1", "3")


def spread(table: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [(ann, ben) for ann, ben, count in table for _ in range(count)]


def opinions(runs: list[Path]) -> dict[int, dict[str, str]]:
    """The key that each rater presses, by the number in a text."""
    notes, tasks = iter(spread(NOTES)), iter(spread(TASKS))
    keys: dict[int, dict[str, str]] = {}
    for run in runs:
        for file in sorted((run / "explanations").glob("*.json")):
            data = json.loads(file.read_text())
            said = [(part["note"], notes, NOTE_KEYS) for part in data["components"]]
            for text, scores, names in [*said, (data["task_description"], tasks, TASK_KEYS)]:
                ann, ben = next(scores)
                keys[number_in(text)] = {"ann": names[ann], "ben": names[ben]}
    return keys


def number_in(text: str) -> int:
    found = re.search(r"Text (\d+)\.", text)
    assert found is not None
    return int(found[1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_runs(tmp_path_factory.mktemp("runs"))


def open_as(window: Window, rater: str) -> Any:
    """Type a name and begin, by keyboard."""
    page = window.open("annotate")
    for _ in range(12):
        if page.evaluate("document.activeElement.name") == "rater":
            break
        page.keyboard.press("Tab")
    page.keyboard.type(rater)
    page.keyboard.press("Enter")
    page.wait_for_selector(".rating h1")
    return page


def shows(page: Any, number: int) -> None:
    page.get_by_role("heading", name=f"Text {number} of {TOTAL}", exact=True).wait_for()


def rate(page: Any, rater: str, keys: dict[int, dict[str, str]], count: int) -> None:
    """Score the next `count` texts: a key for the score, Enter for the next one."""
    for _ in range(count):
        place, number = read(page)
        page.keyboard.press(keys[number][rater])
        if place < TOTAL:
            page.keyboard.press("Enter")
            shows(page, place + 1)
        else:
            page.wait_for_selector('.level[aria-pressed="true"]')


def read(page: Any) -> tuple[int, int]:
    """The place of the text that is shown, and the number in it."""
    heading, text = page.evaluate(
        "() => ['.rating h1', '.candidate blockquote'].map(one => document.querySelector(one).innerText)"
    )
    return int(heading.split()[1]), number_in(text)


@pytest.mark.slow
def test_two_raters_by_keyboard_alone(runs: list[Path], browser: Browser, vesalius: Vesalius, tmp_path: Path) -> None:
    place, keys = tmp_path / "ratings", opinions(runs)
    command = (*runs, "--annotate", "--reference", "--out", place)
    with serving(*command) as served, browser.window(served) as ann, browser.window(served) as ben:
        first, second = open_as(ann, "ann"), open_as(ben, "ben")
        rate(first, "ann", keys, 20)
        rate(second, "ben", keys, 3)
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    assert len(vesalius_ratings(vesalius, place)["items"]) >= 20
    with serving(*command) as served, browser.window(served) as ann, browser.window(served) as ben:
        first, second = open_as(ann, "ann"), open_as(ben, "ben")
        assert first.inner_text(".rating h1") == f"Text 21 of {TOTAL}"
        assert second.inner_text(".rating h1") == f"Text 4 of {TOTAL}"
        assert f"20 of {TOTAL} rated" in first.inner_text(".progress")
        rate(first, "ann", keys, TOTAL - 20)
        rate(second, "ben", keys, TOTAL - 3)
        assert f"{TOTAL} of {TOTAL} rated" in second.inner_text(".progress")
        exported = export(ann, "#all-ratings")
        ann.check()
        ben.check()
    (tmp_path / "all.csv").write_text(exported)
    printed = vesalius("ratings", tmp_path / "all.csv").out
    assert re.search(rf"ann \| ben\s+description quality\s+{NOTE_KAPPA:.3f} ", printed)
    assert re.search(rf"ann \| ben\s+task accuracy\s+{TASK_KAPPA:.3f} ", printed)
    report = vesalius_ratings(vesalius, tmp_path / "all.csv")
    kappas = {pair["measure"]: (pair["kappa"], pair["n"]) for pair in report["pairs"]}
    assert kappas["description_quality"] == (pytest.approx(NOTE_KAPPA), 24)
    assert kappas["task_accuracy"] == (pytest.approx(TASK_KAPPA), 10)
    assert vesalius_ratings(vesalius, place)["pairs"] == report["pairs"]
    assert {(item["run"], item["agent"]) for item in report["items"]} == set(RUNS.items())


def vesalius_ratings(vesalius: Vesalius, place: Path) -> dict[str, Any]:
    return json.loads(vesalius("ratings", place, "--json").out)


def export(window: Window, link: str) -> str:
    """Download a file of ratings by keyboard."""
    page = window.open("annotate")
    page.focus(link)
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    return Path(download.value.path()).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def served(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("ratings") / "out"
    with serving(*runs, "--annotate", "--reference", "--out", place) as server:
        yield server


def test_a_comment_undo_and_a_change_by_keyboard(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = open_as(window, "cem")
        page.keyboard.press("3")
        page.wait_for_selector('.level[aria-pressed="true"]')
        page.keyboard.press("c")
        page.keyboard.type("1, 2 and 3 are words here: =u")
        page.keyboard.press("Escape")
        page.get_by_text("Saved.", exact=True).wait_for()
        assert page.get_attribute('.level[aria-pressed="true"]', "aria-keyshortcuts") == "3"
        page.keyboard.press("1")
        page.wait_for_selector('.level[aria-keyshortcuts="1"][aria-pressed="true"]')
        page.keyboard.press("u")
        page.wait_for_selector('.level[aria-keyshortcuts="3"][aria-pressed="true"]')
        page.keyboard.press("ArrowRight")
        shows(page, 2)
        assert page.input_value("textarea") == ""
        page.keyboard.press("ArrowLeft")
        shows(page, 1)
        assert page.input_value("textarea") == "1, 2 and 3 are words here: =u"
        page.keyboard.press("n")
        shows(page, 2)
        assert "text=2" in page.url
        (row,) = csv.DictReader(io.StringIO(export(window, 'a[aria-label="ratings of cem as a file"]')))
        assert window.page.locator("#all-ratings").count() == 0
        assert row["comment"] == "1, 2 and 3 are words here: =u"
        window.check()


def test_a_rating_that_is_not_saved_stays_on_the_page(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("annotate?rater=hal&text=1")
        full = {"status": 400, "content_type": "application/json", "body": '{"error": "the disk is full"}'}
        page.route("**/api/annotation/rate", lambda route: route.fulfill(**full))
        page.keyboard.press("1")
        page.keyboard.press("Enter")
        page.get_by_text("Not saved: the disk is full").wait_for()
        page.keyboard.press("c")
        page.keyboard.press("Escape")
        assert page.get_by_text("Not saved: the disk is full").count() == 1
        assert read(page)[0] == 1
        page.unroute("**/api/annotation/rate")
        page.keyboard.press("1")
        page.wait_for_selector('.level[aria-pressed="true"]')
        page.keyboard.press("Enter")
        shows(page, 2)
        window.check(refusals=True)


def test_a_button_keeps_the_keyboards_place(served: Served, browser: Browser) -> None:
    with browser.window(served) as window:
        page = window.open("annotate?rater=eve&text=1")
        page.focus('.level[data-score="0"]')
        page.keyboard.press("Space")
        page.wait_for_selector('.level[data-score="0"][aria-pressed="true"]')
        assert page.evaluate("document.activeElement.dataset.score") == "0"
        window.check()


def test_a_file_is_imported_and_a_bad_one_refused(served: Served, browser: Browser, tmp_path: Path) -> None:
    good = tmp_path / "good.csv"
    good.write_text(
        "run,agent,rater,item,score,comment\nrun-one,openai:model-a,dan,description_quality:3:L0_MLP,2,'-1\n"
    )
    bad = tmp_path / "bad.csv"
    bad.write_text(good.read_text().replace(",2,", ",7,"))
    with browser.window(served) as window:
        page = window.open("annotate")
        for file, told in ((good, "1 ratings added"), (bad, "row 2: score '7'"), (good, "1 were here already")):
            page.get_by_label("your name, for ratings").fill("dan")
            page.set_input_files('input[type="file"]', file)
            page.get_by_role("button", name="Import").press("Enter")
            page.get_by_text(told).wait_for()
        window.check(refusals=True)


def test_the_page_never_holds_an_author(served: Served, browser: Browser) -> None:
    sent: list[str] = []
    with browser.window(served) as window:
        window.page.on("response", lambda answer: sent.append(f"{answer.url} {answer.headers}"))
        page = open_as(window, "fay")
        for number in range(1, 6):
            page.keyboard.press("1")
            page.wait_for_selector('.level[aria-pressed="true"]')
            sent.append(f"{page.content()} {page.url} {page.title()}")
            page.keyboard.press("Enter")
            shows(page, number + 1)
        links = page.eval_on_selector_all("a", "links => links.map(link => link.getAttribute('href'))")
        window.check()
    hidden = [*RUNS, *RUNS.values(), "model-a", "model-b"]
    assert [word for word in hidden if word in " ".join(sent)] == []
    assert set(links) == {"#main", "/annotate"}


@pytest.mark.parametrize("width", [390, 1600])
def test_it_fits_and_is_accessible(width: int, served: Served, browser: Browser) -> None:
    with browser.window(served, width=width) as window:
        window.check_views(["annotate", "annotate?rater=gus&text=1", f"annotate?rater=gus&text={TOTAL}"])


def test_a_password_is_asked_for_and_lets_in(runs: list[Path], browser: Browser, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    options = ("--annotate", "--out", tmp_path / "ratings", "--password-file", secret)
    with serving(*runs, *options) as served, browser.window(served, width=390, scheme="dark") as window:
        assert served.token == ""
        page = window.page
        page.goto(f"{served.base}/annotate?rater=ann")
        assert window.faults() == []
        for password in ("wrong horse", "correct horse"):
            page.fill('input[type="password"]', password)
            page.keyboard.press("Enter")
            page.wait_for_load_state("networkidle")
        page.wait_for_selector(".rating h1")
        assert page.url.startswith(f"{served.base}/annotate?rater=ann")
        window.check(refusals=True)
