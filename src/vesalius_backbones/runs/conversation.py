"""The calls of a language model as they are recorded, read while they are being made.

The records (`backbones.records`) hold every call with its request and its answer. What a tool gave back, or what else
the model was told, is in the request of the call that follows. A file is read on from where the last look ended;
texts are cut, and a whole one is read again from its place in the file when it is asked for. Lines that are no records
are counted, told in one line, and skipped.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from vesalius.documents.explanation import Verdict
from vesalius.documents.trace import AgentCall, Text, ToolUse
from vesalius.errors import BadInput, choices
from vesalius_backbones.messages import Answer, Message, ModelRequest
from vesalius_backbones.records import Outcome, digest
from vesalius_backbones.runs.usage import Call, stage_of

#: Characters of a text that are shown at first, and of one that is asked for.
LONGEST, LONGEST_WHOLE = 4_000, 1_000_000
#: Bytes of one line and of one look, fields of an answer, and calls that are kept.
MOST_LINE, MOST_LOOK, MOST_FIELDS, MOST_CALLS = 16_000_000, 64_000_000, 40, 5_000
MOST_TOOLS, MOST_PROBLEMS = 16, 5
_ATTEMPT = re.compile(r" (\d{1,4})$")
_VERDICT = re.compile(rf"({'|'.join(get_args(Verdict))}): ")
CODE_TOOL, CLAIM_TOOL = "execute_python", "check_claim"


@dataclass
class _Place:
    """Where a call's line is in the file, and that of the call whose request says what this one was told."""

    start: int
    length: int
    told_by: "_Place | None" = None


@dataclass
class Conversation:
    """The calls in one file of records, as far as they have been read."""

    path: Path
    case: str = ""
    calls: list[AgentCall] = field(default_factory=list)
    used: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    scope: str = ""
    backbone: str | None = None
    _places: list[_Place] = field(default_factory=list)
    _offset: int = 0
    _line: int = 0
    _identity: tuple[int, int] | None = None

    def update(self) -> None:
        """Read what was added since the last look; a file that was replaced or cut is read anew."""
        try:
            stat = self.path.stat()
        except OSError:
            return
        identity = (stat.st_dev, stat.st_ino)
        if identity != self._identity or stat.st_size < self._offset:
            self._forget()
            self._identity = identity
        if stat.st_size == self._offset or len(self.calls) >= MOST_CALLS:
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read(MOST_LOOK)
        *lines, rest = data.split(b"\n")
        if not lines and len(rest) > MOST_LINE:
            lines = [rest]  # a line without an end: pass over it
        for line in lines:
            self._line += 1
            self._take(line, self._offset)
            self._offset += len(line) + 1
            if len(self.calls) >= MOST_CALLS:
                self._problem(f"{self.path.name}: only the first {MOST_CALLS:,} calls are shown")
                return

    def whole(self, number: int, part: str) -> str:
        """A whole text of a call: `prompt`, `text`, `reply`, `answer.FIELD`, `tool.N.given` or `tool.N.result`."""
        if not 0 <= number < len(self.calls):
            raise BadInput(f"call {number}: there are {len(self.calls)} calls")
        place = self._places[number]
        request, outcome = self._read(place)
        following = None if place.told_by is None else self._read(place.told_by)[0]
        texts = _texts(request, outcome.answer, following)
        if part not in texts:
            raise BadInput(f"part {part[:60]!r}: not in call {number}; it has {choices(texts)}")
        return texts[part][:LONGEST_WHOLE]

    def _read(self, place: _Place) -> tuple[ModelRequest, Outcome]:
        try:
            with self.path.open("rb") as file:
                file.seek(place.start)
                line = json.loads(file.read(place.length))
            return _parsed(line)
        except (OSError, ValueError, KeyError, TypeError, ValidationError, RecursionError):
            raise BadInput(f"{self.path.name}: was changed; load the page again") from None

    def _forget(self) -> None:
        self.calls, self.used, self.problems, self._places = [], [], [], []
        self._offset = self._line = 0

    def _problem(self, line: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(line)

    def _take(self, raw: bytes, start: int) -> None:
        if not raw.strip():
            return
        try:
            if len(raw) > MOST_LINE:
                raise ValueError
            line = json.loads(raw)
            kind = line["kind"]
            if kind == "asked":
                return
            check = {name: value for name, value in line.items() if name != "check"}
            request, outcome = _parsed(line)
            label = str(line.get("label", ""))[:200]
            altered = line.get("check") != digest(check)
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError, RecursionError):
            self._problem(f"{self.path.name}, line {self._line}: not a record of a call; it is left out")
            return
        if altered:
            self._problem(f"{self.path.name}, line {self._line}: altered since it was recorded")
        if not self.calls:
            self.scope, self.backbone = request.scope, f"{request.provider}:{request.model}"
        place = _Place(start, len(raw))
        self._complete(request, place)
        self._places.append(place)
        self.calls.append(_call(len(self.calls), label, request, outcome))
        stage, component = stage_of(label)
        self.used.append(Call(self.case, stage, component, outcome))

    def _complete(self, request: ModelRequest, place: _Place) -> None:
        """What this request says that the call before it was told."""
        before = next((call for call in reversed(self.calls) if call.failure is None), None)
        turns = _since_last_answer(request.messages)
        if before is None or not turns:
            return
        self._places[before.number].told_by = place
        results = _results(before.tools, turns)
        tools = tuple(_with_result(use, result) for use, result in zip(before.tools, results, strict=True))
        reply = None if before.tools else _cut(_said(turns))
        self.calls[before.number] = before.model_copy(update={"tools": tools, "reply": reply})


