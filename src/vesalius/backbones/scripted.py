"""A model that says what it was told to say: for tests, demonstrations and rehearsals of what goes wrong.

Replies come by order, by the label or the last message they match, or from a function. A line may fail on purpose, and
`Faults` makes any share of calls fail by a seed: the n-th try of the same request always meets the same fate, whatever
the order of the calls, so an interrupted run and its twin see the same weather.

Replies by order start again with the process; a test that kills and resumes wants matching lines or a function.
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

from vesalius.backbones.failures import KINDS, BackboneError
from vesalius.backbones.messages import Answer, Finish, Plain, Request, TokenOptions, ToolCall, Usage
from vesalius.backbones.records import digest
from vesalius.errors import BadInput, Failed, choices

EMPTY = "empty"
#: What a provider's bad day looks like.
BAD_DAY = ("rate_limited", "unreachable", "timed_out", "garbled", EMPTY)


class Line(Plain):
    """One scripted reply. `match` and `label` are regular expressions for the last message and the call's label."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    json_object: dict[str, Any] | None = Field(default=None, alias="json")
    match: str | None = None
    label: str | None = None
    fail: str | None = None
    retry_after: float | None = None
    finish: Finish = "stop"
    usage: Usage | None = None
    logprobs: tuple[TokenOptions, ...] | None = None

    @property
    def in_order(self) -> bool:
        """Whether the line waits for its turn, instead of for a matching call."""
        return self.match is None and self.label is None

    def fits(self, request: Request) -> bool:
        """Whether the line is the answer to this request."""
        last = request.messages[-1].text
        by_text = self.match is None or re.search(self.match, last, re.DOTALL)
        by_label = self.label is None or re.search(self.label, request.label)
        return not self.in_order and bool(by_text) and bool(by_label)


class Faults(Plain):
    """Each try fails with probability `p`, in one of the `kinds`."""

    p: float = Field(ge=0, le=1)
    seed: int = 0
    kinds: tuple[str, ...] = BAD_DAY

    def strike(self, request: Request, tried: int) -> str | None:
        """The kind of failure this try meets, or None."""
        fate = random.Random(f"{self.seed}:{digest(request.model_dump(mode='json'))}:{tried}")
        return fate.choice(self.kinds) if fate.random() < self.p else None


Script = Sequence["str | dict[str, Any] | Line"] | Callable[[Request], "str | dict[str, Any] | Line"]


class Scripted:
    """A wire that answers from a script."""

    def __init__(self, script: Script, *, faults: Faults | None = None) -> None:
        self._function = script if callable(script) else None
        lines = [] if callable(script) else [_line(item) for item in script]
        self._matching = [line for line in lines if not line.in_order]
        self._ordered = [line for line in lines if line.in_order]
        self._faults = faults
        self._tried: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Answer:
        """The scripted answer to a request."""
        with self._lock:
            self.requests.append(request)
            address = digest(request.model_dump(mode="json"))
            tried, self._tried[address] = self._tried[address], self._tried[address] + 1
            fault = self._faults.strike(request, tried) if self._faults else None
            line = Line(fail=fault) if fault else self._next(request)
        if line.fail and line.fail != EMPTY:
            raise _failure(line.fail, retry_after=line.retry_after)
        text = json.dumps(line.json_object) if line.json_object is not None else line.text
        return Answer(
            text="" if line.fail == EMPTY else text,
            tool_calls=line.tool_calls,
            usage=line.usage or _counted(request, text),
            finish="tools" if line.tool_calls else line.finish,
            logprobs=line.logprobs,
        )

    def close(self) -> None:
        """There is nothing to close."""

    def _next(self, request: Request) -> Line:
        if self._function:
            return _line(self._function(request))
        for line in self._matching:
            if line.fits(request):
                return line
        if not self._ordered:
            last = " ".join(request.messages[-1].text.split())[:60]
            raise Failed(f"script: no line left for call {len(self.requests)} (label {request.label!r}, {last!r})")
        return self._ordered.pop(0)


def read_script(path: Path) -> Scripted:
    """A script from a file: JSON (a list of lines, or `{"replies": [...], "faults": {"p": 0.3, "seed": 0}}`), or
    Python that defines `reply(request)` or `replies`."""
    try:
        content: Any = runpy.run_path(str(path)) if path.suffix == ".py" else json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"script {path}: could not be read ({error.strerror})") from None
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"script {path}: not readable ({error})") from None
    content = {"replies": content} if isinstance(content, list) else content
    script: Any = content.get("reply") or content.get("replies") if isinstance(content, dict) else None
    if not (callable(script) or isinstance(script, list)):
        raise BadInput(f"script {path}: expected a list of replies, or replies = [...] or def reply(request)")
    try:
        faults = Faults.model_validate(content["faults"]) if content.get("faults") else None
    except ValidationError as error:
        raise BadInput(f"script {path}: faults are not understood ({error.errors()[0]['msg']})") from None
    return Scripted(cast(Script, script), faults=faults)


def _line(item: "str | dict[str, Any] | Line") -> Line:
    if isinstance(item, Line):
        return item
    try:
        return Line(text=item) if isinstance(item, str) else Line.model_validate(item)
    except ValidationError as error:
        slip = error.errors()[0]
        raise BadInput(f"script line {item!r}: {'.'.join(map(str, slip['loc']))}: {slip['msg']}") from None


def _failure(kind: str, *, retry_after: float | None) -> BackboneError:
    if kind not in KINDS:
        raise BadInput(f"script: fail {kind!r} is not a failure; choose from {choices([*KINDS, EMPTY])}")
    return KINDS[kind](f"scripted: {kind}", retry_after=retry_after)


def _counted(request: Request, text: str) -> Usage:
    """Tokens by the rule of thumb, four bytes each."""
    said = sum(len(message.text.encode("utf-8", "replace")) for message in request.messages)
    return Usage(input=said // 4 + 1, output=len(text.encode("utf-8", "replace")) // 4 + 1)
