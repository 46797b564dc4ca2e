"""The page in a real browser: every view loads from its address, at a phone's width and a desk's, without an error."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.processes import PATIENCE
from tests.report.browser import CHROMIUM, FLAGS, needs_browser
from tests.report.explanations import frac_prevs

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytestmark = needs_browser
HOSTILE = "<img src=x onerror=\"document.title='executed'\">"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on results, one of them hostile; the address that it prints."""
    place = tmp_path_factory.mktemp("results")
    frac_prevs().save(place / "explained")
    frac_prevs().model_copy(update={"task_description": HOSTILE}).save(place / "hostile")
    command = [sys.executable, "-m", "vesalius", "open", str(place), "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def opened(address: str, view: str, *, width: int = 1280) -> tuple[str, list[str]]:
    """The page's document once its questions are answered, and every line its console printed."""
    base, token = re.match(r"(http://[^/]+)/.*token=(.*)", address).groups()  # type: ignore[union-attr]
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={max(width, 500)},900",
                "--virtual-time-budget=60000",
                "--dump-dom",
                f"{base}/{view}{'&' if '?' in view else '?'}token={token}",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("runs", ["explained", "hostile", "2 of 2 results"]),
        ("result?path=explained", ["L1H2", " claims", "AGGREGATOR"]),
        ("specimens", ["frac_prevs", "smollm2-135m"]),
        ("specimen?specimen=frac_prevs&layer=1", ["2 layers of 4 heads", "L1H3", "Outputs"]),
        (
            "what-if?specimen=frac_prevs&components=L0_MLP,L1H2&n=4",
            ["Without L0_MLP, L1H2", "outputs changed", "vesalius what-if"],
        ),
        ("compare?a=explained&b=hostile", ["Two explanations", "Claims that flipped: 0"]),
        ("what-if?specimen=frac_prevs&components=L9H9", ["component L9H9 is not in this model"]),
        ("result?path=../secret", ["is not below the directory"]),
    ],
)
def test_a_view_answers(view: str, expected: list[str], address: str) -> None:
    document, console = opened(address, view)
    for text in expected:
        assert text in document
    refused = [line for line in console if "400 (Bad Request)" not in line]
    assert refused == []


def test_nothing_of_a_result_is_executed(address: str) -> None:
    document, console = opened(address, "result?path=hostile")
    assert "&lt;img src=x" in document
    assert "<title>executed" not in document
    assert console == []
