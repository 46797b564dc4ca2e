"""The options of verbs and commands, declared once.

A record is a frozen dataclass whose fields carry their help text and flag names. A verb of `vesalius.api` takes
records, and callers may give their fields as keywords; a command takes the same records, and each field is a flag. What
a result says about its request, the command that repeats it and the name of its directory are read off the same fields.

Where verbs differ in a default, the record is given with that default (`Draw(n=16)`), never declared a second time.
Nothing heavy is imported here, so that `--help` stays quick.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, fields, replace
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from vesalius.errors import BadInput, choices, require_whole

#: A directory; True for one under `vesalius-runs`, named after the request; None or False to write nothing.
Out = str | Path | bool | None
MOST_PROMPTS = 100_000
#: The longest reply of a language model in tokens, and the seconds that one is waited for.
MAX_TOKENS, TIMEOUT = 4096, 120.0
NEURON_RULES = ("gradient", "relp", "relp-qk")
Answer = TypeVar("Answer")
#: Every record that is declared, in order.
RECORDS: list[type["Record"]] = []
#: Seeds of controls and held-out prompts are larger than the one requested, and all must fit 64 bits.
LARGEST_SEED = 2**62


@dataclass(frozen=True)
class Flag:
    """What a field is besides its type and default.

    `of` lists the accepted values. `rare` options stand under "More" in the help. `asked` says when the field is part
    of a request: "given" where it is not the verb's default, "always", or "never" because it decides nothing. `word` is
    how the name of a directory writes the value. `off` is the flag that switches the field off. `method_of` are the
    commands whose requests call the value their method. `words` stand after the command without a flag.
    """

    help: str
    names: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    of: tuple[str, ...] = ()
    rare: bool = False
    asked: str = "given"
    word: str | None = None
    off: str | None = None
    method_of: tuple[str, ...] = ()
    words: bool = False


def flag(text: str, *names: str, **more: Any) -> Flag:
    """The help text of a field, its flags where they are not `--name`, and further fields of `Flag`."""
    return Flag(text, names, **more)


@dataclass(frozen=True)
class Option:
    """A field of a record: its name, its flag, its type in Python and on the command line, and its default."""

    name: str
    flag: Flag
    type: Any
    default: Any

    @property
    def key(self) -> str:
        """What requests and the command line call it: the flag, in Python's spelling."""
        if self.flag.off is not None:
            return self.flag.off
        return self.flag.names[0].removeprefix("--").replace("-", "_") if self.flag.names else self.name

    @property
    def long(self) -> str:
        """Its flag as it is written: `--max-cost`."""
        return f"--{self.key.replace('_', '-')}"

    @property
    def repeated(self) -> bool:
        """Whether it is given once per value on the command line; other lists are one text with commas."""
        return get_origin(_without_none(self.type)) is Sequence

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return _without_none(self.type) is int

    @property
    def text_type(self) -> Any:
        """Its type on the command line: what is neither a number nor a switch is a text there."""
        kind = _without_none(self.type)
        plain = kind if kind in (bool, int, float, str) else list[str] if self.repeated else str
        return plain | None if self.default is None or self.repeated else plain


def _without_none(kind: Any) -> Any:
    parts = [part for part in get_args(kind) if part is not type(None)]
    return parts[0] if get_origin(kind) in (Union, UnionType) and len(parts) == 1 else kind


