"""Who explains what: the one place that chooses between scientists and between kinds of specimens.

| scientist                 | specimens         | how                                                          |
|---------------------------|-------------------|--------------------------------------------------------------|
| `builtin`                 | listed vocabulary | programs, decided by experiments (`scientist`)               |
| `builtin`                 | text vocabulary   | the causal profile of a behaviour (`natural`)                |
| `hyve`                    | any vocabulary    | a language model proposes, the engine decides (`hyve`)       |
| `hybrid`                  | listed vocabulary | built in, then a language model for the rest (`hyve.hybrid`) |
| `hybrid`, no backbone     | all               | as `builtin`                                                 |
| `command:./mine.py`       | any vocabulary    | a program that speaks JSON lines (`command`)                 |
| a plug-in's name, or      | what it accepts   | it is called with a `Task` and an open `Backbone`, or None   |
| `package.module:function` |                   |                                                              |

An empty circuit (no names, or no component with a score) means the same for all of them: nothing is explained, and the
explanation says so. Failures of the infrastructure are raised (`BackboneError`), so that a run counts them as errors.
What is heavy is imported when a scientist needs it: a worker with a scientist from outside imports no torch.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from pydantic import JsonValue

from vesalius.backbones import Backbone
from vesalius.documents.circuit import Circuit, Score
from vesalius.documents.explanation import Explanation
from vesalius.documents.request import Request
from vesalius.documents.trace import DEFAULT_PROTOCOL, Protocol, Trace
from vesalius.errors import BadInput, Failed, choices
from vesalius.json_lines import TIMEOUT, arguments_of, command_of
from vesalius.plugins import SCIENTISTS as PLUGINS
from vesalius.plugins import named_function, running
from vesalius.progress import Progress

if TYPE_CHECKING:
    from vesalius.behaviours.natural import Spread
    from vesalius.explanations.hyve import HyveResult
    from vesalius.model.specimen import Specimen

#: Why nothing is explained where a circuit is empty.
EMPTY_CIRCUIT = "no head or MLP is in the circuit with a score other than 0"
BUILTIN, HYVE, HYBRID = "builtin", "hyve", "hybrid"
PROTOCOLS = get_args(Protocol)
#: Edges of a discovered circuit that an explanation lists, strongest first.
MOST_EDGES = 1000


@dataclass(frozen=True)
class Task:
    """What a scientist is given: a specimen and how it is to be explained.

    `directory` is where the specimen is loaded from, unless it is loaded already (`loaded`). What is explained are the
    named `components`, those of a `circuit` that score high enough (`Circuit.chosen`), those of the circuit that the
    method `circuit_from` discovers, or the specimen's own. `n`, `top` and `force` are for natural models, `leave_out`
    is for the built-in scientist, `protocol`, `compact`, `sandbox_unsafe` are for those that ask a language model. For
    the request: `source` is the name or path that the specimen is loaded by, `circuit_file` where the circuit was read
    from, `backbone` the name of the language model, with its options. `executions` is the file that keeps what executed
    code gave; one that is not writable only answers. `timeout` is how many seconds a command may be silent. `spread`
    lets the built-in scientist study parts of a natural model elsewhere.
    """

    id: str
    directory: Path | None = None
    seed: int = 0
    protocol: str | None = None
    leave_out: str | None = None
    sandbox_unsafe: bool = False
    compact: bool = False
    executions: Path | None = None
    executions_writable: bool = True
    timeout: float = TIMEOUT
    circuit_from: str | None = None
    components: tuple[str, ...] | None = None
    circuit: Circuit | None = None
    circuit_file: str | None = None
    n: int | None = None
    top: int | None = None
    force: bool = False
    scientist: str = BUILTIN
    source: str | None = None
    backbone: str | None = None
    backbone_options: dict[str, JsonValue] = field(default_factory=dict)
    loaded: "Specimen | None" = field(default=None, repr=False, compare=False)
    progress: Progress | None = field(default=None, repr=False, compare=False)
    spread: "Spread | None" = field(default=None, repr=False, compare=False)

    def specimen(self) -> "Specimen":
        """The specimen, loaded; the answer key is not in it."""
        if self.loaded is not None:
            return self.loaded
        from vesalius.circuits.originals import load_directory

        assert self.directory is not None
        return load_directory(self.directory)


@dataclass(frozen=True)
class Explained:
    """An explanation, how it came about if there is a trace, and the circuit that was explained if there is one."""

    explanation: Explanation
    trace: Trace | None = None
    circuit: Circuit | None = None


Scientist = Callable[[Task, Backbone | None], Explained]


def explain_task(task: Task, backbone: Backbone | None = None) -> Explained:
    """Let the task's scientist explain it; the explanation holds the request and the edges of the circuit."""
    scientist, started = scientist_named(task.scientist), time.monotonic()
    if task.circuit_from is not None and task.circuit is None:
        specimen = task.specimen()
        task = replace(task, loaded=specimen, circuit=_discovered(task.circuit_from, specimen, task))
    circuit = task.circuit
    named = task.components if circuit is None else tuple(map(str, circuit.chosen()))
    if named == ():
        result = Explained(_abstention(task, seconds=time.monotonic() - started))
    else:
        with running(PLUGINS, task.scientist, SCIENTISTS):
            result = scientist(replace(task, components=named), backbone)
        if not isinstance(result, Explained):
            raise Failed(
                f"scientist {task.scientist!r} returned a {type(result).__name__}; return a "
                "vesalius.explanations.scientists.Explained"
            )
    update = {"request": request_of(task, backbone), "circuit_edges": _edges(circuit, result.explanation)}
    return Explained(result.explanation.model_copy(update=update), result.trace, circuit)


