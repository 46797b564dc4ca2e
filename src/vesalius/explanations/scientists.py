"""Who explains what. A scientist is an object that holds its own options and explains a task.

    class Guessing(Scientist):
        name = "guessing"
        meaning = "Heads gather, MLPs map."

        def explain(self, task, backbone):
            return Explained(guess(task.specimen(), task.components))

| scientist                 | specimens         | how                                                          |
|---------------------------|-------------------|--------------------------------------------------------------|
| `builtin`                 | listed vocabulary | programs, decided by experiments (`vesalius_programs`)       |
| `builtin`                 | text vocabulary   | the causal profile of a behaviour (`natural`)                |
| `hyve`                    | any vocabulary    | a language model proposes, the engine decides (HyVE)         |
| `hybrid`                  | any vocabulary    | built in, then a language model for the rest (HyVE)          |
| `command:./mine.py`       | any vocabulary    | a program that speaks JSON lines (`vesalius_session`)        |
| a plug-in's name, or      | what it accepts   | a class such as the above, or a function that is called with |
| `package.module:name`     |                   | a `Task` and an open `Backbone`, or None                     |

A class with a name is registered when it is defined; a package offers one, or a plain function, by an entry point of
the group `vesalius.scientists`. Programs, commands (`vesalius_session`), HyVE and the hybrid are found so.

An empty circuit (no names, or no component with a score) means the same for all of them: nothing is explained, and the
explanation says so. Failures of the infrastructure are raised (`BackboneError`), so that a run counts them as errors.
What is heavy is imported when a scientist needs it: a worker with a scientist from outside imports no torch.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from typing import Protocol as Interface

from pydantic import JsonValue

from vesalius.components import Component
from vesalius.documents.circuit import Circuit, Score
from vesalius.documents.explanation import Explanation
from vesalius.documents.request import Request
from vesalius.documents.trace import Protocol, Trace
from vesalius.errors import BadInput, Failed, choices
from vesalius.json_lines import TIMEOUT, command_of
from vesalius.options.records import Configured, option
from vesalius.plugins import OWN, named_function, running
from vesalius.plugins import SCIENTISTS as PLUGINS
from vesalius.progress import Progress
from vesalius.sandbox.command import NOTHING, Grants

if TYPE_CHECKING:
    from vesalius.behaviours.natural import Spread
    from vesalius.intervene.estimate import Workload
    from vesalius.model.specimen import Specimen

#: Why nothing is explained where a circuit is empty.
EMPTY_CIRCUIT = "no head or MLP is in the circuit with a score other than 0"
BUILTIN, PROGRAMS, HYVE, HYBRID, COMMAND = "builtin", "programs", "hyve", "hybrid", "command"
#: Edges of a discovered circuit that an explanation lists, strongest first.
MOST_EDGES = 1000
#: Passes of one prompt that explanations of natural models took, as a multiple of the prompts times the components
#: studied, after the screening.
NATURAL_PER_COMPONENT = 6
SCREENED, SELECTED = 3, 8
#: For choosing the set of a natural model, and for the account of it (`discovery.account`).
CHOOSING, ACCOUNT = 1_500, 700
#: For the ladder: fitting, tables, grading, other templates; and for each prompt that reports (`explanations.running`).
LADDER, LADDER_PER_PROMPT, REPORT = 1200, 24, 32
#: Prompts whose clean and counterfactual runs are kept until all is written: some, and so many for each that a claim
#: may draw.
KEPT, KEPT_PER_PROMPT = 160, 4.5
#: Fields of scientists that a request says otherwise than among its options.
_OWN_FIELDS = ("protocol", "program", "function")
#: Every scientist that has a name, by it.
REGISTERED: dict[str, type["Scientist"]] = {}


class Backbone(Interface):
    """What is known here of an open language model: how requests name it. `vesalius_backbones` opens them."""

    @property
    def name(self) -> str:
        """As `provider:model`."""
        ...


@dataclass(frozen=True)
class Scientist(Configured):
    """Who explains a specimen.

    What holds of every object of a class: its `name`; `meaning`, a sentence that says how it explains; whether it
    `asks` a language model; `in_parts`, where `explain` makes use of the task's `spread`.
    """

    OPTION = "scientist"
    asks: ClassVar[Literal["always", "sometimes", "never"]] = "sometimes"
    in_parts: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.enter(REGISTERED, cls)

    @property
    def label(self) -> str:
        """What requests and explanations call it."""
        return self.name

    @property
    def checksums(self) -> dict[str, str]:
        """The user's own files that decide what it asks, by name, with the SHA-256 of each."""
        return {}

    def require(self, specimen: "Specimen", *, force: bool = False) -> None:
        """Refuse a specimen that the options do not fit, before anything is measured."""

    def require_model(self, given: bool) -> None:
        """Refuse a language model that is not asked, and to do without one that is needed."""
        if self.asks == "always" and not given:
            raise BadInput(f"`scientist` {self.label} needs a language model; give `backbone`, such as openai:gpt-5.4")
        if self.asks == "never" and given:
            raise BadInput(f"`backbone`: `scientist` {self.label} asks no language model; add `scientist` hyve")

    def explain(self, task: "Task", backbone: Backbone | None) -> "Explained":
        """What the task's components do, with evidence."""
        raise NotImplementedError(f"{type(self).__name__} explains nothing")

    def cost(self, work: "Workload", components: Sequence[Component] | None) -> float:
        """Passes of all prompts that `explain` takes, of these components or of those that it would choose."""
        raise BadInput(f"scientist {self.label!r} has no plan: what it measures is not known before the run")

    def kept_prompts(self, work: "Workload") -> float:
        """Prompts whose runs stay in memory until all is written."""
        return 0.0

    def require_plan(self) -> None:
        """Refuse a plan where the cost is not known."""
        if type(self).cost is Scientist.cost:
            raise BadInput(f"scientist {self.label!r} has no plan: what it measures is not known before the run")