@dataclass_transform(frozen_default=True)
class Record:
    """Options that belong together: the subclass is a frozen dataclass, with its fields declared in the class.

    Values that can be refused without a model are refused when the record is made. The methods that `dataclass` would
    write for every class stand here once: writing them takes longer than the rest of `vesalius --help` of ours.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        RECORDS.append(cls)

    def __init__(self, *args: Any, **given: Any) -> None:
        own = fields(self)
        places = [one.name for one in own if not one.kw_only]
        values = dict(zip(places, args, strict=False))
        if len(args) > len(places) or values.keys() & given.keys() or given.keys() - {one.name for one in own}:
            raise TypeError(f"{type(self).__name__} has the options {', '.join(one.name for one in own)}, each once")
        for one in own:
            object.__setattr__(self, one.name, (values | given).get(one.name, one.default))
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.values().items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and cast(Record, other).values() == self.values()

    def __hash__(self) -> int:
        return hash(tuple(self.values().values()))

    def __post_init__(self) -> None:
        for option in options_of(type(self)):
            value = getattr(self, option.name)
            if option.whole and not (value is None and option.default is None):
                require_whole(**{option.name: value})
            if option.flag.of and value not in option.flag.of:
                raise BadInput(f"{option.name} {value!r} does not exist; choose one of {choices(option.flag.of)}")

    def values(self) -> dict[str, Any]:
        """The fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@cache
def options_of(record: type[Record]) -> tuple[Option, ...]:
    """The fields of a record, in order."""
    hints = get_type_hints(record, include_extras=True)
    found = []
    for field in fields(record):
        kind, told = get_args(hints[field.name])[:2]
        found.append(Option(field.name, told, kind, field.default))
    return tuple(found)


