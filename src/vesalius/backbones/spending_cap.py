"""A spending cap that is never exceeded: a call that could exceed it is not made.

Before a call, the most it can cost is held back; afterwards the true cost replaces it. A call that may have been
charged without a bill (a timeout, a killed process) counts at its upper bound. Money spent by earlier processes of the
same run comes from the caller's ledger (`spent_before`) and from the records of calls: both describe the same money, so
the larger counts.
"""

import math
import threading
from dataclasses import dataclass, field

from vesalius.backbones.failures import CapReached
from vesalius.errors import BadInput


@dataclass
class SpendingCap:
    """At most `limit` US dollars, of which `spent_before` are already spent. May be shared by several backbones."""

    limit: float
    spent_before: float = 0.0
    _now: float = field(default=0.0, init=False)
    _held: float = field(default=0.0, init=False)
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

    def restore(self, record: str, spent: float) -> None:
        """Count what was spent according to a record; the same record twice counts once."""
        with self._lock:
            self._recorded.setdefault(record, spent)

    def hold(self, max_cost: float) -> None:
        """Hold back the most a call can cost, or refuse the call."""
        with self._lock:
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
