"""The page of a discovered circuit with its drawings as files beside it, from `discovery.json`.

Everything is drawn from the numbers in the directory, so the page can be made again without the model. The drawings of
the page are also written as SVG files, and the head map as PNG.
"""

from pathlib import Path
from typing import Any

from vesalius.documents.discovery import DISCOVERY_FILE, DISCOVERY_PAGE, Discovery
from vesalius.documents.view import Chart, Graph, HeadMap, View
from vesalius.files import write_text
from vesalius.report.heatmap import draw_heatmap
from vesalius.report.html import macro, package_text
from vesalius.report.layout import drawn, write_view


def render_discovery(directory: Path) -> Path:
    """Write the page and the pictures of a discovery from its files, and return the page's path."""
    return draw_discovery(Discovery.read(directory / DISCOVERY_FILE), directory)


def draw_discovery(discovery: Discovery, directory: Path) -> Path:
    """Write the page and the pictures of a discovery into a directory, and return the page's path."""
    view = discovery.view()
    _write_pictures(directory, view)
    title = f"{view.title}, {discovery.method}, {discovery.n} prompts"
    for one in view.all_sections():
        if isinstance(one, HeadMap):
            draw_heatmap(one, directory / "heads.png", title=title)
    return write_view(view, directory / DISCOVERY_PAGE)


def _write_pictures(directory: Path, view: View) -> None:
    """The first drawing of each kind as a file of its own: light colours, on paper."""
    files: dict[type[Any], tuple[str, str]] = {
        HeadMap: ("headmap", "heads.svg"),
        Graph: ("circuit", "circuit.svg"),
        Chart: ("curve", "curve.svg"),
    }
    sections = list(view.all_sections())
    for kind, (name, file) in files.items():
        one = next((section for section in sections if isinstance(section, kind)), None)
        if one is None:  # one of an earlier discovery in the same directory would be taken for this one's
            (directory / file).unlink(missing_ok=True)
            continue
        values = (drawn(one), one) if kind is Graph else (drawn(one),)
        write_text(directory / file, macro("drawings.html", name, *values, style=package_text("drawing.css")))
