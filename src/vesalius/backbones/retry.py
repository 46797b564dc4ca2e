"""Trying again, with patience that ends.

A transient failure is tried again after a wait that doubles each time and is spread at random, so that many workers do
not come back together. A provider's own Retry-After is obeyed, unless it reaches beyond the patience that is left:
then waiting would be in vain and the failure is raised at once. Time and chance come from outside, so that tests do
not sleep.
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
    """Where time comes from."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The computer's clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True)
class Patience:
    """At most `tries` calls and `total` seconds of waiting; waits grow from `first` to `longest` seconds."""

    tries: int = 6
    first: float = 1.0
    longest: float = 60.0
    total: float = 600.0

    def wait(self, failed: int, chance: random.Random) -> float:
        """Seconds to wait after the `failed`-th failure (from 1): between half and the whole of the doubling wait."""
        most = min(self.longest, self.first * 2 ** (failed - 1))
        return most * (0.5 + 0.5 * chance.random())


@dataclass
class Retrier:
    """Calls until it works, the failure is not transient, or patience ends."""

    patience: Patience
    clock: Clock
    chance: random.Random

    def run(self, call: Callable[[], Result], note: Callable[[Event], None]) -> Result:
        """The result of `call`, or its last failure; `note` is told of every failed try."""
        end = self.clock.now() + self.patience.total
        for failed in range(1, self.patience.tries + 1):
            try:
                return call()
            except BackboneError as failure:
                note(Event(kind=failure.kind, detail=str(failure)))
                wait = max(self.patience.wait(failed, self.chance), failure.retry_after or 0.0)
                in_vain = self.clock.now() + wait > end
                if not failure.transient or failed == self.patience.tries or in_vain:
                    raise
            self.clock.sleep(wait)
        raise AssertionError("tries is at least 1")
