"""A chat model of any provider.

One `chat` goes through these steps, from the outside in:

1. Structure. Features the model does not support natively (tools, schemas) are written into the prompt. An object that
   cannot be parsed is repaired; if that fails the model is asked again, with the reason.
2. Adapt. A part of a request that the server rejects (a schema, tools, a temperature) is left out from then on.
3. Record. A recorded call is served from the record; any other is made, and recorded.
4. Retry. Transient failures are tried again with growing waits.
5. Pay. Before each try the most it can cost is held under the cap; afterwards the true cost is booked.

Every failure is a `BackboneError`; its class says what happened, its attributes what was spent.
"""

import copy
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from vesalius.errors import BadInput
from vesalius.files import plain_json, plain_text
from vesalius_backbones import tools as tool_text
from vesalius_backbones.failures import (
    BackboneError,
    CapReached,
    Garbled,
    NotRecorded,
    Rejected,
    Retrier,
    SpendingCap,
    from_data,
    to_data,
)
from vesalius_backbones.messages import (
    Abilities,
    Answer,
    CallSettings,
    Connection,
    Event,
    Message,
    ModelRequest,
    Price,
    Reply,
    TokenOptions,
    TokenUsage,
    Tool,
    ToolCall,
    assistant,
    bounded_schema,
    parse_object,
    reask,
    schema_instructions,
    user,
    with_instructions,
)
from vesalius_backbones.records import Outcome, PaidCall, Records, Redactor, digest

Schema = TypeVar("Schema", bound=BaseModel)
#: OpenAI's limit, which the other providers follow.
MAX_LOGPROBS = 20


@dataclass
class Tally:
    """What one `chat` has used so far, over all its calls."""

    usage: TokenUsage | None = None
    cost: float | None = 0.0
    attempts: int = 0
    paid_now: bool = False
    events: list[Event] = field(default_factory=list)

    def add(self, outcome: Outcome, *, replayed: bool) -> None:
        """Count one call."""
        if outcome.usage:
            self.usage = outcome.usage if self.usage is None else self.usage + outcome.usage
        known = self.cost is not None and outcome.cost is not None
        self.cost = (self.cost or 0.0) + (outcome.cost or 0.0) if known else None
        self.attempts += outcome.attempts
        self.events += outcome.events
        self.paid_now = self.paid_now or not replayed

    def note(self, kind: str, detail: str = "") -> None:
        """Add an event."""
        self.events.append(Event(kind=kind, detail=detail))

    @contextmanager
    def attached_to_failures(self, place: str) -> Iterator[None]:
        """Attach the totals, and the call that failed, to any failure raised inside."""
        try:
            yield
        except BackboneError as failure:
            failure.say_where(place, tries=self.attempts)
            failure.attempts, failure.cost, failure.usage = self.attempts, self.cost, self.usage
            failure.events = tuple(self.events)
            raise


@dataclass(frozen=True)
class ChoiceScores:
    """Log-probabilities of choices at one token of a reply.

    A choice that the server did not list among its likeliest tokens has minus infinity here; its true value is at most
    `floor`, the smallest that was listed. `said` is False if the reply contains none of the choices; the token is then
    the first where all of them were at least listed.
    """

    logprobs: dict[str, float]
    floor: float
    said: bool
    usage: TokenUsage | None
    cost: float | None

    def share(self, choice: str) -> float:
        """The probability of a choice among the choices."""
        weights = {name: math.exp(value) for name, value in self.logprobs.items()}
        return weights[choice] / sum(weights.values())


@dataclass(frozen=True)
class Pays:
    """What a model costs, as of which date, and the most to spend; None where it is not known."""

    price: Price | None = None
    date: str | None = None
    cap: SpendingCap | None = None


