"""What `.plot()`, `.page()` and `.save()` of a result do: importing this module registers them with `documents.views`.

Each function knows one class and hands its numbers to the drawings and pages of this floor.
"""

import io
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_directory, write_specimen
from vesalius.components import Component
from vesalius.documents.checks import Checks
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import NO_TAG, Explanation
from vesalius.documents.neurons import NeuronCircuit
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.sweep import Sweep
from vesalius.documents.views import columns_of, register, subject_of
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.grading.circuits import Grade
from vesalius.intervene.effects import Effects
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import CONFIG_FILE, save_model
from vesalius.report.discovery import draw_discovery
from vesalius.report.html import render, write
from vesalius.report.neurons import draw_neurons
from vesalius.report.page import draw_explained, render_page
from vesalius.report.plots import (
    draw_checks,
    draw_diagram,
    draw_effects,
    draw_map,
    draw_map_and_curve,
    draw_metrics,
    draw_words,
)
from vesalius.report.profiles import short_role
from vesalius.report.widgets import widget

PAGE = "report.html"


@singledispatch
def plot(result: Any) -> Figure:
    """The picture of a result."""
    raise BadInput(f"a {type(result).__name__} has no picture; use .table()")


@plot.register
def _(result: Circuit) -> Figure:
    return draw_map(
        result.components,
        title=f"circuit: {len(result.components)} components",
        label="score",
        n_layers=result.n_layers,
        n_heads=result.n_heads,
    )


@plot.register
def _(result: Discovery) -> Figure:
    options: dict[str, Any] = {
        "title": f"{subject_of(result.specimen, result.behaviour)}: {result.method}, {result.n} prompts",
        "label": f"score ({result.unit})",
        "n_layers": result.layers,
        "n_heads": result.heads,
    }
    if result.checks is None:
        return draw_map(result.circuit.components, **options)
    return draw_map_and_curve(result.circuit.components, result.checks, **options)


@plot.register
def _(result: Checks) -> Figure:
    return draw_checks(result)


@plot.register
def _(result: Effects) -> Figure:
    title = f"{result.kind} ablation, {len(result.baseline)} prompts"
    return draw_effects(result._rows(), title=title, unit=result.unit)


@plot.register
def _(result: Sweep) -> Figure:
    subject = subject_of(result.specimen, result.behaviour)
    title = f"{subject}: {result.kind} ablation, {result.n} prompts"
    return draw_effects(result._rows(), title=title, unit=result.unit)


@plot.register
def _(result: Explanation) -> Figure:
    if not result.components:
        return draw_words(result.task_description, title=result.title)
    words = {
        part.id: (short_role(part.role) if part.role else part.tag or NO_TAG, part.verdict)
        for part in result.components
    }
    return draw_diagram(draw_explained(result), words, title=result.title)


@plot.register
def _(result: Scorecard) -> Figure:
    return draw_metrics(result.metrics, title=f"{result.benchmark}: {result.subject}, {result.n} cases")


@plot.register
def _(result: Grade) -> Figure:
    return draw_metrics(result.metrics, title=f"grade of {len(result.components)} components")


@plot.register
def _(result: Specimen) -> Figure:
    config, inside = result.model.config, set(result.components)
    marks: dict[Component, float] = {part: float(part in inside) for part in result.model.components}
    title = f"{subject_of(result.name, result.behaviour)}: circuit of {len(inside)} of {len(marks)} components"
    return draw_map(marks, title=title, label=None, n_layers=config.n_layers, n_heads=config.n_heads)


@singledispatch
def page(result: Any, directory: Path) -> Path:
    """Write a page with the summary, the picture and the table of a result into a directory."""
    rows = result._rows()
    html = render(
        "view.html",
        ["theme.js"],
        kind=type(result).__name__,
        summary=repr(result).splitlines(),
        columns=columns_of(rows),
        rows=rows,
        picture=_picture(result),
    )
    return write(directory / PAGE, html)


@page.register
def _(result: Discovery, directory: Path) -> Path:
    return draw_discovery(result, directory)


@page.register
def _(result: NeuronCircuit, directory: Path) -> Path:
    return draw_neurons(result, directory)


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

    def plot(self, shown: Any) -> Figure:
        return plot(_with_drawings(shown))

    def page(self, shown: Any, directory: Path) -> Path:
        return page(_with_drawings(shown), directory)


register(_Renderer())


def _with_drawings(result: Any) -> Any:
    """The same result, once the module that draws its kind is imported and has registered its functions."""
    if (module := getattr(result, "DRAWN_BY", None)) is not None:
        import_module(module)
    return result


def _picture(result: Any) -> Markup | None:
    """The picture of a result; None where it has none."""
    return _svg(plot(result)) if plot.dispatch(type(result)) is not plot.dispatch(object) else None


def _svg(figure: Figure) -> Markup:
    """A figure as an element of a page."""
    file = io.StringIO()
    figure.savefig(file, format="svg")
    text = file.getvalue()
    return Markup(text[text.index("<svg") :])
