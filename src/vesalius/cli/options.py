"""Commands from records: every field of a record is a flag, with the same help text and default as the verb's keyword.

    @command(commands)
    def sweep(specimen: SpecimenArgument, *, load: Load, draw: Draw = SWEPT, json: JsonOption = False) -> None: ...

The help of a command lists ten options; the others, and those that are `rare`, stand under "More".
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from vesalius.errors import BadInput
from vesalius.options import Flat, Load, Option, OptionRecord, flag

#: Options that the help of a command lists before "More".
LISTED = 10
MORE = "More"


def command(app: typer.Typer, *, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a command whose parameters may be records."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        named, told = name or function.__name__.replace("_", "-"), inspect.getdoc(function)
        late: Any = partial(LateCommand, function)
        app.command(name=named, help=told, cls=late)(_no_options)
        return function

    return declare


class LateCommand(TyperCommand):
    """A command whose options are made when they are looked at: the first page of help only names commands."""

    def __init__(self, function: Callable[..., Any], **given: Any) -> None:
        super().__init__(**given)
        self._function = function
        del self.params, self.callback

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        holder = typer.Typer(add_completion=False)
        holder.command()(_of_options(self._function))
        made = typer.main.get_command(holder)
        self.params, self.callback = made.params, made.callback
        return getattr(self, name)


def _no_options() -> None: ...


def _of_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer takes it: every field of its records is a parameter."""
    flat = Flat.of(function)
    own = {name: [_parameter(option) for owner, option in flat.options() if owner == name] for name in flat.records}
    ordered = (own.get(name) or [_keyword(flat.plain[name])] for name in inspect.signature(function).parameters)
    parameters = list(_listed(one for several in ordered for one in several))
    fields = {option.key: option for _, option in flat.options()}

    @wraps(function)
    def call(**given: Any) -> None:
        values = {}
        for key, value in given.items():
            field = fields.get(key)
            if field is None:
                values[key] = value
            elif not (field.repeated and value is None):
                values[field.name] = not value if field.flag.off else value
        function(**flat.gather((), values))

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _parameter(option: Option) -> inspect.Parameter:
    """A field as a parameter of typer."""
    told = option.flag
    name, default = option.key, option.default if told.off is None else not option.default
    if told.words:
        words = Annotated[list[str], typer.Argument(help=told.help, metavar=told.metavar)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=words)
    names = told.names or (option.long,)
    given: dict[str, Any] = {"min": told.least, "max": told.most, "metavar": told.metavar}
    made = typer.Option(
        *names,
        help=told.help,
        rich_help_panel=MORE if told.rare else None,
        **{key: value for key, value in given.items() if value is not None},
    )
    if isinstance(default, tuple):
        default = (list(default) or None) if option.repeated else ",".join(default)
    kind = Annotated[option.text_type, made]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _listed(parameters: Iterable[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """The parameters in order; options after the first ten of those that are not rare stand under "More"."""
    left = LISTED
    for parameter in parameters:
        kind, told = (*get_args(parameter.annotation), None, None)[:2]
        if isinstance(told, OptionInfo) and told.rich_help_panel is None:
            left -= 1
            if left < 0:
                told = copy(told)
                told.rich_help_panel = MORE
                parameter = parameter.replace(annotation=Annotated[kind, told])
        yield parameter


SpecimenArgument = Annotated[
    str,
    typer.Argument(
        help="A benchmark circuit by id or name (3, frac_prevs), a directory made by `vesalius train`, "
        "or a natural model: smollm2-135m, arithmetic, a model directory, a GGUF file, a hub id, PLUGIN:NAME.",
        metavar="SPECIMEN",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
BehaviourOption = Annotated[
    str | None,
    typer.Option(
        "--behaviour",
        "-b",
        help="What a natural model is studied for: induction, ioi, ..., addition:high=99,shots=0, a plug-in, or a file "
        "of rows (.jsonl, .json, .csv), of templates (.toml), or a dataset's directory.",
    ),
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="What is measured of the answers: logit-difference, probability, probability-difference, "
        "log-probability, loss or kl. Default: logit-difference, or log-probability without wrong answers.",
    ),
]
PlanOption = Annotated[
    bool,
    typer.Option("--plan", help="Print passes, memory and an estimate of the time, from one timed chunk; then stop."),
]
OneDeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda or mps; auto: a GPU where there is one.")]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        help="cpu, cuda, mps, or several over which layers are spread: cuda:0,cuda:1. auto: for natural models a GPU "
        "where there is one, several where the model does not fit one.",
    ),
]
TokenizerOption = Annotated[
    str | None, typer.Option("--tokenizer", help="Directory of a tokenizer for a natural model. Default: its own.")
]
RevisionOption = Annotated[str | None, typer.Option("--revision", help="Revision of a hub id.")]
DtypeOption = Annotated[
    str, typer.Option("--dtype", help="Number format of a natural model: auto (as stored), float32, bfloat16, float16.")
]
TopOption = Annotated[int, typer.Option("--top", min=1, help="Rows of the printed table.")]
BackboneOption = Annotated[
    str | None,
    typer.Option("--backbone", help="The language model, as PROVIDER:MODEL, such as openai:gpt-5.4.", metavar="P:M"),
]
CategoryOption = Annotated[str, typer.Option("--category", help="numeric, strings, entities or relations.")]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Cases in parallel; the results do not depend on it.")]
EngineOption = Annotated[str, typer.Option("--engine", help="Where cases run: local processes, or ray.")]
RunOption = Annotated[str | None, typer.Option("--out", help="Directory of the run. Default: vesalius-runs/...")]


class OnePrompt(OptionRecord):
    """One prompt instead of a behaviour."""

    prompt: Annotated[str | None, flag("One prompt instead of --behaviour; needs --answer.", rare=True)] = None
    answer: Annotated[
        Sequence[str],
        flag("What follows the prompt, with its leading space; may be given several times.", rare=True),
    ] = ()
    wrong: Annotated[Sequence[str], flag("A wrong answer to compare with; may be given several times.", rare=True)] = ()
    counterfactual: Annotated[
        str | None, flag("Another prompt of as many tokens, whose activations are patched in.", rare=True)
    ] = None

    def studied(self, load: Load) -> Load:
        """How the specimen is read, with the row of one prompt as its behaviour where one is given."""
        behaviour = studied_for(load.behaviour, self.prompt, self.answer, self.wrong, self.counterfactual)
        return replace(load, behaviour=behaviour)


class Printed(OptionRecord):
    """Where a result goes: files, and JSON or tables on stdout."""

    out: Annotated[str | None, flag("Directory for the result and its pages. Default: vesalius-runs/...")] = None
    json: Annotated[bool, flag("Print one JSON document on stdout and nothing else.", "--json")] = False


class Planned(Printed):
    """Where a result goes, or its plan alone."""

    plan: Annotated[
        bool, flag("Print passes, memory and an estimate of the time, from one timed chunk; then stop.", "--plan")
    ] = False


class Ranked(Planned):
    """Where a result with a ranking goes."""

    top: Annotated[int, flag("Rows of the printed table.", least=1, rare=True)] = 12


def studied_for(
    behaviour: str | None,
    prompt: str | None,
    answer: Sequence[str] | None,
    wrong: Sequence[str] | None,
    counterfactual: str | None,
) -> str | None:
    """The behaviour that the options name: as given, or the row of one prompt written out."""
    if prompt is None:
        if answer or wrong or counterfactual:
            raise BadInput("--answer, --wrong and --counterfactual go with --prompt; add it or leave them out")
        return behaviour
    if behaviour is not None:
        raise BadInput("--behaviour and --prompt both say what to study; leave one out")
    if not answer:
        raise BadInput("--prompt needs --answer, what should follow it, such as --answer ' Paris'")
    row = {"prompt": prompt, "answer": list(answer), "wrong": list(wrong or ()), "counterfactual": counterfactual}
    return json.dumps({name: value for name, value in row.items() if value}, ensure_ascii=False)


def names(text: str | None) -> list[str] | None:
    """The names of a comma-separated option; None where it was not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
