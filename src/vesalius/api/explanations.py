"""What the components of a circuit do, with evidence; a claim about one decided again, and the program run again.

With a directory the explanation and its page are written to it; where a language model explains, also `trace.json`, how
it came about, and `calls.jsonl`, every call it made, so that the same call continues an interrupted explanation.
"""

import hashlib
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vesalius.api.circuit_sources import Given, circuit_fields
from vesalius.api.door import (
    directory_for,
    note_problems,
    removed_if_empty,
    subject_options,
    subject_words,
    verb,
    written,
)
from vesalius.api.loading import loaded
from vesalius.behaviours.trial import NothingUnseen
from vesalius.circuits.specimens import benchmark_directory
from vesalius.components import Component
from vesalius.discovery.discover import circuit_method
from vesalius.documents.experiments import RETEST_FILE, Retest
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.request import Request
from vesalius.documents.running import LADDER_FILE, Ladder
from vesalius.errors import BadInput, quoted, result_kept
from vesalius.explanations.natural import PROMPTS
from vesalius.explanations.natural.selection import StudyLimits
from vesalius.explanations.retesting import decide_again, record_of, why_not_again
from vesalius.explanations.running import fitted_prompts, parse_program, run_again
from vesalius.explanations.scientists import (
    BUILTIN,
    Builtin,
    Explained,
    Scientist,
    Task,
    chosen_scientist,
    explain_task,
    protocol_of,
    scientist_named,
)
from vesalius.files import mark_of
from vesalius.json_lines import short_name
from vesalius.model.specimen import Specimen
from vesalius.options import MAX_TOKENS, Ask, Calls, CircuitFrom, Explaining, Force, Load, Out, Parts, require_drawable
from vesalius.plugins import VERBS, loaded_plugin
from vesalius.progress import Progress, silent
from vesalius.report.pages import render_page
from vesalius.runs.directory import EXECUTIONS, PROGRAMS_FILE, calls_path, under_way
from vesalius.runs.parts import parts_on
from vesalius.sandbox.command import Grants

__all__ = [
    "BUILTIN",
    "PAGE_FILE",
    "TRACE_FILE",
    "explain",
    "retest",
    "scientist_named",
    "why_not_again",
]
PAGE_FILE, TRACE_FILE, EXECUTIONS_FILE = "report.html", "trace.json", "executions.jsonl"


def require_explainable(source: CircuitFrom, study: Explaining, ask: Ask, parts: Parts, **options: object) -> None:
    """Refuse options that do not go together before the model is loaded."""
    scientist = scientist_of(study, ask, **options)
    scientist.require_model(ask.backbone is not None)
    if source.circuit_from is not None:
        circuit_method(source.circuit_from)
    if not scientist.in_parts and parts != Parts():
        raise BadInput(
            f"scientist {scientist.label!r}: the engine and the jobs are for the built-in one; leave them out"
        )


def scientist_of(study: Explaining, ask: Ask, **options: object) -> Scientist:
    """Who explains, with the options that are given beside a name."""
    own = {name: getattr(study, name) for name in ("n", "top", "leave_out")}
    own["no_ladder"] = study.no_ladder or None
    own |= {"protocol": ask.protocol, "compact": ask.compact or None}
    own |= {"prompts": None if ask.prompts is None else str(ask.prompts)}
    return chosen_scientist(study.scientist, ask.backbone is not None, **own, **options)


