"""The answers a language model is asked for, stage by stage.

A title is what the language model reads as the name of a shape; it is part of the address of a recorded call.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from vesalius.components import Component
from vesalius.documents.explanation import Tag
from vesalius.errors import BadInput
from vesalius.files import plain_json

TAGS: tuple[str, ...] = get_args(Tag)
#: The entry of `names` that is not a component.
TASK = "task"


def _text(given: Any) -> Any:
    """Models write lists and objects where text is asked for; said in lines, they are as good."""
    return _lines(plain_json(given))


def _lines(given: Any) -> Any:
    if isinstance(given, list):
        return "\n".join(str(_lines(part)) for part in given)
    if isinstance(given, dict):
        return "\n".join(f"{name}: {_lines(part)}" for name, part in given.items())
    return str(given) if isinstance(given, int | float) else given


def _word(given: Any) -> Any:
    return given.strip().lower() if isinstance(given, str) else given


def _decision(given: Any) -> Any:
    return {"supported": "support", "supports": "support", "refuted": "refute", "refutes": "refute"}.get(
        _word(given), _word(given)
    )


Text = Annotated[str, BeforeValidator(_text), Field(min_length=1, max_length=20_000)]
MaybeText = Annotated[str, BeforeValidator(_text), Field(max_length=20_000)]


class ExperimentPlan(BaseModel):
    """A plan, for an observation or for a test."""

    model_config = ConfigDict(title="Plan")

    stage: MaybeText = ""
    goal: Text
    procedure: Text
    inputs: Text
    expected_result: Text

    def __str__(self) -> str:
        return (
            f"Goal: {self.goal}\nProcedure: {self.procedure}\nInputs: {self.inputs}\n"
            f"Expected result: {self.expected_result}"
        )


class Observed(BaseModel):
    """What was observed."""

    observation: Text


class Looked(Observed):
    """What was observed, and the first hypothesis (protocol `typed`)."""

    hypothesis: MaybeText = ""


class Proposal(BaseModel):
    """A hypothesis and why it fits what was observed."""

    hypothesis: Text
    reasoning: MaybeText = ""


class Decision(BaseModel):
    """The model's own reading of its experiment (protocol `paper`)."""

    decision: Annotated[Literal["support", "refute"], BeforeValidator(_decision)]
    explanation: Text
    ruling_out: MaybeText = ""


class Conclusion(BaseModel):
    """The end of a typed validation: the engine has decided, the model says what it takes from that."""

    explanation: Text
    own_code: Annotated[Literal["support", "refute", "none"], BeforeValidator(_decision)] = "none"
    ruling_out: MaybeText = ""


class Role(BaseModel):
    """A tag of the taxonomy and one sentence."""

    tag: Annotated[Tag, BeforeValidator(lambda given: given.strip().upper() if isinstance(given, str) else given)]
    description: Text


class CircuitSummary(BaseModel):
    """How information flows, and the task."""

    model_config = ConfigDict(title="Summary")

    information_flow: Text
    derived_task_description: Text


def classification(components: Sequence[str], *, summary: bool = False) -> type[BaseModel]:
    """The shape of a classification: one role per component and, if asked for, the fields of a summary."""
    asked = tuple(CircuitSummary.model_fields) if summary else ()
    fields: dict[str, Any] = dict.fromkeys(components, (Role | None, None)) | dict.fromkeys(asked, (MaybeText, ""))
    return create_model("Classification", __base__=_per_component(components, asked), **fields)


def names(components: Sequence[str]) -> type[BaseModel]:
    """The shape of names: one per component, and the task."""
    fields: dict[str, Any] = dict.fromkeys([*components, TASK], (MaybeText, ""))
    return create_model("Names", __base__=_per_component(components, (TASK,)), **fields)


def _per_component(components: Sequence[str], asked: Sequence[str]) -> type[BaseModel]:
    """An object with an entry for every component, however it is written, and for what else is asked.

    All are asked for; an answer that leaves some out is read all the same, because the rest of it is worth having.
    """

    class PerComponent(BaseModel):
        model_config = ConfigDict(extra="ignore", json_schema_extra={"required": [*components, *asked]})

        @model_validator(mode="before")
        @classmethod
        def _canonical(cls, given: Any) -> Any:
            if not isinstance(given, dict):
                return given
            roles = {_canonical_name(name): role for name, role in given.items()}
            if not set(roles) & set(components):
                raise ValueError(f"it names none of the components {', '.join(components)}")
            return roles

    return PerComponent


def _canonical_name(name: Any) -> str:
    try:
        return str(Component.parse(name))
    except BadInput:
        return str(name)
