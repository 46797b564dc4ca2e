"""Tickets and sessions: a ticket lets one client in once, a session is what it has afterwards.

A ticket is a token that cannot be guessed; it is used up by the first client that shows it. The client gets a secret,
of which only the digest is kept. Every session can be listed and revoked, and one that is not used for a day ends by
itself. Their number is limited: whoever may come in while there is no room ends the session that was unused longest, so
that nobody needs a session to make room for one.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

#: Clients that are let in at the same time, and tickets that wait to be used.
MOST_SESSIONS, MOST_TICKETS = 32, 16
#: Seconds after which a session that was not used ends.
UNUSED = 24 * 3600.0
_LONGEST_WORD = 200


@dataclass
class Session:
    """One client: a short name, where it came from, what it called itself, and when it was here."""

    name: str
    address: str
    program: str
    began: float
    seen: float


class Sessions:
    """Everybody who was let in."""

    def __init__(self, *, most: int = MOST_SESSIONS, clock: Callable[[], float] = time.time) -> None:
        self._most, self._clock = most, clock
        self._by_digest: dict[str, Session] = {}
        self._tickets: OrderedDict[str, Callable[[], None]] = OrderedDict()
        self._count = 0

    def ticket(self, token: str | None = None, *, used: Callable[[], None] = lambda: None) -> str:
        """A new ticket; `used` is called when a client has come in with it."""
        token = secrets.token_urlsafe(24) if token is None else token
        self._tickets[_digest(token)] = used
        while len(self._tickets) > MOST_TICKETS:
            self._tickets.popitem(last=False)
        return token

    def enter(self, token: str, *, address: str, program: str) -> str | None:
        """The secret of a new session for a ticket, which is used up; None where it is none, or was used before."""
        used = self._tickets.pop(_digest(token), None)
        if used is None:
            return None
        secret = self.begin(address=address, program=program)
        used()
        return secret

    def begin(self, *, address: str, program: str) -> str:
        """The secret of a new session for a client that may come in."""
        self._forget_unused()
        while len(self._by_digest) >= self._most:
            del self._by_digest[min(self._by_digest, key=lambda one: self._by_digest[one].seen)]
        secret, now = secrets.token_urlsafe(24), self._clock()
        self._count += 1
        words = address[:_LONGEST_WORD], program[:_LONGEST_WORD]
        self._by_digest[_digest(secret)] = Session(str(self._count), *words, now, now)
        return secret

    def known(self, secret: str) -> Session | None:
        """The session of a secret, which is noted as in use."""
        self._forget_unused()
        # Digests are looked up: how long that takes says nothing of the secret.
        session = self._by_digest.get(_digest(secret))
        if session is not None:
            session.seen = self._clock()
        return session

    def listed(self) -> list[Session]:
        """Every session, the oldest first."""
        self._forget_unused()
        return list(self._by_digest.values())

    def revoke(self, name: str) -> bool:
        """End a session at once; False where there is none of this name."""
        before = len(self._by_digest)
        self._by_digest = {key: one for key, one in self._by_digest.items() if one.name != name}
        return len(self._by_digest) < before

    def _forget_unused(self) -> None:
        oldest = self._clock() - UNUSED
        self._by_digest = {key: one for key, one in self._by_digest.items() if one.seen > oldest}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