class Backbone:
    """A chat model; made by `open_backbone`."""

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        settings: CallSettings,
        connection: Connection | None,
        abilities: Abilities,
        retrier: Retrier,
        redactor: Redactor,
        records: Records | None = None,
        pays: Pays | None = None,
        reasks: int = 2,
    ) -> None:
        self.provider, self.model, self.settings, pays = provider, model, settings, pays or Pays()
        self.abilities, self.price, self.price_date = abilities, pays.price, pays.date
        self.cap, self.records, self.reasks = pays.cap, records, reasks
        self._connection, self._retrier, self._redactor = connection, retrier, redactor
        self._scope = ""
        self._repetitions: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._unsupported = abilities.unsupported()
        if records:
            self._unsupported |= records.unsupported(provider, model)

    @property
    def name(self) -> str:
        """`provider:model`."""
        return f"{self.provider}:{self.model}"

    def within(self, scope: str) -> "Backbone":
        """The same backbone for one part of a run (a case, a step).

        Equal requests are counted per scope, so that a resumed run finds its own repetitions in the record.
        """
        part = copy.copy(self)
        part._scope, part._repetitions, part._lock = scope, Counter(), threading.Lock()
        return part

    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        schema: type[Schema] | None = None,
        check: Callable[[str], str] | None = None,
        reasks: int | None = None,
        stop: Iterable[str] = (),
        label: str = "",
    ) -> Reply[Schema]:
        """Send messages and return the model's reply.

        `tools` are offered to the model; invalid tool calls come back with an `error`. With `schema` the reply is
        parsed into `parsed` as that pydantic model, unless the model called a tool instead; `check` may say what is
        wrong with a reply that parses. Such a reply, or one that does not parse, is asked for again, at most `reasks`
        times (default: the backbone's). `label` names the call in records and errors.
        """
        most = self.reasks if reasks is None else reasks
        turns = _conversation(messages)
        if len({tool.name for tool in tools}) < len(tools):
            raise BadInput("tools: two of them have the same name; rename one")
        settings = self.settings.model_copy(update={"stop": tuple(stop)})
        tally = Tally()
        with tally.attached_to_failures(self._place(label)):
            for _ in range(1 + most):
                make = partial(self._request, turns, tools, schema, settings=settings, label=label)
                answer = self._exchange(make, tally)
                text, calls = self._tool_calls(answer, tools, tally)
                if schema is None or calls:
                    return self._reply(answer, text, tally, tool_calls=calls)
                parsed, repairs, problem = parse_object(text, schema)
                if parsed is not None and check is not None:
                    problem = check(text)
                if parsed is not None and not problem:
                    tally.events += [Event(kind="repaired", detail=repair) for repair in repairs]
                    return self._reply(answer, text, tally, parsed=parsed)
                if answer.finish == "length":
                    problem = f"it was cut after {self.settings.max_tokens} tokens and {problem}; be shorter"
                tally.note("asked_again", problem)
                turns = (*turns, assistant(text), reask(problem))
            name = schema.__name__ if schema else "reply"
            raise Garbled(f"{self.name}: no {name} in {1 + most} replies: {tally.events[-1].detail}")

    def logprobs(
        self, messages: str | Sequence[Message], choices: Sequence[str], *, max_tokens: int = 8, label: str = ""
    ) -> ChoiceScores:
        """Log-probabilities of `choices` at the token of the reply that is one of them (white space ignored).

        Only OpenAI and OpenAI-compatible servers offer them. At most `max_tokens` tokens are generated.
        """
        if not self.abilities.logprobs:
            raise BadInput(
                f"backbone {self.provider}: log-probabilities are not offered; use an OpenAI-compatible server"
            )
        if not choices:
            raise BadInput("choices: name at least one token to look for")
        settings = self.settings.model_copy(update={"max_tokens": max_tokens})
        turns, tally = _conversation(messages), Tally()
        make = partial(self._request, turns, settings=settings, label=label, top_logprobs=MAX_LOGPROBS)
        with tally.attached_to_failures(self._place(label)):
            answer = self._exchange(make, tally)
        if not answer.logprobs:
            raise BadInput(f"backbone {self.name}: the server sent no log-probabilities; start it with them enabled")
        token, said = _choice_token(answer.logprobs, choices)
        if token is None:
            raise Garbled(f"{self.name}: {list(choices)} are not in the first {max_tokens} tokens, {answer.text!r}")
        logprobs = {choice: _logsum(token.options, choice) for choice in choices}
        floor = min((value for _, value in token.options), default=0.0)
        return ChoiceScores(logprobs, floor, said, tally.usage, tally.cost)

    def close(self) -> None:
        """Close connections and stop a local server."""
        if self._connection:
            self._connection.close()

    def __enter__(self) -> "Backbone":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _constrained(self) -> bool:
        """Whether a reply can be held to a schema although tools are offered: they are in the schema, as text."""
        return self.abilities.constrained and "tools" in self._unsupported and "schema" not in self._unsupported

    def _place(self, label: str) -> str:
        """Which call of which part of a run it is."""
        call = f"call {label!r}" if label else "call"
        return f"{call} of {self._scope!r}" if self._scope and self._scope != label else call

    def _reply(self, answer: Answer, text: str, tally: Tally, **content: Any) -> Reply[Any]:
        return Reply(
            text=text,
            usage=tally.usage,
            cost=tally.cost,
            attempts=tally.attempts,
            events=tuple(tally.events),
            finish="tools" if content.get("tool_calls") else answer.finish,
            replayed=not tally.paid_now,
            extras=answer.extras,
            **content,
        )

    def _tool_calls(self, answer: Answer, tools: Sequence[Tool], tally: Tally) -> tuple[str, tuple[ToolCall, ...]]:
        """The reply's text and its validated tool calls, including calls written as text."""
        text, calls = answer.text, answer.tool_calls
        if tools and not calls:
            text, calls = tool_text.find_calls(answer.text, tools)
            if not calls and self._constrained:
                text, calls = tool_text.find_constrained_call(answer.text)
            if calls:
                tally.note("tool_call_from_text", ", ".join(call.name for call in calls))
        calls = tuple(tool_text.validated(call, tools) for call in calls)
        for call in calls:
            if call.error:
                tally.note("bad_tool_call", call.error)
        return text, calls

    def _exchange(self, make: Callable[[], ModelRequest], tally: Tally) -> Answer:
        """One answer, after leaving out whatever the server rejects."""
        while True:
            request = make()
            try:
                return self._answer(request, tally)
            except Rejected as failure:
                if failure.parameter is None or failure.parameter not in request.features():
                    raise
                self._unsupported.add(failure.parameter)
                tally.note("left_out", failure.parameter)

    def _request(
        self,
        turns: tuple[Message, ...],
        tools: Sequence[Tool] = (),
        schema: type[BaseModel] | None = None,
        *,
        settings: CallSettings,
        label: str,
        top_logprobs: int | None = None,
    ) -> ModelRequest:
        """The request in the form this model supports: unsupported features are written into the messages."""
        unsupported = self._unsupported
        specifications = tuple(tool.specification() for tool in tools)
        json_schema = schema.model_json_schema() if schema else None
        either = self._constrained and json_schema is not None and bool(specifications)
        if "tools" in unsupported:
            turns = tuple(tool_text.as_text(turn, constrained=either) for turn in turns)
            if specifications:
                written = tool_text.constrained_instructions if either else tool_text.instructions
                turns = with_instructions(turns, written(specifications))
        as_text = json_schema is not None and not either and ("schema" in unsupported or bool(specifications))
        if json_schema is not None and as_text:
            turns = with_instructions(turns, schema_instructions(json_schema))
        if json_schema is not None and self._constrained:
            guided = tool_text.reply_schema([tool.guided() for tool in tools], json_schema) if either else json_schema
            json_schema = bounded_schema(guided, settings.max_tokens)
        defaults = {"temperature": None, "stop": ()}
        settings = settings.model_copy(update={name: defaults[name] for name in unsupported & defaults.keys()})
        return ModelRequest(
            provider=self.provider,
            model=self.model,
            settings=settings,
            messages=turns,
            tools=() if "tools" in unsupported else specifications,
            answer_schema=None if as_text else json_schema,
            top_logprobs=top_logprobs,
            scope=self._scope,
            label=label,
        )

    def _answer(self, request: ModelRequest, tally: Tally) -> Answer:
        """The answer from the record, or from the provider, and then recorded."""
        request = self._with_repetition(request)
        outcome = self.records.find(request) if self.records else None
        if outcome and (outcome.answer or self._connection is None):
            tally.add(outcome, replayed=True)
        elif self._connection is None:
            path = self.records.path if self.records else "nowhere"
            raise NotRecorded(f"{self.name}: call {request.label!r} is not recorded in {path}; record it first")
        else:
            outcome = self._call(request, self._connection)
            if self.records:
                outcome = self.records.settle(request, outcome)
            tally.add(outcome, replayed=False)
        if outcome.answer is None:
            raise from_data(outcome.failure or {})
        return outcome.answer

    def _with_repetition(self, request: ModelRequest) -> ModelRequest:
        """The request with its number among equal requests of this scope."""
        with self._lock:
            address = digest(request.model_dump(mode="json"))
            repetition = self._repetitions[address]
            self._repetitions[address] += 1
        return request.model_copy(update={"repetition": repetition})

    def _call(self, request: ModelRequest, connection: Connection) -> Outcome:
        """Call the provider, with retries."""
        call = PaidCall(request, connection, price=self.price, cap=self.cap, records=self.records)
        failure = None
        answer = None
        clock = self._retrier.clock
        started = clock.now()
        try:
            answer = self._retrier.run(call.attempt, call.note)
        except CapReached:
            raise
        except BackboneError as error:
            failure = to_data(error)
        data = {
            "answer": _plain(answer).model_dump() if answer else None,
            "failure": self._redactor.tree(plain_json(failure)),
            "events": self._redactor.tree([plain_json(event.model_dump()) for event in call.events]),
        }
        return Outcome(
            **data,
            usage=call.usage,
            cost=call.cost,
            doubtful=call.doubtful,
            attempts=call.attempts,
            prices=self.price_date if self.price else None,
            seconds=round(clock.now() - started, 3),
        )