@dataclass(frozen=True)
class Studying(Scientist):
    """One that takes components of natural models by their effect."""

    n: int | None = option(None, "Held-out prompts, for natural models (16).", kw_only=True)
    top: int | None = option(None, "Components that are explained at most, for natural models.", kw_only=True)

    def refuse_natural_options(self, specimen: "Specimen", *, force: bool) -> None:
        """Refuse what makes no sense for a listed vocabulary."""
        if self.n is not None or self.top is not None or force:
            listed = f"specimen {specimen.name!r} has a listed vocabulary"
            raise BadInput(f"{listed}; n, top and force are for natural models")


@dataclass(frozen=True)
class Builtin(Studying):
    """The built-in scientist: programs for listed vocabularies, the causal profile for natural models."""

    name = BUILTIN
    meaning = "Programs, or the causal profile of a natural model, decided by experiments."
    asks = "never"
    in_parts = True
    leave_out: str | None = option(None, "A family of hypotheses to do without, for listed vocabularies.")
    no_ladder: bool = option(False, "Do not run the explanation in the model's place, for natural models.")

    @property
    def programs(self) -> Scientist:
        """The one for listed vocabularies, of an installed package."""
        return scientist_named(PROGRAMS, leave_out=self.leave_out)

    def require(self, specimen: "Specimen", *, force: bool = False) -> None:
        """Refuse options that do not go with the specimen's vocabulary."""
        from vesalius.model.specimen import TextVocabulary, listed_tokens

        if isinstance(specimen.vocabulary, TextVocabulary):
            from vesalius.explanations.natural.explain import PROMPTS, require_enough

            if self.leave_out is not None:
                raise BadInput(f"specimen {specimen.name!r} is a natural model; `leave_out` is for listed vocabularies")
            require_enough(PROMPTS if self.n is None else self.n, self.top)
        else:
            listed_tokens(specimen, "the built-in scientist of circuits")
            self.refuse_natural_options(specimen, force=force)
            if self.no_ladder:
                raise BadInput(f"specimen {specimen.name!r} has a listed vocabulary; no_ladder is for natural models")
            self.programs.require(specimen)

    def explain(self, task: "Task", backbone: Backbone | None) -> "Explained":
        """Explain a specimen without asking anybody."""
        from vesalius.model.specimen import TextVocabulary

        specimen = task.specimen()
        self.require(specimen, force=task.force)
        if not isinstance(specimen.vocabulary, TextVocabulary):
            return self.programs.explain(replace(task, loaded=specimen), backbone)
        from vesalius.explanations.natural import PROMPTS, explain_natural

        return Explained(
            explain_natural(
                specimen,
                components=task.components,
                n=PROMPTS if self.n is None else self.n,
                top=self.top,
                force=task.force,
                seed=task.seed,
                ladder=not self.no_ladder,
                spread=task.spread,
                progress=task.progress,
            )
        )

    def cost(self, work: "Workload", components: Sequence[Component] | None) -> float:
        """What is found decides how many passes there really are; of an empty circuit nothing is measured."""
        from vesalius.explanations.natural.selection import DESCRIBED
        from vesalius.intervene.estimate import sweep_forwards
        from vesalius.statistics import LOOKS

        if components is not None and not components:
            return 0.0
        if work.finite:
            return self.programs.cost(work, components)
        every = work.model.components
        studied = min(len(every), self.top or DESCRIBED) if components is None else len(components)
        screening = SCREENED * (sweep_forwards(work.model, [(part,) for part in every]) - 1)
        account = ACCOUNT + (CHOOSING if components is None else 0)
        studying = (SELECTED + work.sizes.n) * NATURAL_PER_COMPONENT / 2 * studied
        reported = max(REPORT, work.sizes.n if work.sizes.n < LOOKS[-1] else 0)
        ladder = 0 if self.no_ladder else LADDER + LADDER_PER_PROMPT * reported
        return (64 + screening + account + studying + ladder) / work.sizes.n

    def kept_prompts(self, work: "Workload") -> float:
        """As `Scientist.kept_prompts`; finite specimens are run in pieces."""
        return 0.0 if work.finite else KEPT + KEPT_PER_PROMPT * work.sizes.n


