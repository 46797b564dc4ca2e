"""A spending cap that is a promise: the call that could break it is not made.

Before a call, the most it can cost is held back; afterwards the true cost takes its place. A call that may have been
charged without our seeing the bill (a timeout, a process killed in the middle) counts at its most. Money spent before,
by an earlier process of the same run, comes from the caller's ledger (`spent_before`) and from the records of calls:
both are views of the same money, so the larger counts.
"""

import math
import threading
from dataclasses import dataclass, field

from vesalius.backbones.failures import CapReached
from vesalius.errors import BadInput


@dataclass
class Budget:
    """At most `limit` US dollars, of which `spent_before` are gone. May be shared by several backbones."""

    limit: float
    spent_before: float = 0.0
    _now: float = field(default=0.0, init=False)
    _held: float = field(default=0.0, init=False)
    _recorded: dict[str, float] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise BadInput(f"cap {self.limit:g}: nothing could be bought; give a positive amount of dollars or no cap")
        if not (math.isfinite(self.spent_before) and self.spent_before >= 0):
            raise BadInput(f"spent_before {self.spent_before:g}: the amount already spent is zero or more dollars")

    @property
    def spent(self) -> float:
        """Dollars gone so far, earlier processes and possibly charged calls included."""
        return max(self.spent_before, math.fsum(self._recorded.values())) + self._now

    @property
    def left(self) -> float:
        """Dollars that the next call may still cost."""
        return self.limit - self.spent - self._held

    def restore(self, place: str, spent: float) -> None:
        """Count what the record at `place` says was spent; the same place twice counts once."""
        with self._lock:
            self._recorded.setdefault(place, spent)

    def hold(self, most: float) -> None:
        """Set aside the most a call can cost, or refuse the call."""
        with self._lock:
            if most > self.left:
                raise CapReached(
                    f"cap ${self.limit:.2f}: ${self.spent:.4f} is spent and the next call could cost up to"
                    f" ${most:.4f}; raise the cap and resume to go on"
                )
            self._held += most

    def settle(self, most: float, cost: float) -> None:
        """Replace a held amount by what the call really cost."""
        with self._lock:
            self._held -= most
            self._now += cost
