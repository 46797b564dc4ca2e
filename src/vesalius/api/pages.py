"""Pages of what lies in a directory: a result of any kind, or a benchmark's run."""

from pathlib import Path

from vesalius.api.explanations import PAGE_FILE
from vesalius.api.loading import load
from vesalius.documents.explanation import Explanation
from vesalius.documents.kinds import kind_in
from vesalius.documents.view import Viewable
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, shown
from vesalius.report.pages import render_page
from vesalius.runs.directory import is_run
from vesalius.runs.kinds import kind_of_directory

MADE = "name one that `vesalius explain`, `discover`, `neurons`, `survey`, `study` or `bench` made"


def report(run: str | Path, *, progress: Progress | bool | None = None) -> Path:
    """Draw the pages of a directory again and return the path of the page, or of a benchmark's index page."""
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"{run}: no such directory; {MADE}")
    kind = kind_in(directory)
    if is_run(directory) and not (kind and kind.OWNS_DIRECTORY):
        with shown(progress) as tell:
            return kind_of_directory(directory).page(directory, progress=tell)
    if kind is None or not issubclass(kind, Viewable):
        raise BadInput(f"{run}: holds no result that has a page; {MADE}")
    result = kind.read(directory / str(kind.FILE))
    if isinstance(result, Explanation):
        return render_page(result, directory / PAGE_FILE, specimen=_specimen(result))
    return result.page(directory)


def _specimen(explanation: Explanation) -> Specimen | None:
    """The specimen explained, or None where it is no longer there."""
    name = explanation.specimen if explanation.request is None else explanation.request.specimen
    try:
        return load(name or explanation.specimen, behaviour=explanation.behaviour, progress=False)
    except (BadInput, Failed):
        return None