@dataclass(frozen=True)
class Function(Studying):
    """A function of a `Task` and an open `Backbone`, or None: a plug-in's, or `package.module:function`. It is looked
    up where it is called, so that it can be sent between processes.
    """

    function: str = option("", "What it is called.")
    protocol: str | None = option(None, "By which protocol it asks a language model, where it knows several.")
    compact: bool = option(False, "Short prompts, for models with a small context.")

    def __post_init__(self) -> None:
        require_protocol(self.protocol)

    @property
    def label(self) -> str:
        """The name of the function."""
        return self.function

    def explain(self, task: "Task", backbone: Backbone | None) -> "Explained":
        """What the function returns."""
        return named_function(PLUGINS, self.function, known=[BUILTIN])(task, backbone)


@dataclass(frozen=True)
class Task:
    """What a scientist is given: a specimen and how it is to be explained.

    `directory` is where the specimen is loaded from, unless it is loaded already (`loaded`). What is explained are the
    named `components`, those of a `circuit` that score high enough (`Circuit.chosen`), those of the circuit that the
    method `circuit_from` discovers, or the specimen's own. `force` is for natural models, `sandbox_unsafe` for those
    who run code. The `scientist` holds its own options. For the request: `source` is the name or path that the specimen
    is loaded by, `circuit_file` where the circuit was read from, `backbone` the name of the language model, with its
    options. `executions` is the file that keeps what executed code gave; one that is not writable only answers.
    `timeout` is how many seconds a command may be silent, `grants` what it is given beyond its own files, `programs`
    the file that keeps what it used. `spread` lets scientists with parts study them elsewhere.
    """

    id: str
    directory: Path | None = None
    seed: int = 0
    scientist: Scientist = Builtin()
    sandbox_unsafe: bool = False
    executions: Path | None = None
    executions_writable: bool = True
    timeout: float = TIMEOUT
    grants: Grants = NOTHING
    programs: Path | None = None
    circuit_from: str | None = None
    components: tuple[str, ...] | None = None
    circuit: Circuit | None = None
    circuit_file: str | None = None
    force: bool = False
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