def _plain(answer: Answer) -> Answer:
    """The answer as any file can hold it; the one place where a provider's words come in."""
    calls = [
        call.model_copy(update={name: plain_json(value) for name, value in dict(call).items()})
        for call in answer.tool_calls
    ]
    tokens = answer.logprobs and [
        TokenOptions(token=plain_text(token.token), options=tuple((plain_text(word), p) for word, p in token.options))
        for token in answer.logprobs
    ]
    changes = {"text": plain_text(answer.text), "tool_calls": tuple(calls), "extras": plain_json(answer.extras)}
    return answer.model_copy(update={**changes, "logprobs": tokens if tokens is None else tuple(tokens)})


def _conversation(messages: str | Sequence[Message]) -> tuple[Message, ...]:
    turns = (user(messages),) if isinstance(messages, str) else tuple(messages)
    if not turns:
        raise BadInput("messages: the conversation is empty; give at least one message")
    return turns


def _choice_token(tokens: Sequence[TokenOptions], choices: Sequence[str]) -> tuple[TokenOptions | None, bool]:
    """The first token that is one of the choices (True), else the first whose options list them all (False)."""
    for token in tokens:
        if token.token.strip() in choices:
            return token, True
    for token in tokens:
        if all(_logsum(token.options, choice) > -math.inf for choice in choices):
            return token, False
    return None, False


def _logsum(options: Iterable[tuple[str, float]], choice: str) -> float:
    """The log of the summed probability of a choice's spellings, with and without white space."""
    values = [value for token, value in options if token.strip() == choice]
    if not values:
        return -math.inf
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))
