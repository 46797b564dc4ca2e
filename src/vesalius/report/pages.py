"""Which page and which files each kind of result has; importing this module registers them with `documents.view`.

render_page       the evidence page of an explanation: with the specimen at hand it also shows the components at
                  work. A page that would grow past its limit first loses the single-input pictures, then all
                  pictures, and says so
render_discovery  the page of a discovered circuit, its drawings as SVG files beside it and the head map as PNG, all
                  from the numbers in the directory, so that it can be made again without the model
render_circuits   the pages of a run of the circuits benchmark, and the index over them (`render_index`)
plot, page, save  what the methods of these names of any result do

matplotlib, which a machine without a cache of fonts imports for many seconds, is imported where a picture is drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vesalius.circuits.originals import load_directory
from vesalius.circuits.specimens import SPECIMEN_FILE, Card, benchmark_directory, write_specimen
from vesalius.documents.discovery import DISCOVERY_FILE, DISCOVERY_PAGE, Discovery
from vesalius.documents.explanation import AtWork, Explanation
from vesalius.documents.scorecard import CircuitRow
from vesalius.documents.view import (
    Answer,
    Chart,
    Facts,
    Graph,
    HeadMap,
    Link,
    Ratio,
    Sheet,
    View,
    Viewable,
    duration,
    figure,
    register,
)
from vesalius.errors import BadInput, Failed
from vesalius.files import write_json, write_text
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import CONFIG_FILE, save_model
from vesalius.progress import Progress
from vesalius.report.html import LIMIT_BYTES, macro, package_text, write
from vesalius.report.layout import drawn, page_of, write_view
from vesalius.report.pictures import draw_components
from vesalius.report.widgets import widget
from vesalius.runs.directory import (
    INDEX,
    PAGES,
    explanation_path,
    read_explanation,
    read_scorecard,
    require_benchmark,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
            from vesalius.report.plots import draw_heatmap

            draw_heatmap(one, directory / "heads.png", title=title)
    return write_view(view, directory / DISCOVERY_PAGE)


def _write_pictures(directory: Path, view: View) -> None:
    """The first drawing of each kind as a file of its own: light colours, on paper."""
    files: dict[type[object], tuple[str, str]] = {
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


@dataclass(frozen=True)
class IndexRow:
    """One specimen of a run. `page` is its page's place relative to the index. What grading says is None if ungraded:
    tags right, mean interchange accuracy (None also where nothing shows), and whether the program is exact.
    """

    id: str
    name: str
    components: int
    supported: int
    seconds: float
    page: str | None = None
    tags_right: int | None = None
    agreement: float | None = None
    iia: float | None = None
    iia_changed: float | None = None
    exact: bool | None = None

    @classmethod
    def of(
        cls,
        explanation: Explanation,
        *,
        id: str | None = None,
        name: str | None = None,
        page: str | None = None,
        tags_right: int | None = None,
    ) -> "IndexRow":
        """The row of an explanation; `tags_right` comes from grading, where there was any."""
        agreement = explanation.program_agreement
        return cls(
            id=explanation.specimen if id is None else id,
            name=explanation.specimen if name is None else name,
            components=len(explanation.components),
            supported=sum(part.verdict == "supported" for part in explanation.components),
            seconds=explanation.seconds,
            page=page,
            tags_right=tags_right,
            agreement=None if agreement is None else agreement.value,
        )


def index_view(rows: Sequence[IndexRow], *, title: str = "Explained circuits") -> View:
    """The index over many explanations: what was right, and a row for each with a link to its page."""
    graded = [row for row in rows if row.tags_right is not None]
    run = [row for row in rows if row.exact is not None]
    supported, components = sum(row.supported for row in rows), sum(row.components for row in rows)
    right, total = sum(row.tags_right or 0 for row in graded), sum(row.components for row in graded)
    agree = sum((row.agreement or 0.0) >= 0.99 for row in rows)
    facts = [("specimens", str(len(rows)))]
    if graded:
        facts.append(("tags right", f"{right} of {total}" + (f" ({figure(right / total)})" if total else "")))
    facts.append(("programs that agree on at least 99 %", f"{agree} of {len(rows)}"))
    if run:
        facts.append(("programs exact when graded", f"{sum(bool(row.exact) for row in run)} of {len(run)}"))
    facts.append(("time", duration(sum(row.seconds for row in rows))))
    columns: dict[str, list[Any]] = {
        "Specimen": [Link(row.name, row.page) if row.page is not None else row.name for row in rows],
        "Id": [int(row.id) if row.id.isdecimal() else row.id for row in rows],
        "Components": [row.components for row in rows],
        **({"Tags right": [_ratio(row.tags_right, row.components) for row in rows]} if graded else {}),
        "Supported": [_ratio(row.supported, row.components) for row in rows],
        "Program agrees": [row.agreement for row in rows],
        **(
            {
                "IIA": [row.iia for row in rows],
                "IIA, changed outputs": [row.iia_changed for row in rows],
                "Exact": [row.exact for row in rows],
            }
            if run
            else {}
        ),
        "Seconds": [row.seconds for row in rows],
    }
    sheet = Sheet(list(columns), list(zip(*columns.values(), strict=True)), sorted_by="Id", title="Circuits")
    return View(title, Answer(f"{supported} of {components} components supported."), [Facts(facts), sheet])


def _ratio(part: int | None, whole: int) -> Ratio | None:
    return None if part is None else Ratio(part, whole)


def render_index(rows: Sequence[IndexRow], path: Path | str, *, title: str = "Explained circuits") -> Path:
    """Write the index page over many explanations as one self-contained HTML file and return its path."""
    return write_view(index_view(rows, title=title), Path(path))


def render_circuits(directory: Path, *, progress: Progress | None = None) -> Path:
    """Write the pages of a finished run and return the path of the index."""
    places = require_benchmark(directory, "circuits").get("places", {})
    scorecard = read_scorecard(directory)
    if (directory / PAGES).is_symlink():
        raise BadInput(f"{directory / PAGES}: is a link; remove it, and the pages are written into the run")
    (directory / PAGES).mkdir(exist_ok=True)
    rows = []
    graded = scorecard.specimens or ()
    for done, figures in enumerate(graded, 1):
        rows.append(_render(directory, figures, places.get(figures.id)))
        if progress is not None:
            progress(f"page of {figures.name}", done, len(graded))
    title = f"{scorecard.benchmark.capitalize()} explained by {scorecard.subject}"
    return render_index(rows, directory / INDEX, title=title)


def _render(directory: Path, figures: CircuitRow, place: str | None) -> IndexRow:
    explanation = read_explanation(explanation_path(directory, figures.id))
    page = f"{PAGES}/{figures.id}.html"
    specimen = None if place is None else _specimen(Path(place))
    render_page(explanation, directory / page, specimen=specimen)
    agreement = explanation.program_agreement
    return IndexRow(
        id=figures.id,
        name=figures.name,
        components=figures.components,
        supported=figures.supported,
        seconds=figures.seconds,
        page=page,
        tags_right=figures.tags_right,
        agreement=None if agreement is None else agreement.value,
        iia=figures.iia,
        iia_changed=figures.iia_changed,
        exact=figures.task_exact,
    )


def _specimen(place: Path) -> Specimen | None:
    """The specimen, or None where it is no longer there."""
    try:
        return load_directory(place)
    except BadInput:
        return None


def plot(result: object) -> "Figure":
    """The picture of a result: what its view can draw."""
    if not isinstance(result, Viewable):
        raise BadInput(f"a {type(result).__name__} has no picture; use .table()")
    from vesalius.report.plots import draw_view

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
    return render_page(result, directory / result.PAGE)


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
