"""What a run asked of its language models, from the records of its calls.

A call's label says what it was for: the component and the stage, or the judge's question. Calls are sorted by it, and
added up as the records have them, so that the stages of the scientist sum to the scorecard's `usage`. A benchmark run
has one file of records for each case and judge, an explanation has one.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.explanation import EXPLANATION_FILE
from vesalius.documents.printed import CallUsage, ComponentUsage, RunUsage, StageUsage
from vesalius.documents.scorecard import CallTotals
from vesalius.documents.trace import CALLS_FILE, TRACE_FILE
from vesalius.errors import BadInput
from vesalius.explanations.scientists import HYBRID
from vesalius.runs.directory import CALLS, is_run, read_explanation, read_run, read_trace
from vesalius.runs.ledger import Totals
from vesalius_backbones import Redactor
from vesalius_backbones.records import Outcome, Records

#: The stages of HyVE by the end of a call's label, in the order of the loop.
STAGES = {
    "observe": r"observation(?: plan)?",
    "hypothesise": r"hypothesis \d+",
    "validate": r"validation(?: plan)? \d+",
    "classify": r"classification",
    "summarise": r"summary",
    "name": r"names",
}
#: What the stages are in `hybrid`: a language model proposes for what is open, and names what is established.
HYBRID_STAGES = {
    "observe": "propose",
    "hypothesise": "propose",
    "validate": "propose",
    "classify": "name",
    "summarise": "name",
    "name": "name",
}
#: Calls whose label names no stage: those of a scientist of one's own.
OTHER = "other"
#: A run whose calls were recorded elsewhere: its trace still says what they used.
UNSORTED = "all stages"
_JUDGE = re.compile(r"judge/[^/]*/(?P<component>[^/]*)/(?P<measure>[^/]*)/")
_STAGE = {stage: re.compile(rf"(?:(?P<component>\S+) )?{pattern}") for stage, pattern in STAGES.items()}


@dataclass(frozen=True)
class Call:
    """One recorded call: whose it was, which stage, about what, and how it ended."""

    case: str
    stage: str
    component: str | None
    outcome: Outcome

    @property
    def judged(self) -> bool:
        """Whether a judge was asked."""
        return self.stage.startswith("judge")


def run_usage(directory: Path, *, label: str | None = None) -> RunUsage:
    """The calls of a benchmark run or of an explanation; `label` is what tables call it (default: the directory)."""
    name = str(directory) if label is None else label
    if is_run(directory):
        return _of_benchmark(directory, name)
    if (directory / EXPLANATION_FILE).is_file():
        return _of_explanation(directory, name)
    raise BadInput(f"run {directory}: no run there (expected {directory / 'run.json'} or {EXPLANATION_FILE})")


def stage_of(label: str) -> tuple[str, str | None]:
    """The stage that a call's label names, and the component where it names one."""
    if judge := _JUDGE.match(label):
        return f"judge {judge['measure']}", judge["component"] or None
    for stage, pattern in _STAGE.items():
        if match := pattern.fullmatch(label):
            return stage, match["component"]
    return OTHER, None


def _of_benchmark(directory: Path, name: str) -> RunUsage:
    settings = read_run(directory)["settings"]
    files = sorted((directory / CALLS).glob("*.jsonl"))
    calls = [call for path in files for call in _calls(path, case=_case(path.stem, settings.get("specimens", {})))]
    scientist = str(settings.get("scientist", ""))
    return summed(calls, run=name, scientist=scientist, backbone=model_name(settings.get("backbone")))


def _case(stem: str, cases: Iterable[str]) -> str:
    """The case of a file of records, whose name may end in the judge's."""
    return next((case for case in cases if stem == case or stem.startswith(f"{case}.")), stem)


def _of_explanation(directory: Path, name: str) -> RunUsage:
    explanation = read_explanation(directory / EXPLANATION_FILE)
    trace = read_trace(directory / TRACE_FILE) if (directory / TRACE_FILE).is_file() else None
    made: dict[str, Any] = {
        "run": name,
        "scientist": explanation.scientist,
        "backbone": None if trace is None else trace.backbone,
    }
    if (directory / CALLS_FILE).is_file():
        return summed(list(_calls(directory / CALLS_FILE, case=explanation.specimen)), **made)
    if trace is None:
        return RunUsage(**made)
    given = trace.usage.model_dump(include=set(CallUsage.model_fields))
    total = CallUsage(**given, seconds=None)
    return RunUsage(**made, stages=(StageUsage(stage=UNSORTED, **total.as_data()),), total=total)


def _calls(path: Path, *, case: str) -> Iterable[Call]:
    for label, outcome in Records(path, Redactor([]), writable=False).labelled_outcomes:
        stage, component = stage_of(label)
        yield Call(case, stage, component, outcome)


def summed(calls: Sequence[Call], *, run: str, scientist: str, backbone: str | None) -> RunUsage:
    """What calls used, by stage and by component."""
    asked = [call for call in calls if not call.judged]
    about = sorted({(call.case, call.component) for call in asked}, key=lambda one: (one[0], one[1] or ""))
    components = [
        ComponentUsage(
            case=case,
            component=component,
            **_used(call for call in asked if (call.case, call.component) == (case, component)),
        )
        for case, component in about
    ]
    n_components = sum(one.component is not None for one in components)
    return RunUsage(
        run=run,
        scientist=scientist,
        backbone=backbone,
        stages=tuple(_stages(calls, hybrid=scientist == HYBRID)),
        components=tuple(components),
        total=CallUsage(**_used(calls)),
        n_components=n_components,
        per_component=_shared(_used(asked), n_components) if n_components else None,
    )


def _stages(calls: Sequence[Call], *, hybrid: bool) -> Iterable[StageUsage]:
    """One sum for each stage that was asked, in the order of the loop, judges last."""

    def shown(stage: str) -> str:
        return HYBRID_STAGES.get(stage, stage) if hybrid else stage

    order = [*STAGES, OTHER]
    present = sorted({call.stage for call in calls}, key=lambda one: (order.index(one) if one in order else 99, one))
    for name in dict.fromkeys(map(shown, present)):
        yield StageUsage(stage=name, **_used(call for call in calls if shown(call.stage) == name))


def _used(calls: Iterable[Call]) -> dict[str, Any]:
    outcomes = [call.outcome for call in calls]
    usages = [outcome.usage for outcome in outcomes if outcome.usage is not None]
    return {
        "calls": len(outcomes),
        "input_tokens": sum(usage.input for usage in usages),
        "output_tokens": sum(usage.output for usage in usages),
        "cached_tokens": sum(usage.cached for usage in usages),
        "cost": _sum_known([outcome.cost for outcome in outcomes]),
        "seconds": _sum_known([outcome.seconds for outcome in outcomes]),
    }


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _shared(used: dict[str, Any], n: int) -> dict[str, float | None]:
    return {name: None if value is None else value / n for name, value in used.items()}


def model_name(model: str | None) -> str | None:
    """A model's name as its calls have it: of a script the file's name alone."""
    provider, _, name = (model or "").partition(":")
    return f"{provider}:{Path(name).name}" if provider == "scripted" else model


def call_totals(used: Totals) -> CallTotals:
    """What calls used, as a scorecard holds it."""
    return CallTotals.model_validate(used.model_dump(exclude={"at_most"}))