@dataclass(frozen=True)
class Flat:
    """A function's parameters with its records taken apart into their fields.

    `plain` are the parameters that are no records, `records` the default of each record by the parameter's name. `open`
    says that the function takes further keywords, as `discover` does for the options of a method.
    """

    name: str
    plain: dict[str, inspect.Parameter]
    records: dict[str, Record]
    open: inspect.Parameter | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], more: Mapping[str, Record] | None = None) -> "Flat":
        """Those of a function, with `more` records that it does not see itself."""
        plain, records, further = {}, {}, None
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            kind = parameter.annotation
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                further = parameter
            elif isinstance(kind, type) and issubclass(kind, Record):
                records[name] = kind() if parameter.default is parameter.empty else parameter.default
            else:
                plain[name] = parameter
        records |= more or {}
        flat = [option.name for one in records.values() for option in options_of(type(one))]
        assert len({*flat, *plain}) == len(flat) + len(plain), f"{function.__name__}: two options have one name"
        return cls(function.__name__, plain, records, further)

    def options(self) -> Iterator[tuple[str, Option]]:
        """Every field with its record's parameter; defaults are those of this function."""
        for name, record in self.records.items():
            for option in options_of(type(record)):
                yield name, replace(option, default=getattr(record, option.name))

    def signature(self, returns: Any = inspect.Signature.empty) -> inspect.Signature:
        """What callers may give: the plain parameters, and every field as a keyword."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        first = [one for one in self.plain.values() if one.kind is not keyword]
        own = [
            inspect.Parameter(option.name, keyword, default=option.default, annotation=option.type)
            for _, option in self.options()
        ]
        last = [one for one in self.plain.values() if one.kind is keyword]
        further = [] if self.open is None else [self.open]
        return inspect.Signature([*first, *own, *last, *further], return_annotation=returns)

    def further(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords among the arguments that are neither parameters nor fields."""
        return {name: value for name, value in arguments.items() if name not in self.plain and name not in self.records}

    def gather(self, args: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """The function's arguments: records are made of the fields given, on top of a record where one is given too."""
        records, rest = dict(self.records), []
        for value in args:
            name = next((name for name, one in self.records.items() if type(one) is type(value)), None)
            if name is None:
                rest.append(value)
            else:
                records[name] = value
        owner = {option.name: name for name, option in self.options()}
        plain: dict[str, Any] = {}
        further: dict[str, Any] = {}
        changes: dict[str, dict[str, Any]] = {}
        for key, value in given.items():
            if key in self.plain:
                plain[key] = value
            elif isinstance(value, Record) and key in records:
                records[key] = value
            elif key in owner:
                changes.setdefault(owner[key], {})[key] = value
            elif self.open is not None:
                further[key] = value
            else:
                from difflib import get_close_matches

                near = get_close_matches(key, [*self.plain, *owner], 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise TypeError(f"{self.name}() has no option {key!r}{meant}")
        made = {name: replace(one, **changes[name]) if name in changes else one for name, one in records.items()}  # type: ignore[type-var]
        own = inspect.Signature(list(self.plain.values()))
        try:
            bound = own.bind(*rest, **plain)
            bound.apply_defaults()
            return bound.arguments | made | further
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None


def flattened(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """A function of records that takes their fields as keywords too."""
    flat = Flat.of(function)

    @wraps(function)
    def call(*args: Any, **given: Any) -> Answer:
        return function(**flat.gather(args, given))

    call.__signature__ = flat.signature(function.__annotations__.get("return"))  # type: ignore[attr-defined]
    return call


def given_options(records: Sequence[Record], usual: Sequence[Record]) -> Iterator[tuple[Option, Any]]:
    """The fields that a request names: those that are always named, and those that are not the usual ones."""
    defaults = {type(one): one for one in usual}
    for record in records:
        for option in options_of(type(record)):
            value, default = getattr(record, option.name), getattr(defaults[type(record)], option.name)
            if option.flag.asked == "always" or (option.flag.asked == "given" and value != default):
                yield option, value


def require_drawable(n: int, seed: int) -> None:
    """Refuse numbers of prompts and seeds that are none, or out of range."""
    require_whole(n=n, seed=seed)
    if not 1 <= n <= MOST_PROMPTS:
        raise BadInput(f"an experiment on {n} prompts is not possible; request 1 to {MOST_PROMPTS:,}")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInput(f"seed {seed} cannot be used; choose one from 0 to {LARGEST_SEED}")


class Read(Record, kw_only=True):
    """How a model is read. A request takes these from the loaded specimen."""

    tokenizer: Annotated[Any, flag("Directory of a tokenizer for a natural model. Default: its own.", rare=True)] = None
    revision: Annotated[str | None, flag("Revision of a hub id.", rare=True)] = None
    dtype: Annotated[
        Any, flag("Number format of a natural model: auto (as stored), float32, bfloat16, float16.", rare=True)
    ] = "auto"
    device: Annotated[
        Any,
        flag(
            "cpu, cuda, mps, or several over which layers are spread: cuda:0,cuda:1. auto: for natural models a GPU "
            "where there is one, several where the model does not fit one.",
            rare=True,
        ),
    ] = "auto"


class Load(Read):
    """How a specimen is read, and what it is studied for."""

    behaviour: Annotated[
        Any,
        flag(
            "What a natural model is studied for: induction, ioi, ..., addition:high=99,shots=0, a plug-in, or a file "
            "of rows (.jsonl, .json, .csv), of templates (.toml), or a dataset's directory.",
            "--behaviour",
            "-b",
        ),
    ] = None
    metric: Annotated[
        Any,
        flag(
            "What is measured of the answers: logit-difference, probability, probability-difference, "
            "log-probability, loss or kl. Default: logit-difference, or log-probability without wrong answers.",
            rare=True,
        ),
    ] = None


class Sample(Record):
    """How many prompts, and which."""

    n: Annotated[int, flag("Prompts.", least=1, asked="always", word="n{}")] = 16
    seed: Annotated[int, flag("Seed of the prompts and of what is drawn at random.", asked="always", word="seed{}")] = 0

    def __post_init__(self) -> None:
        require_drawable(self.n, self.seed)


class Draw(Sample):
    """Which prompts of a behaviour."""

    split: Annotated[
        str,
        flag("Pool of names, templates and fillers: train, validation or test.", rare=True, word="split{}"),
    ] = "test"


class Parts(Record):
    """Where parts of the work run."""

    engine: Annotated[
        str | None,
        flag("Run parts elsewhere: local (processes) or ray. Default: all in this process.", rare=True, asked="never"),
    ] = None
    jobs: Annotated[
        int | None,
        flag(
            "Parts at a time. Default: 2 with --engine; alone it means --engine local.",
            least=1,
            rare=True,
            asked="never",
        ),
    ] = None


class Knockout(Record):
    """What a sweep replaces, and by what."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual prompt) or value-bias; several with commas are compared. "
            "Default: resample for natural models, as in `discover`; zero for others.",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = None
    pairs: Annotated[bool, flag("Replace every pair of components instead of each alone.", "--pairs", word="pairs")] = (
        False
    )
    components: Annotated[
        Any,
        flag("Only these, comma-separated, in any notation: L1H2,a0.h1,m3. Default: all.", "--components", "-c"),
    ] = None

    def __post_init__(self) -> None:
        if self.kind is not None:  # an ablation, such as `Mean()`, goes by its name
            object.__setattr__(self, "kind", str(self.kind))


class Edit(Record):
    """What takes the place of components in one question: values of which kind, where, and on which prompt."""

    kind: Annotated[
        Any,
        flag(
            "zero, mean, resample (from the counterfactual) or patch (--source).",
            "--kind",
            "-k",
            asked="always",
            word="{}",
        ),
    ] = "zero"
    at: Annotated[str | int | None, flag("Only at this position: a role of the prompts, end, or a number from 0.")] = (
        None
    )
    prompt: Annotated[Any, flag("One prompt of your own: a text, or a JSON list of tokens.")] = None
    source: Annotated[Any, flag("The prompt that values are taken from, of as many tokens.")] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))
        if self.prompt is None and self.source is not None:
            raise BadInput("`source` is what `prompt` is patched from; give `prompt` too")
        if self.prompt is None and self.kind == "patch":
            raise BadInput("kind 'patch' takes values from a prompt of yours; give `prompt` and `source`")
        if self.prompt is not None and self.source is None and self.kind != "zero":
            raise BadInput(
                f"kind {self.kind!r} on one prompt takes values from another; give `source`, or use kind 'zero'"
            )


class Force(Record):
    """Whether work goes on where there may be nothing to find."""

    force: Annotated[
        bool, flag("Continue although the model does not perform the behaviour, or the contrast is empty.", "--force")
    ] = False


class Cut(Record):
    """How small a circuit is looked for, or by which rule it is cut to a size."""

    keep: Annotated[
        float | None,
        flag(
            "Share of the behaviour that the circuit keeps on prompts which chose nothing. Default: 0.8, or 0.95 for a "
            "listed vocabulary.",
            word="keep{}",
        ),
    ] = None
    most: Annotated[
        int | None,
        flag("Components that the circuit has at most. Default: a fifth of the model.", least=1, word="most{}"),
    ] = None

    select: Annotated[
        str | Sequence[str] | None,
        flag(
            "Cut the circuit by a rule: top, greedy, exact, bootstrap or positive-ratio; others after a comma are "
            "compared with it.",
            word="{}",
        ),
    ] = None
    size: Annotated[
        int | None,
        flag("Edges (or components) that --select keeps at most. Default: enough to keep 0.9.", least=1, word="size{}"),
    ] = None


class Checked(Record):
    """How what was found is checked, and which other circuits are searched beside it."""

    checks: Annotated[
        bool,
        flag("Leave out the checks: faithfulness, stability, specificity, detectors.", "--quick", off="quick"),
    ] = True
    rivals: Annotated[
        int,
        flag(
            "Search so many other circuits as faithful, with little overlap.",
            least=0,
            most=10,
            rare=True,
            word="rivals{}",
        ),
    ] = 0
    rivals_by: Annotated[str, flag("What rivals are made of: components or edges.", rare=True, word="rivals_by{}")] = (
        "components"
    )


class Scoring(Record):
    """How neurons are scored, and how much of the behaviour they keep."""

    method: Annotated[
        str,
        flag(
            "How neurons are scored: relp, relp-qk or gradient.",
            "--method",
            "-m",
            method_of=("neurons",),
            asked="always",
            word="{}",
        ),
    ] = "relp-qk"
    keep: Annotated[
        float, flag("Share of the behaviour to keep, above 0, at most 1.", asked="always", word="keep{:g}")
    ] = 0.8

    def __post_init__(self) -> None:
        if self.method not in NEURON_RULES:
            raise BadInput(f"method {self.method!r} does not score neurons; choose one of {', '.join(NEURON_RULES)}")
        if not 0 < self.keep <= 1:
            raise BadInput(f"keep={self.keep:g} is not a share of the behaviour; give a number above 0, at most 1")


class Pruned(Record):
    """What of a circuit is measured, and what takes the place of everything else."""

    least: Annotated[float, flag("Prune what scores less than this, by magnitude.", least=0.0)] = 0.0
    pin: Annotated[Any, flag("Components and edges that stay whatever they score: L1H2,a0.h1->m1.")] = None
    prune: Annotated[Any, flag("Components and edges to prune as well.")] = None
    kind: Annotated[Any, flag("resample, zero, mean or value-bias; edges are resampled.", "--kind", "-k")] = "resample"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))


class HowFound(Record):
    """The discovery method, and the options of methods."""

    method: Annotated[
        str | None,
        flag(
            "best, sweep, eap, eap-ig, relp, relp-qk, gim, masks, acdc, bandit, rl, or a plug-in. Default: best, or "
            "sweep for a listed vocabulary.",
            "--method",
            "-m",
            method_of=("discover",),
        ),
    ] = None
    budget: Annotated[int | None, flag("bandit, rl: heads to pay for (default 50, or all).")] = None
    paper: Annotated[bool, flag("rl: as published, quirks included; says which.", "--paper")] = False
    seeds: Annotated[int | None, flag("bandit, rl: searches, each with its own random seed (1).", least=1)] = None
    steps: Annotated[
        int | None,
        flag("eap-ig: gradients taken (5). rl: train a policy here for so many steps (0: the packaged one).", least=0),
    ] = None


class CircuitMethod(Record):
    """Which method finds the circuit that is explained."""

    circuit_from: Annotated[
        str | None,
        flag("Discover the circuit by this method first: sweep, eap, eap-ig, relp, acdc or a plug-in.", rare=True),
    ] = None


class CircuitFrom(CircuitMethod):
    """Which circuit is explained, where it is not given by its components."""

    circuit: Annotated[
        Any,
        flag(
            "A circuit (MIB JSON), a discovery.json, a directory of `vesalius discover`, or a run of `bench discovery` "
            "(--circuit-from names its method): explain what scores at least a tenth of the largest."
        ),
    ] = None


class Who(Record):
    """Who explains."""

    scientist: Annotated[
        str | None,
        flag(
            "Who explains: builtin, hyve with a language model, hybrid (built in, then a language model for the rest), "
            "a plug-in, command:PROGRAM that speaks JSON lines, or package.module:function. Default: hyve with "
            "--backbone.",
            method_of=("explain", "bench circuits"),
        ),
    ] = None
    seed: Annotated[int, flag("Seed of all inputs; the same seed, the same explanation.")] = 0
    leave_out: Annotated[
        str | None, flag("A family of hypotheses that the built-in scientist must do without.", rare=True)
    ] = None


class Explaining(Who):
    """Who explains, and how much of the model."""

    n: Annotated[
        int | None,
        flag(
            "The most held-out prompts that a claim draws until it is decided, for natural models. Default: 128.",
            least=4,
        ),
    ] = None
    top: Annotated[
        int | None, flag("Components taken by effect, for natural models. Default: 12.", least=1, rare=True)
    ] = None


class Cap(Record):
    """What language models may cost."""

    max_cost: Annotated[
        float | None,
        flag("Spend at most this many dollars, over all jobs and resumptions.", rare=True, asked="never"),
    ] = None


class Paid(Cap):
    """What language models may cost, and how long they are waited for."""

    timeout: Annotated[
        float,
        flag(
            "Seconds to wait for a language model before trying again, or for a line of a command.",
            rare=True,
            asked="never",
        ),
    ] = TIMEOUT
    prices: Annotated[
        str | Path | None,
        flag("A JSON file of prices that replace or join the package's table.", rare=True, asked="never"),
    ] = None


class Spend(Paid):
    """What language models may cost, and what code they write may do."""

    unsafe_sandbox: Annotated[
        bool,
        flag(
            "Run code written by a model even where the kernel offers no isolation.",
            "--unsafe-sandbox",
            rare=True,
            asked="never",
        ),
    ] = False


class Ask(Spend):
    """What is asked of a language model that explains, and how."""

    backbone: Annotated[Any, flag("The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M")] = (
        None
    )
    protocol: Annotated[
        str | None,
        flag(
            "typed (default): claims that the engine decides. paper: free code that the model judges itself.", rare=True
        ),
    ] = None
    base_url: Annotated[str | None, flag("Address of your own server, for compatible and local models.", rare=True)] = (
        None
    )
    max_tokens: Annotated[int, flag("The longest reply of the language model.", rare=True)] = MAX_TOKENS
    compact: Annotated[
        bool,
        flag("Short typed prompts without free code, for models with a small context.", "--compact", rare=True),
    ] = False


class Calls(Record):
    """Where calls of a language model are kept, or served from."""

    record: Annotated[
        str | Path | None,
        flag(
            "Where to record the calls, and to find those made before. Default: the run's directory.",
            rare=True,
            asked="never",
        ),
    ] = None
    replay: Annotated[
        str | Path | None,
        flag("Serve every call from this record; nothing is asked or paid.", rare=True, asked="never"),
    ] = None


class Chosen(Record):
    """Which circuits with known answers."""

    specimens: Annotated[
        str | Path | None,
        flag("Instead of the 84: a directory of specimens made by `vesalius train`, or a published collection."),
    ] = None
    ids: Annotated[
        str | int | Sequence[str | int] | None,
        flag("Only these benchmark circuits, by id or name, comma-separated: 3,4,8."),
    ] = None
    limit: Annotated[int | None, flag("Only the first N of them.", least=1)] = None

    @property
    def folder(self) -> str | None:
        """The directory or hub id."""
        return None if self.specimens is None else str(self.specimens)

    @property
    def names(self) -> list[str] | None:
        """The ids and names."""
        if isinstance(self.ids, str | int):
            return [name.strip() for name in str(self.ids).split(",") if name.strip()]
        return None if self.ids is None else [str(name).strip() for name in self.ids]


class Published(Chosen):
    """Which circuits, with the answers that were published of models that were."""

    annotations: Annotated[
        str | Path | None,
        flag(
            "For published InterpBench models (--specimens: a directory with one folder per case, or a hub id): a "
            "directory of case_ID.json or a hub dataset. Default: annotations/ in or beside --specimens.",
            rare=True,
        ),
    ] = None


class Jobs(Record):
    """How many cases of a benchmark run at a time."""

    jobs: Annotated[int, flag("Cases in parallel; the results do not depend on it.", least=1, asked="never")] = 2


class Workers(Jobs):
    """Where the cases of a benchmark run."""

    engine: Annotated[str, flag("Where cases run: local processes, or ray.", rare=True, asked="never")] = "local"


class Judges(Record):
    """Who judges texts."""

    judges: Annotated[
        Sequence[str],
        flag("Who judges the texts: a language model, P:M, or a plug-in; give it twice for two.", "--judge"),
    ] = ()


class Compared(Record):
    """Which discovery methods are compared, and on which models."""

    methods: Annotated[
        str | Sequence[str],
        flag("Discovery methods, comma-separated; also of plug-ins.", method_of=("bench discovery",)),
    ] = ("sweep", "eap", "eap-ig", "relp", "relp-qk", "acdc")
    hard: Annotated[
        bool, flag("Models written by hand that mislead discovery, instead of the 84 circuits.", "--hard")
    ] = False
    steps: Annotated[int, flag("eap-ig: gradients to average; 0: the default, 5.", least=0)] = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the methods."""
        if isinstance(self.methods, str):
            return tuple(name.strip() for name in self.methods.split(",") if name.strip())
        return tuple(self.methods)


#: The prompts of each verb, where they are not `Draw()`.
SWEPT, DISCOVERED = Draw(n=16), Draw(n=32)
NEURONS, FAITHFUL = Draw(n=16), Draw(n=12, split="validation")
BENCHED = Sample(n=32)
