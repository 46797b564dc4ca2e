"""Opens a page in headless Chromium at a given width and hands back what the page found out about itself.

A browser window cannot be narrower than 500 pixels, so the page is opened in a frame of the wanted width. The frame
holds a copy with a probe at its end, which posts its findings to the page around it.
"""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; scripts/install-browser installs it")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]
DARK = "--blink-settings=preferredColorScheme=0"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
COLLECTOR = "<script>window.errors=[];window.onerror=function(m){window.errors.push(String(m))}</script>"
FRAME = """<!doctype html><meta charset="utf-8"><style>*{{margin:0}}iframe{{border:0;width:{width}px;height:{height}px}}
</style><pre id="found" hidden></pre><script>addEventListener("message",function(e){{
document.getElementById("found").textContent=JSON.stringify(e.data)}})</script><iframe src="{page}"></iframe>"""
PROBE = """<script>addEventListener("load",function(){{
var found=(function(){{ {body} }})();
found.errors=window.errors; found.width=innerWidth; found.scrollWidth=document.documentElement.scrollWidth;
parent.postMessage(found,"*")}})</script>"""


def chromium(page: Path, *options: str, width: int = 1280, height: int = 900) -> tuple[str, list[str]]:
    """The page's document after loading, and every line its console printed."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
                *options,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def probe(page: Path, body: str, *, width: int, dark: bool = False) -> dict[str, Any]:
    """Run `body`, which returns an object, inside the page at the given width."""
    text = POLICY.sub(lambda _: COLLECTOR, page.read_text(encoding="utf-8"), count=1)
    inner = page.with_name(f"probe-{width}-{page.name}")
    inner.write_text(text.replace("</body>", PROBE.format(body=body) + "</body>"), encoding="utf-8")
    outer = _frame(inner, width, 900)
    options = ["--dump-dom", "--virtual-time-budget=3000", *([DARK] if dark else [])]
    document, console = chromium(outer, *options, width=max(width, 500))
    assert console == []
    found = re.search(r'<pre id="found" hidden="">(.*?)</pre>', document, re.DOTALL)
    assert found, "the probe posted nothing"
    return json.loads(html.unescape(found[1]))


def screenshot(page: Path, picture: Path, *, width: int, height: int, dark: bool = False) -> Path:
    """A PNG of the page at the given width."""
    options = [f"--screenshot={picture}", "--virtual-time-budget=1000", *([DARK] if dark else [])]
    chromium(_frame(page, width, height), *options, width=max(width, 500), height=height)
    return picture


def _frame(page: Path, width: int, height: int) -> Path:
    frame = page.with_name(f"frame-{width}-{page.name}")
    frame.write_text(FRAME.format(width=width, height=height, page=page.name), encoding="utf-8")
    return frame
