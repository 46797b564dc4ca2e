"""Connections: how many there are, and how long one may take to say what it wants.

A request must have its head within `HEAD_SECONDS` and its body within `BODY_SECONDS`, whatever drips in meanwhile. A
client that does not read its answer is cut off. Connections whose request is not whole yet, head or body, are *half
open*: there is room for `MOST_HALF_OPEN` of them, and a further one ends the oldest. So whoever holds connections open
without asking anything only ends his own, and never keeps out a client that asks at once.
"""

import asyncio
import socket
from typing import Any, Protocol

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from vesalius.errors import BadInput

HEAD_SECONDS, BODY_SECONDS, WRITE_SECONDS = 10.0, 60.0, 120.0
#: Connections in all, below the 1,024 open files that a process usually may have; and of them half open.
MOST_CONNECTIONS, MOST_HALF_OPEN = 256, 64
#: Connections that the kernel keeps until they are accepted; as many are accepted at once, before any can be ended.
BACKLOG = 128


class _Timer(Protocol):
    def cancel(self) -> None: ...


class BoundedProtocol(H11Protocol):
    """A connection with limits of time, and room for a new one made by ending one that asks nothing."""

    _waits_for: str | None = None
    _timer: _Timer | None = None
    _write_timer: _Timer | None = None
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, and end older ones that ask nothing if there is no room."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        others = sorted((one for one in self.connections if one is not self), key=_began)
        half_open = [one for one in others if isinstance(one, BoundedProtocol) and one._waits_for is not None]
        if len(half_open) >= MOST_HALF_OPEN:
            half_open[0].cut_off()
        elif len(others) >= MOST_CONNECTIONS:
            idle = [one for one in others if isinstance(one, BoundedProtocol) and one.is_idle]
            (idle or [self])[0].cut_off()

    @property
    def is_idle(self) -> bool:
        """Whether no question of this connection is worked on."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take bytes in, and see what is still missing."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """A question was answered: what the client sent of the next one is looked at."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._waits_for = None
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read: it has some time."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(WRITE_SECONDS, self.cut_off)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def cut_off(self) -> None:
        """End the connection without a further word."""
        self.connections.discard(self)
        self._waits_for = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _watch(self) -> None:
        """Start the clock where something else is waited for than before; it does not begin anew with every byte."""
        waits_for = self._missing()
        if waits_for == self._waits_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._waits_for, self._timer = waits_for, None
        if waits_for is not None:
            seconds = HEAD_SECONDS if waits_for == "head" else BODY_SECONDS
            self._timer = self.loop.call_later(seconds, self.cut_off)

    def _missing(self) -> str | None:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        # Between two questions uvicorn's own, shorter clock runs, until a byte of the next one is here.
        begun = self.cycle is None or bool(self.conn.trailing_data[0])
        return "head" if self.conn.their_state is h11.IDLE and begun and self.is_idle else None


def _began(connection: Any) -> float:
    return getattr(connection, "_since", 0.0)


def settings(app: Any, **options: Any) -> uvicorn.Config:
    """How every server here runs: with these limits, quietly, and without web sockets. No proxy stands before it, so
    what a request says about its own address is not believed.
    """
    fixed: dict[str, Any] = {"http": BoundedProtocol, "backlog": BACKLOG, "access_log": False, "ws": "none"}
    fixed |= {"timeout_graceful_shutdown": 2, "proxy_headers": False}
    usual: dict[str, Any] = {"log_level": "warning"}
    return uvicorn.Config(app, **usual | fixed | options)


def listen(host: str, port: int, *, where: str) -> socket.socket:
    """A socket that listens; `where` names the options that gave the address, for the line that refuses them."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise BadInput(
            f"--host {host}: is not an address of this machine ({error}); give one, such as 0.0.0.0"
        ) from None
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"{where}: cannot be used ({error}); choose another, or port 0 for any") from None
    listener.listen(BACKLOG)
    return listener
