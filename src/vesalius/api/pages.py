"""Pages of what lies in a directory: an explanation, a discovered circuit, a circuit of neurons, a survey, a study, a
benchmark's run.
"""

from pathlib import Path

from vesalius.api.catalogue import load
from vesalius.api.explanations import PAGE_FILE
from vesalius.documents.discovery import DISCOVERY_FILE
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.neurons import NEURONS_FILE, NeuronCircuit
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress, shown
from vesalius.report.discovery import render_discovery
from vesalius.report.page import render_page
from vesalius.report.run import render_run
from vesalius.runs.directory import is_run
from vesalius_bench.study.documents import STUDY_FILE, Study
from vesalius_bench.survey.documents import SURVEY_FILE, Survey
from vesalius_mechrl.sets.document import SETS_FILE

MADE = "name one that `vesalius explain`, `discover`, `neurons`, `survey`, `study` or `bench` made"


def report(run: str | Path, *, progress: Progress | bool | None = None) -> Path:
    """Draw the pages of a directory again and return the path of the page, or of a benchmark's index page."""
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"{run}: no such directory; {MADE}")
    if (directory / SURVEY_FILE).is_file():
        return Survey.read(directory / SURVEY_FILE).page(directory)
    if (directory / STUDY_FILE).is_file():
        return Study.read(directory / STUDY_FILE).page(directory)
    if is_run(directory):
        with shown(progress) as tell:
            return render_run(directory, progress=tell)
    if (directory / DISCOVERY_FILE).is_file():
        return render_discovery(directory)
    if (directory / NEURONS_FILE).is_file():
        return NeuronCircuit.read(directory / NEURONS_FILE).page(directory)
    if (directory / SETS_FILE).is_file():
        raise BadInput(
            f"{run}: sets of heads have no page; {SETS_FILE} holds the numbers and synergy.png draws all pairs"
        )
    if not (directory / EXPLANATION_FILE).is_file():
        raise BadInput(f"{run}: holds no result that has a page; {MADE}")
    explanation = Explanation.read(directory / EXPLANATION_FILE)
    return render_page(explanation, directory / PAGE_FILE, specimen=_specimen(explanation))


def _specimen(explanation: Explanation) -> Specimen | None:
    """The specimen explained, or None where it is no longer there."""
    name = explanation.specimen if explanation.request is None else explanation.request.specimen
    try:
        return load(name or explanation.specimen, behaviour=explanation.behaviour, progress=False)
    except (BadInput, Failed):
        return None
