"""A run of a language model, watched: what it has done so far, from the files that it writes.

A run is a directory of `vesalius explain` (its calls in `calls.jsonl`), a run of `vesalius bench circuits` (a file of
calls for each case), or the ledger of `vesalius mcp`. Nothing is changed or locked; links that lead out of the run are
not followed.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vesalius.documents.explanation import EXPLANATION_FILE, Explanation, Verdict
from vesalius.documents.trace import (
    CALLS_FILE,
    TRACE_FILE,
    AgentCall,
    AgentCase,
    AgentRun,
    Decider,
    HypothesisState,
    Text,
    Trace,
)
from vesalius.errors import BadInput, choices
from vesalius.explanations.verdicts import verdict_of_kinds
from vesalius.files import no_directory
from vesalius.runs.directory import (
    CALLS,
    EVENTS,
    EXPLANATIONS,
    TRACES,
    UNDER_WAY,
    Worker,
    document_or_none,
    inside,
    is_run,
    read_own_run,
    worker_of,
)
from vesalius.runs.kinds import RunKind, kind_of_run, state_of_files
from vesalius_backbones.runs.access import totals
from vesalius_backbones.runs.conversation import LONGEST, Conversation
from vesalius_backbones.runs.usage import summed

#: Conversations that are kept, so that the next look reads only what was added.
MOST_KEPT = 16
#: Calls of one look.
MOST_CALLS = 400


def is_watchable(directory: Path) -> bool:
    """Whether there is something to watch in a directory."""
    return is_run(directory) or any((directory / name).is_file() for name in (CALLS_FILE, UNDER_WAY, EXPLANATION_FILE))


class Watcher:
    """Looks at runs again and again, and reads only what was added."""

    def __init__(self) -> None:
        self._conversations: OrderedDict[Path, Conversation] = OrderedDict()

    def look(self, directory: Path, *, case: str | None = None, first: int = 0, expected: bool = False) -> AgentRun:
        """A run as it stands, with the calls from number `first` on; of a benchmark, those of one case. One that is
        `expected` may have left no trace yet.
        """
        if not (expected or is_watchable(directory)):
            raise BadInput(f"run {directory.name}: there is nothing to watch (no calls, no explanation)")
        worker, run = worker_of(directory), read_own_run(directory)
        state = state_of_files(directory, run) if worker is None else "running"
        common: dict[str, Any] = {"run": directory.name, "state": state, **_doing(worker)}
        if (kind := kind_of_run(run)).HAS_CALLS:
            inside(directory, EVENTS)
            return kind.watch(directory, case=case, first=first, most=MOST_CALLS, common=common)
        if run is not None:
            return self._of_benchmark(directory, run, case, first, common)
        explanation = _document(Explanation, directory, EXPLANATION_FILE)
        trace = _document(Trace, directory, TRACE_FILE) if state == "finished" else None
        conversation = self._conversation(inside(directory, CALLS_FILE), case="")
        scientist = explanation.scientist if explanation else "hyve" if conversation.calls else ""
        specimen = explanation.title if explanation else conversation.scope
        return _watched(conversation, first, trace, {**common, "scientist": scientist, "specimen": specimen})

    def text(self, directory: Path, *, case: str | None, number: int, part: str) -> str:
        """A whole text of one call."""
        run = read_own_run(directory)
        if (kind := kind_of_run(run)).HAS_CALLS:
            inside(directory, EVENTS)
            return kind.text(directory, case=case, number=number, part=part)
        if run is not None:
            file = inside(directory, CALLS, f"{_known_case(run, case)}.jsonl")
        else:
            file = inside(directory, CALLS_FILE)
        return self._conversation(file, case=case or "").whole(number, part)

    def conversation(self, directory: Path, case: str) -> Conversation:
        """The calls of one case of a benchmark's run."""
        return self._conversation(inside(directory, CALLS, f"{case}.jsonl"), case=case)

    def _of_benchmark(
        self, directory: Path, run: Mapping[str, Any], case: str | None, first: int, common: dict[str, Any]
    ) -> AgentRun:
        names = run.get("names")
        cases = [
            AgentCase(
                case=name,
                name=_name(names, name),
                calls=0,
                explained=(directory / EXPLANATIONS / f"{name}.json").is_file(),
            )
            for name in _cases(run)
        ]
        chosen = _known_case(run, case) if case is not None else _latest(directory, cases)
        settings = run["settings"]
        common |= {"scientist": str(settings.get("scientist", ""))[:100], "case": chosen}
        conversation = self.conversation(directory, chosen) if chosen else Conversation(directory / CALLS)
        trace = _document(Trace, directory, TRACES, f"{chosen}.json") if chosen else None
        counted = tuple(
            one.model_copy(update={"calls": len(conversation.calls)}) if one.case == chosen else one for one in cases
        )
        specimen = f"bench {settings.get('benchmark')}, {_name(names, chosen or '')}"
        return _watched(conversation, first, trace, {**common, "cases": counted, "specimen": specimen})

    def _conversation(self, path: Path, *, case: str) -> Conversation:
        if path not in self._conversations:
            self._conversations[path] = Conversation(path, case)
            while len(self._conversations) > MOST_KEPT:
                self._conversations.popitem(last=False)
        self._conversations.move_to_end(path)
        kept = self._conversations[path]
        kept.update()
        return kept


