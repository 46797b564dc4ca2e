"""Recorded calls, looked up by their content.

One append-only file, `calls.jsonl`. A call has two lines: `asked`, written before it is made, with the most it can
cost; and `outcome`, with the request and the answer or the failure. The address of a call is the SHA-256 of its request
(secrets redacted, label left out, the number of the repetition included). Each line is one write followed by fsync and
carries a checksum, so a killed process loses at most the call it was making, and that call still counts against the
cap. A truncated line is skipped; an altered one is refused.

Recording serves the answers it already has, so a resumed run does not pay twice; failures are tried again. Replay
serves recorded answers and failures, and nothing else.
"""

import base64
import hashlib
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from vesalius.documents.trace import CALLS_FILE
from vesalius.errors import BadInput, Failed
from vesalius.private import secrets_of
from vesalius.runs.ledger import Totals
from vesalius_backbones.failures import BackboneError, Excess, Garbled, Refused, Rejected, SpendingCap, beyond
from vesalius_backbones.messages import Answer, Connection, Event, FrozenModel, ModelRequest, Price, TokenUsage

# Redact secrets from everything that is recorded.
#
# Two sources: the values of environment variables that are named like secrets, and patterns of the keys that providers
# issue. Matches become `[secret]`, in keys and values alike. A server may echo a key in another spelling: its values
# are also found reversed, in other case, with dashes, spaces or line breaks between or in place of their own, in
# hexadecimal, in base64 (anywhere in a longer text), and with any of its characters percent-encoded or escaped as in
# HTML or JSON.

MARK = "[secret]"
#: Shorter values are more likely words than secrets, and redacting every "test" would ruin a record.
MIN_LENGTH = 8
#: Texts whose redaction is remembered.
MOST_REMEMBERED = 1_000
PATTERNS = re.compile(
    r"""
      \b(?i:sk-)[A-Za-z0-9_-]{12,}                                 # OpenAI, Anthropic, and many that follow them
    | \bAIza[A-Za-z0-9_-]{20,}                                  # Google
    | \b(?:hf|gsk|xai|pplx|r8|nvapi|ghp|gho|ghs|ghu)[_-][A-Za-z0-9_-]{16,}
    | \bgithub_pat_[A-Za-z0-9_]{20,}
    | \bya29\.[A-Za-z0-9_-]{16,}                                # Google access token
    | \bAKIA[A-Z0-9]{16}\b
    | \bxox[abprs]-[A-Za-z0-9-]{10,}
    | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}  # JSON web token
    | -----BEGIN[ A-Z]*PRIVATE\ KEY-----.*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)                           # user:password in an address
    | (?i:(?<=bearer\ )|(?<=basic\ ))[A-Za-z0-9._~+/=-]{12,}    # Authorization headers
    | (?i:(?<=x-api-key:\ )|(?<=x-goog-api-key:\ ))\S{8,}
    | (?i:(?<=[?&]key=)|(?<=api_key=)|(?<=api-key=))[^\s&"']{8,}
    """,
    re.VERBOSE | re.DOTALL,
)


