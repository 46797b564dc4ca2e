"""What `.plot()`, `.page()` and `.save()` of a result do: importing this module registers them with `documents.view`.

Each function knows one class and hands its numbers to the drawings and pages of this floor.
"""

from functools import singledispatch
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_directory, write_specimen
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import Explanation
from vesalius.documents.view import Viewable, register
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import CONFIG_FILE, save_model
from vesalius.report.discovery import draw_discovery
from vesalius.report.layout import write_view
from vesalius.report.page import render_page
from vesalius.report.plots import draw_view
from vesalius.report.widgets import widget

PAGE = "report.html"


def plot(result: Any) -> Figure:
    """The picture of a result: what its view can draw."""
    if not isinstance(result, Viewable):
        raise BadInput(f"a {type(result).__name__} has no picture; use .table()")
    view = result.view()
    return draw_view(view, kind=type(result).__name__)


@singledispatch
def page(result: Any, directory: Path) -> Path:
    """Write the page of a result into a directory."""
    return write_view(result.view(), directory / result.PAGE)


@page.register
def _(result: Discovery, directory: Path) -> Path:
    return draw_discovery(result, directory)


@page.register
def _(result: Explanation, directory: Path) -> Path:
    return render_page(result, directory / PAGE)


@singledispatch
def save(result: Any, directory: Path) -> Path:
    """Write a result into a directory as JSON and return its path."""
    path = directory / (getattr(result, "FILE", None) or f"{type(result).__name__.lower()}.json")
    write_json(path, result.as_data())
    return path


@save.register
def _(result: Specimen, directory: Path) -> Path:
    """A directory that `ves.load` reads: the model with its tokenizer or its card, never the answer key."""
    if isinstance(result.vocabulary, TextVocabulary):
        result.vocabulary.tokenizer.save(directory)
        save_model(result.model, directory)
        return directory / CONFIG_FILE
    home = benchmark_directory(result.source or result.id) or Path(result.source or result.id).expanduser()
    if not (home / SPECIMEN_FILE).is_file():
        raise BadInput(
            f"specimen {result.name!r}: there is no {home / SPECIMEN_FILE} to copy; load the specimen from a directory"
        )
    write_specimen(directory, result.model, Card.read(home / SPECIMEN_FILE))
    return directory / SPECIMEN_FILE


class _Renderer:
    save = staticmethod(save)
    widget = staticmethod(widget)

    plot = staticmethod(plot)
    page = staticmethod(page)


register(_Renderer())
