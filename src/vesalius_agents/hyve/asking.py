"""Asking the language model, with an account of everything that went wrong.

A model that answers garbage, or declines, has given its answer: it is counted, the stage ends with what there is, and
the run goes on. Everything else that fails (no connection, no credit, a cap, a missing record) says nothing about the
model, so it passes through and the case can be tried again. A request that the server rejects is the user's to
fix if it is the first; later it means that this conversation outgrew the model's context, and the stage ends.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from vesalius.components import Component
from vesalius.documents.explanation import Tag
from vesalius.documents.trace import Usage
from vesalius.errors import BadInput
from vesalius.files import plain_json
from vesalius_agents.hyve.tools import Bench
from vesalius_backbones import Backbone, BackboneError, Garbled, Message, Refused, Rejected, Reply, tool_result, user

Shape = TypeVar("Shape", bound=BaseModel)
#: Tool calls of one reply that are carried out; the rest get the reply to call one at a time.
MOST_CALLS = 8
#: Replies after the last experiment is spent that may still ask for more before the stage is ended.
MOST_REMINDERS = 2
_LONGEST_PROBLEM = 200
#: Bytes of a conversation with compact prompts: three to a token, so that 4,096 tokens hold it, its tools and a reply.
LONGEST_COMPACT = 3 * (4096 - 512 - 256)


def fitted(turns: Sequence[Message], most: int = LONGEST_COMPACT) -> list[Message]:
    """A conversation of at most so many bytes: the oldest exchanges after the first prompt are left out, never the
    last one.
    """
    start = next(place for place, turn in enumerate(turns) if turn.role == "user") + 1
    kept, later = list(turns[:start]), list(turns[start:])
    while _size([*kept, *later]) > most:
        following = next((place for place, turn in enumerate(later) if place and turn.role == "assistant"), None)
        if following is None:
            break
        later = later[following:]
    return [*kept, *later]


def _size(turns: Sequence[Message]) -> int:
    texts = [*(turn.text for turn in turns), *(str(call.arguments) for turn in turns for call in turn.tool_calls)]
    return sum(len(text.encode()) for text in texts)


class Asker:
    """Asks, and keeps the account of calls, tokens, dollars and problems."""

    def __init__(self, backbone: Backbone, tell: Callable[[str], None]) -> None:
        self._backbone, self.tell = backbone, tell
        self.usage = Usage()
        self.problems: list[str] = []
        self._heard = False

    def ask(
        self, turns: Sequence[Message], shape: type[Shape], *, label: str, tools: Bench | None = None
    ) -> Reply[Shape] | None:
        """One answer of a shape, or a wish to use tools; None where the model gave neither."""
        offered = () if tools is None else tools.tools
        try:
            reply = self._backbone.chat(turns, tools=offered, schema=shape, label=label)
        except (Garbled, Refused, Rejected) as failure:
            if isinstance(failure, Rejected) and not self._heard:
                raise
            self._count(failure)
            self.usage = self.usage.model_copy(update={"failed": self.usage.failed + 1})
            self.note(f"{label}: {failure}")
            return None
        self._heard = True
        self._count(reply)
        return reply

    def work(self, turns: Sequence[Message], shape: type[Shape], *, label: str, bench: Bench) -> Shape | None:
        """Let the model use tools until it answers with the shape; None where it never does."""
        reminders = 0
        while reminders <= MOST_REMINDERS:
            # A reply that is held to a schema can be held to the answer alone once no experiment is left.
            answer_only = bench.exhausted and self._backbone.abilities.constrained
            reply = self.ask(turns, shape, label=label, tools=None if answer_only else bench)
            if reply is None:
                return None
            if reply.parsed is not None:
                if objection := bench.objection():
                    turns = [*turns, reply.message(), user(objection)]
                    continue
                if bench.sent_back and not bench.executions:
                    self.note(f"{label}: it answered without running any program")
                return reply.parsed
            reminders += bench.exhausted
            results = [
                tool_result(call, bench.answer(call) if place < MOST_CALLS else "not run: too many calls at once")
                for place, call in enumerate(reply.tool_calls)
            ]
            if bench.finished:
                return None
            turns = [*turns, reply.message(), *results]
            if bench.compact:
                turns = fitted(turns)
        self.note(f"{label}: it went on calling tools and never answered")
        return None

    def note(self, problem: str) -> None:
        """Write down a failure that was worked around."""
        line = " ".join(problem.split())
        self.problems.append(line if len(line) <= _LONGEST_PROBLEM else f"{line[:_LONGEST_PROBLEM]}...")

    def count_malformed(self) -> None:
        """One more claim or tool call that could not be carried out."""
        self.usage = self.usage.model_copy(update={"malformed": self.usage.malformed + 1})

    def _count(self, outcome: "Reply[Shape] | BackboneError") -> None:
        kinds = [event.kind for event in outcome.events]
        tokens, before = outcome.usage, self.usage
        known = before.cost is not None and outcome.cost is not None
        self.usage = before.model_copy(
            update={
                "calls": before.calls + outcome.attempts,
                "input_tokens": before.input_tokens + (tokens.input if tokens else 0),
                "output_tokens": before.output_tokens + (tokens.output if tokens else 0),
                "cached_tokens": before.cached_tokens + (tokens.cached if tokens else 0),
                "cost": (before.cost or 0.0) + (outcome.cost or 0.0) if known else None,
                "repaired": before.repaired + kinds.count("repaired"),
                "reasked": before.reasked + kinds.count("asked_again"),
                "malformed": before.malformed + kinds.count("bad_tool_call"),
            }
        )


# The answers a language model is asked for, stage by stage.
#
# A title is what the language model reads as the name of a shape; it is part of the address of a recorded call.

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
