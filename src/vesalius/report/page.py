"""The evidence page: one explanation as one HTML file that opens anywhere.

It is made from the explanation alone; with the specimen at hand it also shows the components at work. A page that would
grow past its limit first loses the single-input pictures, then all pictures, and says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from vesalius.documents.explanation import AtWork, Explanation
from vesalius.errors import Failed
from vesalius.model.specimen import Specimen
from vesalius.report.html import LIMIT_BYTES, write
from vesalius.report.layout import page_of
from vesalius.report.pictures import draw_components

TOO_LARGE = "Left out to keep this page under its size limit; make a page for fewer components to see it."


def render_page(
    explanation: Explanation, path: Path | str, *, specimen: Specimen | None = None, title: str | None = None
) -> Path:
    """Write the evidence page of an explanation as one self-contained HTML file and return its path.

    With `specimen`, heads are shown by their attention and MLPs by what they write, on inputs drawn with the
    explanation's seed.
    """
    path = Path(path)
    known = {} if specimen is None else {"name": specimen.name, "examples": specimen.examples[:5]}
    html = ""
    for pictures in _ever_fewer_pictures(explanation, specimen):
        view = explanation.view(pictures=pictures, **known)
        html = page_of(view if title is None else replace(view, title=title))
        if len(html.encode()) < LIMIT_BYTES:
            return write(path, html)
    size = len(html.encode()) / 1e6
    raise Failed(
        f"{path}: the page would have {size:.1f} MB, {LIMIT_BYTES / 1e6:.0f} MB is the limit; explain fewer components"
    )


def _ever_fewer_pictures(explanation: Explanation, specimen: Specimen | None) -> Iterator[Mapping[str, AtWork] | None]:
    if specimen is None:
        yield None
        return
    names = [part.id for part in explanation.components]
    pictures = draw_components(specimen, names, seed=explanation.seed)
    yield pictures
    yield {name: (caption, grids[:1]) for name, (caption, grids) in pictures.items()}
    yield dict.fromkeys(names, (TOO_LARGE, ()))
