"""Make the pictures of docs/how-to/workbench.md: every view of the workbench, on a benchmark circuit and on SmolLM2.

    python -m scripts.make_screenshots [NAME ...]

Results are computed anew below a temporary directory, a server is started on them, and Chromium takes the pictures.
Needs the extra `dev` and Chromium (scripts/install-browser).
"""

import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from tests.workbench.browsing import Browser, Served, running_browser, serving

import vesalius as ves
from vesalius import api

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT, COLOURS, MOST_BYTES = 1200, 860, 96, 150_000
SMOLLM = "specimen=smollm2-135m&behaviour=induction"
TEXT = "The cat sat on the mat. The cat sat on the"
#: Name of the picture: the address of the view, and the text that is brought to the top of it (None: as it opens).
VIEWS: dict[str, tuple[str, str | None]] = {
    "runs": ("runs", None),
    "explanation": ("result?path=explained", "Claims"),
    "discovery": ("result?path=found", None),
    "specimen": ("specimen?specimen=frac_prevs&layer=1&prompt=a+x+b+x&component=L1H2", None),
    "what-if": ("what-if?specimen=frac_prevs&components=L1H2&kind=mean&n=8", None),
    "circuit": ("circuit?path=found", None),
    "component": ("component?specimen=frac_prevs&component=L1H2&path=explained", None),
    "compare": ("compare?a=explained&b=other-seed", None),
    "agent": ("agent?path=recorded", None),
    "functions": ("functions?path=functions", None),
    "specimens": ("specimens", None),
    "smollm2-specimen": (f"specimen?{SMOLLM}&layer=5&prompt={TEXT.replace(' ', '+')}", None),
    "smollm2-what-if": (f"what-if?{SMOLLM}&components=L8H4,L14H2&n=8", None),
    "smollm2-circuit": ("circuit?path=smollm2", None),
    "smollm2-component": (f"component?{SMOLLM}&component=L8H4&prompt={TEXT.replace(' ', '+')}", None),
}
#: Pictures in dark colours.
DARK = {"what-if", "smollm2-circuit"}


def make_results(place: Path, named: list[str]) -> None:
    """The results that the views show; the slow one only where its picture is asked for."""
    api.sweep_report("frac_prevs", n=16, out=place / "swept", progress=False)
    ves.discover("frac_prevs", method="eap", n=16, out=place / "found", progress=False)
    ves.explain("frac_prevs", out=place / "explained", progress=False)
    ves.explain("frac_prevs", seed=1, out=place / "other-seed", progress=False)
    if "smollm2-circuit" in named:
        ves.discover(
            "smollm2-135m",
            behaviour="induction",
            method="eap",
            n=4,
            checks=False,
            out=place / "smollm2",
            progress=False,
        )
    shutil.copytree(ROOT / "examples" / "recorded" / "typed", place / "recorded")
    if "functions" in named:
        ves.bench("functions", category="numeric", count=4, out=place / "functions", progress=False)


@contextmanager
def opened(browser: Browser, served: Served, name: str) -> Iterator[Any]:
    """A window of the size of the pictures, in light or dark colours."""
    scheme = "dark" if name in DARK else "light"
    with browser.window(served, width=WIDTH, height=HEIGHT, scheme=scheme) as window:
        yield window


def write_picture(page: Any, name: str) -> None:
    """A picture of what the window shows, in few colours so that it stays small."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    file = IMAGES / f"workbench-{name}.png"
    image.save(file, optimize=True)
    size = file.stat().st_size
    print(f"{file.relative_to(ROOT)}: {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        raise SystemExit(f"{file}: has {size:,} bytes, more than {MOST_BYTES:,}; use fewer colours")


def main() -> None:
    """All pictures, or those that are named."""
    named = sys.argv[1:] or [*VIEWS, "annotate"]
    with tempfile.TemporaryDirectory() as folder, running_browser() as browser:
        place = Path(folder) / "results"
        place.mkdir()
        make_results(place, named)
        with serving(place) as served:
            for name in (one for one in VIEWS if one in named):
                view, heading = VIEWS[name]
                with opened(browser, served, name) as window:
                    page = window.open(view)
                    page.wait_for_function("!document.querySelector('.waiting')")
                    if heading:
                        page.get_by_role("heading", name=heading, exact=True).evaluate("(one) => one.scrollIntoView()")
                    write_picture(page, name)
        if "annotate" in named:
            rated = (place / "explained", place / "other-seed")
            rating = (*rated, "--annotate", "--reference", "--out", Path(folder) / "ratings")
            with serving(*rating) as served, opened(browser, served, "annotate") as window:
                page = window.open("annotate")
                page.locator("[name=rater]").fill("ann")
                page.keyboard.press("Enter")
                page.locator(".rating").wait_for()
                write_picture(page, "annotate")


if __name__ == "__main__":
    main()
