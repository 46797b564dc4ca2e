"""The ways a call can fail, one class each, because each is handled differently.

All are `BackboneError`: infrastructure failed and nothing is known about the answer. None of them may be scored as a
wrong answer. `transient` ones are worth trying again, the others are not. `kind` is their name in records and events.
"""

from typing import Any, ClassVar

from vesalius.backbones.messages import Event, TokenUsage
from vesalius.errors import Failed, shortened


class BackboneError(Failed):
    """A model could not be called, or returned nothing usable."""

    kind: ClassVar[str] = "failed"
    transient: ClassVar[bool] = False
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