@partial(verb, check=require_explainable)
def explain(
    specimen: Specimen,
    components: Given = None,
    *,
    source: CircuitFrom,
    study: Explaining,
    force: Force,
    ask: Ask,
    calls: Calls,
    parts: Parts,
    out: Out = None,
    progress: Progress = silent,
    **options: object,
) -> Explanation:
    """Say what each component of a circuit does, with evidence.

    `components` is what `ves.discover` returned or a circuit (of both, the components that score at least a tenth of
    the largest are explained), or names. `circuit` is the same, a file or a directory of one, or a finished benchmark
    run; `circuit_from` the method that discovers it first (or the one to take from a run of several). By default the
    specimen's own components are explained. An empty circuit gives an explanation that says that nothing was
    established.

    `scientist` is one, such as `ves.Builtin(top=8)`, or the name of one, with its options beside it: "builtin", "hyve",
    "hybrid", a plug-in's, "command:PROGRAM" or `package.module:name`; `options` are those of a plug-in's class. The
    built-in one writes programs for listed vocabularies (`leave_out` names a family of hypotheses to do without) and
    the causal profile of natural models for the behaviour they were loaded with (`n` held-out prompts, the `top`
    components by effect; `force` continues although the model does not perform the behaviour; `no_ladder` does not run
    the explanation in the model's place). With `backbone`, such as "openai:gpt-5.4", a language model proposes
    (docs/how-to/hyve.md), by the `protocol` "typed" or "paper"; `record` keeps its calls and `replay` serves them;
    `compact` keeps its typed prompts short, for a small context, and `prompts` is a directory of your own for the
    protocol "paper".

    `engine` ("local" processes or "ray") and `jobs` let the built-in scientist study components of a natural model
    elsewhere, some in each process. With `out` (a directory, or True for one under `vesalius-runs`) the files and the
    page are written.
    """
    backbone, scientist = ask.backbone, scientist_of(study, ask, **options)
    with ExitStack() as stack:
        task = Task(
            specimen.id,
            _place(specimen),
            scientist=scientist,
            seed=study.seed,
            force=force.force,
            **circuit_fields(specimen, components, source.circuit, source.circuit_from),
            source=specimen.source,
            backbone=backbone if isinstance(backbone, str) else None,
            backbone_options=_backbone_options(ask.base_url, ask.max_tokens),
            sandbox_unsafe=ask.unsafe_sandbox,
            timeout=ask.timeout,
            grants=Grants(**ask.granted),
            loaded=specimen,
            progress=progress,
            spread=parts_on(parts, specimen, progress),
        )
        directory = directory_for(out, *_words(specimen, task)) if out else None
        stack.enter_context(removed_if_empty(directory))
        task = replace(task, progress=stack.enter_context(under_way(directory, progress)))
        scope = f"{specimen.id} {protocol_of(scientist)} seed {study.seed}"
        kept = _kept_calls(calls.record or directory, calls.replay, specimen.id, scope=scope)
        task = _with_circuit_file(replace(task, **kept.executions), directory)
        if directory is not None:
            task = replace(task, programs=directory / PROGRAMS_FILE)
        if isinstance(backbone, str):
            how = {"base_url": ask.base_url, "max_tokens": ask.max_tokens, "timeout": ask.timeout, **kept.calls}
            opened = _open_backbone(backbone, **how, prices=ask.prices, cap=ask.max_cost)
            backbone = stack.enter_context(opened).within(kept.scope)
        result = explain_task(task, backbone)
        progress("rendering the page", 0, 0)
        explanation = result.explanation if directory is None else _write_files(result, directory, specimen)
    note_problems(result.trace)
    return explanation


def _open_backbone(name: str, **options: object) -> Any:
    """A language model, opened by the verb `open_backbone` of an installed package."""
    opener = loaded_plugin(VERBS, "open_backbone", ())
    if opener is None:
        raise BadInput(f"`backbone` {name}: no installed package opens language models; install vesalius whole")
    return opener(name, **options)


def _with_circuit_file(task: Task, directory: Path | None) -> Task:
    """The task with its circuit, if that was in memory only, written beside the explanation, so that the request can
    name it.
    """
    if directory is None or task.circuit is None or task.circuit_file is not None:
        return task
    return replace(task, circuit_file=str(task.circuit.save(directory)))


@dataclass(frozen=True)
class KeptCalls:
    """Where a language model's calls and what executed code gave are kept or found, and the scope of the calls."""

    scope: str
    calls: dict[str, Any]
    executions: dict[str, Any]


def _kept_calls(record: str | Path | None, replay: str | Path | None, case: str, *, scope: str) -> KeptCalls:
    """In one directory beside each other; a benchmark has a file per case, and its case is the scope. A replay only
    reads.
    """
    if replay is not None and (of_case := calls_path(Path(replay), case)).is_file():
        executions = {"executions": Path(replay) / EXECUTIONS / of_case.name, "executions_writable": False}
        return KeptCalls(case, {"replay": of_case}, executions)
    place = replay or record
    calls = {"record": None if replay else record, "replay": replay}
    if place is None:
        return KeptCalls(scope, calls, {})
    folder = Path(place).parent if Path(place).suffix == ".jsonl" else Path(place)
    return KeptCalls(scope, calls, {"executions": folder / EXECUTIONS_FILE, "executions_writable": not replay})