class Redactor:
    """Redacts secrets from text and from nested data."""

    def __init__(self, secrets: Iterable[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        named = list(secrets_of(variables).values())
        values = {value.strip() for value in [*named, *secrets] if value and len(value.strip()) >= MIN_LENGTH}
        #: For each kind of spelling: what a text that may hold one contains, and the spellings.
        self._known = [
            (hint, re.compile("|".join(sorted(patterns, key=len, reverse=True))))
            for hint, spell in _SPELLINGS
            if (patterns := {pattern for value in values for pattern in spell(value)})
        ]
        bare = {spelling for value in values for spelling in (_bare(value), _bare(value)[::-1])}
        self._loose = {one: re.compile(_loosely(one), re.IGNORECASE) for one in bare if len(one) >= MIN_LENGTH}
        self._read: dict[str, str] = {}

    def text(self, text: str) -> str:
        """The text without secrets."""
        # A conversation is recorded again with each of its calls, so most texts were read before.
        clean = self._read.get(text)
        if clean is None:
            if len(self._read) >= MOST_REMEMBERED:
                self._read.clear()
            clean = self._read[text] = self._without_secrets(text)
        return clean

    def _without_secrets(self, text: str) -> str:
        for hint, spellings in self._known:
            if hint is None or hint.search(text):
                text = spellings.sub(MARK, text)
        bare = _bare(text) if self._loose else ""
        for secret, spelling in self._loose.items():
            if secret in bare:
                text = spelling.sub(MARK, text)
                # A letter that is two in lower case is found in `bare` and by no pattern: nothing of the text stays.
                bare = _bare(text)
                if secret in bare:
                    return MARK
        return PATTERNS.sub(MARK, text)

    def tree(self, data: Any) -> Any:
        """Nested dicts, lists and strings without secrets."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, dict):
            return {self.tree(name): self.tree(value) for name, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.tree(item) for item in data]
        return data


#: What may stand between the characters of a key that was wrapped, grouped or written with other dashes. Every part is
#: read in one way alone (possessively), so that no text takes longer than its length times that of the key.
_BETWEEN = r"(?:\\++[nrt]?+|[^\w\\]|_)"


def _bare(text: str) -> str:
    """A text without what stands between letters and digits, in one case."""
    return re.sub(_BETWEEN, "", text).lower()


def _loosely(bare: str) -> str:
    return f"{_BETWEEN}*+".join(map(re.escape, bare))


def _literal(secret: str) -> list[str]:
    return [re.escape(spelling) for spelling in (secret, secret[::-1], *_base64(secret.encode()))]


def _both_ways_escaped(secret: str) -> list[str]:
    return [_escaped(secret), _escaped(secret[::-1])]


def _both_ways_hexadecimal(secret: str) -> list[str]:
    return [_hexadecimal(secret.encode()), _hexadecimal(secret.encode()[::-1])]


def _escaped(text: str) -> str:
    """Each character as it is, percent-encoded, or as an escape of HTML or JSON."""
    return "".join(map(_character, text))


def _character(character: str) -> str:
    code = ord(character)
    percent = "".join(f"%{byte:02x}" for byte in character.encode())
    escapes = f"{percent}|&#0*{code};|&#x0*{code:x};|\\\\u{code:04x}"
    return f"(?:{re.escape(character)}|(?i:{escapes}))"


def _hexadecimal(data: bytes) -> str:
    """Two digits a byte, of either case, with or without separators."""
    return "(?i:" + r"[\s:,-]?".join(f"(?:0x|\\\\x)?{byte:02x}" for byte in data) + ")"


def _base64(data: bytes) -> set[str]:
    """The part of the base64 of any text that follows from the secret in it alone, wherever the secret begins."""
    spellings = set()
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode().rstrip("=")
        first = (8 * offset + 5) // 6
        last = 8 * (offset + len(data)) // 6
        spellings.add(encoded[first:last])
    return spellings | {spelling.replace("+", "-").replace("/", "_") for spelling in spellings}


#: The costly kinds are looked for only in texts that have something of the kind.
_SPELLINGS: tuple[tuple[re.Pattern[str] | None, Callable[[str], list[str]]], ...] = (
    (None, _literal),
    (re.compile(r"%[0-9a-fA-F]{2}|&#|\\u[0-9a-fA-F]{4}"), _both_ways_escaped),
    (re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s:,-]?){8}"), _both_ways_hexadecimal),
)


SCHEMA = 1


class Outcome(FrozenModel):
    """How a call ended, after all its tries: an answer or a failure, with its cost."""

    answer: Answer | None = None
    failure: dict[str, Any] | None = None
    usage: TokenUsage | None = None
    cost: float | None = None
    #: Dollars that may have been charged beyond `cost`, without a bill.
    doubtful: float = 0.0
    attempts: int = 1
    events: tuple[Event, ...] = ()
    prices: str | None = Field(default=None, description="date of the price table")
    seconds: float | None = Field(default=None, description="all tries and the waits between them; None: not recorded")


def canonical(data: Any) -> str:
    """A value as canonical JSON: sorted names, no spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    return hashlib.sha256(canonical(data).encode("utf-8", "backslashreplace")).hexdigest()


def records_file(path: Path) -> Path:
    """The file of records: `path` if it is named *.jsonl, else `calls.jsonl` in that directory."""
    return path if path.suffix == ".jsonl" else path / CALLS_FILE


class Records:
    """The calls recorded in one file."""

    def __init__(self, path: Path, redactor: Redactor, *, writable: bool) -> None:
        self.path = records_file(Path(path))
        self._redactor = redactor
        self._writable = writable
        self._lock = threading.Lock()
        self._outcomes: dict[str, Outcome] = {}
        self._pending: dict[str, list[float]] = {}
        self._charges: list[float] = []
        self._excess: Excess | None = None
        self._all_outcomes: list[tuple[str, Outcome]] = []
        self._unsupported: dict[tuple[str, str], set[str]] = {}
        if writable:
            self._prepare_file()
        elif not self.path.is_file():
            raise BadInput(f"replay {path}: no recorded calls there (expected {self.path})")
        self._read()

    @property
    def calls(self) -> int:
        """How many different calls have a recorded outcome."""
        return len(self._outcomes)

    @property
    def spent(self) -> float:
        """Dollars spent: known costs, and the upper bound of every call without a bill."""
        return math.fsum([*self._charges, *(most for calls in self._pending.values() for most in calls)])

    @property
    def excess(self) -> Excess | None:
        """The bound and the bill of a call that was billed beyond its bound; None where there is none."""
        return self._excess

    @property
    def labelled_outcomes(self) -> Sequence[tuple[str, Outcome]]:
        """Every call with an outcome, repeated ones included, by the label it was made with, in the order of time."""
        return tuple(self._all_outcomes)

    @property
    def totals(self) -> Totals:
        """Totals of all calls with an outcome, repeated ones included."""
        outcomes = [outcome for _, outcome in self._all_outcomes]
        usages = [outcome.usage for outcome in outcomes if outcome.usage]
        costs = [outcome.cost for outcome in outcomes]
        known = [cost for cost in costs if cost is not None]
        return Totals(
            calls=len(outcomes),
            input_tokens=sum(usage.input for usage in usages),
            output_tokens=sum(usage.output for usage in usages),
            cached_tokens=sum(usage.cached for usage in usages),
            cost=math.fsum(known) if len(known) == len(costs) else None,
            at_most=self.spent,
        )

    def address(self, request: ModelRequest) -> str:
        """The key of a request."""
        return digest(self._redactor.tree(request.model_dump(mode="json")))

    def find(self, request: ModelRequest) -> Outcome | None:
        """The recorded outcome of a request, or None."""
        return self._outcomes.get(self.address(request))

    def unsupported(self, provider: str, model: str) -> set[str]:
        """Parts of a request that this model has rejected."""
        return set(self._unsupported.get((provider, model), ()))

    def ask(self, request: ModelRequest, most: float) -> None:
        """Record that a call is about to be made and the most it can cost."""
        self._write({"kind": "asked", "key": self.address(request), "most": most})

    def settle(self, request: ModelRequest, outcome: Outcome) -> Outcome:
        """Record how a call ended; returns the outcome as recorded, which is what later runs will see."""
        data = self._redactor.tree(outcome.model_dump(mode="json"))
        redacted = self._redactor.tree(request.model_dump(mode="json"))
        label = self._redactor.text(request.label)
        line = {"kind": "outcome", "key": digest(redacted), "label": label, "request": redacted, "outcome": data}
        self._write(line)
        return Outcome.model_validate(data)

    def _write(self, line: dict[str, Any]) -> None:
        line = {"schema": SCHEMA, **line}
        text = canonical({**line, "check": digest(line)}) + "\n"
        with self._lock:
            try:
                file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                try:
                    data = text.encode("utf-8", "backslashreplace")
                    if os.write(file, data) != len(data):
                        raise OSError(28, "the disk took only part of the line")
                    os.fsync(file)
                finally:
                    os.close(file)
            except OSError as error:
                raise Failed(
                    f"{self.path}: could not be written ({error.strerror}); free some space and resume"
                ) from None
            self._apply(line)

    def _prepare_file(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                    file.write(b"\n")  # end a truncated line, so that the next one is separate
                    os.fsync(file.fileno())
        except OSError as error:
            raise BadInput(f"record {self.path}: cannot be written ({error.strerror}); choose another place") from None

    def _read(self) -> None:
        for number, raw in enumerate(self.path.read_bytes().split(b"\n"), 1):
            if not raw:
                continue
            try:
                line = json.loads(raw)
                check = line.pop("check")
            except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
                continue
            if check != digest(line):
                raise BadInput(f"{self.path}, line {number}: altered since it was recorded; restore the file")
            try:
                self._apply(line)
            except (KeyError, ValidationError):
                raise BadInput(
                    f"{self.path}, line {number}: not a record of schema {SCHEMA}; another version wrote it"
                ) from None

    def _apply(self, line: dict[str, Any]) -> None:
        key = line["key"]
        if line["kind"] == "asked":
            self._pending.setdefault(key, []).append(line["most"])
            return
        outcome = Outcome.model_validate(line["outcome"])
        self._outcomes[key] = outcome
        self._all_outcomes.append((line.get("label", ""), outcome))
        pending = self._pending.pop(key, [])
        # Earlier `asked` lines of this call belong to processes that were killed during it.
        self._charges += [outcome.cost or 0.0, outcome.doubtful, *pending[:-1]]
        most = pending[-1] * _billed_tries(outcome) if pending else math.inf
        if beyond(most, outcome.cost or 0.0):
            self._excess = most, outcome.cost or 0.0
        failure = outcome.failure or {}
        if failure.get("kind") == Rejected.kind and failure.get("parameter"):
            request = line["request"]
            self._unsupported.setdefault((request["provider"], request["model"]), set()).add(failure["parameter"])


def _billed_tries(outcome: Outcome) -> int:
    """The most tries of a call that its cost can be of: those that brought an answer, usable or not."""
    unusable = sum(event.kind in (Garbled.kind, Refused.kind) for event in outcome.events)
    return max(1, unusable + (outcome.answer is not None))


# One call to a provider, with all its tries and their costs.

#: What a chat template and a provider's hidden instructions for tools may add to a prompt, in tokens.
TEMPLATE_TOKENS, TOOL_TOKENS = 64, 1024


class PaidCall:
    """One call with all its tries and their costs."""

    def __init__(
        self,
        request: ModelRequest,
        connection: Connection,
        *,
        price: Price | None = None,
        cap: SpendingCap | None = None,
        records: Records | None = None,
    ) -> None:
        self._request, self._connection, self._price = request, connection, price
        self._cap, self._records = cap, records
        self._max_cost = price.cost(token_bound(request)) if price else 0.0
        self.usage: TokenUsage | None = None
        self.cost: float | None = 0.0 if price else None
        self.doubtful = 0.0
        self.attempts = 0
        self.events: list[Event] = []

    def note(self, event: Event) -> None:
        """Add the event of a failed try."""
        self.events.append(event)

    def attempt(self) -> Answer:
        """Try once and book the cost."""
        if self._cap:
            self._cap.hold(self._max_cost)
        charged: float | None = None
        try:
            if self._records and self.attempts == 0 and self._max_cost:
                self._records.ask(self._request, self._max_cost)
            self.attempts += 1
            answer = self._connection.complete(self._request)
            charged = self._bill(answer.usage)
            _check_usable(answer, f"{self._request.provider}:{self._request.model}")
            return answer
        except BackboneError as failure:
            if charged is None and failure.perhaps_billed:
                charged = self._max_cost
                self.doubtful += self._max_cost
            if self._cap and charged is not None and beyond(self._max_cost, charged):
                failure.transient = False  # the cap refuses a further try, and this one's bill has to be recorded
            raise
        finally:
            if self._cap:
                self._cap.settle(self._max_cost, charged or 0.0)

    def _bill(self, usage: TokenUsage | None) -> float:
        """Book an answer; without a token count the cost is unknown and the cap is charged the upper bound."""
        if usage is None:
            self.note(Event(kind="usage_missing"))
            self.cost = None
            self.doubtful += self._max_cost
            return self._max_cost
        self.usage = usage if self.usage is None else self.usage + usage
        if self._price is None:
            return 0.0
        charged = self._price.cost(usage)
        self.cost = None if self.cost is None else self.cost + charged
        return charged


def token_bound(request: ModelRequest) -> TokenUsage:
    """An upper bound of a request's tokens: a token is at least one byte, and the reply ends at its limit."""
    content = request.model_dump(mode="json", include={"messages", "tools", "answer_schema"})
    size = len(canonical(content).encode("utf-8", "backslashreplace"))
    extra = TEMPLATE_TOKENS + (TOOL_TOKENS if request.tools else 0)
    return TokenUsage(input=size + extra, output=request.settings.max_tokens)


def _check_usable(answer: Answer, model: str) -> None:
    if answer.finish == "refused":
        text = " ".join(answer.text.split())[:120]
        raise Refused(f"{model}: the model declined to answer{': ' + text if text else ''}")
    if not answer.text.strip() and not answer.tool_calls and not answer.logprobs:
        problem = "cut before its first word; raise max_tokens" if answer.finish == "length" else "empty"
        raise Garbled(f"{model}: the reply is {problem}")
