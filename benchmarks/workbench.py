"""The workbench in one run: first paint, the view of SmolLM2, what-ifs cold and warm, a graph of 10,000 edges, memory.

    python -m benchmarks.workbench [--out FILE]

A server is started as `vesalius open` does and asked by Chromium. Times are wall seconds on this machine, so read the
ratios; the model that ships as a package is left out where it is not installed.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.workbench.browsing import Browser, Served, Window, running_browser, serving
from tests.workbench.graphs import large_discovery

from benchmarks.measure import progress
from vesalius.model.smollm import installed_gguf

EDGES, STEPS, REPEATS = 10_000, 20, 5
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
ASK = """async (body) => { const start = performance.now();
  const answer = await fetch('/api/what-if', {method: 'POST', headers: {'content-type': 'application/json'},
    body: JSON.stringify(body)});
  await answer.json(); if (!answer.ok) throw new Error(answer.status);
  return (performance.now() - start) / 1000 }"""
#: Moves the slider from few edges to all of them and measures every frame on the way.
SLIDE = """async (steps) => { const slider = document.querySelector('input[type=range]'), frames = [];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let step = 1; step <= steps; step++) {
    const start = performance.now();
    slider.value = String(Math.round(Number(slider.max) * step / steps));
    slider.dispatchEvent(new Event(step === steps ? 'change' : 'input'));
    await frame(); await frame();
    frames.push((performance.now() - start) / 1000);
  }
  return frames }"""


def main() -> None:
    """Measure everything, print a table, and write JSON where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        large_discovery(EDGES).save(Path(folder) / "large")
        with serving(folder, threads=2) as served, running_browser() as browser:
            rows = [*_pages(served, browser), *_what_ifs(served, browser), *_graph(served, browser), *_memory(served)]
    for row in rows:
        ratio = f"   cold / warm {row['ratio']:.1f}" if "ratio" in row else ""
        progress(f"{row['name']:<46} {row['value']:9.3f} {row['unit']}{ratio}")
    document = {"benchmark": "workbench", "machine": _machine(), "rows": rows}
    text = json.dumps(document, indent=2)
    print(text)
    if out:
        out.write_text(text + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = model[0].partition(":")[2].strip() if model else platform.machine()
    return {"processor": name, "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}


def _row(name: str, value: float, unit: str = "s", **more: float) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, **more}


def _pages(served: Served, browser: Browser) -> list[dict[str, Any]]:
    paints = []
    for _ in range(REPEATS):
        with browser.window(served) as window:
            paints.append(window.open("runs").evaluate(PAINT))
    rows = [_row("first paint of the page", statistics.median(paints))]
    if installed_gguf() is not None:
        cold, warm = (_opened(served, browser, "specimen?specimen=smollm2-135m&behaviour=induction") for _ in range(2))
        rows.append(_row("view of SmolLM2, cold (the model is read)", cold))
        rows.append(_row("view of SmolLM2, warm", warm, ratio=cold / warm))
    return rows


def _opened(served: Served, browser: Browser, view: str) -> float:
    """Seconds until a view has its map, its tokens and its attention."""
    with browser.window(served) as window:
        page = window.page
        page.goto(served.address("runs"))
        start = page.evaluate("Date.now()")
        page.goto(served.address(view))
        page.locator(".attention").wait_for()
        page.locator(".answer .token").first.wait_for()
        return (page.evaluate("Date.now()") - start) / 1000


def _what_ifs(served: Served, browser: Browser) -> list[dict[str, Any]]:
    rows = []
    with browser.window(served) as window:
        window.open("runs")
        asked = {"specimen": "frac_prevs", "n": 16}
        rows += _cold_and_warm(window, "what-if on frac_prevs", asked, ["L1H0", "L1H1", "L1H2", "L1H3"])
        if installed_gguf() is not None:
            asked = {"specimen": "smollm2-135m", "behaviour": "induction", "n": 8}
            rows += _cold_and_warm(window, "what-if on one head of SmolLM2", asked, ["L8H0", "L8H4", "L12H2", "L20H1"])
    return rows


def _cold_and_warm(window: Window, name: str, asked: dict[str, Any], heads: list[str]) -> list[dict[str, Any]]:
    """The first question, which runs the prompts, and the median of others on the same prompts."""
    times = [window.page.evaluate(ASK, {**asked, "components": [head]}) for head in heads]
    cold, warm = times[0], statistics.median(times[1:])
    return [_row(f"{name}, cold", cold), _row(f"{name}, warm", warm, ratio=cold / warm)]


def _graph(served: Served, browser: Browser) -> list[dict[str, Any]]:
    with browser.window(served) as window:
        page = window.open("circuit?path=large&least=0")
        page.locator(".stage").wait_for()
        opened = page.evaluate("performance.now() / 1000")
        page.evaluate("document.querySelector('input[type=range]').value = '0'")
        frames = page.evaluate(SLIDE, STEPS)
        assert page.locator(".stage").get_attribute("data-edges") == str(EDGES)
    return [
        _row(f"graph of {EDGES:,} edges, until it is drawn", opened),
        _row("its threshold moved by a step, median", statistics.median(frames)),
        _row("its threshold moved by a step, slowest", max(frames)),
    ]


def _memory(served: Served) -> list[dict[str, Any]]:
    assert served.process is not None
    lines = Path(f"/proc/{served.process.pid}/status").read_text().splitlines()
    sizes = {line.partition(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Vm")}
    return [
        _row("memory of the server at the end", sizes["VmRSS"], "MB"),
        _row("memory of the server at most", sizes["VmHWM"], "MB"),
    ]


if __name__ == "__main__":
    main()
