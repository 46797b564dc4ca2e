"""Types of arguments that several tools share."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from vesalius.options import Flat, Option, Sample, Sparse, flattened, options_of
from vesalius.options import Force as Forced

Tool = TypeVar("Tool", bound=Callable[..., Any])


def _as_text(given: Any) -> Any:
    """A specimen by its number, as other faces take it: 3 is "3"."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


SpecimenName = Annotated[str, BeforeValidator(_as_text), Field(description="From list_specimens, or a path")]
BehaviourName = Annotated[str | None, Field(description="Of natural models: ioi, ... or a file")]
#: A list of tokens, or a text.
Prompt = Annotated[list[Any] | str, Field(description="List of tokens, or a text for natural models")]
Components = Annotated[list[str], Field(max_length=64, description="Such as L0H1, L1_MLP")]
Sites = Annotated[
    list[str],
    Field(max_length=64, description="Such as L0H1, L1_MLP, L2.resid@end, L1H0.q, L0H1->L1H0.k, L1F47, @ a position"),
]

MOST_LISTED = 12
#: The most of an option that an agent may ask for.
MOST = {"n": 512, "seed": 2**31}
#: What an agent is told of these, in fewer words than the help of a command.
SHORT = {
    "seed": "Seed of the prompts",
    "force": "Continue although the model does not perform the behaviour",
    "features": "Sparse dictionaries",
}


def argument(option: Option) -> Any:
    """A field of a record as pydantic checks it and a schema states it."""
    least = 0 if option.flag.least is None else option.flag.least
    limits = {"ge": least, "le": MOST[option.name]} if option.name in MOST else {}
    said = SHORT.get(option.name, option.flag.help.removesuffix("."))
    return Annotated[option.type, Field(**limits, description=said)]


Prompts, Seed, Force = map(argument, (*options_of(Sample), *options_of(Forced)))


class SparseSample(Sample, Sparse):
    """How many prompts, and the dictionaries whose latents are sites."""


class Trial(Sample, Forced, Sparse):
    """The same, and whether the model has to perform the behaviour."""


def of_records(function: Tool) -> Tool:
    """A tool whose records are taken apart: each field is an argument, with the limits that its schema states."""
    flat, made = Flat.of(function), flattened(function)
    fields = {option.name: option for _, option in flat.options()}
    given = inspect.signature(made)
    parameters = [
        one.replace(annotation=argument(fields[one.name])) if one.name in fields else one
        for one in given.parameters.values()
    ]
    made.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]
    return made  # type: ignore[return-value]


def shown(value: float | None) -> str:
    """A figure in a text."""
    return "-" if value is None else f"{value:.3g}"


def cut(text: str, most: int) -> str:
    """A text that a conversation can hold."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