def _parsed(line: dict[str, Any]) -> tuple[ModelRequest, Outcome]:
    return ModelRequest.model_validate(line["request"]), Outcome.model_validate(line["outcome"])


def _call(number: int, label: str, request: ModelRequest, outcome: Outcome) -> AgentCall:
    stage, component = stage_of(label)
    attempt = _ATTEMPT.search(label)
    answer, usage = outcome.answer, outcome.usage
    failure = None
    if answer is None:
        failure = " ".join(str((outcome.failure or {}).get("message") or outcome.failure or "no answer").split())[:400]
    shown = _answered(answer)
    first = not any(message.role == "assistant" for message in request.messages)
    return AgentCall(
        number=number,
        label=label,
        stage=stage,
        component=component,
        attempt=int(attempt[1]) if attempt else None,
        prompt=_cut(_prompt(request)) if first else None,
        tools=tuple(map(_use, answer.tool_calls[:MOST_TOOLS])) if answer else (),
        answer={name[:100]: _cut(text) for name, text in shown.items()},
        text=_cut(answer.text) if answer and answer.text.strip() and not shown else None,
        failure=failure,
        input_tokens=usage.input if usage else 0,
        output_tokens=usage.output if usage else 0,
        cost=outcome.cost,
        seconds=outcome.seconds,
    )


def _use(call: Any) -> ToolUse:
    claim = call.arguments.get("claim") if call.name == CLAIM_TOOL else None
    return ToolUse(
        tool=call.name[:100],
        given=_cut(_given(call)),
        is_code=call.name == CODE_TOOL,
        claim=str(claim.get("kind", ""))[:100] if isinstance(claim, dict) else None,
    )


def _given(call: Any) -> str:
    """What a tool was given: the code, or the arguments as JSON."""
    code = call.arguments.get("code")
    if call.name == CODE_TOOL and isinstance(code, str):
        return code.strip("\n")
    return json.dumps(call.arguments, ensure_ascii=False, indent=2)


def _with_result(use: ToolUse, result: str | None) -> ToolUse:
    if result is None:
        return use
    verdict = _VERDICT.match(result) if use.tool == CLAIM_TOOL else None
    return use.model_copy(update={"result": _cut(result), "verdict": verdict[1] if verdict else None})


def _results(tools: Sequence[ToolUse], turns: Sequence[Message]) -> list[str | None]:
    """The results of tools, in their order; None where there is none."""
    results = [turn.text for turn in turns if turn.role == "tool"][: len(tools)]
    return [*results, *[None] * (len(tools) - len(results))]


def _since_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return messages[answers[-1] + 1 :] if answers else ()


def _said(turns: Sequence[Message]) -> str:
    return "\n".join(turn.text for turn in turns if turn.role == "user")


def _prompt(request: ModelRequest) -> str:
    return "\n\n".join(message.text for message in request.messages)


def _answered(answer: Answer | None) -> dict[str, str]:
    """The fields of an answer that is one JSON object, as texts."""
    if answer is None or not answer.text.lstrip().startswith("{"):
        return {}
    try:
        data = json.loads(answer.text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(name): _as_text(value) for name, value in list(data.items())[:MOST_FIELDS]}


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    if isinstance(value, dict) and all(isinstance(part, str) for part in value.values()):
        return "\n".join(f"{name}: {part}" for name, part in value.items())
    return json.dumps(value, ensure_ascii=False, indent=2)


def _cut(text: str) -> Text:
    return Text(text=text[:LONGEST], length=len(text))


def _texts(request: ModelRequest, answer: Answer | None, following: ModelRequest | None) -> dict[str, str]:
    """Every text of a call by the name of its part."""
    texts = {"prompt": _prompt(request)}
    if answer is not None:
        texts["text"] = answer.text
        texts |= {f"answer.{name[:100]}": text for name, text in _answered(answer).items()}
        texts |= {f"tool.{at}.given": _given(call) for at, call in enumerate(answer.tool_calls[:MOST_TOOLS])}
    if following is not None:
        turns = _since_last_answer(following.messages)
        texts["reply"] = _said(turns)
        results = [turn.text for turn in turns if turn.role == "tool"][:MOST_TOOLS]
        texts |= {f"tool.{at}.result": text for at, text in enumerate(results)}
    return texts