def scientist_named(name: str) -> Scientist:
    """The scientist of that name: built in, a plug-in's, or the function that `package.module:function` names."""
    if name in SCIENTISTS:
        return SCIENTISTS[name]
    if (command := command_of(name)) is not None:
        arguments_of(command)
        return by_command
    return named_function(PLUGINS, name, known=SCIENTISTS)


def chosen_scientist(
    scientist: str | None, backbone: bool, protocol: str | None, *, leave_out: str | None = None
) -> tuple[str, str | None]:
    """Who explains, and by which protocol, where they are left out: HyVE where there is a language model. Options that
    do not go together are refused.
    """
    scientist = scientist or (HYVE if backbone else BUILTIN)
    check_scientist(scientist, backbone=backbone, protocol=protocol, leave_out=leave_out)
    return scientist, DEFAULT_PROTOCOL if scientist == HYVE and protocol is None else protocol


def check_scientist(
    scientist: str, *, backbone: bool, protocol: str | None = None, leave_out: str | None = None
) -> None:
    """Refuse a scientist that does not exist and options that do not go with it."""
    scientist_named(scientist)
    if scientist == HYVE and not backbone:
        raise BadInput("`scientist` hyve needs a language model; give `backbone`, such as openai:gpt-5.4")
    if scientist == BUILTIN and backbone:
        raise BadInput("`backbone`: the built-in scientist asks no language model; add `scientist` hyve")
    if command_of(scientist) is not None and (backbone or protocol is not None):
        raise BadInput("`backbone` and `protocol`: a command asks no language model of ours; leave them out")
    if leave_out is not None and scientist != BUILTIN:
        raise BadInput("`leave_out` is for the built-in scientist; leave it out")
    if protocol is not None and protocol not in PROTOCOLS:
        raise BadInput(f"`protocol` {protocol!r} does not exist; use {choices(PROTOCOLS)}")
    if protocol is not None and scientist in (BUILTIN, HYBRID):
        raise BadInput("`protocol` is for the hyve scientist; leave it out")


def check_builtin_options(
    specimen: "Specimen", *, n: int | None, top: int | None, force: bool, leave_out: str | None
) -> None:
    """Refuse options of the built-in scientist that do not go with the specimen."""
    from vesalius.explanations.natural import PROMPTS
    from vesalius.explanations.natural.explain import require_enough
    from vesalius.explanations.scientist.explain import require_families
    from vesalius.model.specimen import TextVocabulary, listed_tokens

    if isinstance(specimen.vocabulary, TextVocabulary):
        if leave_out is not None:
            raise BadInput(f"specimen {specimen.name!r} is a natural model; `leave_out` is for listed vocabularies")
        require_enough(PROMPTS if n is None else n, top)
    else:
        listed_tokens(specimen, "the built-in scientist of circuits")
        _refuse_natural_options(n, top, force, f"specimen {specimen.name!r} has a listed vocabulary")
        require_families(frozenset() if leave_out is None else frozenset({leave_out}))


def request_of(task: Task, backbone: Backbone | None) -> Request:
    """The request that explains the same again."""
    specimen = task.loaded
    given = {
        **task.backbone_options,
        "n": task.n,
        "top": task.top,
        "force": task.force or None,
        "leave_out": task.leave_out,
        "compact": task.compact or None,
        "circuit_from": task.circuit_from,
        "metric": _metric(specimen),
        "tokenizer": specimen and specimen.tokenizer,
        "revision": specimen and specimen.revision,
        "dtype": specimen and specimen.dtype,
    }
    by_name = task.circuit is not None and task.circuit_file is None and task.circuit_from is None
    named = tuple(map(str, task.circuit.chosen())) if task.circuit is not None and by_name else task.components
    return Request(
        command="explain",
        specimen=task.source or (specimen and specimen.source) or task.id,
        behaviour=None if specimen is None else specimen.behaviour,
        components=named,
        circuit=task.circuit_file,
        method=task.scientist,
        options={name: value for name, value in given.items() if value is not None},
        seed=task.seed,
        backbone=task.backbone or (backbone and backbone.name),
        protocol=task.protocol,
    )


def _metric(specimen: "Specimen | None") -> str | None:
    """The metric that a behaviour is measured by, where one was chosen."""
    from vesalius.behaviours.metrics import metric_name

    metric = None if specimen is None else getattr(specimen.behaviour_source, "metric", None)
    return None if metric is None else metric_name(metric)


