"""`vesalius bench circuits --natural`: natural circuits whose components were established by exhaustive ablation.

The built-in scientist explains `arithmetic`, and every task of a stand-in for GPT-2 small whose directory is given,
with a note where the model does not perform it; `grading.natural` opens the key. A natural model has no RASP program,
so there are no tags and no program to grade: what counts is which components were named, with which role, which stand
in for each other, and how many supported claims are false.
"""

import time
from dataclasses import replace
from pathlib import Path

from vesalius.api.door import directory_for, note_unperformed, verb
from vesalius.api.explanations import explain
from vesalius.api.loading import loaded
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import trial
from vesalius.documents.base import FrozenMap, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, made
from vesalius.errors import BadInput
from vesalius.intervene import effects
from vesalius.model.specimen import Specimen
from vesalius.options import Load, Out, Published
from vesalius.progress import Progress, silent
from vesalius_truth.grading.natural import ARITHMETIC, grade_natural, natural_tasks

NATURAL_FILE = "natural.json"
PROMPTS, SEED = 64, 0
#: What each figure is beside, in the table.
_ROWS = {
    "found_precision": "named components that belong to the circuit",
    "found_recall": "components of the circuit that are named",
    "top_precision": "the same of as many by zero ablation",
    "top_recall": "the same of as many by zero ablation",
    "roles": "named members with the right place",
    "backup_precision": "pairs said to stand in for each other that do",
    "backup_recall": "pairs that do and are said to",
    "false_support": "supported claims that the key contradicts",
}


class NaturalRow(Record):
    """The figures of one model on one behaviour; `wrong` are named components outside the circuit, `missed` those of
    the circuit that are not named, `contradicted` the supported claims that are false.
    """

    model: str
    behaviour: str
    named: tuple[str, ...]
    wrong: tuple[str, ...]
    missed: tuple[str, ...]
    contradicted: tuple[str, ...]
    metrics: FrozenMap[str, Metric]
    n: int
    seconds: float


class NaturalCard(ResultDocument, kind="natural_card"):
    """How explanations of natural models compare with what is known about them."""

    FILE = NATURAL_FILE
    RANK = None
    REMEDY = "run `vesalius bench circuits --natural` again"

    request: Request
    scientist: str
    rows: tuple[NaturalRow, ...]

    def view(self) -> View:
        """One table for each model and behaviour."""
        found = ", ".join(
            f"{row.model} {_said(row.metrics['found_precision'])} of those named, "
            f"{_said(row.metrics['found_recall'])} of the circuit"
            for row in self.rows
        )
        return View(
            "Natural circuits with a key",
            Answer(f"Found by the {self.scientist} scientist: {found}"),
            [part for row in self.rows for part in self._parts(row)],
        )

    def save(self, directory: Path | str) -> Path:
        """Write the card into a directory."""
        path = made(directory) / NATURAL_FILE
        self.write(path)
        return path

    def _parts(self, row: NaturalRow) -> list[Facts | Sheet | Text]:
        sheet = Sheet(
            ("figure", "what it counts", "value", "low", "high", "n", "a guess"),
            [
                (name, _ROWS[name], metric.value, metric.low, metric.high, metric.n, metric.baseline)
                for name, metric in row.metrics.items()
            ],
            title=f"{row.model}, {row.behaviour}: {row.n} prompts, {row.seconds:.0f} s",
        )
        lists = [("named outside the circuit", row.wrong), ("missed", row.missed)]
        facts = [(label, ", ".join(ids) or "none") for label, ids in lists]
        false = [Text([f"contradicted: {text}" for text in row.contradicted])] if row.contradicted else []
        return [sheet, Facts(facts), *false]


def _said(metric: Metric) -> str:
    if metric.value is None or metric.low is None or metric.high is None:
        return "none"
    return f"{metric.value:.2f} [{metric.low:.2f}, {metric.high:.2f}]"


@verb
def bench_natural_circuits(
    chosen: Published | None = None, *, n: int = PROMPTS, seed: int = SEED, out: Out = None, progress: Progress = silent
) -> NaturalCard:
    """Explain natural models whose circuits are known, and grade components, roles, backups and false support.

    The models are `arithmetic` and, where `specimens` is given, the stand-in for GPT-2 small in that directory.
    """
    chosen = chosen or Published()
    if chosen.names is not None or chosen.limit is not None or chosen.annotations is not None:
        raise BadInput("`natural`: every task with a key is graded; leave `ids`, `limit` and `annotations` out")
    directory = directory_for(out, "bench-natural-circuits", f"seed{seed}")
    places: list[Path | None] = [None, *([] if chosen.folder is None else [Path(chosen.folder).expanduser()])]
    rows = []
    for place in places:
        specimen = loaded(ARITHMETIC if place is None else str(place), Load())
        for task in natural_tasks(ARITHMETIC, place):
            on_task = replace(specimen, behaviour=task, behaviour_source=None) if task else specimen
            performance = require_performance(on_task, force=True)
            note_unperformed(on_task.name, task or ARITHMETIC, performance, force=True)
            rows.append(_row(on_task, task, place, n=n, seed=seed, progress=progress))
    request = Request(command="bench circuits", options={"natural": True, "specimens": _path(chosen)}, seed=seed)
    card = NaturalCard(request=request, scientist="built-in", rows=tuple(rows))
    card.save(directory)
    return card


def _path(chosen: Published) -> str | None:
    return None if chosen.folder is None else str(chosen.folder)


def _row(specimen: Specimen, task: str, place: Path | None, *, n: int, seed: int, progress: Progress) -> NaturalRow:
    started = time.perf_counter()
    explanation = explain(specimen, n=n, seed=seed, progress=progress)
    drawn = trial(specimen, n, seed=seed)
    zeroed = effects(specimen.model, drawn.batch, drawn.readout, kind="zero")
    alone = {str(part[0]): float(value) for part, value in zip(zeroed.sets, zeroed.mean, strict=True)}
    grade = grade_natural(explanation, alone, task=task, directory=place)
    return NaturalRow(
        model=specimen.name,
        behaviour=specimen.behaviour or task,
        named=grade.named,
        wrong=grade.wrong,
        missed=grade.missed,
        contradicted=grade.contradicted,
        metrics=grade.metrics,
        n=n,
        seconds=round(time.perf_counter() - started, 1),
    )
