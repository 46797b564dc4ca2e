"""What an annotation rates: the texts of benchmark runs and of single explanations, with the traces behind them."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.errors import BadInput
from vesalius.runs.directory import EXPLANATIONS, TRACES, is_run, read_explanation, read_trace, require_benchmark
from vesalius_backbones.runs.usage import model_name
from vesalius_bench.circuits.settings import BENCHMARK
from vesalius_bench.ratings.texts import (
    CandidateText,
    candidate_texts,
    chosen_specimens,
    reference_of,
    same_specimen,
)

#: Texts of one annotation.
MOST_TEXTS = 5_000
#: The protocol under which raters see the references unless told otherwise, as in the published study.
PAPER = "paper"


class RatedRun(NamedTuple):
    """One explanation of a run, with its author, the specimen's directory and how it came about."""

    label: str
    explanation: Explanation
    agent: str
    place: Path | None = None
    trace: Trace | None = None
    protocol: str | None = None


def collect_texts(
    directories: Sequence[Path], *, reference: bool | None, ids: Iterable[str] | None = None
) -> tuple[list[CandidateText], bool]:
    """The texts of benchmark runs and of directories made by `explain`, and whether they have their references: with
    None they have them where a run follows the published protocol and there is one of every specimen.
    """
    labels = [directory.resolve().name for directory in directories]
    if repeated := [label for label in labels if labels.count(label) > 1]:
        raise BadInput(f"run {repeated[0]}: two runs have this name, and ratings are kept by it; rename one")
    chosen = None if ids is None else chosen_specimens(ids)
    runs = [
        one
        for label, directory in zip(labels, directories, strict=True)
        for one in _explanations(label, directory)
        if chosen is None or same_specimen(one.explanation.specimen) in chosen
    ]
    if reference is None:
        reference = any(one.protocol == PAPER for one in runs) and all(map(_has_reference, runs))
    texts = [text for one in runs for text in _texts(one, reference=reference)]
    if not texts:
        raise BadInput("nothing to rate: the runs hold no explanation" + (" of these `ids`" if chosen else ""))
    keys = {text.key for text in texts}
    if len(keys) < len(texts):
        twice = next(text.key for text in texts if sum(other.key == text.key for other in texts) > 1)
        raise BadInput(f"run {twice[0]}: has two texts of {twice[2]}; keep one explanation of a specimen in a run")
    if len(texts) > MOST_TEXTS:
        raise BadInput(f"{len(texts)} texts are more than the {MOST_TEXTS} that can be rated; choose some with `ids`")
    return texts, reference


def _texts(run: RatedRun, *, reference: bool) -> list[CandidateText]:
    return candidate_texts(
        run.explanation, run.trace, run=run.label, agent=run.agent, reference=reference, place=run.place
    )


def _has_reference(run: RatedRun) -> bool:
    try:
        reference_of(run.explanation.specimen, run.place)
    except BadInput:
        return False
    return True


def _explanations(label: str, directory: Path) -> list[RatedRun]:
    """The explanations of a run with their traces, where there are any."""
    if (directory / EXPLANATION_FILE).is_file():
        explanation = read_explanation(directory / EXPLANATION_FILE)
        asked = explanation.request
        agent = model_name(asked.backbone if asked else None) or explanation.scientist
        trace = _trace(directory / TRACE_FILE)
        place = Path(asked.specimen) if asked and asked.specimen else None
        return [RatedRun(label, explanation, agent, place, trace, trace.protocol if trace else None)]
    if not is_run(directory):
        raise BadInput(f"run {directory}: no run there (expected {directory / 'run.json'} or {EXPLANATION_FILE})")
    asked = require_benchmark(directory, BENCHMARK)
    settings, places = asked["settings"], asked.get("places", {})
    agent = model_name(settings.get("backbone")) or str(settings.get("scientist"))
    return [
        RatedRun(
            label,
            read_explanation(file),
            agent,
            Path(places[file.stem]) if file.stem in places else None,
            _trace(directory / TRACES / file.name),
            settings.get("protocol"),
        )
        for file in sorted((directory / EXPLANATIONS).glob("*.json"))
    ]


def _trace(path: Path) -> Trace | None:
    return read_trace(path) if path.is_file() else None


def annotation_name(directories: Sequence[Path], *, reference: bool, ids: Iterable[str] | None) -> str:
    """A directory's name for these runs and this choice: the same command finds its ratings again."""
    words = sorted(str(directory.resolve()) for directory in directories)
    chosen = [] if ids is None else sorted(chosen_specimens(ids))
    digest = hashlib.sha256("\0".join([*words, *chosen, str(reference)]).encode("utf-8", "replace")).hexdigest()[:8]
    return f"annotation-{digest}"