def _backbone_options(base_url: str | None, max_tokens: int) -> dict[str, Any]:
    """The options of a language model that decide what it answers, where they are not the usual ones."""
    given = {} if max_tokens == MAX_TOKENS else {"max_tokens": max_tokens}
    return given if base_url is None else {**given, "base_url": base_url}


def _place(specimen: Specimen) -> Path | None:
    """The directory that a specimen was loaded from; None where there is none."""
    source = specimen.source or specimen.id
    directory = benchmark_directory(source) or Path(source).expanduser()
    return directory if directory.exists() else None


def _words(specimen: Specimen, task: Task) -> tuple[str | None, ...]:
    """The parts of the directory's name."""
    scientist = None if task.scientist.name == BUILTIN else short_name(task.scientist.label)
    metric, mark, own = subject_options(specimen).get("metric"), _mark(task), task.scientist.checksums
    prompts = f"prompts-{mark_of(own)[:6]}" if own else None
    words = scientist, protocol_of(task.scientist), prompts, mark
    return "explain", *subject_words(specimen), metric, *words, f"seed{task.seed}"


def _mark(task: Task) -> str | None:
    """A few digits that stand for components and options that were given, so that an explanation of others does not
    take the place of this one; None where none were.
    """
    circuit = None if task.circuit is None else [str(part) for part, _ in task.circuit.ranked()]
    options = task.scientist if task.scientist.name == BUILTIN and task.scientist != Builtin() else None
    given = (task.components, task.circuit_file or circuit, task.circuit_from, options)
    return hashlib.sha256(repr(given).encode()).hexdigest()[:6] if any(given) else None


def _write_files(result: Explained, directory: Path, specimen: Specimen) -> Explanation:
    """The explanation, with its files and its page in a directory."""
    explanation = result.explanation.model_copy(update={"directory": str(directory)})  # its answer says to open it
    with result_kept(explanation):
        explanation.write(directory / EXPLANATION_FILE)
        if result.trace is not None:
            result.trace.write(directory / TRACE_FILE)
        render_page(explanation, directory / PAGE_FILE, specimen=specimen)
    return explanation


# Decide a claim of a finished explanation again.


#: Options of an explanation's request that say how its model was read.
_OF_THE_MODEL = ("metric", "tokenizer", "revision", "dtype")