def builtin(task: Task, backbone: Backbone | None) -> Explained:
    """The built-in scientist: programs for listed vocabularies, the causal profile for natural models."""
    from vesalius.explanations.natural import PROMPTS, explain_natural
    from vesalius.explanations.scientist import explain_specimen
    from vesalius.model.specimen import TextVocabulary

    specimen = task.specimen()
    check_builtin_options(specimen, n=task.n, top=task.top, force=task.force, leave_out=task.leave_out)
    if isinstance(specimen.vocabulary, TextVocabulary):
        return Explained(
            explain_natural(
                specimen,
                components=task.components,
                n=PROMPTS if task.n is None else task.n,
                top=task.top,
                force=task.force,
                seed=task.seed,
                spread=task.spread,
                progress=task.progress,
            )
        )
    without = frozenset() if task.leave_out is None else frozenset({task.leave_out})
    return Explained(
        explain_specimen(specimen, components=task.components, seed=task.seed, without=without, progress=task.progress)
    )


def hyve(task: Task, backbone: Backbone | None) -> Explained:
    """The HyVE agent, driven by a language model."""
    from vesalius.explanations.hyve import explain_hyve
    from vesalius.model.specimen import TextVocabulary

    assert backbone is not None
    specimen = task.specimen()
    if not isinstance(specimen.vocabulary, TextVocabulary):
        _refuse_natural_options(task.n, task.top, task.force, f"specimen {specimen.name!r} has a listed vocabulary")
    protocol = cast(Protocol, task.protocol or DEFAULT_PROTOCOL)
    return _with_language_model(partial(explain_hyve, protocol=protocol), specimen, task, backbone)


def hybrid(task: Task, backbone: Backbone | None) -> Explained:
    """The built-in scientist, and a language model, if there is one, for what it left open."""
    if backbone is None:
        return builtin(task, None)
    from vesalius.explanations.hyve import explain_hybrid

    specimen = task.specimen()
    check_builtin_options(specimen, n=task.n, top=task.top, force=task.force, leave_out=task.leave_out)
    return _with_language_model(explain_hybrid, specimen, task, backbone)


def _with_language_model(
    explain: "Callable[..., HyveResult]", specimen: "Specimen", task: Task, backbone: Backbone
) -> Explained:
    from vesalius.sandbox import Executions

    result = explain(
        specimen,
        components=task.components,
        backbone=backbone,
        seed=task.seed,
        compact=task.compact,
        sandbox_unsafe=task.sandbox_unsafe,
        executions=Executions(task.executions, writable=task.executions_writable),
        n=task.n,
        top=task.top,
        force=task.force,
        progress=task.progress,
    )
    return Explained(result.explanation, result.trace)


def by_command(task: Task, backbone: Backbone | None) -> Explained:
    """The program that the task's scientist names, in `command:...`."""
    from vesalius.explanations.command import explain_by_command
    from vesalius.sandbox import Executions

    command = command_of(task.scientist)
    assert command is not None
    explanation = explain_by_command(
        command,
        task.specimen(),
        components=task.components,
        executions=Executions(task.executions, writable=task.executions_writable),
        seed=task.seed,
        n=task.n,
        top=task.top,
        force=task.force,
        sandbox_unsafe=task.sandbox_unsafe,
        timeout=task.timeout,
    )
    return Explained(explanation.model_copy(update={"scientist": task.scientist}))


SCIENTISTS: dict[str, Scientist] = {BUILTIN: builtin, HYVE: hyve, HYBRID: hybrid}


def _discovered(method: str, specimen: "Specimen", task: Task) -> Circuit:
    from vesalius.discovery.discover import DEFAULT_PROMPTS, circuit_method, discover

    scoring = circuit_method(method)
    n = scoring.prompts(specimen.model.config, DEFAULT_PROMPTS)
    shared = {"seed": task.seed, "force": task.force, "spread": task.spread, "progress": task.progress}
    return discover(specimen, scoring, n=n, **shared).circuit


def _abstention(task: Task, *, seconds: float) -> Explanation:
    """The explanation of an empty circuit."""
    specimen = task.loaded
    return Explanation(
        specimen=task.id,
        behaviour=None if specimen is None else specimen.behaviour,
        scientist=task.scientist,
        components=(),
        information_flow=f"Not measured: {EMPTY_CIRCUIT}.",
        task_description=f"Nothing was established: {EMPTY_CIRCUIT}.",
        seconds=seconds,
        seed=task.seed,
    )


def _edges(circuit: Circuit | None, explanation: Explanation) -> Sequence[Score]:
    """The edges of the circuit between explained components, the input and the logits, strongest first."""
    if circuit is None:
        return ()
    explained = {part.id for part in explanation.components}
    ends = (
        (edge, score)
        for edge, score in circuit.ranked_edges()
        if score
        and (edge.sender is None or str(edge.sender) in explained)
        and (edge.receiver is None or str(edge.receiver) in explained)
    )
    return tuple(Score(id=str(edge), score=score) for edge, score in ends)[:MOST_EDGES]


def _refuse_natural_options(n: int | None, top: int | None, force: bool, reason: str) -> None:
    if n is not None or top is not None or force:
        raise BadInput(f"{reason}; n, top and force are for natural models")
