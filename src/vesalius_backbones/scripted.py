"""A model with scripted replies: for tests, demonstrations and simulated failures.

Replies are chosen in order, by the label or the last message they match, or by a function. A reply may fail on purpose,
and `Faults` makes any share of calls fail by a seed: the n-th try of the same request always ends the same way,
whatever the order of the calls, so an interrupted run and an uninterrupted one see the same failures.

Replies in order start again with the process; a test that kills and resumes needs matching replies or a function.
"""

import json
import random
import re
import runpy
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError

from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius_backbones.failures import KINDS, BackboneError
from vesalius_backbones.messages import Answer, Finish, FrozenModel, ModelRequest, TokenOptions, TokenUsage, ToolCall
from vesalius_backbones.records import digest

EMPTY = "empty"
#: The failures that occur with real providers.
COMMON_FAILURES = ("rate_limited", "unreachable", "timed_out", "garbled", EMPTY)


class ScriptedReply(FrozenModel):
    """One scripted reply. `match` and `label` are regular expressions for the last message and the call's label."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    json_object: dict[str, Any] | None = Field(default=None, alias="json")
    match: str | None = None
    label: str | None = None
    fail: str | None = None
    retry_after: float | None = None
    finish: Finish = "stop"
    usage: TokenUsage | None = None
    logprobs: tuple[TokenOptions, ...] | None = None

    @property
    def in_order(self) -> bool:
        """Whether the reply is used in order, instead of for a matching call."""
        return self.match is None and self.label is None

    def fits(self, request: ModelRequest) -> bool:
        """Whether the reply matches this request."""
        last = request.messages[-1].text
        by_text = self.match is None or re.search(self.match, last, re.DOTALL)
        by_label = self.label is None or re.search(self.label, request.label)
        return not self.in_order and bool(by_text) and bool(by_label)


class Faults(FrozenModel):
    """Each try fails with probability `p`, in one of the `kinds`."""

    p: float = Field(ge=0, le=1)
    seed: int = 0
    kinds: tuple[str, ...] = COMMON_FAILURES

    def draw(self, request: ModelRequest, attempt: int) -> str | None:
        """The kind of failure of this attempt (from 0), or None."""
        rng = random.Random(f"{self.seed}:{digest(request.model_dump(mode='json'))}:{attempt}")
        return rng.choice(self.kinds) if rng.random() < self.p else None


Script = (
    Sequence["str | dict[str, Any] | ScriptedReply"] | Callable[[ModelRequest], "str | dict[str, Any] | ScriptedReply"]
)


class Scripted:
    """A connection that answers from a script."""

    def __init__(self, script: Script, *, faults: Faults | None = None) -> None:
        self._function = script if callable(script) else None
        replies = [] if callable(script) else [_reply(item) for item in script]
        self._matching = [reply for reply in replies if not reply.in_order]
        self._ordered = [reply for reply in replies if reply.in_order]
        self._faults = faults
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []

    def complete(self, request: ModelRequest) -> Answer:
        """The scripted answer to a request."""
        with self._lock:
            self.requests.append(request)
            address = digest(request.model_dump(mode="json"))
            attempt, self._attempts[address] = self._attempts[address], self._attempts[address] + 1
            fault = self._faults.draw(request, attempt) if self._faults else None
            reply = ScriptedReply(fail=fault) if fault else self._next(request)
        if reply.fail and reply.fail != EMPTY:
            raise _failure(reply.fail, retry_after=reply.retry_after)
        text = json.dumps(reply.json_object) if reply.json_object is not None else reply.text
        return Answer(
            text="" if reply.fail == EMPTY else text,
            tool_calls=reply.tool_calls,
            usage=reply.usage or _estimated_usage(request, text),
            finish="tools" if reply.tool_calls else reply.finish,
            logprobs=reply.logprobs,
        )

    def close(self) -> None:
        """Nothing to close."""

    def _next(self, request: ModelRequest) -> ScriptedReply:
        if self._function:
            return _reply(self._function(request))
        for reply in self._matching:
            if reply.fits(request):
                return reply
        if not self._ordered:
            last = " ".join(request.messages[-1].text.split())[:60]
            raise Failed(f"script: no reply left for call {len(self.requests)} (label {request.label!r}, {last!r})")
        return self._ordered.pop(0)


def read_script(path: Path) -> Scripted:
    """A script from a file: JSON (a list of replies, or `{"replies": [...], "faults": {"p": 0.3, "seed": 0}}`), or
    Python that defines `reply(request)` or `replies`."""
    try:
        content: Any = runpy.run_path(str(path)) if path.suffix == ".py" else json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"script {path}: could not be read ({error.strerror})") from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadInput(f"script {path}: not readable ({error})") from None
    content = {"replies": content} if isinstance(content, list) else content
    script: Any = content.get("reply") or content.get("replies") if isinstance(content, dict) else None
    if not (callable(script) or isinstance(script, list)):
        raise BadInput(f"script {path}: expected a list of replies, or replies = [...] or def reply(request)")
    try:
        faults = Faults.model_validate(content["faults"]) if content.get("faults") else None
    except ValidationError as error:
        raise BadInput(f"script {path}: faults are not valid ({error.errors()[0]['msg']})") from None
    return Scripted(cast(Script, script), faults=faults)


def _reply(item: "str | dict[str, Any] | ScriptedReply") -> ScriptedReply:
    if isinstance(item, ScriptedReply):
        return item
    try:
        return ScriptedReply(text=item) if isinstance(item, str) else ScriptedReply.model_validate(item)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadInput(f"script reply {quoted(item)}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None


def _failure(kind: str, *, retry_after: float | None) -> BackboneError:
    if kind not in KINDS:
        raise BadInput(f"script: fail {kind!r} is not a failure; choose from {choices([*KINDS, EMPTY])}")
    return KINDS[kind](f"scripted: {kind}", retry_after=retry_after)


def _estimated_usage(request: ModelRequest, text: str) -> TokenUsage:
    """Token counts by the rule of thumb, four bytes each."""
    prompt = sum(len(message.text.encode("utf-8", "replace")) for message in request.messages)
    return TokenUsage(input=prompt // 4 + 1, output=len(text.encode("utf-8", "replace")) // 4 + 1)
