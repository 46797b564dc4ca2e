"""Every call on record, found again by its content.

One append-only file, `calls.jsonl`. A call has two lines: `asked`, written before it is made, with the most it can
cost; and `outcome`, with the request and the answer or the failure. The address of a call is the SHA-256 of its request
(secrets taken out, label left out, the n-th repetition of a request counted in). Each line is one write followed by
fsync and carries a checksum, so a killed process loses at most the call it was in, and that call still counts against
the cap. A torn line is skipped; an altered one is refused.

Recording serves what it already has, so a resumed run does not pay twice: answers only, for a failure may pass. Replay
serves failures too, and nothing else than what is on record.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from vesalius.backbones.failures import Rejected
from vesalius.backbones.messages import Answer, Event, Plain, Request, Usage
from vesalius.backbones.redact import Redactor
from vesalius.errors import BadInput, Failed

FILE = "calls.jsonl"
SCHEMA = 1


class Outcome(Plain):
    """How a call ended, after all its tries: an answer or a failure, with what it cost."""

    answer: Answer | None = None
    failure: dict[str, Any] | None = None
    usage: Usage | None = None
    cost: float | None = None
    #: Dollars that may have been charged unseen, beyond `cost`.
    doubtful: float = 0.0
    attempts: int = 1
    events: tuple[Event, ...] = ()
    prices: str | None = Field(default=None, description="date of the price table")


class Totals(Plain):
    """What the calls on record used. `cost` is what their bills say, None where one is not known; `at_most` also counts
    what may have been charged unseen, such as a call whose process was killed.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    at_most: float = 0.0

    @classmethod
    def together(cls, parts: Iterable["Totals"]) -> "Totals":
        """What several records used in all; the cost is not known where one part's is not."""
        given = list(parts)
        costs = [part.cost for part in given if part.cost is not None]
        return cls(
            calls=sum(part.calls for part in given),
            input_tokens=sum(part.input_tokens for part in given),
            output_tokens=sum(part.output_tokens for part in given),
            cost=math.fsum(costs) if len(costs) == len(given) else None,
            at_most=math.fsum(part.at_most for part in given),
        )


def canonical(data: Any) -> str:
    """The one JSON text of a value: sorted names, no spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(data: Any) -> str:
    """SHA-256 of the canonical JSON; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    return hashlib.sha256(canonical(data).encode("utf-8", "backslashreplace")).hexdigest()


def records_file(place: Path) -> Path:
    """The file of records at a place: itself if it is named *.jsonl, else `calls.jsonl` in that directory."""
    return place if place.suffix == ".jsonl" else place / FILE


class Records:
    """The calls recorded at one place."""

    def __init__(self, place: Path, redactor: Redactor, *, writable: bool) -> None:
        self.path = records_file(Path(place))
        self._redactor = redactor
        self._writable = writable
        self._lock = threading.Lock()
        self._outcomes: dict[str, Outcome] = {}
        self._pending: dict[str, list[float]] = {}
        self._settled: list[float] = []
        self._bills: list[Outcome] = []
        self._unsupported: dict[tuple[str, str], set[str]] = {}
        self.torn = 0
        if writable:
            self._make_ready()
        elif not self.path.is_file():
            raise BadInput(f"replay {place}: no recorded calls there (expected {self.path})")
        self._read()

    @property
    def calls(self) -> int:
        """How many different calls have an outcome on record."""
        return len(self._outcomes)

    @property
    def spent(self) -> float:
        """Dollars on record: known costs, and the most of every call whose bill was not seen."""
        return math.fsum([*self._settled, *(most for calls in self._pending.values() for most in calls)])

    @property
    def totals(self) -> Totals:
        """What every call with an outcome used, those that were made again included."""
        used = [bill.usage for bill in self._bills if bill.usage]
        costs = [bill.cost for bill in self._bills]
        known = [cost for cost in costs if cost is not None]
        return Totals(
            calls=len(self._bills),
            input_tokens=sum(usage.input for usage in used),
            output_tokens=sum(usage.output for usage in used),
            cost=math.fsum(known) if len(known) == len(costs) else None,
            at_most=self.spent,
        )

    def address(self, request: Request) -> str:
        """Where a request is found."""
        return digest(self._redactor.tree(request.model_dump(mode="json")))

    def find(self, request: Request) -> Outcome | None:
        """The recorded outcome of a request, or None."""
        return self._outcomes.get(self.address(request))

    def unsupported(self, provider: str, model: str) -> set[str]:
        """Parts of a request that this model is on record as rejecting."""
        return set(self._unsupported.get((provider, model), ()))

    def ask(self, request: Request, most: float) -> None:
        """Write down that a call is about to be made and what it can cost at most."""
        self._write({"kind": "asked", "key": self.address(request), "most": most})

    def settle(self, request: Request, outcome: Outcome) -> Outcome:
        """Write down how a call ended; returns the outcome as recorded, which is what later runs will see."""
        data = self._redactor.tree(outcome.model_dump(mode="json"))
        asked = self._redactor.tree(request.model_dump(mode="json"))
        label = self._redactor.text(request.label)
        line = {"kind": "outcome", "key": digest(asked), "label": label, "request": asked, "outcome": data}
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
            self._take(line)

    def _make_ready(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n":
                    file.write(b"\n")  # what a killed process left is closed off, so the next line stands alone
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
            except (ValueError, KeyError, AttributeError, TypeError):
                self.torn += 1
                continue
            if check != digest(line):
                raise BadInput(f"{self.path}, line {number}: altered since it was recorded; restore the file")
            try:
                self._take(line)
            except (KeyError, ValidationError):
                raise BadInput(
                    f"{self.path}, line {number}: not a record of schema {SCHEMA}; another version wrote it"
                ) from None

    def _take(self, line: dict[str, Any]) -> None:
        key = line["key"]
        if line["kind"] == "asked":
            self._pending.setdefault(key, []).append(line["most"])
            return
        outcome = Outcome.model_validate(line["outcome"])
        self._outcomes[key] = outcome
        self._bills.append(outcome)
        pending = self._pending.pop(key, [])
        # Earlier `asked` lines of this call belong to processes that were killed in the middle of it.
        self._settled += [outcome.cost or 0.0, outcome.doubtful, *pending[:-1]]
        failure = outcome.failure or {}
        if failure.get("kind") == Rejected.kind and failure.get("parameter"):
            request = line["request"]
            self._unsupported.setdefault((request["provider"], request["model"]), set()).add(failure["parameter"])