@verb
def retest(
    explanation: Explanation | str | Path,
    component: str,
    claim: int | str = 1,
    *,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Retest:
    """Run the experiment of one claim again on the held-out inputs of another `seed`, by the same rule.

    `explanation` is one, its file or its directory; `claim` a number from 1 among the claims about the component, or a
    kind, such as "necessary". The seed of the explanation draws the same inputs, and repeats the record. `specimen`
    replaces the one that the explanation names, which is read as it was then.
    """
    require_drawable(1, seed)
    start = time.perf_counter()
    given, place = read_explanation(explanation)
    number, before = record_of(given, component, claim)
    name = explained_specimen(given, specimen, progress=progress)
    progress(f"testing {component} again", 0, 1)
    after = decide_again(name, given, component, before, seed=seed)
    progress(f"testing {component} again", 1, 1)
    document = Retest(
        request=Request(command="retest", specimen=place, options={"component": component, "claim": number}, seed=seed),
        specimen=given.specimen,
        behaviour=given.behaviour,
        component=component,
        claim=number,
        before=before,
        before_seed=given.seed,
        after=after,
        seconds=time.perf_counter() - start,
    )
    name = ("retest", given.specimen, component, before.kind, f"seed{seed}")
    return written(document, directory_for(out, *name) if out else None, RETEST_FILE)


def explained_specimen(
    given: Explanation, specimen: Specimen | str | int | Path | None, *, progress: Progress
) -> Specimen:
    """The specimen of an explanation, read as it was then, or the one that takes its place."""
    asked = given.request
    options: dict[str, Any] = {name: asked.options[name] for name in _OF_THE_MODEL if asked and name in asked.options}
    name = specimen if specimen is not None else (asked.specimen if asked else None) or given.specimen
    if isinstance(name, Specimen):
        return name
    return loaded(name, Load(**{"behaviour": given.behaviour, **options}), progress=progress)


def read_explanation(explanation: Explanation | str | Path) -> tuple[Explanation, str | None]:
    """The explanation, and where it is."""
    if isinstance(explanation, Explanation):
        where = explanation.directory
        return explanation, None if where is None else str(Path(where) / EXPLANATION_FILE)
    if not isinstance(explanation, str | Path):
        raise BadInput(f"explanation {type(explanation).__name__} is none; give one, its file or its directory")
    path = Path(explanation)
    file = path / EXPLANATION_FILE if path.is_dir() else path
    return Explanation.read(file), str(explanation)


# The program of a finished explanation run again in the model's place: on other prompts, or with other programs.

#: The fewest prompts with an interval.
LEAST = 4


@verb
def ladder(
    explanation: Explanation | str | Path,
    programs: Mapping[str, str] | None = None,
    *,
    n: int = 32,
    seed: int = 1,
    specimen: Specimen | str | int | Path | None = None,
    out: Out = None,
    progress: Progress = silent,
) -> Ladder:
    """Run the program of an explanation in the model's place, on `n` prompts of another `seed` and `n` of other
    templates, and measure every rung of its ladder and every control again.

    No prompt is one that the programs were fitted to: where a behaviour has few, fewer than `n` are left, and every
    figure has its `n`.

    `explanation` is one of a natural model, its file or its directory. `programs` take the place of those of some
    heads, `{"L18H6": "1 back 0.9 + BOS 0.1"}`: a false one is seen by what is kept. `specimen` replaces the model that
    the explanation names, which is read as it was then.
    """
    started = time.perf_counter()
    require_drawable(n, seed)
    if n < LEAST:
        raise BadInput(f"{n} prompts are too few for intervals; request at least {LEAST}")
    given, place = read_explanation(explanation)
    running = given.running
    if running is None or given.behaviour is None:
        raise BadInput(
            f"the explanation of {given.specimen!r} has no program that runs; run `vesalius explain` of a natural "
            "model without --no-ladder"
        )
    _require_programs(programs or {}, {one.head for one in running.heads})
    model = explained_specimen(given, specimen, progress=progress)
    usual = PROMPTS if given.request is None else given.request.options.get("n", PROMPTS)
    fitted = fitted_prompts(model, StudyLimits.of(None, int(str(usual))).n, seed=given.seed)
    try:
        again = run_again(model, running, programs=programs, fitted=fitted, n=n, seed=seed, progress=progress)
    except NothingUnseen:
        raise BadInput(
            f"every prompt of {given.behaviour} that seed {seed} draws fitted the programs or chose the set; take "
            "another --seed, or give the behaviour more rows"
        ) from None
    document = Ladder(
        request=Request(
            command="ladder",
            specimen=place,
            options={"n": n, **({"programs": dict(programs)} if programs else {})},
            seed=seed,
        ),
        specimen=given.specimen,
        behaviour=given.behaviour,
        before=running.claimed.kept,
        running=again,
        seconds=round(time.perf_counter() - started, 2),
    )
    directory = directory_for(out, "ladder", given.specimen, given.behaviour, f"n{n}", f"seed{seed}") if out else None
    return written(document, directory, LADDER_FILE)


def _require_programs(programs: Mapping[str, str], heads: set[str]) -> None:
    """Refuse what is no program, and heads that have none to replace."""
    if not isinstance(programs, Mapping):
        raise BadInput(f"programs {quoted(str(programs), 60)}: give heads with their programs, {{'L18H6': '1 back'}}")
    for name, text in programs.items():
        if not isinstance(text, str):
            raise BadInput(f"program {quoted(str(text), 60)} of head {name} is no text; write it, such as '1 back'")
        parse_program(text)
        if str(Component.parse(name)) not in heads:
            raise BadInput(f"head {name} has no program in this explanation; choose one of {', '.join(sorted(heads))}")
