"""The ways a call can fail, one class each, because each is handled differently.

All are `BackboneError`: infrastructure failed and nothing is known about the answer. None of them may be scored as a
wrong answer. `transient` ones are worth trying again, the others are not. `kind` is their name in records and events.
"""

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from vesalius.errors import BadInput, Failed, shortened
from vesalius_backbones.messages import Event, TokenUsage


class BackboneError(Failed):
    """A model could not be called, or returned nothing usable."""

    kind: ClassVar[str] = "failed"
    #: Of a whole class, or of one failure after which no further try may be made.
    transient: bool = False
    #: The provider may have charged for a call that ends like this.
    perhaps_billed: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        parameter: str | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.parameter = parameter
        self.usage = usage
        self.attempts = 0
        self.cost: float | None = None
        self.events: tuple[Event, ...] = ()

    def say_where(self, place: str, *, tries: int) -> None:
        """Add to the message which call failed and after how many tries."""
        tried = f", {tries} tries" if tries > 1 else ""
        self.args = (shortened(f"{self} ({place}{tried})"),)


class RateLimited(BackboneError):
    """Too many requests or tokens for now; `retry_after` is the provider's own advice in seconds."""

    kind = "rate_limited"
    transient = True


class OutOfCredit(BackboneError):
    """The account has no money or quota left."""

    kind = "out_of_credit"


class BadKey(BackboneError):
    """The key is missing, wrong or not allowed to do this."""

    kind = "bad_key"


class Refused(BackboneError):
    """The model or a filter declined to answer."""

    kind = "refused"


class TimedOut(BackboneError):
    """No answer within the timeout."""

    kind = "timed_out"
    transient = True
    perhaps_billed = True


class Unreachable(BackboneError):
    """No connection, or the server failed on its side."""

    kind = "unreachable"
    transient = True


class Garbled(BackboneError):
    """The answer is empty, malformed, or does not match the requested schema after repairs and re-asks."""

    kind = "garbled"
    transient = True
    perhaps_billed = True


class Rejected(BackboneError):
    """The server rejects this request; `parameter` is the part it named, if it named one."""

    kind = "rejected"


class CapReached(BackboneError):
    """The next call could cost more than is left under the spending cap; it was not made."""

    kind = "cap_reached"


class NotRecorded(BackboneError):
    """A replayed call is not in the record."""

    kind = "not_recorded"


KINDS: dict[str, type[BackboneError]] = {
    failure.kind: failure
    for failure in (
        RateLimited,
        OutOfCredit,
        BadKey,
        Refused,
        TimedOut,
        Unreachable,
        Garbled,
        Rejected,
        CapReached,
        NotRecorded,
    )
}


def to_data(failure: BackboneError) -> dict[str, Any]:
    """A failure as data for the record."""
    return {"kind": failure.kind, "message": str(failure), "parameter": failure.parameter}


def from_data(data: dict[str, Any]) -> BackboneError:
    """The failure that `to_data` encoded."""
    failure = KINDS.get(data["kind"], BackboneError)
    return failure(data["message"], parameter=data.get("parameter"))


# A spending cap that is never exceeded: a call that could exceed it is not made.

#: The most that a call could cost, and its bill, which was higher.
Excess = tuple[float, float]


@dataclass
class SpendingCap:
    """At most `limit` US dollars, of which `spent_before` are already spent. May be shared by several backbones.

    What a call costs is what its provider says it counted. Before a call only a bound is known; where a provider counts
    more than that, no bound holds any more, and no further call is made, also where the run is resumed.
    """

    limit: float
    spent_before: float = 0.0
    _now: float = field(default=0.0, init=False)
    _held: float = field(default=0.0, init=False)
    _excess: Excess | None = field(default=None, init=False)
    _recorded: dict[str, float] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise BadInput(f"cap {self.limit:g}: no call could be made; give a positive amount of dollars or no cap")
        if not (math.isfinite(self.spent_before) and self.spent_before >= 0):
            raise BadInput(f"spent_before {self.spent_before:g}: the amount already spent is zero or more dollars")

    @property
    def spent(self) -> float:
        """Dollars spent so far, including earlier processes and calls that may have been charged."""
        return max(self.spent_before, math.fsum(self._recorded.values())) + self._now

    @property
    def left(self) -> float:
        """Dollars that the next call may still cost."""
        return self.limit - self.spent - self._held

    def restore(self, record: str, spent: float, excess: Excess | None = None) -> None:
        """Count what was spent according to a record; the same twice counts once. `excess` is of a call in it."""
        with self._lock:
            self._recorded.setdefault(record, spent)
            self._excess = self._excess or excess

    def hold(self, max_cost: float) -> None:
        """Hold back the most a call can cost, or refuse the call."""
        with self._lock:
            if self._excess is not None:
                raise CapReached(overbilled(self.limit, self.spent, *self._excess))
            if max_cost > self.left:
                held = f", ${self._held:.4f} is held for other calls under way," if self._held > 0 else ""
                raise CapReached(
                    f"cap ${self.limit:.2f}: ${self.spent:.4f} is spent{held} and the next call could cost up to"
                    f" ${max_cost:.4f}; raise the cap and resume to continue"
                )
            self._held += max_cost

    def settle(self, max_cost: float, cost: float) -> None:
        """Replace a held amount by the call's true cost."""
        with self._lock:
            self._held -= max_cost
            self._now += cost
            if beyond(max_cost, cost):
                self._excess = max_cost, cost


def beyond(max_cost: float, cost: float) -> bool:
    """Whether a call was billed more than the most it could cost."""
    return cost > max_cost * (1 + 1e-9) + 1e-12


def overbilled(limit: float, spent: float, max_cost: float, cost: float) -> str:
    """Why no further call is made after one that was billed beyond its bound."""
    return (
        f"cap ${limit:.2f}: a call that could cost at most ${max_cost:.4f} was billed at ${cost:.4f}, and ${spent:.4f} "
        "is spent: what the next one costs cannot be known; check the provider's count of tokens, or use another one, "
        "in a new run"
    )


# Bounded retries with exponential backoff.

Result = TypeVar("Result")


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The computer's clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class RetryPolicy:
    """At most `tries` calls and `total` seconds of waiting; waits grow from `first` to `longest` seconds."""

    tries: int = 6
    first: float = 1.0
    longest: float = 60.0
    total: float = 600.0

    def wait(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the n-th failure (from 1): between half and all of the doubling wait."""
        longest = min(self.longest, self.first * 2 ** (failures - 1))
        return longest * (0.5 + 0.5 * rng.random())


@dataclass
class Retrier:
    """Calls until it succeeds, the failure is not transient, or the policy ends."""

    policy: RetryPolicy
    clock: Clock
    rng: random.Random

    def run(self, call: Callable[[], Result], note: Callable[[Event], None]) -> Result:
        """The result of `call`, or its last failure; `note` is called with every failed try."""
        end = self.clock.now() + self.policy.total
        for failures in range(1, self.policy.tries + 1):
            try:
                return call()
            except BackboneError as failure:
                note(Event(kind=failure.kind, detail=str(failure)))
                wait = max(self.policy.wait(failures, self.rng), failure.retry_after or 0.0)
                too_late = self.clock.now() + wait > end
                if not failure.transient or failures == self.policy.tries or too_late:
                    raise
            self.clock.sleep(wait)
        raise AssertionError("tries is at least 1")