def explain_task(task: Task, backbone: Backbone | None = None) -> Explained:
    """Let the task's scientist explain it; the explanation holds the request and the edges of the circuit."""
    started = time.monotonic()
    if task.circuit_from is not None and task.circuit is None:
        specimen = task.specimen()
        task = replace(task, loaded=specimen, circuit=_discovered(task.circuit_from, specimen, task))
    circuit = task.circuit
    named = task.components if circuit is None else tuple(map(str, circuit.chosen()))
    if named == ():
        result = Explained(_abstention(task, seconds=time.monotonic() - started))
    else:
        who = task.scientist
        ours = type(who).__module__.partition(".")[0] == OWN and not isinstance(who, Function)
        with running(PLUGINS, who.name or who.label, [who.label] if ours else [BUILTIN]):
            result = who.explain(replace(task, components=named), backbone)
        if not isinstance(result, Explained):
            raise Failed(
                f"scientist {who.label!r} returned a {type(result).__name__}; return a "
                "vesalius.explanations.scientists.Explained"
            )
    update = {"request": request_of(task, backbone), "circuit_edges": _edges(circuit, result.explanation)}
    return Explained(result.explanation.model_copy(update=update), result.trace, circuit)


def scientist_named(scientist: str | Scientist, **options: object) -> Scientist:
    """The scientist of that name with these options; None leaves one out. One that is an object is returned as it is.

    The name is the built-in one's, that of a class, a plug-in's, `command:PROGRAM` or `package.module:name`.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(scientist, Scientist):
        return scientist.without_more(given)
    program = command_of(scientist)
    name = scientist if program is None else COMMAND
    kind: object = REGISTERED.get(name) or named_function(PLUGINS, name, known=[BUILTIN])
    if isinstance(kind, type) and issubclass(kind, Scientist):
        return kind.of(given) if program is None else kind.of(given, program=program)
    return Function.of(given, function=scientist)


def chosen_scientist(scientist: str | Scientist | None, backbone: bool, **options: object) -> Scientist:
    """Who explains, with its options: where it is left out, HyVE if there is a language model."""
    return scientist_named(scientist or (HYVE if backbone else BUILTIN), **options)


def require_protocol(protocol: str | None) -> None:
    """Refuse a protocol that does not exist."""
    if protocol is not None and protocol not in get_args(Protocol):
        raise BadInput(f"`protocol` {protocol!r} does not exist; use {choices(get_args(Protocol))}")


def protocol_of(scientist: Scientist) -> str | None:
    """By which protocol a language model is asked, where there are several."""
    return getattr(scientist, "protocol", None)


def request_of(task: Task, backbone: Backbone | None) -> Request:
    """The request that explains the same again."""
    specimen, scientist = task.loaded, task.scientist
    given: dict[str, Any] = {
        **task.backbone_options,
        **{name: value for name, value in scientist.options.items() if name not in _OWN_FIELDS},
        "force": task.force or None,
        "circuit_from": task.circuit_from,
        "metric": _metric(specimen),
    }
    if specimen is not None:
        given |= {"tokenizer": specimen.tokenizer, "revision": specimen.revision, "dtype": specimen.dtype}
    by_name = task.circuit is not None and task.circuit_file is None and task.circuit_from is None
    named = tuple(map(str, task.circuit.chosen())) if task.circuit is not None and by_name else task.components
    return Request(
        command="explain",
        specimen=task.source or (specimen.source if specimen else None) or task.id,
        behaviour=None if specimen is None else specimen.behaviour,
        components=named,
        circuit=task.circuit_file,
        method=scientist.label,
        options={name: value for name, value in given.items() if value is not None},
        seed=task.seed,
        backbone=task.backbone or (None if backbone is None else backbone.name),
        protocol=protocol_of(scientist),
    )


def _metric(specimen: "Specimen | None") -> str | None:
    """The metric that a behaviour is measured by, where one was chosen."""
    from vesalius.behaviours.metrics import metric_name

    metric = None if specimen is None else getattr(specimen.behaviour_source, "metric", None)
    return None if metric is None else metric_name(metric)


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
        scientist=task.scientist.label,
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