def _watched(conversation: Conversation, first: int, trace: Trace | None, common: dict[str, Any]) -> AgentRun:
    calls = conversation.calls
    first = min(max(0, first), len(calls))
    used = {"run": common["run"], "scientist": common["scientist"], "backbone": conversation.backbone}
    return AgentRun(
        **common,
        first=first,
        n_calls=len(calls),
        calls=tuple(calls[first : first + MOST_CALLS]),
        hypotheses=tuple(_decided(trace) if trace is not None else _hypotheses(calls)),
        usage=summed(conversation.used, **used),
        problems=tuple(conversation.problems) + (() if trace is None else trace.problems[:20]),
    )


def _doing(worker: Worker | None) -> dict[str, Any]:
    if worker is None:
        return {}
    return {"step": worker.step, "done": worker.done, "total": worker.total, "started": worker.started}


def _decided(trace: Trace) -> Iterator[HypothesisState]:
    """What a trace says; it is there when the explanation is finished."""
    for part in trace.components:
        for attempt in part.attempts:
            yield HypothesisState(
                component=part.component,
                attempt=attempt.iteration,
                hypothesis=Text(text=attempt.hypothesis[:LONGEST], length=len(attempt.hypothesis)),
                verdict=attempt.verdict,
                decided_by=attempt.decided_by,
            )


def _hypotheses(calls: Sequence[AgentCall]) -> Iterator[HypothesisState]:
    """What the calls say so far; typed, the first hypothesis may come with the observation."""
    stated: dict[tuple[str, int], Text] = {}
    for call in calls:
        text = call.answer.get("hypothesis")
        if call.component is None or text is None or not text.text.strip():
            continue
        if call.stage == "hypothesise" or (call.stage == "observe" and call.attempt is None):
            stated[call.component, call.attempt or 1] = text
    for (component, attempt), text in stated.items():
        tests = [c for c in calls if c.stage == "validate" and (c.component, c.attempt) == (component, attempt)]
        verdict, decided_by = _standing(tests)
        yield HypothesisState(
            component=component, attempt=attempt, hypothesis=text, verdict=verdict, decided_by=decided_by
        )


def _standing(tests: Sequence[AgentCall]) -> tuple[Verdict | None, Decider | None]:
    """The verdict of one validation, by the rule of the engine or the model's word; None while it goes on."""
    answered = [call.answer for call in tests if "explanation" in call.answer or "decision" in call.answer]
    if not answered:
        return None, None
    if "decision" in answered[-1]:
        said = answered[-1]["decision"].text
        return ("supported" if said == "support" else "refuted"), "model"
    uses = [use for call in tests for use in call.tools]
    claims: list[tuple[str, Verdict]] = [(use.claim or "", use.verdict) for use in uses if use.verdict is not None]
    return verdict_of_kinds(claims), "engine" if claims else "undecided"


def _cases(run: Mapping[str, Any]) -> list[str]:
    specimens = run["settings"].get("specimens")
    return [name for name in specimens if _is_plain(name)] if isinstance(specimens, dict) else []


def _is_plain(name: object) -> bool:
    return isinstance(name, str) and bool(name) and "/" not in name and "\0" not in name and not name.startswith(".")


def _name(names: Any, case: str) -> str:
    name = names.get(case) if isinstance(names, dict) else None
    return name[:200] if isinstance(name, str) else case


def _known_case(run: Mapping[str, Any], case: str | None) -> str:
    cases = _cases(run)
    if not isinstance(run["settings"].get("specimens"), dict) and isinstance(case, str) and _is_plain(case):
        return case  # a functions run does not list its functions
    if case not in cases:
        raise BadInput(f"case {str(case)[:60]!r}: not in this run; it has {choices(cases)}")
    return case


def _latest(directory: Path, cases: Sequence[AgentCase]) -> str | None:
    """The case that was asked about last; else the first."""

    def changed(case: AgentCase) -> float:
        try:
            return (directory / CALLS / f"{case.case}.jsonl").stat().st_mtime
        except OSError:
            return 0.0

    return max(cases, key=changed).case if cases else None


def _document(kind: Any, directory: Path, *parts: str) -> Any:
    path = inside(directory, *parts)
    return document_or_none(kind, path) if path.is_file() else None


def watch(run: str | Path, *, case: str | None = None) -> AgentRun:
    """What a run of a language model has done so far: its calls stage by stage, its hypotheses, tokens and cost.

    `run` is a directory that `vesalius explain` or `vesalius bench circuits` writes to, now or before; `case` is one
    circuit of a benchmark (default: the one that was asked about last).
    """
    directory = Path(run)
    if not directory.is_dir():
        raise BadInput(f"run {run}: {no_directory(directory)}")
    return Watcher().look(directory, case=case)


class RecordedCalls(RunKind):
    """A directory in which calls are recorded and no result is yet: of an explanation under way or killed."""

    NAME = "calls"

    def listed(self, directory: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
        """How many calls were made for it, and what they cost."""
        used = totals(directory / CALLS_FILE)
        return {"state": "unfinished", "figures": f"{used.calls} calls", "cost": used.cost}
