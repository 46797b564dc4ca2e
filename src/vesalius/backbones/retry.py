"""Bounded retries with exponential backoff.

A transient failure is tried again after a wait that doubles each time, with jitter, so that many workers do not retry
together. A provider's Retry-After is obeyed, unless it exceeds the waiting time that is left: then the failure is
raised at once. The clock and the random numbers are passed in, so that tests do not sleep.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from vesalius.backbones.failures import BackboneError
from vesalius.backbones.messages import Event

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
